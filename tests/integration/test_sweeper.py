"""The sweeper on a real Redis and PostgreSQL: what it publishes, closes and delivers, and what cannot stop it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import redis
from celery import Celery
from factory import (
    PROBE,
    ProbeEngine,
    age,
    broken_invariants,
    claimed,
    expire_lease,
    make_node,
    make_process,
    new_process,
    root_node,
    row,
    rows,
    value,
)
from rig import NO_REDIS, CollectingPublisher, Rig, in_threads

from models.store import processes, read, sweep
from models.store.database import Database, DatabaseUnavailable
from models.store.processes import Delivery
from tasks.broker import publisher_app
from tasks.delivery import Deliverer
from tasks.publish import PRIORITY_SEPARATOR, Publisher, engine_queue
from tasks.settings import load_settings
from tasks.sweeper import Sweeper

# Celery's own result backend still calls it.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")


class Yard:
    """A sweeper with everything it needs."""

    def __init__(self, database_url: str, redis_url: str, *, batch: int = 100, queue_url: str | None = None) -> None:
        self.database = Database(database_url, pool_size=8)
        self.redis = redis.Redis.from_url(redis_url)
        settings = load_settings({"VANCETOPE_REDIS_URL": queue_url or redis_url})
        self.app: Celery = publisher_app(settings)
        self.publisher = Publisher(redis.Redis.from_url(queue_url or redis_url, socket_connect_timeout=1))
        self.deliverer = Deliverer(self.app, self.database, max_bytes=2_000)
        self.sweeper = Sweeper(
            database=self.database,
            client=redis.Redis.from_url(queue_url or redis_url, socket_connect_timeout=1),
            engines={"probe": PROBE, "other": ProbeEngine("other")},
            publisher=self.publisher,
            deliverer=self.deliverer,
            batch=batch,
        )

    def messages(self, engine: str = "probe", priority: int = 3) -> list[list[int]]:
        """The arguments of the turns that lie in an engine's queue."""
        queue = engine_queue(engine) if priority == 0 else f"{engine_queue(engine)}{PRIORITY_SEPARATOR}{priority}"
        found: list[Any] = list(self.redis.lrange(queue, 0, -1))
        return [json.loads(_body(each))[0] for each in found]

    def backend(self, process: UUID) -> dict[str, Any] | None:
        found: Any = self.redis.get(f"celery-task-meta-{process}")
        return None if found is None else json.loads(found)["result"]

    def close(self) -> None:
        self.app.close()
        self.redis.close()
        self.database.dispose()


def _body(message: bytes) -> str:
    return base64.b64decode(json.loads(message)["body"]).decode()


@pytest.fixture
def yard(database_url: str, redis_url: str) -> Iterator[Yard]:
    yard = Yard(database_url, redis_url)
    yield yard
    yard.close()


def overdue_hint(yard: Yard, **fields: Any) -> int:
    node = make_node(yard.database, make_process(yard.database, **fields))
    age(yard.database, node, 10)
    return node


def test_a_quiet_sweep_touches_nothing(yard: Yard) -> None:
    make_node(yard.database, make_process(yard.database), "leased")
    assert yard.sweeper.sweep() == {}
    assert yard.messages() == []


