"""`vancetope inbox` and `vancetope answer` on a real PostgreSQL and Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result
from factory import rows
from plans import Stage, closed_plan, straight, submit_plan, subtasks
from rig import Rig

from models.store import inbox
from tasks.broker import publisher_app
from tasks.cli import main
from tasks.inbox import LIST_CHARS, answer_item, listed
from tasks.publish import engine_queue, queue_lists
from tasks.settings import load_settings
from tasks.wiring import Runtime

QUESTIONS = [
    {"goal": "Which city?", "taskKind": "USER_INPUT", "taskSpec": {
        "type": "DECISION", "body": "Both are fine.", "payload": {"options": ["Graz", "Linz"]}}},
    {"goal": "Go ahead?", "taskKind": "USER_INPUT", "taskSpec": {"type": "APPROVAL", "criticality": "CRITICAL"}},
    {"goal": "What do you think?", "taskKind": "USER_INPUT"},
    {"goal": "Put them in order", "taskKind": "USER_INPUT",
     "taskSpec": {"type": "ORDERING", "payload": {"items": [{"id": "a"}, {"id": "b"}]}}},
]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", database_url)
    monkeypatch.setenv("VANCETOPE_REDIS_URL", redis_url)


@pytest.fixture
def asked(database_url: str) -> Iterator[tuple[Rig, Any]]:
    """A plan that waits for four answers."""
    stage = Stage(database_url)
    rig, _ = stage(lambda phase, *_: subtasks(*QUESTIONS) if phase == "SCOPE" else straight()(phase))
    process = submit_plan(rig, "ask them", defaultExecutionMode="PARALLEL", owner="ada")
    rig.drain()
    yield rig, process
    stage.close()


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def said(result: Result, code: int = 0) -> Any:
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_questions_are_listed_shown_and_answered(asked: tuple[Rig, Any], redis_url: str) -> None:
    rig, process = asked
    found = said(invoke("inbox", "ls", "--json"))
    assert [item["title"] for item in found] == [
        "Go ahead?", "Which city?", "What do you think?", "Put them in order",
    ]  # fmt: skip
    go, city, think, order = (str(item["id"]) for item in found)
    assert said(invoke("inbox", "ls", "--owner", "bob", "--json")) == []
    assert {(item["originator"], *item["tags"]) for item in found} == {(f"marvin:{process}", "marvin")}
    assert all(item["requires_action"] for item in found)
    assert len(said(invoke("inbox", "ls", "--tag", "marvin", "--json"))) == 4
    assert said(invoke("inbox", "ls", "--tag", "valem", "--json")) == []
    assert f"marvin:{process}" in invoke("inbox", "show", city).stdout
    assert "CRITICAL" in invoke("inbox", "ls").stdout
    text = invoke("inbox", "show", city).stdout
    for part in ("Which city?", "Both are fine.", "Graz, Linz", f"vancetope answer {city} WORDS", str(process)):
        assert part in text

    # Not theirs, not fitting, not clear: nothing changes.
    assert "belongs to ada" in invoke("answer", city, "Linz", "--by", "bob").output
    wrong = invoke("answer", city, "--raw", '{"chosen": "Wien"}', "--by", "ada")
    assert wrong.exit_code == 2
    assert 'one of "Graz", "Linz"' in wrong.output
    assert invoke("answer", city, "Linz", "--undecidable", "--by", "ada").exit_code == 2
    assert "answer/reason" in invoke("answer", city, "--undecidable", "--by", "ada").output
    assert "there is no item 99" in invoke("answer", "99", "x").output

    stored = said(invoke("answer", city, "linz", "--by", "ada", "--json"))
    assert stored == {"outcome": "STORED", "message": f"item {city} is ANSWERED", "status": "ANSWERED"}
    assert said(invoke("answer", city, "--raw", '{"chosen": "Linz"}', "--by", "ada", "--json"))["outcome"] == "SAME"
    assert said(invoke("answer", city, "Graz", "--by", "ada", "--json"), 1)["outcome"] == "OTHER"
    assert "answered before, by ada" in invoke("answer", city, "Graz", "--by", "ada").output
    assert invoke("inbox", "answer", go, "no", "--reason", "too dear", "--by", "ada").exit_code == 0
    assert invoke("answer", think, "--insufficient-info", "--reason", "of what?", "--by", "ada").exit_code == 0
    assert invoke("inbox", "dismiss", order, "--by", "ada").exit_code == 0
    assert "is closed" in invoke("answer", order, "a,b", "--by", "ada").output
    assert "Linz" in invoke("inbox", "show", city).stdout

    assert said(invoke("inbox", "ls", "--json")) == []
    over = said(invoke("inbox", "ls", "--all", "--json"))
    assert {(item["status"], item["requires_action"]) for item in over} == {("ANSWERED", False), ("DISMISSED", False)}
    # Each answer has published its turn.
    with redis.Redis.from_url(redis_url) as server:
        assert sum(server.llen(name) for name in queue_lists(engine_queue("marvin"))) == 4
    for node_id, turn in rows(rig.database, "SELECT id, turn FROM nodes WHERE due_at <= now() AND settled_at IS NULL"):
        rig.runner.run("marvin", node_id, turn)
    rig.drain()
    assert closed_plan(rig, process)["failedChildren"] == 2


def test_a_tenant_neither_sees_nor_answers_the_questions_of_another(asked: tuple[Rig, Any]) -> None:
    rig, _ = asked
    settings = load_settings()
    app = publisher_app(settings)
    runtime = Runtime(settings, app)
    try:
        assert said(invoke("inbox", "ls", "--tenant", "acme", "--json")) == []
        item = inbox.items(rig.database, "default", "default")[0]
        foreign = answer_item(runtime, item.id, {"approved": True}, by="ada", tenant="acme")
        assert (foreign.outcome, foreign.item) == (inbox.Outcome.UNKNOWN, None)
        assert answer_item(runtime, item.id, {"approved": True}, by="ada", tenant="default").accepted

        rig.database.statement("UPDATE inbox_items SET body = repeat('x', %(n)s)", {"n": LIST_CHARS // 2})
        first = listed(runtime, "default", "default", status=None, owner=None, limit=10)
        assert (len(first["items"]), first["more"]) == (1, True)
        rig.database.statement("UPDATE inbox_items SET body = repeat('x', %(n)s)", {"n": LIST_CHARS})
        first = listed(runtime, "default", "default", status=None, owner=None, limit=10)
        assert (len(first["items"]), first["more"], first["items"][0]["cut"]) == (4, False, True)
        assert listed(runtime, "default", "default", status=None, owner=None, limit=3)["more"] is True
    finally:
        runtime.close()
        app.close()
