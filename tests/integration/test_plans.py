"""The plan on the progress channel: a picture after every turn of a plan, few of them, none that anybody waits for."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import redis
from click.testing import CliRunner
from factory import row, rows, value
from plans import Stage, closed_plan, straight, submit_plan, subtasks
from processes import eventually
from rich.console import Console
from rig import NO_REDIS, Rig, in_threads

from engines.llm.base import ErrorKind, LlmError
from models.store import inbox
from models.store.plan import BUSY_SHOWN, tree
from tasks.cli import main
from tasks.cli import progress as run_progress
from tasks.cli.progress import RunProgress
from tasks.cli.tree import Plan, plan_tree
from tasks.plans import PICTURE_SECONDS, PlanFeed, channel, picture, picture_within
from tasks.progress import Background

GOAL = "Compare three suppliers"
NOBODY: Any = None


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    stage = Stage(database_url)
    yield stage
    stage.close()


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


class Listener:
    """The events of one process's channel."""

    def __init__(self, client: redis.Redis, root: UUID) -> None:
        self._pubsub: Any = client.pubsub(ignore_subscribe_messages=True)
        self._pubsub.subscribe(channel(root))
        self._pubsub.get_message(timeout=1)
        self.events: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        while (message := self._pubsub.get_message(timeout=0.05)) is not None:
            self.events.append(json.loads(message["data"]))
        return self.events

    def close(self) -> None:
        self._pubsub.close()


def three(phase: str, goal: str, _: Any) -> Any:
    if phase == "SCOPE" and goal == GOAL:
        return subtasks("A", "B", "C")
    return straight(f"result of {goal}")(phase)