def test_every_repair_in_one_sweep(yard: Yard) -> None:
    database = yard.database
    expired = make_node(database, make_process(database), "leased")
    expire_lease(database, expired)
    process = make_process(database)
    parent = make_node(database, process, "awaiting", open_children=1)
    make_node(database, process, "failed", parent=parent)
    caller = make_node(database, make_process(database), "parked", open_calls=1, spawned_calls=1)
    make_process(database, "CLOSED", parent_node=caller)
    late = make_node(database, make_process(database), "parked")
    rows(
        database,
        "UPDATE processes SET deadline_at = now() - interval '1 ms'"
        " WHERE id = (SELECT process_id FROM nodes WHERE id = %(id)s)",
        id=late,
    )
    unheard = overdue_hint(yard)
    poisoned = make_process(database)
    make_node(database, poisoned, losses=sweep.HARD_LOSSES)
    closed = make_process(database, "CLOSED")
    rows(database, "UPDATE processes SET closed_at = closed_at - interval '6 s' WHERE id = %(id)s", id=closed)

    done = yard.sweeper.sweep()
    assert done == {
        "leases_taken_back": 1, "parents_reactivated": 1, "callers_woken": 1, "overdue_woken": 1, "republished": 1,
        "poisoned_closed": 1, "delivered": 1,
    }  # fmt: skip
    assert sorted(node for node, _ in yard.messages()) == sorted([expired, parent, caller, late, unheard])
    assert yard.backend(closed) == {"success": True, "attempts": 1}
    assert row(database, "processes", closed)["delivered_at"] is not None
    result = read.result(database, poisoned)
    assert result is not None
    assert result["error"] == "internal_error"
    assert yard.sweeper.sweep() == {}


def test_turns_go_to_their_engines_queue_with_their_priority(yard: Yard) -> None:
    high = overdue_hint(yard, engine="other", priority=0)
    low = overdue_hint(yard, engine="other", priority=9)
    yard.sweeper.sweep()
    assert yard.messages("other", 0) == [[high, 1]]
    assert yard.messages("other", 9) == [[low, 1]]


def test_a_flush_is_noticed_by_empty_queues_and_all_turns_come_back(yard: Yard) -> None:
    # C7: the hints were fresh, so nothing is overdue by the back-off; but the queue is empty.
    batch = [new_process() for _ in range(20)]
    yard.publisher.publish(processes.submit(yard.database, batch))
    assert len(yard.messages()) == 20
    yard.redis.flushdb()
    assert yard.sweeper.sweep() == {}, "they might be on their way to a worker"
    rows(
        yard.database, "UPDATE nodes SET due_at = due_at - interval '3 s', next_hint_at = next_hint_at - interval '3 s'"
    )
    assert yard.sweeper.sweep() == {"lost_republished": 20}
    assert len(yard.messages()) == 20
    assert yard.sweeper.sweep() == {}


def test_a_turn_with_a_long_back_off_comes_back_after_a_flush_too(yard: Yard) -> None:
    node = make_node(yard.database, make_process(yard.database), hints=7)
    age(yard.database, node, 60)
    rows(yard.database, "UPDATE nodes SET next_hint_at = now() + interval '300 s'")
    assert yard.sweeper.sweep() == {"lost_republished": 1}
    assert yard.messages() == [[node, 1]]


def test_a_long_honest_backlog_is_not_flooded(yard: Yard) -> None:
    node = overdue_hint(yard)
    waiting = make_node(yard.database, make_process(yard.database))
    age(yard.database, waiting, 3)
    assert yard.sweeper.sweep() == {"republished": 1}
    for _ in range(3):
        assert yard.sweeper.sweep() == {}
    assert yard.messages() == [[node, 1]]


def test_three_sweepers_at_once_publish_each_turn_once(database_url: str, redis_url: str) -> None:
    yards = [Yard(database_url, redis_url, batch=7) for _ in range(3)]
    try:
        nodes = [overdue_hint(yards[0]) for _ in range(60)]
        in_threads(3, lambda index: [yards[index].sweeper.sweep() for _ in range(12)])
        assert sorted(node for node, _ in yards[0].messages()) == sorted(nodes)
    finally:
        for yard in yards:
            yard.close()


def test_without_redis_the_repairs_of_the_tables_go_on(database_url: str, redis_url: str) -> None:
    yard = Yard(database_url, redis_url, queue_url=NO_REDIS)
    try:
        node = make_node(yard.database, make_process(yard.database), "leased")
        expire_lease(yard.database, node)
        poisoned = make_process(yard.database)
        make_node(yard.database, poisoned, losses=sweep.HARD_LOSSES)
        assert yard.sweeper.sweep() == {"leases_taken_back": 1, "poisoned_closed": 1}
        assert row(yard.database, "nodes", node)["lease_owner"] is None
        assert row(yard.database, "processes", poisoned)["status"] == "CLOSED"
    finally:
        yard.close()


