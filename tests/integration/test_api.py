"""The HTTP API on a real PostgreSQL and Redis: what programs in any language rely on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from plans import Stage, straight, submit_plan, subtasks
from rig import NO_REDIS, Rig

from models.store import tokens
from models.store.tokens import Scope
from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.settings import load_settings
from tasks.wiring import Runtime

LOOPBACK = ("127.0.0.1", 50_000)
JOB = {"recipe": "jeltz", "params": {"prompt": "Say hello", "schema": {"type": "object"}, "model": "scripted:scripted"}}


class Api:
    """A client of an API of its own. ``open``: callers of the loopback need no token."""

    def __init__(self, database_url: str, redis_url: str, *, is_open: bool = False, **settings: str) -> None:
        found = load_settings(
            {"VANCETOPE_DATABASE_URL": database_url, "VANCETOPE_REDIS_URL": redis_url}
            | {f"VANCETOPE_{name.upper()}": value for name, value in settings.items()}
        )
        self.runtime = Runtime(found, publisher_app(found))
        app = create_app(self.runtime, open_to_loopback=is_open)
        self.client = TestClient(app, base_url="http://127.0.0.1:8000", client=LOOPBACK, raise_server_exceptions=False)

    def token(self, *scopes: Scope, tenant: str = "default", name: str | None = None) -> dict[str, str]:
        """The header of a new token."""
        wanted = scopes or (Scope.READ, Scope.SUBMIT, Scope.ANSWER)
        _, secret = tokens.create(self.runtime.database, tenant, name or str(uuid4()), wanted)
        return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def api(database_url: str, redis_url: str) -> Iterator[Api]:
    made = Api(database_url, redis_url)
    with made.client:
        yield made


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, "about:blank")
    assert body["detail"]
    return body


def submit(api: Api, who: dict[str, str], **fields: Any) -> dict[str, Any]:
    response = api.client.post("/v1/processes", json=JOB | fields, headers=who)
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


# -- submitting --------------------------------------------------------------------------------------------------------


def test_a_job_is_submitted_run_and_read(api: Api, database_url: str) -> None:
    who = api.token()
    response = api.client.post("/v1/processes", json=JOB, headers=who)
    found = response.json()
    assert response.headers["location"] == f"/v1/processes/{found['id']}"
    assert (found["status"], found["engine"], found["recipe"], found["tenant"]) == ("INIT", "jeltz", "jeltz", "default")

    waiting = api.client.get(f"/v1/processes/{found['id']}/result", headers=who)
    assert (waiting.status_code, waiting.json()["result"]) == (202, None)

    with Rig(database_url, {"hello": "world"}) as rig:
        rig.publish_due_now()
        rig.drain()
    closed = api.client.get(f"/v1/processes/{found['id']}/result", headers=who)
    assert closed.status_code == 200
    assert (closed.json()["status"], closed.json()["closeReason"]) == ("CLOSED", "DONE")
    assert closed.json()["result"]["data"] == {"hello": "world"}
    calls = api.client.get(f"/v1/processes/{found['id']}/calls", headers=who).json()
    assert [(each["provider"], each["errorKind"]) for each in calls] == [("scripted", None)]
    messages = api.client.get(f"/v1/processes/{found['id']}/messages", headers=who).json()
    assert [each["role"] for each in messages] == ["user", "assistant"]
    assert api.client.get(f"/v1/processes/{found['id']}", headers=who).json()["usage"]["calls"] == 1


def test_a_job_is_submitted_to_the_batch_lane(api: Api) -> None:
    who = api.token()
    found = submit(api, who, lane="batch", batchDeadlineSeconds=60)
    until, at = (datetime.fromisoformat(found[name]) for name in ("batchUntil", "createdAt"))
    assert (found["lane"], (until - at).total_seconds()) == ("batch", 60)
    assert (submit(api, who)["lane"], submit(api, who)["batchUntil"]) == ("normal", None)
    response = api.client.post("/v1/processes", json=JOB | {"batchDeadlineSeconds": 60}, headers=who)
    assert 'is for jobs with lane "batch"' in response.json()["detail"]
    assert response.status_code == 422
    response = api.client.post("/v1/processes", json=JOB | {"lane": "slow"}, headers=who)
    assert "lane" in problem(response, 422, "invalid_request")["detail"]


def test_the_same_id_is_the_same_process_and_another_job_needs_another(api: Api) -> None:
    who, identity = api.token(), str(uuid4())
    first = submit(api, who, id=identity)
    again = api.client.post("/v1/processes", json=JOB | {"id": identity}, headers=who)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    other = JOB | {"id": identity, "recipe": "extract-event", "params": {"prompt": "x"}}
    problem(api.client.post("/v1/processes", json=other, headers=who), 409, "id_in_use")
    changed = JOB | {"id": identity, "params": {**JOB["params"], "prompt": "Say goodbye"}}  # type: ignore[dict-item]
    problem(api.client.post("/v1/processes", json=changed, headers=who), 409, "id_in_use")


def test_an_idempotency_key_is_an_id_within_its_tenant(api: Api) -> None:
    here, there = api.token(), api.token(tenant="other")
    keyed = [
        api.client.post("/v1/processes", json=JOB, headers=who | {"Idempotency-Key": "order-1"})
        for who in (here, here, there)
    ]
    assert [each.status_code for each in keyed] == [201, 200, 201]
    first, again, foreign = (each.json()["id"] for each in keyed)
    assert first == again != foreign
    both = api.client.post("/v1/processes", json=JOB | {"id": str(uuid4())}, headers=here | {"Idempotency-Key": "k"})
    problem(both, 422, "invalid_request")


def test_an_id_of_another_tenant_is_neither_shown_nor_taken(api: Api) -> None:
    identity = submit(api, api.token())["id"]
    response = api.client.post("/v1/processes", json=JOB | {"id": identity}, headers=api.token(tenant="other"))
    assert "tenant" not in problem(response, 409, "id_in_use")["detail"]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"recipe": "jelz"}, "jeltz"),
        ({"recipe": "jeltz", "parms": {}}, "body.parms"),
        ({}, "body.recipe"),
        ({"recipe": "jeltz", "limits": {"maxCalls": 0}}, "body.limits.maxCalls"),
        ({"recipe": "jeltz", "id": "7"}, "body.id"),
        ([1], "body"),
    ],
)
def test_a_job_that_cannot_run_is_refused_with_the_place_and_stored_nowhere(api: Api, body: Any, part: str) -> None:
    who = api.token()
    response = api.client.post("/v1/processes", json=body, headers=who)
    assert response.status_code == 422
    assert part in response.json()["detail"]
    assert api.client.get("/v1/processes", headers=who).json()["items"] == []


def test_a_text_that_is_no_json_and_a_body_that_is_too_large_are_refused(database_url: str, redis_url: str) -> None:
    api = Api(database_url, redis_url, max_input_bytes="2000")
    with api.client:
        who = api.token() | {"Content-Type": "application/json"}
        problem(api.client.post("/v1/processes", content=b"{", headers=who), 422, "invalid_request")
        huge = json.dumps({"recipe": "jeltz", "params": {"prompt": "x" * 100_000}})
        assert api.client.post("/v1/processes", content=huge, headers=who).status_code == 413


# -- who may what ------------------------------------------------------------------------------------------------------


def paths(process: str) -> list[tuple[str, str]]:
    own = f"/v1/processes/{process}"
    return [
        *(("GET", own + part) for part in ("", "/result", "/plan", "/events", "/messages", "/calls")),
        *(("POST", own + part) for part in ("/stop", "/suspend", "/resume")),
    ]


def test_nothing_is_open_without_a_token_but_the_probes(api: Api) -> None:
    identity = submit(api, api.token())["id"]
    listed = [("GET", f"/v1/{part}") for part in ("processes", "inbox", "documents", "recipes", "usage")]
    for method, path in [*listed, *paths(identity)]:
        response = api.client.request(method, path)
        problem(response, 401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
    assert api.client.get("/livez").status_code == 200


@pytest.mark.parametrize("header", ["Bearer vt_unknown", "Bearer ", "Bearer x", "Basic dGVzdDp0ZXN0"])
def test_a_token_that_is_none_opens_nothing_not_even_on_an_open_loopback(
    database_url: str, redis_url: str, header: str
) -> None:
    api = Api(database_url, redis_url)
    with api.client:
        problem(api.client.get("/v1/processes", headers={"Authorization": header}), 401, "unauthorized")


def test_a_revoked_and_an_expired_token_work_no_longer(api: Api) -> None:
    who = api.token(name="gone")
    assert api.client.get("/v1/processes", headers=who).status_code == 200
    assert tokens.revoke(api.runtime.database, "default", "gone")
    problem(api.client.get("/v1/processes", headers=who), 401, "unauthorized")
    expired = api.token(name="late")
    api.runtime.database.statement(
        "UPDATE api_tokens SET expires_at = now() - interval '1 s' WHERE name = 'late' RETURNING id", {}
    )
    problem(api.client.get("/v1/processes", headers=expired), 401, "unauthorized")


def test_secrets_are_stored_as_hashes_only(api: Api) -> None:
    secret = api.token(name="kept")["Authorization"].removeprefix("Bearer ")
    rows = api.runtime.database.statement("SELECT to_jsonb(t)::text FROM api_tokens t", {})
    assert secret not in str(rows)
    with pytest.raises(tokens.NameTaken):
        tokens.create(api.runtime.database, "default", "kept", [Scope.READ])


def test_a_scope_allows_what_it_says(api: Api) -> None:
    identity = submit(api, api.token())["id"]
    reader = api.token(Scope.READ)
    assert api.client.get(f"/v1/processes/{identity}", headers=reader).status_code == 200
    said = problem(api.client.post(f"/v1/processes/{identity}/stop", headers=reader), 403, "forbidden")
    assert "submit" in said["detail"]
    problem(api.client.post("/v1/processes", json=JOB, headers=reader), 403, "forbidden")
    problem(api.client.post("/v1/inbox/1/dismiss", headers=api.token(Scope.SUBMIT)), 403, "forbidden")
    problem(api.client.get("/v1/processes", headers=api.token(Scope.SUBMIT)), 403, "forbidden")
    assert api.client.get("/v1/processes", headers=api.token(Scope.ADMIN)).status_code == 200


def test_a_tenant_sees_and_moves_nothing_of_another(api: Api) -> None:
    identity = submit(api, api.token())["id"]
    foreign = api.token(Scope.ADMIN, tenant="other")
    for method, path in paths(identity):
        problem(api.client.request(method, path, headers=foreign), 404, "not_found")
    assert api.client.get("/v1/processes", headers=foreign).json()["items"] == []
    assert api.client.get(f"/v1/processes/{identity}", headers=api.token()).json()["status"] == "INIT"


@pytest.mark.parametrize(
    ("headers", "peer", "status"),
    [
        ({}, "127.0.0.1", 200),
        ({}, "::1", 200),
        ({"Host": "localhost:8000"}, "127.0.0.1", 200),
        ({"Origin": "http://127.0.0.1:8000"}, "127.0.0.1", 200),
        ({"Origin": "https://evil.example"}, "127.0.0.1", 401),
        ({"Host": "evil.example:8000"}, "127.0.0.1", 401),
        ({}, "192.0.2.7", 401),
    ],
)
def test_the_loopback_is_open_only_to_programs_of_this_machine(
    database_url: str, redis_url: str, headers: dict[str, str], peer: str, status: int
) -> None:
    """A page of another site can send requests to here, and give its own name this address."""
    api = Api(database_url, redis_url, is_open=True)
    client = TestClient(api.client.app, base_url="http://127.0.0.1:8000", client=(peer, 50_000))
    with client:
        assert client.get("/v1/processes", headers=headers).status_code == status


def test_too_many_requests_are_told_when_to_come_again(database_url: str, redis_url: str) -> None:
    api = Api(database_url, redis_url, api_requests_per_minute="3")
    with api.client:
        who, other = api.token(), api.token()
        assert [api.client.get("/v1/processes", headers=who).status_code for _ in range(3)] == [200] * 3
        refused = api.client.get("/v1/processes", headers=who)
        problem(refused, 429, "too_many_requests")
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert api.client.get("/v1/processes", headers=other).status_code == 200


def test_without_redis_everything_but_the_broker_s_part_works(database_url: str) -> None:
    api = Api(database_url, NO_REDIS, api_requests_per_minute="1")
    with api.client:
        who = api.token()
        assert [api.client.get("/v1/processes", headers=who).status_code for _ in range(3)] == [200] * 3
        identity = submit(api, who)["id"]
        assert api.client.get(f"/v1/processes/{identity}/result?wait=0.2", headers=who).status_code == 202


# -- looking and waiting -----------------------------------------------------------------------------------------------


def test_pages_follow_each_other_without_gap_or_repetition(api: Api) -> None:
    who = api.token()
    made = [submit(api, who)["id"] for _ in range(5)]
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.client.get(
            f"/v1/processes?limit=2&cursor={cursor}" if cursor else "/v1/processes?limit=2", headers=who
        )
        seen += [each["id"] for each in page.json()["items"]]
        cursor = page.json()["nextCursor"]
    assert seen == made[::-1]
    problem(api.client.get("/v1/processes?cursor=%C3%A4", headers=who), 422, "invalid_request")
    problem(api.client.get("/v1/processes?cursor=YWJj", headers=who), 422, "invalid_request")


def test_lists_are_filtered(api: Api) -> None:
    who = api.token()
    first = submit(api, who)["id"]
    second = submit(api, who, recipe="extract-event", params={"prompt": "x"}, project="side")["id"]
    api.client.post(f"/v1/processes/{first}/stop", headers=who)

    def listed(query: str) -> list[str]:
        return [each["id"] for each in api.client.get(f"/v1/processes?{query}", headers=who).json()["items"]]

    assert listed("status=CLOSED") == [first]
    assert listed("recipe=extract-event") == [second]
    assert listed("project=side") == [second]
    assert listed("project=none") == []
    problem(api.client.get("/v1/processes?status=OPEN", headers=who), 422, "invalid_request")


def test_waiting_ends_when_the_process_closes(api: Api) -> None:
    who = api.token()
    identity = submit(api, who)["id"]
    waiting = threading.Event()

    def close() -> None:
        waiting.wait(10)
        api.client.post(f"/v1/processes/{identity}/stop", headers=who)

    closer = threading.Thread(target=close)
    closer.start()
    waiting.set()
    response = api.client.get(f"/v1/processes/{identity}/result?wait=30", headers=who)
    closer.join()
    assert response.status_code == 200
    assert response.json()["result"]["error"] == "stopped"
    problem(api.client.get(f"/v1/processes/{identity}/result?wait=61", headers=who), 422, "invalid_request")


def test_a_stream_tells_the_state_and_ends_with_the_process(api: Api) -> None:
    who = api.token()
    identity = submit(api, who)["id"]
    closer = threading.Timer(0.3, lambda: api.client.post(f"/v1/processes/{identity}/stop", headers=who))
    closer.start()
    response = api.client.get(f"/v1/processes/{identity}/events", headers=who)
    closer.join()
    assert response.headers["content-type"].startswith("text/event-stream")
    states = [
        json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: ")
    ]
    assert [(each["status"], each["closeReason"]) for each in states] == [("INIT", None), ("CLOSED", "STOPPED")]


def test_a_process_rests_and_goes_on(api: Api) -> None:
    who = api.token()
    identity = submit(api, who)["id"]
    own = f"/v1/processes/{identity}"
    assert api.client.post(f"{own}/suspend", headers=who).json() == {"id": identity, "changed": True}
    assert api.client.post(f"{own}/suspend", headers=who).json()["changed"] is False
    assert api.client.get(own, headers=who).json()["status"] == "SUSPENDED"
    assert api.client.post(f"{own}/resume", headers=who).json()["changed"] is True
    assert api.client.post(f"{own}/stop", headers=who).json()["changed"] is True
    assert api.client.post(f"{own}/stop", headers=who).json()["changed"] is False


# -- plans, questions, documents ---------------------------------------------------------------------------------------

QUESTION = {"goal": "Which city?", "taskKind": "USER_INPUT", "taskSpec": {
    "type": "DECISION", "body": "Both are fine.", "payload": {"options": ["Graz", "Linz"]}}}  # fmt: skip


@pytest.fixture
def asked(database_url: str) -> Iterator[tuple[Rig, str]]:
    stage = Stage(database_url)
    rig, _ = stage(lambda phase, *_: subtasks(QUESTION) if phase == "SCOPE" else straight()(phase))
    process = submit_plan(rig, "ask them")
    rig.drain()
    yield rig, str(process)
    stage.close()


def test_a_question_is_found_answered_and_its_plan_goes_on(api: Api, asked: tuple[Rig, str]) -> None:
    rig, process = asked
    who = api.token(name="ada")
    nodes = api.client.get(f"/v1/processes/{process}/plan", headers=who).json()
    assert nodes["cut"] is False
    assert [(each["kind"], each["status"]) for each in nodes["nodes"]][1] == ("USER_INPUT", "WAITING")
    item = api.client.get("/v1/inbox", headers=who).json()[0]
    assert (item["processId"], item["type"], item["payload"]["options"][0]) == (process, "DECISION", "Graz")

    wrong = api.client.post(f"/v1/inbox/{item['id']}/answer", json={"answer": {"chosen": "Wien"}}, headers=who)
    problem(wrong, 422, "refused")
    given = api.client.post(f"/v1/inbox/{item['id']}/answer", json={"answer": {"chosen": "Graz"}}, headers=who)
    assert (given.status_code, given.json()["outcome"]) == (200, "STORED")
    again = api.client.post(f"/v1/inbox/{item['id']}/answer", json={"answer": {"chosen": "Linz"}}, headers=who)
    assert (again.status_code, again.json()["outcome"]) == (409, "OTHER")
    assert api.client.get(f"/v1/inbox/{item['id']}", headers=who).json()["answeredBy"] == "ada"
    rig.publish_due_now()
    rig.drain()
    assert api.client.get(f"/v1/processes/{process}/result", headers=who).json()["closeReason"] == "DONE"


def test_questions_of_others_are_unknown(api: Api, asked: tuple[Rig, str]) -> None:
    item = api.client.get("/v1/inbox", headers=api.token()).json()[0]["id"]
    foreign = api.token(tenant="other")
    problem(api.client.get(f"/v1/inbox/{item}", headers=foreign), 404, "not_found")
    problem(api.client.post(f"/v1/inbox/{item}/dismiss", headers=foreign), 404, "not_found")
    problem(api.client.get(f"/v1/inbox/{2**70}", headers=foreign), 404, "not_found")


def test_documents_are_stored_in_versions(api: Api) -> None:
    who = api.token()
    put = [api.client.put("/v1/documents/notes/a.md", json={"content": text}, headers=who) for text in ("one", "two")]
    assert [each.json() for each in put] == [{"path": "notes/a.md", "version": n} for n in (1, 2)]
    assert api.client.get("/v1/documents/notes/a.md", headers=who).json()["content"] == "two"
    assert api.client.get("/v1/documents/notes/a.md?version=1", headers=who).json()["content"] == "one"
    assert [each["path"] for each in api.client.get("/v1/documents?prefix=notes/", headers=who).json()] == [
        "notes/a.md"
    ]
    problem(api.client.get("/v1/documents/notes/a.md?version=3", headers=who), 404, "not_found")
    problem(api.client.get("/v1/documents/notes/a.md", headers=api.token(tenant="other")), 404, "not_found")
    assert api.client.delete("/v1/documents/notes/a.md", headers=who).status_code == 204
    problem(api.client.delete("/v1/documents/notes/a.md", headers=who), 404, "not_found")


@pytest.mark.parametrize("path", ["..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "a%00b", "con", "notes/%E2%80%AEx"])
def test_paths_that_lead_elsewhere_are_refused(api: Api, path: str) -> None:
    response = api.client.put(f"/v1/documents/{path}", json={"content": "x"}, headers=api.token())
    problem(response, 422, "refused")


def test_what_engines_keep_for_themselves_is_written_by_admins_only(api: Api) -> None:
    body = {"content": "x"}
    for path in ("recipes/marvin.yaml", "_user/prompts/a.md", "%5Fuser/a.md"):
        problem(api.client.put(f"/v1/documents/{path}", json=body, headers=api.token()), 403, "forbidden")
        problem(api.client.delete(f"/v1/documents/{path}", headers=api.token()), 403, "forbidden")
        assert api.client.put(f"/v1/documents/{path}", json=body, headers=api.token(Scope.ADMIN)).status_code == 200


# -- recipes, schemas, ledger, health ----------------------------------------------------------------------------------


def test_recipes_are_listed_shown_and_checked(api: Api) -> None:
    who = api.token()
    names = [each["name"] for each in api.client.get("/v1/recipes", headers=who).json()]
    assert {"jeltz", "marvin", "ford"} <= set(names)
    assert api.client.get("/v1/recipes/extract-event", headers=who).json()["engine"] == "jeltz"
    said = problem(api.client.get("/v1/recipes/extract-evnt", headers=who), 404, "not_found")
    assert "extract-event" in said["detail"]

    def check(text: str) -> list[str]:
        body = {"name": "mine", "text": text}
        found: list[str] = api.client.post("/v1/recipes/check", json=body, headers=who).json()["problems"]
        return found

    assert check("description: d\nengine: jeltz\nschema: {type: object}\n") == []
    assert "jelz" in check("description: d\nengine: jelz\n")[0]
    assert check("description: [")


def test_schemas_are_checked(api: Api) -> None:
    who = api.token()
    good = api.client.post("/v1/schemas/check", json={"schema": {"type": "object"}}, headers=who).json()
    assert (good["accepted"], len(good["sha256"])) == (True, 64)
    bad = api.client.post("/v1/schemas/check", json={"schema": {"type": "objct"}}, headers=who).json()
    assert (bad["accepted"], bad["problems"][0]["pointer"]) == (False, "/type")


def test_the_ledger_is_added_up_by_day_recipe_and_model(api: Api, database_url: str) -> None:
    who = api.token()
    submit(api, who)
    with Rig(database_url, {"hello": "world"}) as rig:
        rig.publish_due_now()
        rig.drain()

    def ledger(query: str, headers: dict[str, str] = who) -> list[tuple[str, int]]:
        found = api.client.get(f"/v1/usage?{query}", headers=headers).json()
        return [(each["group"], each["calls"]) for each in found]

    assert ledger("group=recipe") == [("jeltz", 1)]
    assert ledger("group=model") == [("scripted:scripted", 1)]
    assert [number for _, number in ledger("group=day")] == [1]
    assert ledger("group=day&until=2020-01-01") == []
    assert ledger("group=day", api.token(tenant="other")) == []
    since = "since=2026-02-01&until=2026-01-01"
    problem(api.client.get(f"/v1/usage?{since}", headers=who), 422, "invalid_request")


def test_ready_means_that_work_gets_done_and_not_only_that_servers_answer(api: Api) -> None:
    before = api.client.get("/readyz")
    assert before.status_code == 503
    assert before.json()["checks"]["postgresql"] == before.json()["checks"]["redis"] == "ok"
    assert "beat" in before.json()["checks"]["sweeps"]
    api.runtime.sweeper.sweep()
    assert api.client.get("/readyz").json() == {
        "healthy": True,
        "checks": {"postgresql": "ok", "schema": "ok", "turns": "ok", "redis": "ok", "sweeps": "ok"},
    }
    submit(api, api.token())
    api.runtime.database.statement("UPDATE nodes SET due_at = now() - interval '2 minutes' RETURNING id", {})
    stuck = api.client.get("/readyz")
    assert stuck.status_code == 503
    assert "jeltz" in stuck.json()["checks"]["turns"]


# -- the document ------------------------------------------------------------------------------------------------------


def test_a_method_that_a_path_has_not_is_told_those_it_has(api: Api) -> None:
    response = api.client.post("/v1/documents/a.md", json={}, headers=api.token())
    problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "DELETE, GET, PUT"


def test_a_time_is_no_number(api: Api) -> None:
    response = api.client.get("/v1/usage?until=0.5", headers=api.token())
    assert "ISO 8601" in problem(response, 422, "invalid_request")["detail"]


def test_the_openapi_document_describes_every_operation(api: Api) -> None:
    document = api.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert operation["summary"]
        assert operation["tags"]
        guarded = not set(operation["tags"]) & {"health"}
        assert bool(operation.get("security")) is guarded, operation["operationId"]
