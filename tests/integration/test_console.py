"""The web console on a real PostgreSQL and Redis."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from factory import make_node, make_process, root_node, rows
from fakes.provider import FakeProvider
from fastapi.testclient import TestClient
from hooks import endpoint
from lanes import BatchLaneStage
from plans import Stage, straight, submit_plan, subtasks
from processes import eventually
from rig import NO_REDIS

from engines.llm.client import shutdown
from models.store import documents, inbox, outbox, tokens, webhooks
from models.store.tokens import Scope
from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.control import stop_process
from tasks.jsonable import dump
from tasks.plans import channel
from tasks.settings import load_settings
from tasks.wiring import Runtime

ORIGIN = "http://127.0.0.1:8000"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&lt;b&gt; \x1b[31mred \u202egnihton</pre>'


class Console:
    """A browser without scripts: keeps cookies, follows redirects, sends the forms that it finds."""

    def __init__(self, database_url: str, redis_url: str, *, is_open: bool = True, **settings: str) -> None:
        found = load_settings(
            {"VANCETOPE_DATABASE_URL": database_url, "VANCETOPE_REDIS_URL": redis_url}
            | {f"VANCETOPE_{name.upper()}": value for name, value in settings.items()}
        )
        self.runtime = Runtime(found, publisher_app(found))
        self.database = self.runtime.database
        app = create_app(self.runtime, open_to_loopback=is_open)
        self.client = TestClient(
            app, base_url=ORIGIN, client=("127.0.0.1", 50_000), raise_server_exceptions=False, follow_redirects=True
        )

    def get(self, path: str, status: int = 200, **headers: str) -> str:
        """A page's text, which has the headers and none of the things a policy would block."""
        response = self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        assert response.status_code == status, response.text
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert_clean(response.text)
        return response.text

    def send(self, page: str, path: str, status: int = 200, **fields: str) -> str:
        """Send the form of ``page`` (its path) as a browser would."""
        token = re.search(r'name="form_token" value="(\w+)"', self.get(page))
        assert token, f"no form on {page}"
        data = {"form_token": token[1], **fields}
        response = self.client.post(path, data=data, headers={"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"})
        assert response.status_code == status, response.text
        assert response.headers["content-security-policy"] == POLICY
        assert_clean(response.text)
        return response.text

    def sign_in(self, *scopes: Scope, tenant: str = "default") -> str:
        """As a new token; returns it."""
        _, secret = tokens.create(self.database, tenant, f"ann-{uuid4().hex[:6]}", scopes or (Scope.READ,))
        self.send("/console/sign-in", "/console/sign-in", token=secret)
        return secret


class Tags(HTMLParser):
    """What a page is made of that its policy would block, or that a text has smuggled in."""

    FOREIGN = ("img", "iframe", "base", "style", "object", "embed")

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in self.FOREIGN or (tag == "script" and not (found.get("src") or "").startswith("/console/static/")):
            self.wrong.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name == "style" or (value or "").strip().lower().startswith("javascript:"):
                self.wrong.append(f"{tag} {name}={value}")


def assert_clean(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert tags.wrong == []
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)


def ask(console: Console, kind: str, payload: str = "{}", *, tenant: str = "default", **columns: Any) -> int:
    """An open question of a node that is parked for it."""
    process = make_process(console.database, tenant=tenant)
    root = make_node(console.database, process, "parked")
    values: dict[str, Any] = {
        "tenant": tenant, "project": "default", "process": process, "node": root, "type": kind, "payload": payload,
        "title": "Which?", "body": "Say.", "owner": None,
    } | columns  # fmt: skip
    found = rows(
        console.database,
        "INSERT INTO inbox_items (tenant, project, process_id, node_id, originator, type, criticality, title, body,"
        " payload, owner, expires_at) VALUES (%(tenant)s, %(project)s, %(process)s, %(node)s, 'marvin', %(type)s,"
        " 'NORMAL', %(title)s, %(body)s, %(payload)s::json, %(owner)s, now() + interval '1 hour') RETURNING id",
        **values,
    )
    item: int = found[0][0]
    return item


def answer_of(console: Console, item: int) -> dict[str, Any] | None:
    found = inbox.get(console.database, item)
    assert found is not None
    return found.answer


@pytest.fixture
def console(database_url: str, redis_url: str) -> Iterator[Console]:
    made = Console(database_url, redis_url)
    with made.client:
        yield made


@pytest.fixture
def closed_console(database_url: str, redis_url: str) -> Iterator[Console]:
    made = Console(database_url, redis_url, is_open=False)
    with made.client:
        yield made


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    made = Stage(database_url)
    yield made
    made.close()


def test_every_page_is_there_without_anything_in_the_database(console: Console) -> None:
    assert "Nothing has been submitted yet" in console.get("/")
    for path in ("inbox", "documents", "ledger", "workers", "webhooks", "sign-in"):
        console.get(f"/console/{path}")


# -- hostile texts -----------------------------------------------------------------------------------------------------