def test_publishing_without_redis_is_only_logged(database_url: str, redis_url: str) -> None:
    yard = Yard(database_url, redis_url, queue_url=NO_REDIS)
    try:
        assert yard.publisher.publish(processes.submit(yard.database, [new_process()])) == 0
    finally:
        yard.close()


def test_a_repair_that_fails_stops_no_other(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> list[Any]:
        raise RuntimeError("broken")

    node = overdue_hint(yard)
    monkeypatch.setattr(sweep, "take_back_expired", broken)
    assert yard.sweeper.sweep() == {"republished": 1}
    assert yard.messages() == [[node, 1]]


def test_without_a_database_a_sweep_ends_quietly_and_the_next_one_works(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    overdue_hint(yard)

    def away(*_: object, **__: object) -> list[Any]:
        raise DatabaseUnavailable("away")

    with monkeypatch.context() as context:
        context.setattr(sweep, "reactivate_parents", away)
        assert yard.sweeper.sweep() == {}
    assert yard.sweeper.sweep() == {"republished": 1}


def test_a_poisoned_process_whose_engine_has_no_words_is_closed_and_those_behind_it_too(yard: Yard) -> None:
    speechless = make_process(yard.database)
    make_node(yard.database, speechless, losses=sweep.HARD_LOSSES, cursor='{"speechless": true}')
    unknown = make_process(yard.database, engine="gone")
    make_node(yard.database, unknown, losses=sweep.HARD_LOSSES)
    fine = make_process(yard.database)
    make_node(yard.database, fine, losses=sweep.HARD_LOSSES)
    assert yard.sweeper.sweep()["poisoned_closed"] == 3
    for process in (speechless, unknown, fine):
        result = read.result(yard.database, process)
        assert result is not None
        assert result["error"] == "internal_error"
    assert broken_invariants(yard.database) == {}


def test_a_poisoned_sub_process_wakes_its_caller(yard: Yard) -> None:
    caller = make_node(yard.database, make_process(yard.database), "parked")
    inner = make_process(yard.database, parent_node=caller)
    make_node(yard.database, inner, losses=sweep.HARD_LOSSES)
    yard.sweeper.sweep()
    yard.sweeper.sweep()
    assert [caller, 1] in yard.messages()
    (call,) = claimed(yard.database, caller).view.calls
    assert call.close_reason == "FAILED"


# -- delivery ----------------------------------------------------------------------------------------------------------


def closed(yard: Yard, wrapper: dict[str, Any], **columns: Any) -> UUID:
    process = make_process(yard.database, "CLOSED", **columns)
    rows(
        yard.database,
        "UPDATE results SET wrapper = %(w)s::json WHERE process_id = %(id)s",
        id=process, w=json.dumps(wrapper),
    )  # fmt: skip
    rows(yard.database, "UPDATE processes SET closed_at = closed_at - interval '6 s' WHERE id = %(id)s", id=process)
    return process


def test_an_oversize_result_is_announced_not_sent(yard: Yard) -> None:
    process = closed(yard, {"success": True, "attempts": 1, "data": {"s": "ä" * 2_000}})
    yard.sweeper.sweep()
    shown = yard.backend(process)
    assert shown is not None
    assert (shown["oversize"], shown["success"], "data" in shown) == (True, True, False)
    assert shown["bytes"] > 4_000


def test_a_callback_is_sent_once_the_result_is_there(yard: Yard) -> None:
    callback = json.dumps({"task": "app.done", "queue": "app"})
    process = closed(yard, {"success": True, "attempts": 1}, callback=callback)
    yard.sweeper.sweep()
    messages: list[Any] = list(yard.redis.lrange("app", 0, -1))
    (message,) = messages
    assert json.loads(_body(message))[0] == [str(process), {"success": True, "attempts": 1}]
    assert yard.sweeper.sweep() == {}


def test_a_result_that_cannot_be_handed_over_keeps_back_no_other(yard: Yard) -> None:
    bad = closed(yard, {"success": True}, callback=json.dumps({"nonsense": 1}))
    good = closed(yard, {"success": True})
    yard.sweeper.sweep()
    assert row(yard.database, "processes", good)["delivered_at"] is not None
    assert row(yard.database, "processes", bad)["delivered_at"] is None
    assert yard.sweeper.sweep() == {}, "it is tried again, but not at once"


def test_a_delivery_that_was_not_marked_is_repeated(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    process = closed(yard, {"success": True})

    def away(*_: object) -> None:
        raise DatabaseUnavailable("away")

    with monkeypatch.context() as context:
        context.setattr("tasks.delivery.mark_delivered", away)
        yard.deliverer([Delivery(process_id=process, wrapper={"success": True}, callback=None)])
    assert yard.backend(process) == {"success": True}
    assert yard.sweeper.sweep() == {"delivered": 1}
    assert row(yard.database, "processes", process)["delivered_at"] is not None


# -- the whole claim, small --------------------------------------------------------------------------------------------


class Forgetful(CollectingPublisher):
    """A broker that loses every message."""

    def publish(self, turns: Any) -> int:
        return 0


def test_with_a_broker_that_loses_everything_the_sweeper_alone_brings_a_tree_to_its_end(
    database_url: str, redis_url: str
) -> None:
    yard = Yard(database_url, redis_url)
    with Rig(database_url, "one", publisher=Forgetful()) as rig:
        process = rig.submit(
            {"ask": "q"},
            {"fan_out": 2, "steps": [{"say": "x"}]},
            {"fan_out": 2, "mode": "SEQUENTIAL"},
            {"call": [{"say": "deep"}]},
            {"finish": "end"},
        )
        for _ in range(40):
            if rig.all_closed():
                break
            rows(rig.database, "UPDATE nodes SET next_hint_at = now() WHERE next_hint_at IS NOT NULL")
            yard.sweeper.sweep()
            for node, turn in yard.messages():
                rig.runner.run("probe", node, turn)
            yard.redis.flushdb()
        result = rig.result(process)
        assert result is not None
        assert (result["success"], result["data"]) == (True, "end")
        assert value(rig.database, "SELECT count(*) FROM llm_calls") == rig.client.calls == 1
        assert row(rig.database, "nodes", root_node(rig.database, process))["settled_at"] is not None
        assert broken_invariants(rig.database) == {}
    yard.close()


def test_calls_of_a_settled_node_are_stopped(yard: Yard) -> None:
    process = make_process(yard.database)
    caller = make_node(yard.database, process, "parked")
    open_call = make_process(yard.database, parent_node=caller)
    make_node(yard.database, open_call)
    assert "orphans_stopped" not in yard.sweeper.sweep()
    rows(
        yard.database,
        "UPDATE nodes SET status = 'FAILED', failure = 'x', settled_at = now() WHERE id = %(id)s",
        id=caller,
    )
    assert yard.sweeper.sweep()["orphans_stopped"] == 1
    found = row(yard.database, "processes", open_call)
    assert (found["status"], found["close_reason"]) == ("CLOSED", "STOPPED")
    assert "orphans_stopped" not in yard.sweeper.sweep()


def test_a_call_that_was_given_up_is_stopped_and_the_later_one_wakes_its_caller(yard: Yard) -> None:
    process = make_process(yard.database)
    caller = make_node(yard.database, process, "parked")
    first = make_process(yard.database, parent_node=caller)
    make_node(yard.database, first)
    second = make_process(yard.database, parent_node=caller)
    make_node(yard.database, second)
    assert yard.sweeper.sweep()["orphans_stopped"] == 1
    assert row(yard.database, "processes", first)["close_reason"] == "STOPPED"
    found = row(yard.database, "nodes", caller)
    assert (found["open_calls"], found["due_at"]) == (1, None)
    assert row(yard.database, "processes", second)["status"] == "RUNNING"
