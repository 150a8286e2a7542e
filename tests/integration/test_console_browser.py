"""The web console in a real Chromium: with the keyboard only, and looked at by axe-core in every shape it has.

``VANCETOPE_TEST_CHROMIUM`` names the browser; otherwise a `chromium` on the path is taken. With
``VANCETOPE_TEST_SCREENSHOTS`` a picture of every page is left in that folder.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from factory import make_node, make_process, rows
from hooks import endpoint
from plans import Stage, closed_plan, straight, submit_plan, subtasks
from playwright.sync_api import Browser, Page, expect, sync_playwright

from models.store import documents, outbox, read
from models.store.database import Database
from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.jsonable import dump
from tasks.plans import channel, picture
from tasks.settings import load_settings
from tasks.wiring import Runtime

SHOTS = os.environ.get("VANCETOPE_TEST_SCREENSHOTS")
NARROW, WIDE = 360, 1280
GOAL = "Compare our three suppliers of paper and recommend one"
PARTS = ("Look at Aspen Paper", "Look at Birch & Sons", "Look at <b>Cedar</b>", "Weigh the three")
HOSTILE = "<script>document.title='owned'</script> <img src=x onerror=alert(1)> \x1b[31m"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = os.environ.get("VANCETOPE_TEST_CHROMIUM") or shutil.which("chromium")
    if found is None:
        pytest.skip("no Chromium: install `chromium`, or set VANCETOPE_TEST_CHROMIUM")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


class Served:
    """A console on a port of its own, in a thread."""

    def __init__(self, database_url: str, redis_url: str) -> None:
        settings = load_settings(
            {
                "VANCETOPE_DATABASE_URL": database_url,
                "VANCETOPE_REDIS_URL": redis_url,
                "VANCETOPE_FLOWER_URL": "http://127.0.0.1:5555",
            }
        )
        self.runtime = Runtime(settings, publisher_app(settings))
        self.database = self.runtime.database
        app = create_app(self.runtime, open_to_loopback=True)
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        until(lambda: self._server.started)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._socket.close()


@pytest.fixture
def served(database_url: str, redis_url: str) -> Iterator[Served]:
    made = Served(database_url, redis_url)
    yield made
    made.close()


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    made = Stage(database_url)
    yield made
    made.close()


def until(done: Callable[[], object], *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


class Watched:
    """A page whose complaints are kept: errors of scripts, refusals of the policy, requests that failed."""

    def __init__(self, browser: Browser, *, width: int = WIDE, scheme: Any = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.context.set_default_timeout(15_000)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self._complain(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _complain(self, kind: str, text: str) -> None:
        # A request that a newer one or the next page has made needless was broken off: htmx calls that an error.
        if kind in ("error", "warning") and not text.startswith(("htmx:afterRequest", "htmx:sendAbort")):
            self.complaints.append(f"{self.page.url}: {text}")

    def close(self) -> None:
        self.context.close()
        assert self.complaints == []


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the element has the focus, which must then be visible."""
    for _ in range(80):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the keyboard does not reach {selector}")


def played(phase: str, goal: str, _: Any) -> Any:
    """A plan of four parts, of which the last asks a person."""
    if phase == "SCOPE" and goal == GOAL:
        return subtasks(*PARTS)
    if phase == "SCOPE" and goal == PARTS[-1]:
        question = {
            "type": "DECISION",
            "title": "Which counts more?",
            "body": f"Price and delivery time point to different suppliers. {HOSTILE}",
            "payload": {"options": [{"id": "price", "label": "The price"}, {"id": "time", "label": "Delivery time"}]},
        }
        return {"action": "NEEDS_USER_INPUT", "userInput": question, "reason": "a matter of taste"}
    return straight(f"Result of: {goal}\n{HOSTILE}")(phase)


def told(served: Served, process: UUID) -> None:
    """What a worker publishes when a plan has changed."""
    served.runtime.redis.publish(channel(process), dump(picture(served.database, process)))