def test_texts_of_models_and_users_are_shown_and_never_obeyed(console: Console, stage: Stage) -> None:
    def play(phase: str, goal: str, _: Any) -> Any:
        if phase == "SCOPE" and goal == "Begin":
            return subtasks(f"Part {HOSTILE}", "Other part")
        return straight(f"Result {HOSTILE}")(phase)

    rig, _ = stage(play)
    process = submit_plan(rig, "Begin", submitter=HOSTILE)
    rig.drain()
    documents.put(console.database, "default", "default", "a&b.md", HOSTILE, title=HOSTILE)
    documents.put(console.database, "default", "default", "a&b.md", HOSTILE + "\nmore", title=HOSTILE)
    item = ask(console, "DECISION", json.dumps({"options": [HOSTILE, {"id": "x", "label": HOSTILE}]}), title=HOSTILE)
    nodes = rows(console.database, "SELECT id FROM nodes WHERE process_id = %(id)s ORDER BY id", id=process)
    pages = [
        "",
        f"processes/{process}",
        f"processes/{process}?q={quote(HOSTILE)}",
        f"processes/{process}/nodes/{nodes[1][0]}",
        "inbox",
        f"inbox/{item}",
        "documents",
        "documents/view?path=a%26b.md",
        "documents/compare?path=a%26b.md&old=1&new=2",
        f"?recipe={quote(HOSTILE)}",
        f"ledger?project={quote(HOSTILE[:60])}",
        f"sign-in?next={quote(HOSTILE)}",
    ]
    shown = {page: console.get(f"/console/{page}") for page in pages}
    assert "Result &lt;script&gt;alert(1)&lt;/script&gt;" in shown[f"processes/{process}/nodes/{nodes[1][0]}"]
    # What would have coloured a terminal or turned the line around is there as a sign.
    assert "\u241b[31mred \ufffdgnihton" in shown["documents/view?path=a%26b.md"]
    for name, text in shown.items():
        assert "alert(1)" not in text or "&lt;script&gt;" in text, name
    assert 'name="next" value="/console/"' in shown[f"sign-in?next={quote(HOSTILE)}"]


def test_errors_are_pages_with_the_same_policy(console: Console) -> None:
    assert "there is no process" in console.get(f"/console/processes/{uuid4()}", 404)
    assert "there is no such page" in console.get("/console/nowhere", 404)
    console.get("/console/processes/<script>", 422)
    console.get("/console/inbox/99999999999999999999999", 404)
    console.get("/console/?cursor=rubbish", 422)
    console.get("/console/?status=ODD", 422)
    console.get("/console/documents/view?path=../x", 422)
    console.get("/console/documents/view?path=x.md&version=99999999999", 422)
    console.get("/console/documents/view?path=absent.md", 404)