def nodes_in(payload: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    todo = [payload["rootNode"]]
    while todo:
        node = todo.pop()
        found[node["title"]] = node
        todo += node["children"] or []
    return found


def test_every_turn_of_a_plan_asks_for_a_picture_failed_ones_too(stage: Stage) -> None:
    answers = iter(["no json", LlmError(ErrorKind.OVERLOADED, "busy"), LlmError(ErrorKind.BAD_REQUEST, "no")])
    rig, _ = stage(lambda *_: next(answers))
    process = submit_plan(rig, GOAL)
    rig.drain(skip_delays=True)
    closed_plan(rig, process, "FAILED")
    assert rig.background.plans == [(process, False), (process, False), (process, True)]


def test_the_picture_reaches_who_listens_before_the_end_does(stage: Stage, client: redis.Redis) -> None:
    rig, _ = stage(three)
    process = submit_plan(rig, GOAL)
    background = Background(client, NOBODY, PlanFeed(client, rig.database))
    listener = Listener(client, process)
    rig.run_next()
    background.plan_changed(process, process, last=False)
    eventually(lambda: [each for each in listener.read() if each["kind"] == "plan"], "the first picture")
    first = listener.events[0]
    assert (first["process"], first["status"]) == (str(process), "RUNNING")
    shown = nodes_in(first["plan"])
    assert set(shown) == {GOAL, "A", "B", "C"}
    root = shown[GOAL]
    assert (root["kind"], root["status"], root["meta"]["phase"]) == ("worker", "running", "POST_CHILDREN")
    assert [child["meta"]["position"] for child in root["children"]] == [0, 1, 2]
    rig.drain()
    background.plan_changed(process, process, last=True)
    background.emit(process, {"kind": "closed"})
    eventually(lambda: any(each["kind"] == "closed" for each in listener.read()), "the end")
    assert [each["kind"] for each in listener.events] == ["plan", "plan", "closed"]
    last = listener.events[1]
    assert last["status"] == "CLOSED"
    assert {node["status"] for node in nodes_in(last["plan"]).values()} == {"done"}
    assert last["emittedAt"] > first["emittedAt"]
    listener.close()


def test_many_turns_are_few_pictures_and_the_last_one_is_of_the_end(stage: Stage, client: redis.Redis) -> None:
    # Four workers, each with 300 turns of one plan as fast as they can say so.
    rig, _ = stage(three)
    process = submit_plan(rig, GOAL)
    workers = [Background(client, NOBODY, PlanFeed(client, rig.database)) for _ in range(4)]
    listener = Listener(client, process)
    rig.database.sent.clear()
    began = time.monotonic()

    def turns(worker: int) -> None:
        for _ in range(300):
            workers[worker].plan_changed(process, process, last=False)

    in_threads(4, turns)
    rig.run_next()
    workers[2].plan_changed(process, process, last=False)
    # Whoever has something unseen says it later, by itself.
    shows_children = lambda: any(  # noqa: E731
        each["plan"]["rootNode"]["children"] for each in listener.read() if each["kind"] == "plan"
    )
    eventually(shows_children, "the state after the last change")
    took = time.monotonic() - began
    reads = [sql for sql in rig.database.sent if "busy AS" in sql]
    assert len(listener.events) == len(reads) <= 2 + took / PICTURE_SECONDS
    listener.close()


def test_a_plan_nobody_watches_is_not_read(stage: Stage, client: redis.Redis) -> None:
    rig, _ = stage(three)
    process = submit_plan(rig, GOAL)
    feed = PlanFeed(client, rig.database)
    rig.database.sent.clear()
    # Every Celery worker listens to a pattern, for remote control.
    with client.pubsub(ignore_subscribe_messages=True) as remote_control:
        remote_control.psubscribe("/0.celery.pidbox")
        remote_control.get_message(timeout=1)
        assert client.pubsub_numpat() == 1
        feed.mark(process, process, last=True)
        feed.publish()
    assert rig.database.sent == []
    assert feed.next_at is None


def test_without_redis_turns_go_on_and_pictures_are_dropped(stage: Stage) -> None:
    away = redis.Redis.from_url(NO_REDIS, socket_connect_timeout=1)
    rig, _ = stage(three)
    feed = PlanFeed(away, rig.database)
    background = Background(away, NOBODY, feed)
    rig.background.plan_changed = background.plan_changed  # type: ignore[method-assign]
    process = submit_plan(rig, GOAL)
    rig.drain()
    closed_plan(rig, process)
    assert background.flush(20)
    assert feed.next_at is None
    away.close()


def test_a_child_of_a_fork_starts_with_nothing_to_show(stage: Stage, client: redis.Redis) -> None:
    rig, _ = stage(three)
    feed = PlanFeed(client, rig.database)
    feed.mark(UUID(int=1), UUID(int=1), last=False)
    feed.forget()
    assert feed.next_at is None


def grown(rig: Rig, children: int) -> UUID:
    """A plan whose root has so many children, of which the last works and the last but one waits for a person."""
    process = submit_plan(rig, GOAL)
    root = value(rig.database, "SELECT id FROM nodes WHERE process_id = %(id)s", id=process)
    rows(
        rig.database,
        "INSERT INTO nodes (process_id, parent_id, order_key, depth, kind, goal, phase)"
        " SELECT %(id)s, %(root)s, ARRAY[n], 1, 'WORKER', 'subtask ' || n, 'SCOPE'"
        " FROM generate_series(0, %(n)s - 1) n",
        id=process, root=root, n=children,
    )  # fmt: skip
    rows(rig.database, "UPDATE nodes SET child_mode = 'PARALLEL' WHERE id = %(root)s", root=root)
    rows(
        rig.database,
        "UPDATE nodes SET due_at = now(), next_hint_at = now(), status = 'RUNNING'"
        " WHERE order_key = ARRAY[%(n)s::bigint]",
        n=children - 1,
    )
    rows(
        rig.database,
        "WITH asking AS (UPDATE nodes SET status = 'WAITING' WHERE order_key = ARRAY[%(n)s::bigint] RETURNING id)"
        " INSERT INTO inbox_items (tenant, project, process_id, node_id, originator, type, criticality, title,"
        " body, payload,"
        " expires_at) SELECT 'default', 'default', %(id)s, id, 'x', 'FEEDBACK', 'NORMAL', 'q', '', '{}',"
        " now() + interval '1 day' FROM asking",
        n=children - 2, id=process,
    )  # fmt: skip
    return process


def test_the_picture_of_a_large_plan_is_bounded_and_shows_where_the_work_is(stage: Stage) -> None:
    rig, _ = stage(three)
    process = grown(rig, 3_000)
    found = tree(rig.database, process, limit=100)
    assert found is not None
    assert len(found.rows) <= 100 + BUSY_SHOWN
    shown = picture(rig.database, process, limit=100)
    assert shown is not None
    nodes = nodes_in(shown["plan"])
    assert nodes["subtask 2999"]["status"] == "running"
    (item,) = inbox.items(rig.database, "default", "default")
    assert nodes["subtask 2998"]["meta"]["inboxItemId"] == str(item.id)
    # Counting stops somewhere: what is said to be hidden is never more than there is.
    assert 0 < sum(nodes[GOAL]["meta"]["hidden"].values()) < 3_000
    small = picture_within(rig.database, process, 8_000)
    assert small is not None
    assert len(json.dumps(small)) <= 8_000


def test_a_blocked_node_shows_which_item_it_waits_for(
    stage: Stage, database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = {"action": "NEEDS_USER_INPUT", "userInput": {"title": "Which?"}, "reason": "theirs"}
    rig, _ = stage(lambda phase, *_: question if phase == "SCOPE" else straight()(phase))
    process = submit_plan(rig, GOAL)
    rig.drain()
    (item,) = inbox.items(rig.database, "default", "default")
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", database_url)
    monkeypatch.setenv("VANCETOPE_REDIS_URL", redis_url)
    found = CliRunner().invoke(main, ["plan", str(process)])
    assert found.exit_code == 0, found.output
    assert f"waits for an answer: inbox item {item.id}" in found.output
    payload = json.loads(CliRunner().invoke(main, ["plan", "--json", str(process)]).output)
    (asking,) = payload["rootNode"]["children"]
    assert (asking["kind"], asking["status"]) == ("user_input", "waiting")
    assert row(rig.database, "inbox_items", int(asking["meta"]["inboxItemId"]))["title"] == "Which?"


def test_watching_takes_the_newer_of_two_pictures_and_asks_the_store_after_a_silence(stage: Stage) -> None:
    rig, _ = stage(three)
    process = submit_plan(rig, GOAL)
    plan = Plan(rig.database, process)
    assert plan.tree() is None, "a single task so far"
    early = picture(rig.database, process)
    rig.run_next()
    late = picture(rig.database, process)
    assert early is not None
    assert late is not None
    rig.database.sent.clear()
    plan.see(late)
    plan.see(early)
    plan.see({"kind": "plan", "process": str(process)})
    assert plan.tree() is not None
    assert rig.database.sent == [], "the channel is enough"
    rig.drain()
    plan.touch()
    tree_now = plan.tree()
    assert tree_now is not None
    now = picture(rig.database, process)
    assert now is not None
    shown = plan_tree(now["plan"])
    assert shown is not None
    assert [str(each.label) for each in tree_now.children] == [str(each.label) for each in shown.children]  # type: ignore[attr-defined]
    assert all(str(each.label).startswith("✓") for each in shown.children)


@pytest.mark.parametrize("terminal", [True, False])
def test_run_shows_the_plan_on_a_terminal_and_anywhere_that_people_are_asked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    question = {"action": "NEEDS_USER_INPUT", "userInput": {"title": "Which?"}, "reason": "theirs"}
    rig, _ = stage(lambda phase, *_: question if phase == "SCOPE" else straight()(phase))
    process = submit_plan(rig, GOAL)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=120, height=40)
    monkeypatch.setattr(run_progress, "err", lambda: console)
    with RunProgress(process, NOBODY, Plan(rig.database, process), quiet=False) as progress:
        rig.drain()
        picture_now = picture(rig.database, process)
        assert picture_now is not None
        for event in (picture_now, None, None):
            progress.show(event, {"status": "BLOCKED"})
        shown = screen.getvalue()
        assert shown.count("`vancetope inbox ls` shows the questions") == 1
        (item,) = inbox.items(rig.database, "default", "default")
        rig.publisher.publish(inbox.answer(rig.database, item.id, {"outcome": "DECIDED", "value": {}}, by="ada").due)
        rig.drain()
    assert (f"✓ {GOAL}" in screen.getvalue()) is terminal
    assert ("✓ Which?" in screen.getvalue()) is terminal