def test_a_person_follows_a_plan_answers_and_reads_with_the_keyboard(
    browser: Browser, served: Served, stage: Stage
) -> None:
    rig, _ = stage(played)
    process = submit_plan(rig, GOAL)
    watched = Watched(browser)
    page = watched.page
    page.goto(served.address)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    tab_to(page, f'a[href="/console/processes/{process}"]')
    with page.expect_request("**/events"):
        page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("marvin")
    expect(page.locator(".tree li")).to_have_count(1)

    # It grows while it is looked at.
    rig.drain()
    told(served, process)
    expect(page.locator(".tree li")).to_have_count(6)
    expect(page.locator("#head .chip")).to_have_text("BLOCKED", timeout=15_000)

    # What has the focus keeps it over the next change, and a branch is closed and opened by Enter.
    tab_to(page, "a.toggle")
    page.keyboard.press("Enter")
    expect(page.locator(".tree li")).to_have_count(1)
    expect(page.locator("a.toggle")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".tree li")).to_have_count(6)

    tab_to(page, "a.ask")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Which counts more?")
    tab_to(page, 'input[name="chosen"]')
    page.keyboard.press("Space")
    tab_to(page, "button.primary")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("price")
    expect(page.locator(".title .chip")).to_have_text("ANSWERED")

    # And it closes while it is looked at.
    tab_to(page, f'main a[href="/console/processes/{process}"]')
    page.keyboard.press("Enter")
    rig.publish_due()
    rig.publish_due_now()
    rig.drain()
    told(served, process)
    closed_plan(rig, process)
    expect(page.locator("#head .chip")).to_have_text("DONE", timeout=15_000)
    expect(page.locator("#told")).to_contain_text("DONE")
    expect(page.locator("#outcome pre").first).to_contain_text("<script>document.title='owned'</script>")
    assert "owned" not in page.title()
    watched.close()


def test_a_tree_of_two_thousand_nodes_is_searched_and_opened_by_branches(browser: Browser, served: Served) -> None:
    process, branches = big_tree(served.database)
    watched = Watched(browser)
    page = watched.page
    page.goto(f"{served.address}/console/processes/{process}")
    # A running leaf is shown with the way up, its settled siblings are counted.
    expect(page.locator(".tree li .chip.running")).not_to_have_count(0)
    assert page.locator(".tree li").count() < 200
    page.locator(f"#t{branches[7]}").click()
    expect(page.locator(f"#t{branches[7]}")).to_have_attribute("aria-expanded", "true")
    expect(page.locator(".tree")).to_contain_text("Read source 7.17")
    page.locator("#search").fill("source 19.4")
    page.locator("#search").press("Enter")
    expect(page.locator(".node.match").first).to_contain_text("Read source 19.4")
    assert page.locator(".node.match").count() == 11
    # What is typed stays when the plan moves on.
    page.locator("#search").fill("source 19.40")
    with page.expect_response("**/live?*"):
        told(served, process)
    expect(page.locator("#search")).to_have_value("source 19.40")
    page.locator("#all").click()
    expect(page.locator(".node.match")).to_have_count(0)
    expect(page.locator("#search")).to_have_value("")
    watched.close()


def test_what_is_clicked_is_not_lost_to_an_update(browser: Browser, served: Served) -> None:
    process, branches = big_tree(served.database)
    watched = Watched(browser)
    page = watched.page
    page.clock.install()
    with page.expect_response("**/live?*"):
        page.goto(f"{served.address}/console/processes/{process}")
    held: list[Any] = []
    page.route("**/live?*", lambda route: held.append(route), times=1)
    page.locator(f"#t{branches[7]}").click()
    page.wait_for_function("document.querySelector('.htmx-request') !== null")
    # The answer is slow, and meanwhile it would be time to renew the plan.
    page.clock.run_for(22_000)
    held[0].continue_()
    expect(page.locator(f"#t{branches[7]}")).to_have_attribute("aria-expanded", "true")
    expect(page.locator(".tree")).to_contain_text("Read source 7.17")
    # Afterwards it is renewed as ever.
    with page.expect_response("**/live?*"):
        page.clock.run_for(25_000)
    watched.close()


def tell(served: Served, process: UUID, event: dict[str, Any]) -> None:
    """Publish one event to the page that listens."""
    until(lambda: served.runtime.redis.pubsub_numsub(channel(process))[0][1])
    served.runtime.redis.publish(channel(process), dump({"process": str(process), **event}))


def test_the_text_of_a_call_is_seen_as_it_is_written(browser: Browser, served: Served) -> None:
    process = make_process(served.database)
    node = make_node(served.database, process, "leased", goal="Weigh the three")
    watched = Watched(browser)
    page = watched.page
    page.goto(f"{served.address}/console/processes/{process}/nodes/{node}")
    expect(page.locator("#written")).to_be_hidden()
    tell(served, process, {"kind": "chunk", "node": node + 1, "text": "of another node"})
    tell(served, process, {"kind": "chunk", "node": node, "text": f"Aspen is {HOSTILE}"})
    tell(served, process, {"kind": "chunk", "node": node, "text": " the best."})
    expect(page.locator("#writing")).to_have_text(f"Aspen is {HOSTILE} the best.".replace("\x1b", "\u241b"))
    expect(page.locator("#written-title")).to_have_text("Being written")
    assert page.locator("#writing *").count() == 0
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()

    # A long text scrolls within its place, and does not grow without bound.
    for _ in range(50):
        tell(served, process, {"kind": "chunk", "node": node, "text": "A sentence of the report.\n" * 40})
    page.wait_for_function("document.getElementById('writing').textContent.length > 15000")
    assert page.evaluate("writing => writing.textContent.length <= 21100", page.query_selector("#writing"))
    assert page.evaluate("e => e.scrollTop + e.clientHeight >= e.scrollHeight - 8", page.query_selector("#writing"))

    # The turn is done: the facts are new, what was written stays to be read until the next call begins.
    rows(
        served.database,
        "UPDATE nodes SET turn = 2, lease_owner = NULL, lease_expires_at = NULL, phase = 'VALIDATE' WHERE id = %(id)s"
        " RETURNING id",
        id=node,
    )
    tell(served, process, {"kind": "turn", "node": node, "turn": 1, "phase": "CONCLUDE", "reason": "ADVANCED"})
    expect(page.locator("#moved")).to_contain_text("Turn 1, CONCLUDE, is done.")
    expect(page.locator("#node-head")).to_contain_text("VALIDATE, turn 2")
    expect(page.locator("#writing")).to_contain_text("A sentence of the report.")
    tell(served, process, {"kind": "chunk", "node": node, "text": "Next."})
    expect(page.locator("#writing")).to_have_text("Next.")
    page.locator("#moved a").click()
    expect(page.locator("#written")).to_be_hidden()
    watched.close()