def test_a_fault_of_ours_shows_no_traceback(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("models.store.read.page", broken)
    response = console.client.get("/console/")
    assert response.status_code == 500
    assert response.headers["content-security-policy"] == POLICY
    assert "secret detail" not in response.text
    assert "Traceback" not in response.text


def test_the_static_files_are_ours_and_may_be_kept_if_they_are_the_same(console: Console) -> None:
    for name in ("console.css", "console.js", "htmx.min.js", "icon.svg"):
        response = console.client.get(f"/console/static/{name}")
        assert response.status_code == 200
        assert (response.headers["cache-control"], response.headers["content-security-policy"]) == ("no-cache", POLICY)
        again = console.client.get(f"/console/static/{name}", headers={"If-None-Match": response.headers["etag"]})
        assert again.status_code == 304


# -- who may what ------------------------------------------------------------------------------------------------------


def test_whoever_has_no_token_is_asked_for_one_and_comes_back_to_the_page(closed_console: Console) -> None:
    console = closed_console
    process = make_process(console.database)
    make_node(console.database, process)
    wanted = f"/console/processes/{process}?q=x"
    page = console.get(wanted)
    assert "Sign in" in page
    assert f'name="next" value="{wanted}"' in page
    refused = console.send("/console/sign-in", "/console/sign-in", 401, token="vt_wrong", next=wanted)
    assert "unknown, revoked or expired" in refused
    assert "vt_wrong" not in refused
    _, secret = tokens.create(console.database, "default", "ann", (Scope.READ,))
    shown = console.send("/console/sign-in", "/console/sign-in", token=secret, next=wanted)
    assert str(process) in shown
    assert "ann@default" in shown
    assert secret not in shown
    for part in ("/live", "/events", "/stop"):
        console.client.cookies.clear()
        response = console.client.get(f"/console/processes/{process}{part}", follow_redirects=False)
        assert (response.status_code, response.headers["location"].split("?")[0]) == (303, "/console/sign-in")
    part = console.client.get(f"/console/processes/{process}/live", headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["hx-redirect"]) == (401, "/console/sign-in")


def test_the_cookie_is_out_of_reach_and_ends_with_the_sign_out(closed_console: Console) -> None:
    console = closed_console
    _, secret = tokens.create(console.database, "default", "ann", (Scope.READ,))
    token = re.search(r'name="form_token" value="(\w+)"', console.get("/console/sign-in"))
    assert token
    for site, is_secure in ((ORIGIN, False), ("https://127.0.0.1:8000", True)):
        console.client.cookies.clear()
        console.client.base_url = site  # type: ignore[assignment]
        page = console.client.get("/console/sign-in")
        token = re.search(r'name="form_token" value="(\w+)"', page.text)
        assert token
        seed = console.client.cookies["vancetope_form"]
        response = console.client.post(
            "/console/sign-in",
            data={"form_token": token[1], "token": secret},
            headers={"Origin": site, "Cookie": f"vancetope_form={seed}"},
            follow_redirects=False,
        )
        assert response.status_code == 303, response.text
        cookie = next(each for each in response.headers.get_list("set-cookie") if each.startswith("vancetope_token"))
        parts = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/console"} <= parts
        assert ("secure" in parts) is is_secure
    console.client.base_url = ORIGIN  # type: ignore[assignment]
    console.client.cookies.clear()
    console.sign_in()
    assert "Sign out" in console.get("/console/")
    assert "Sign in" in console.send("/console/", "/console/sign-out")
    assert "Sign in" in console.get("/console/")


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/console/", "/\\evil.example", "/v1/usage"])
def test_signing_in_leads_nowhere_else(closed_console: Console, target: str) -> None:
    page = closed_console.get(f"/console/sign-in?next={quote(target)}")
    assert 'name="next" value="/console/"' in page


def test_a_revoked_token_opens_nothing_any_more(closed_console: Console) -> None:
    closed_console.sign_in()
    assert "Processes" in closed_console.get("/console/")
    name = tokens.list_tokens(closed_console.database)[0].name
    tokens.revoke(closed_console.database, "default", name)
    assert "Sign in" in closed_console.get("/console/")


def test_an_open_loopback_is_open_to_no_other_name(console: Console) -> None:
    assert "Sign in" in console.get("/console/", host="attacker.example:8000")


def test_a_token_that_reads_finds_no_buttons_and_no_other_way(closed_console: Console) -> None:
    console = closed_console
    console.sign_in(Scope.READ)
    item = ask(console, "APPROVAL")
    process = rows(console.database, "SELECT process_id FROM inbox_items WHERE id = %(id)s", id=item)[0][0]
    page = console.get(f"/console/processes/{process}")
    assert "Suspend" not in page
    assert "/stop" not in page
    assert "scope answer" in console.get(f"/console/inbox/{item}")
    assert "Workers" not in page
    console.get("/console/workers", 403)
    console.get(f"/console/processes/{process}/stop", 403)
    for path, fields in (
        (f"/console/processes/{process}/stop", {}),
        (f"/console/processes/{process}/suspend", {}),
        (f"/console/inbox/{item}/answer", {"approved": "yes"}),
        (f"/console/inbox/{item}/dismiss", {}),
    ):
        assert "this needs the scope" in console.send("/console/", path, 403, **fields)
    assert answer_of(console, item) is None
    assert rows(console.database, "SELECT status FROM processes WHERE id = %(id)s", id=process) == [("RUNNING",)]


def test_what_belongs_to_others_is_not_there(closed_console: Console) -> None:
    console = closed_console
    console.sign_in(Scope.ADMIN, tenant="other")
    item = ask(console, "APPROVAL")
    process, node = rows(console.database, "SELECT process_id, node_id FROM inbox_items WHERE id = %(id)s", id=item)[0]
    documents.put(console.database, "default", "default", "plan.md", "text")
    for path in (
        f"processes/{process}",
        f"processes/{process}/live",
        f"processes/{process}/events",
        f"processes/{process}/stop",
        f"processes/{process}/nodes/{node}",
        f"inbox/{item}",
        "documents/view?path=plan.md",
        "documents/compare?path=plan.md&old=1&new=1",
    ):
        console.get(f"/console/{path}", 404)
    for path in (f"processes/{process}/stop", f"inbox/{item}/answer", f"inbox/{item}/dismiss"):
        console.send("/console/", f"/console/{path}", 404, approved="yes")
    assert str(process) not in console.get("/console/")
    assert "Nobody waits" in console.get("/console/inbox")
    assert "plan.md" not in console.get("/console/documents")
    own = make_process(console.database, tenant="other")
    make_node(console.database, own)
    # A node of theirs within a process of one's own.
    console.get(f"/console/processes/{own}/nodes/{node}", 404)


# -- forms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"},
        {"Origin": ORIGIN, "Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_site_is_refused_even_with_the_token(
    closed_console: Console, headers: dict[str, str]
) -> None:
    console = closed_console
    console.sign_in(Scope.ADMIN)
    item = ask(console, "APPROVAL")
    token = re.search(r'name="form_token" value="(\w+)"', console.get("/console/"))
    assert token
    response = console.client.post(
        f"/console/inbox/{item}/answer", data={"form_token": token[1], "approved": "yes"}, headers=headers
    )
    assert response.status_code == 403
    assert answer_of(console, item) is None


def test_a_form_without_its_token_is_refused(closed_console: Console) -> None:
    console = closed_console
    secret = console.sign_in(Scope.ADMIN)
    item = ask(console, "APPROVAL")
    here = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
    token = re.search(r'name="form_token" value="(\w+)"', console.get("/console/"))
    assert token
    for data in ({}, {"form_token": ""}, {"form_token": "0" * 64}, {"form_token": "\u00e4"}):
        response = console.client.post(f"/console/inbox/{item}/answer", data={**data, "approved": "yes"}, headers=here)
        assert response.status_code == 403
    # A planted seed does not help: the token holds the session, too.
    console.client.cookies.clear()
    cookies = f"vancetope_form={'x' * 43}; vancetope_token={secret}"
    made = hmac.new(b"x" * 43, b"", hashlib.sha256).hexdigest()
    response = console.client.post(
        f"/console/inbox/{item}/answer",
        data={"form_token": made, "approved": "yes"},
        headers={**here, "Cookie": cookies},
    )
    assert response.status_code == 403
    assert answer_of(console, item) is None


def test_a_get_changes_nothing(console: Console) -> None:
    item = ask(console, "APPROVAL")
    process = rows(console.database, "SELECT process_id FROM inbox_items WHERE id = %(id)s", id=item)[0][0]
    for path in (f"inbox/{item}/answer", f"inbox/{item}/dismiss", f"processes/{process}/suspend"):
        assert console.client.get(f"/console/{path}").status_code in (404, 405)
    console.get(f"/console/processes/{process}/stop")
    assert rows(console.database, "SELECT status FROM processes WHERE id = %(id)s", id=process) == [("RUNNING",)]


def test_a_process_is_suspended_resumed_and_stopped(console: Console) -> None:
    process = make_process(console.database)
    make_node(console.database, process)
    own = f"/console/processes/{process}"
    assert "Resume" in console.send(own, f"{own}/suspend")
    assert "Suspend" in console.send(own, f"{own}/resume")
    closed = console.send(f"{own}/stop", f"{own}/stop")
    assert "STOPPED" in closed
    assert "Suspend" not in closed
    assert "data-events" not in closed
    console.send("/console/sign-in", f"{own}/destroy", 404)


OPTIONS = json.dumps({"options": ["red", {"id": "b", "label": "Blue", "description": "like the sea"}]})
ITEMS = json.dumps({"items": [{"id": "x", "title": "Xenon"}, "y", "z"]})


@pytest.mark.parametrize(
    ("kind", "payload", "fields", "value"),
    [
        ("APPROVAL", "{}", {"approved": "yes"}, {"approved": True}),
        ("APPROVAL", "{}", {"approved": "no"}, {"approved": False}),
        ("DECISION", OPTIONS, {"chosen": "b", "freeText": " "}, {"chosen": "b"}),
        ("DECISION", OPTIONS, {"freeText": "green"}, {"freeText": "green"}),
        ("DECISION", "{}", {"freeText": "as you like"}, {"freeText": "as you like"}),
        ("FEEDBACK", "{}", {"text": "well\r\ndone"}, {"text": "well\ndone"}),
        ("ORDERING", ITEMS, {"place.0": "3", "place.1": "1", "place.2": "2"}, {"orderedIds": ["y", "z", "x"]}),
        ("ORDERING", "{}", {"ordered": "one\n\n two"}, {"orderedIds": ["one", "two"]}),
        ("STRUCTURE_EDIT", '{"structure": {"a": 1}}', {"value": '{"a": 2}'}, {"value": {"a": 2}}),
        ("OUTPUT_TEXT", '{"text": "draft"}', {"approved": "yes", "text": ""}, {"approved": True}),
        ("OUTPUT_IMAGE", "{}", {"text": "too dark"}, {"text": "too dark"}),
        ("OUTPUT_DOCUMENT", "{}", {"approved": "no", "text": "x"}, {"approved": False, "text": "x"}),
    ],
)
def test_each_type_of_question_is_answered_by_its_form(
    console: Console, kind: str, payload: str, fields: dict[str, str], value: dict[str, Any]
) -> None:
    item = ask(console, kind, payload)
    form = console.get(f"/console/inbox/{item}")
    for name in fields:
        assert f'name="{name}"' in form
    shown = console.send(
        f"/console/inbox/{item}", f"/console/inbox/{item}/answer", outcome="DECIDED", reason="", **fields
    )
    assert answer_of(console, item) == {"outcome": "DECIDED", "value": value}
    assert "ANSWERED" in shown


@pytest.mark.parametrize(
    ("kind", "payload", "fields", "wrong", "kept"),
    [
        ("APPROVAL", "{}", {"reason": "because I <can>"}, "true or false", "because I &lt;can&gt;"),
        ("DECISION", OPTIONS, {"chosen": "pink", "by": "bob"}, "pink", 'value="bob"'),
        ("FEEDBACK", "{}", {"text": "  "}, "text that says something", "textarea"),
        ("ORDERING", ITEMS, {"place.0": "1", "place.1": "1", "place.2": "2"}, "are both at 1", 'value="1"'),
        ("ORDERING", ITEMS, {"place.0": "9", "place.1": "x", "place.2": "2"}, "from 1 to 3", 'value="9"'),
        ("STRUCTURE_EDIT", '{"structure": 1}', {"value": '{"mine": '}, "is no JSON", "{&#34;mine&#34;: "),
        ("STRUCTURE_EDIT", "{}", {"value": "[" * 100_000}, "is no JSON", "[[[["),
        ("OUTPUT_TEXT", "{}", {}, "approved", "textarea"),
        ("APPROVAL", "{}", {"outcome": "UNDECIDABLE"}, "needs a reason", 'value="UNDECIDABLE" checked'),
        ("APPROVAL", "{}", {"outcome": "PERHAPS", "reason": "x"}, "PERHAPS", "textarea"),
    ],
)
def test_an_answer_that_does_not_fit_comes_back_with_what_was_typed(
    console: Console, kind: str, payload: str, fields: dict[str, str], wrong: str, kept: str
) -> None:
    item = ask(console, kind, payload)
    path = f"/console/inbox/{item}"
    page = console.send(path, f"{path}/answer", 422, **fields)
    error = re.search(r'role="alert"[^>]*>(.*?)</div>', page, re.DOTALL)
    assert error
    assert wrong in error[1]
    assert kept in page
    assert answer_of(console, item) is None


def test_a_question_without_a_decision_is_told_so_with_the_reason(console: Console) -> None:
    item = ask(console, "APPROVAL")
    path = f"/console/inbox/{item}"
    console.send(path, f"{path}/answer", outcome="INSUFFICIENT_INFO", reason="no figures")
    assert answer_of(console, item) == {"outcome": "INSUFFICIENT_INFO", "reason": "no figures"}


def test_the_second_answer_is_told_that_there_was_a_first(console: Console) -> None:
    item = ask(console, "FEEDBACK")
    path = f"/console/inbox/{item}"
    token = re.search(r'name="form_token" value="(\w+)"', console.get(path))
    assert token
    console.send(path, f"{path}/answer", text="first")
    headers = {"Origin": ORIGIN}
    data = {"form_token": token[1], "text": "second"}
    response = console.client.post(f"{path}/answer", data=data, headers=headers)
    assert response.status_code == 409
    assert "was answered before, by local" in response.text
    assert answer_of(console, item) == {"outcome": "DECIDED", "value": {"text": "first"}}


def test_a_question_of_somebody_is_answered_in_their_name_only(console: Console) -> None:
    item = ask(console, "APPROVAL", owner="carla")
    path = f"/console/inbox/{item}"
    assert 'name="by" value="carla"' in console.get(path)
    refused = console.send(path, f"{path}/answer", 409, approved="yes", by="bob")
    assert "belongs to carla" in refused
    console.send(path, f"{path}/answer", approved="yes", by="carla")
    assert answer_of(console, item) is not None


def test_a_question_is_dismissed(console: Console) -> None:
    item = ask(console, "APPROVAL")
    path = f"/console/inbox/{item}"
    assert "DISMISSED" in console.send(path, f"{path}/dismiss")


# -- what the pages show -----------------------------------------------------------------------------------------------


def listed(page: str) -> list[str]:
    """The processes whose rows a page or a part of one has, in order."""
    return re.findall(r'<tr id="r-([0-9a-f-]{36})"', page)


def test_the_list_filters_and_goes_on_to_older_ones(console: Console) -> None:
    for number in range(55):
        process = make_process(console.database, "CLOSED" if number % 2 else "RUNNING", recipe_name=f"r{number % 5}")
        make_node(console.database, process, "done")
    first = console.get("/console/")
    assert len(listed(first)) == 50
    older = re.search(r'href="([^"]*cursor=[^"]*)" rel="next"', first)
    assert older
    rest = console.get(unescape(older[1]))
    assert len(listed(rest)) == 5
    assert "data-grows" in first
    assert "data-grows" not in rest
    assert len(listed(console.get("/console/?recipe=r1&status=RUNNING"))) == 5
    assert "No process is like that" in console.get("/console/?project=nowhere%00")


def test_rows_of_the_list_are_read_by_themselves_with_those_that_are_newer(console: Console) -> None:
    old, seen, newest = (make_process(console.database, recipe_name=name) for name in ("a", "b", "c"))
    theirs = make_process(console.database, tenant="other")
    page = console.get("/console/")
    assert listed(page) == [str(newest), str(seen), str(old)]
    places = re.findall(r'data-place="([^"]+)"', page)
    assert listed(console.get(f"/console/rows?row={old}&row={theirs}&row={uuid4()}")) == [str(old)]
    assert listed(console.get(f"/console/rows?row={old}&after={places[1]}")) == [str(newest), str(old)]
    assert listed(console.get(f"/console/rows?after={places[0]}")) == []
    assert listed(console.get("/console/rows?after=&recipe=b")) == [str(seen)]
    assert "<html" not in console.get("/console/rows?after=")
    console.get("/console/rows?after=x", 422)
    console.get("/console/rows?" + "&".join(f"row={uuid4()}" for _ in range(51)), 422)


def costing(console: Console, node: int, dollars: float, *, turn: int = 1) -> None:
    rows(
        console.database,
        "INSERT INTO llm_calls (node_id, turn, process_id, root_id, attempt, provider, model, stop_reason,"
        " input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd, latency_ms, reached_inference)"
        " SELECT %(node)s, %(turn)s, p.id, p.root_id, 1, 'openai', 'small', 'stop', 1, 1, 0, 0, %(cost)s, 1, true"
        " FROM nodes n JOIN processes p ON p.id = n.process_id WHERE n.id = %(node)s RETURNING node_id",
        node=node, turn=turn, cost=dollars,
    )  # fmt: skip


def test_a_node_costs_what_it_and_all_sub_processes_below_it_have_cost(console: Console) -> None:
    process = make_process(console.database)
    root = make_node(console.database, process, "awaiting")
    caller = make_node(console.database, process, "parked", parent=root, goal="calls others")
    alone = make_node(console.database, process, "parked", parent=root, order=1, goal="calls nobody")
    called = make_process(console.database, parent_node=caller, recipe_name="marvin")
    top = make_node(console.database, called, "awaiting")
    below = make_node(console.database, called, "parked", parent=top)
    deepest = make_process(console.database, parent_node=below)
    other = make_process(console.database, parent_node=caller, recipe_name="ford", parent_key="1:0")
    for node, dollars in (
        (caller, 1), (alone, 16), (top, 2), (below, 4), (make_node(console.database, deepest), 8),
        (make_node(console.database, other), 32),
    ):  # fmt: skip
        costing(console, node, dollars)
    costing(console, top, 64, turn=2)
    plan = console.get(f"/console/processes/{process}")
    assert "$111.00, $110.00 of it in sub-processes" in plan
    assert "<span>$16.00</span>" in plan
    page = console.get(f"/console/processes/{process}/nodes/{caller}")
    assert "$111.00" in page
    assert "$110.00 of it in sub-processes" in page
    assert re.search(r"marvin</a>.*\$78\.00", page)
    assert re.search(r"ford</a>.*\$32\.00", page)
    assert "of it in sub-processes" not in console.get(f"/console/processes/{process}/nodes/{alone}")


def test_the_tree_is_opened_and_closed_by_links(console: Console) -> None:
    process = make_process(console.database)
    root = make_node(console.database, process, "awaiting")
    branch = make_node(console.database, process, "awaiting", parent=root, goal="the branch")
    for place in range(120):
        make_node(console.database, process, "done", parent=branch, order=place, goal=f"leaf {place}.", depth=2)
    own = f"/console/processes/{process}"
    page = console.get(own)
    assert "the branch" in page
    assert "leaf 0." not in page
    assert "120 done" in page
    opened = console.get(follow(page, f"t{branch}"))
    assert "leaf 99." in opened
    assert "leaf 100." not in opened
    assert "20 more" in opened
    whole = console.get(follow(opened, f"m{branch}"))
    assert "leaf 119." in whole
    assert "leaf 0." not in console.get(follow(whole, f"t{branch}"))
    assert "the branch" not in console.get(follow(page, f"t{root}"))
    found = console.get(f"{own}?q=LEAF+117")
    assert "leaf 117." in found
    assert "leaf 11." not in found
    assert "1 found" in found
    assert "Nothing has" in console.get(f"{own}?q=absent")
    console.get(f"{own}?open={2**70}&open=-1&q=%00%25")


def follow(page: str, element: str) -> str:
    """Where the link with this id leads."""
    found = re.search(rf'id="{element}" href="([^"#]*)', page)
    assert found, f"no link {element}"
    return unescape(found[1])


def test_what_moves_comes_alone_and_messages_only_when_there_are_new_ones(console: Console, stage: Stage) -> None:
    rig, _ = stage(lambda phase, goal, _: straight("the report")(phase))
    process = submit_plan(rig, "Begin")
    own = f"/console/processes/{process}"
    page = console.get(own)
    live = re.search(r'id="plan"[^>]*hx-get="([^"]*)"', page)
    assert live
    part = console.get(unescape(live[1]), hx_request="true")
    assert "<html" not in part
    assert 'id="facts"' in part
    assert 'id="head"' not in part
    assert 'id="outcome"' not in part
    rig.drain()
    changed = console.get(unescape(live[1]), hx_request="true")
    assert 'id="outcome"' in changed
    assert 'id="head"' in changed
    assert "the report" in changed


def test_events_end_with_the_process(console: Console) -> None:
    process = make_process(console.database, "CLOSED")
    make_node(console.database, process, "done")
    with console.client.stream("GET", f"/console/processes/{process}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert '"status": "CLOSED"' in "".join(response.iter_text())


def followed(console: Console, path: str, process: UUID, told: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Kind and data of what a stream says to which all this is told before its process is stopped."""

    def tell() -> None:
        name = channel(process)
        eventually(lambda: console.runtime.redis.pubsub_numsub(name)[0][1], "somebody listens")
        for event in told:
            console.runtime.redis.publish(name, dump(event))
        stop_process(console.runtime, process)

    teller = threading.Thread(target=tell)
    teller.start()
    text = console.client.get(path).text
    teller.join()
    return [(kind, json.loads(data)) for kind, data in re.findall(r"^event: (.+)\ndata: (.+)$", text, re.MULTILINE)]


def test_costs_of_sub_processes_take_no_further_statement(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    process = make_process(console.database)
    root = make_node(console.database, process, "awaiting")
    asked: list[str] = []
    statement = type(console.database).statement

    def counted(database: Any, sql: str, *args: Any, **more: Any) -> Any:
        asked.append(sql)
        return statement(database, sql, *args, **more)

    monkeypatch.setattr(type(console.database), "statement", counted)
    numbers = []
    for callers in (1, 40):
        for place in range(callers):
            caller = make_node(console.database, process, "parked", parent=root, order=place + callers)
            costing(console, make_node(console.database, make_process(console.database, parent_node=caller)), 1)
        asked.clear()
        assert "$1.00 of it in sub-processes" in console.get(f"/console/processes/{process}")
        numbers.append(len(asked))
    assert numbers[0] == numbers[1]


def test_a_node_is_told_what_is_its_own_and_harmless(console: Console) -> None:
    process = make_process(console.database)
    node = make_node(console.database, process, "leased")
    other = make_node(console.database, make_process(console.database), "leased")
    own = {"process": str(process), "node": node}
    told = [
        {"kind": "chunk", "process": str(process), "node": other, "text": "of another"},
        {"kind": "plan", "process": str(process), "plan": {}},
        {"kind": "chunk", **own, "text": f"mine {HOSTILE}"},
        {"kind": "turn", **own, "turn": 1, "phase": "SCOPE", "status": "DONE", "reason": "CONCLUDED"},
    ]
    stream = followed(console, f"/console/processes/{process}/nodes/{node}/events", process, told)
    assert [kind for kind, _ in stream] == ["state", "chunk", "turn", "state"]
    # Its text is put into the page as text, by a script; what would hide or turn it is a sign already.
    assert "mine <script>" in stream[1][1]["text"]
    assert "\u241b[31mred \ufffdgnihton" in stream[1][1]["text"]


def test_the_page_of_a_process_is_told_that_it_moves_and_nothing_else(console: Console) -> None:
    process = make_process(console.database)
    node = make_node(console.database, process, "leased")
    own = {"process": str(process), "node": node}
    told = [
        {"kind": "chunk", **own, "text": "a long text"},
        {"kind": "plan", "process": str(process), "plan": {"nodes": []}},
        {"kind": "turn", **own, "turn": 1, "phase": "SCOPE"},
    ]
    stream = followed(console, f"/console/processes/{process}/events", process, told)
    assert stream[1:-1] == [
        ("plan", {"kind": "plan", "process": str(process)}),
        ("turn", {"kind": "turn", **own, "turn": 1}),
    ]
    assert [kind for kind, _ in (stream[0], stream[-1])] == ["state", "state"]


def test_a_node_shows_its_turns_its_calls_and_what_it_wrote(console: Console, stage: Stage) -> None:
    rig, _ = stage(lambda phase, goal, _: straight("the report")(phase))
    process = submit_plan(rig, "Begin")
    rig.drain()
    node = rows(console.database, "SELECT id FROM nodes WHERE process_id = %(id)s", id=process)[0][0]
    page = console.get(f"/console/processes/{process}/nodes/{node}")
    for part in ("Begin", "SCOPE", "CONCLUDE", "scripted", "the report", "PROCEED_TO_CONCLUDE"):
        assert part in page


def test_a_node_that_waits_for_a_batch_says_so(console: Console, database_url: str, redis_url: str) -> None:
    with FakeProvider() as provider:
        provider.batches.hold()
        stage = BatchLaneStage(database_url, redis_url, provider)
        process = stage.jeltz()
        stage.park()
        address = f"/console/processes/{process}/nodes/{root_node(stage.rig.database, process)}"
        assert "the next batch since 20" in console.get(address)
        stage.collect()
        number = rows(stage.rig.database, "SELECT id FROM batches")[0][0]
        assert f"batch {number} since 20" in console.get(address)
        assert "batch, until" in console.get(f"/console/processes/{process}")
        stage.close()
        shutdown()


def test_a_document_is_shown_in_each_version_and_compared(console: Console) -> None:
    for text in ("one\ntwo\nthree", "one\n2\nthree", "one\n2\nthree\nfour"):
        documents.put(console.database, "default", "default", "notes/a b.md", text)
    page = console.get("/console/documents/view?path=notes/a%20b.md")
    assert "four" in page
    assert "3 versions" in page
    assert "four" not in console.get("/console/documents/view?path=notes/a%20b.md&version=2")
    changed = console.get("/console/documents/compare?path=notes/a%20b.md&old=1&new=3")
    assert re.findall(r'<tr class="(\w+)">.*?<pre>(.*?)</pre>', changed)[1:] == [
        ("same", "one"),
        ("removed", "two"),
        ("added", "2"),
        ("same", "three"),
        ("added", "four"),
    ]
    assert "notes/a b.md" in console.get("/console/documents?prefix=notes/")
    documents.put(console.database, "default", "default", "long.md", "x\n" * 10_000)
    assert "too long" in console.get("/console/documents/compare?path=long.md&old=1&new=1")


def test_the_ledger_is_a_table_and_a_plot_of_it(console: Console, stage: Stage) -> None:
    rig, _ = stage(lambda phase, goal, _: straight()(phase))
    submit_plan(rig, "Begin")
    rig.drain()
    assert "Calls by day" in console.get("/console/ledger")
    rows(console.database, "UPDATE llm_calls SET cost_usd = 0.5 RETURNING node_id")
    calls = rows(console.database, "SELECT count(*) FROM llm_calls")[0][0]
    for group, name in (("day", "UTC"), ("recipe", "marvin"), ("model", "scripted:scripted")):
        page = console.get(f"/console/ledger?group={group}&days=7")
        assert name in page
        assert f"${calls * 0.5:,.2f}" in page
        assert 'class="bar"' in page
    console.get("/console/ledger?group=owner", 422)
    console.get("/console/ledger?days=0", 422)


def test_workers_and_queues_are_there_and_flower_is_linked(database_url: str, redis_url: str) -> None:
    console = Console(database_url, redis_url, flower_url="https://flower.example/")
    with console.client:
        process = make_process(console.database)
        make_node(console.database, process, "leased")
        console.runtime.redis.lpush("vancetope.marvin", "a hint")
        page = console.get("/console/workers")
        assert "worker:1" in page
        assert 'href="https://flower.example/"' in page
        assert re.search(r"vancetope\.marvin</th><td class=\"num\">1<", page)


def test_a_node_and_its_process_are_found_by_the_nodes_id_alone(database_url: str, redis_url: str) -> None:
    console = Console(database_url, redis_url, is_open=False)
    with console.client:
        process = make_process(console.database)
        node = make_node(console.database, process)
        theirs = make_node(console.database, make_process(console.database, tenant="other"))
        console.sign_in(Scope.READ)
        ways = {f"nodes/{node}": f"processes/{process}/nodes/{node}", f"nodes/{node}/process": f"processes/{process}"}
        for path, page in ways.items():
            assert console.client.get(f"/console/{path}").url.path == f"/console/{page}"
        for absent in (theirs, node + 1_000, 0, 2**63):
            assert "there is no" in console.get(f"/console/nodes/{absent}", 404)
            console.get(f"/console/nodes/{absent}/process", 404)


def test_pages_are_there_without_redis(database_url: str) -> None:
    console = Console(database_url, NO_REDIS)
    with console.client:
        process = make_process(console.database)
        make_node(console.database, process)
        console.get(f"/console/processes/{process}")
        assert "Redis does not answer" in console.get("/console/workers")


# -- webhooks ----------------------------------------------------------------------------------------------------------


def test_webhooks_are_listed_tried_switched_and_sent_again(console: Console) -> None:
    database = console.database
    assert "Nobody is told of anything" in console.get("/console/webhooks")
    number, secret = endpoint(database, f"https://hooks.example/{quote(HOSTILE)}", description=HOSTILE)
    own = f"/console/webhooks/{number}"
    assert "ENABLED" in console.get("/console/webhooks")
    assert "told nothing" in console.get(own)

    assert "webhook.test" in console.send(own, f"{own}/test")
    (delivery,) = outbox.deliveries(database, number)
    (attempt,) = outbox.claim(database, limit=1, each=1, lease_seconds=60)
    outbox.mark_failed(database, attempt, error=f"answered 500: {HOSTILE}", status_code=500, delay_seconds=None)
    page = console.get(own)
    assert "FAILED" in page
    assert "answered 500" in page
    assert "FAILING" in page

    console.send(own, f"{own}/deliveries/{delivery.id}/retry")
    assert outbox.deliveries(database, number)[0].state == "PENDING"
    # Once more while it is being sent: nothing breaks, and nothing is sent twice at once.
    outbox.claim(database, limit=1, each=1, lease_seconds=60, failing=True)
    console.send(own, f"{own}/deliveries/{delivery.id}/retry")
    assert outbox.claim(database, limit=1, each=1, lease_seconds=60, failing=True) == []

    assert "DISABLED" in console.send(own, f"{own}/disable")
    refused = console.send(own, f"{own}/deliveries/{delivery.id}/retry", 409)
    assert "enable it first" in refused
    assert "ENABLED" in console.send(own, f"{own}/enable")
    assert secret not in console.get(own) + console.get("/console/webhooks")
    for path in (
        f"{own}/deliveries/{2**70}/retry",
        f"{own}/deliveries/77/retry",
        f"{own}/paint",
        "/console/webhooks/77/test",
    ):
        console.send(own, path, 404)
    console.get(f"/console/webhooks/{2**70}", 404)
    # Only with a form of the console's own.
    for site in ("same-origin", "cross-site"):
        headers = {"Origin": ORIGIN, "Sec-Fetch-Site": site}
        foreign = console.client.post(f"{own}/disable", data={"form_token": "made-up"}, headers=headers)
        assert foreign.status_code == 403
    found = webhooks.get(database, "default", number)
    assert found is not None
    assert found.enabled


def test_webhooks_are_for_administrators_of_their_tenant(closed_console: Console) -> None:
    console = closed_console
    number, _ = endpoint(console.database)
    own = f"/console/webhooks/{number}"
    console.sign_in(Scope.READ, Scope.SUBMIT, Scope.ANSWER)
    assert "Webhooks" not in console.get("/console/")
    for path in ("/console/webhooks", own):
        console.get(path, 403)
    for path in (f"{own}/disable", f"{own}/test", f"{own}/deliveries/1/retry"):
        console.send("/console/", path, 403)
    console.sign_in(Scope.ADMIN, tenant="other")
    assert "hooks.example" not in console.get("/console/webhooks")
    console.get(own, 404)
    console.send("/console/", f"{own}/disable", 404)
    found = webhooks.get(console.database, "default", number)
    assert found is not None
    assert found.enabled