def test_the_list_renews_what_is_in_sight_and_takes_nothing_away(browser: Browser, served: Served) -> None:
    made = [make_process(served.database, recipe_name=f"r{number}") for number in range(50)]
    for process in made:
        make_node(served.database, process, "leased")
    watched = Watched(browser)
    page = watched.page
    page.clock.install()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/console/rows" in request.url else None)
    page.goto(f"{served.address}/console/")
    lowest, higher = made[0], made[25]
    link = page.locator(f"#p-{higher}")
    link.focus()
    link.scroll_into_view_if_needed()
    page.evaluate("window.scrollTo(0, 500)")
    page.evaluate(
        "cell => document.getSelection().selectAllChildren(cell)", page.query_selector(f"#r-{higher} td.time")
    )
    before = page.evaluate("[window.scrollY, String(document.getSelection())]")
    rows(
        served.database,
        "UPDATE processes SET status = 'SUSPENDED' WHERE id = ANY(%(ids)s) RETURNING id",
        ids=[lowest, higher],
    )
    with page.expect_response("**/console/rows*"):
        page.clock.run_for(11_000)
    expect(page.locator(f"#r-{higher} .chip")).to_have_text("SUSPENDED")
    assert str(higher) in asked[0]
    assert str(lowest) not in asked[0]
    expect(page.locator(f"#r-{lowest} .chip")).to_have_text("RUNNING")
    expect(link).to_be_focused()
    assert page.evaluate("[window.scrollY, String(document.getSelection())]") == before

    # A new one comes to the top, the last goes to the older ones, and what is looked at stays where it is.
    place = link.bounding_box()
    new = make_process(served.database, recipe_name="new")
    with page.expect_response("**/console/rows*"):
        page.clock.run_for(11_000)
    expect(page.locator(f"#p-{new}")).to_have_count(1)
    expect(page.locator(f"#p-{lowest}")).to_have_count(0)
    expect(link).to_be_focused()
    moved = link.bounding_box()
    assert place is not None
    assert moved is not None
    assert abs(moved["y"] - place["y"]) < 2
    assert page.evaluate("String(document.getSelection())") == before[1]

    # Nobody looks: nothing is asked.
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    seen = len(asked)
    page.clock.run_for(60_000)
    assert len(asked) == seen
    page.evaluate("delete document.hidden")
    with page.expect_response("**/console/rows*"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.locator("#older").click()
    expect(page.locator(f"#p-{lowest}")).to_have_count(1)
    watched.close()


def test_the_first_process_appears_on_an_empty_list(browser: Browser, served: Served) -> None:
    watched = Watched(browser)
    page = watched.page
    page.clock.install()
    page.goto(f"{served.address}/console/")
    expect(page.locator("#none")).to_be_visible()
    process = make_process(served.database)
    with page.expect_response("**/console/rows*"):
        page.clock.run_for(11_000)
    expect(page.locator(f"#p-{process}")).to_be_visible()
    expect(page.locator("#none")).to_have_count(0)
    watched.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_no_page_has_what_keeps_people_out(
    browser: Browser, served: Served, stage: Stage, width: int, scheme: str
) -> None:
    pages = furnished(served, stage)
    watched = Watched(browser, width=width, scheme=scheme)
    page, axe = watched.page, Axe()
    for name, path in pages.items():
        page.goto(f"{served.address}{path}")
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        found = axe.run(page)
        assert found.violations_count == 0, f"{name}: {found.generate_report()}"
        across = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert across <= 0, f"{name} is {across} pixels too wide for {width}"
        if SHOTS:
            # Taking a picture puts a style into the page, which the policy refuses.
            other = watched.context.new_page()
            other.goto(f"{served.address}{path}")
            other.screenshot(path=Path(SHOTS) / f"{name}-{width}-{scheme}.png", full_page=True)
            other.close()
    watched.close()


def furnished(served: Served, stage: Stage) -> dict[str, str]:
    """Something on every page; their addresses by name."""
    database = served.database
    rig, _ = stage(played)
    process = submit_plan(rig, GOAL, submitter="ann")
    rig.drain()
    priced(database)
    done = make_process(database, "CLOSED", recipe_name="extract-event")
    make_node(database, done, "done")
    big, _ = big_tree(database)
    for number in range(3):
        documents.put(database, "default", "default", "reports/paper.md", text_of(number), title="Paper")
    question = rows(database, "SELECT id, node_id FROM inbox_items WHERE process_id = %(id)s", id=process)[0]
    own = f"/console/processes/{process}"
    status = read.status(database, process)
    assert status is not None
    assert status["nodes"]["WAITING"] == 1
    told, _ = endpoint(database, description="The shop")
    outbox.send_test(database, "default", told)
    broken, _ = endpoint(database, "https://hooks.example/" + "long/" * 40)
    outbox.send_test(database, "default", broken)
    for attempt in outbox.claim(database, limit=1, each=1, lease_seconds=60):
        outbox.mark_failed(database, attempt, error="answered 410: " + "no " * 80, delay_seconds=None, gone=True)
    pages = {
        "processes": "/console/",
        "process": own,
        "big": f"/console/processes/{big}",
        "closed": f"/console/processes/{done}",
        "stop": f"{own}/stop",
        "node": f"{own}/nodes/{question[1] - 1}",
        "inbox": "/console/inbox",
        "item": f"/console/inbox/{question[0]}",
        "documents": "/console/documents",
        "document": "/console/documents/view?path=reports/paper.md",
        "compare": "/console/documents/compare?path=reports/paper.md&old=1&new=3",
        "workers": "/console/workers",
        "webhooks": "/console/webhooks",
        "webhook": f"/console/webhooks/{told}",
        "webhook-broken": f"/console/webhooks/{broken}",
        "sign-in": "/console/sign-in",
    }
    for group in ("day", "recipe", "model"):
        pages[f"ledger-{group}"] = f"/console/ledger?group={group}"
    return pages


def text_of(number: int) -> str:
    lines = ["# Paper", "", "Three suppliers were compared.", "Aspen delivers in two days.", "Birch is the cheapest."]
    return "\n".join(
        [*lines[: 4 + number % 2], f"Cedar has raised its prices {number} times.", HOSTILE, "", "The end."]
    )


def priced(database: Database) -> None:
    """The calls so far cost something, and some of them were made before today."""
    rows(
        database,
        "UPDATE llm_calls SET cost_usd = 0.0123 * (1 + node_id % 4), input_tokens = 900 + node_id,"
        " output_tokens = 200 + node_id, model = CASE WHEN node_id % 2 = 0 THEN 'small' ELSE 'large' END,"
        " created_at = created_at - make_interval(days => (node_id % 7)::int) RETURNING node_id",
    )


def big_tree(database: Database) -> tuple[UUID, list[int]]:
    """A running tree of 2,000 nodes and its branches: 20 with 99 sources each, of which two are at work."""
    process = make_process(database, recipe_name="marvin", engine="marvin")
    root = make_node(database, process, "awaiting")
    branches = [
        make_node(
            database, process, "awaiting", parent=root, order=branch, goal=f"Read about paper {branch}", kind="WORKER"
        )
        for branch in range(20)
    ]
    rows(
        database,
        "INSERT INTO nodes (process_id, parent_id, order_key, depth, kind, goal, status, phase, settled_at, started_at,"
        " due_at, next_hint_at, lease_owner, lease_expires_at)"
        " SELECT %(process)s, branch, ARRAY[place], 2, 'WORKER', format('Read source %s.%s', number - 1, place),"
        " CASE WHEN busy THEN 'RUNNING' ELSE 'DONE' END, 'CONCLUDE', CASE WHEN NOT busy THEN now() END, now(),"
        " CASE WHEN busy THEN now() END, CASE WHEN busy THEN now() + interval '1 min' END,"
        " CASE WHEN busy THEN 'worker-2:7' END, CASE WHEN busy THEN now() + interval '1 min' END"
        " FROM unnest(%(branches)s::bigint[]) WITH ORDINALITY b(branch, number), generate_series(0, 98) place,"
        " LATERAL (SELECT place IN (40, 41) AND number <= 5 AS busy) s RETURNING id",
        process=process,
        branches=branches,
    )
    rows(database, "UPDATE processes SET node_count = 2001 WHERE id = %(id)s RETURNING id", id=process)
    return process, branches
