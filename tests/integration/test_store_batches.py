"""The batch lane's tables: who takes what into a batch, who may write about it, and what is cleared away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from factory import broken_invariants, claim, claimed, expire_lease, make_node, make_process, row, rows, value
from rig import in_threads

from models.ages import Ages
from models.records import CallRecord, Limits
from models.store import batch_requests, batches, processes
from models.store.batches import Batch, Late
from models.store.claim import extend_leases
from models.store.commit import commit_turn
from models.store.database import Database
from models.store.retention import delete_old
from models.transition import PhaseNote, advance

STEP = advance("S", {}, note=PhaseNote(phase="S", iteration=1))
BIG = 10**9


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_size=8)
    yield database
    database.dispose()


def waiting(database: Database, *, size: int = 10, **fields: Any) -> int:
    """The node of a request that waits: its process is in the lane for a day."""
    process = make_process(database, **fields)
    rows(database, "UPDATE processes SET batch_until = now() + interval '1 day' WHERE id = %(id)s", id=process)
    node = make_node(database, process)
    assert filed(database, node, size=size)
    return node


def filed(database: Database, node: int, *, size: int = 10) -> bool:
    lease = claimed(database, node).lease
    return batch_requests.park(
        database, lease, attempt=1, provider="openai", model="gpt-4o", sent={}, body={"a": "x" * size}
    )


def collected(database: Database, *, size: int = 100, max_bytes: int = BIG) -> int:
    return batches.collect(database, size=size, wait_seconds=0.0, max_bytes=max_bytes)


def visited(database: Database) -> Batch:
    found = batches.visit(database, lease_seconds=60.0)
    assert found is not None
    return found


def request_of(database: Database, node: int) -> int:
    found: int = value(database, "SELECT id FROM batch_requests WHERE node_id = %(id)s", id=node)
    return found


def record(**fields: Any) -> CallRecord:
    base: dict[str, Any] = {
        "provider": "openai", "model": "gpt-4o", "attempt": 1, "error_kind": None, "stop_reason": "stop",
        "structured_path": None, "input_tokens": 10, "output_tokens": 0, "cache_read_tokens": 0,
        "cache_write_tokens": 0, "cost_usd": 0.01, "latency_ms": 1, "reached_inference": True, "lane": "batch",
    }  # fmt: skip
    return CallRecord(**(base | fields))


def test_a_parked_node_is_nobodys_and_due_when_the_lane_ends(database: Database) -> None:
    node = waiting(database)
    found = row(database, "nodes", node)
    assert (found["status"], found["turn"]) == ("WAITING", 1)
    assert (found["lease_owner"], found["lease_expires_at"]) == (None, None)
    until = row(database, "processes", found["process_id"])["batch_until"]
    assert found["due_at"] == found["next_hint_at"] == until
    assert claim(database, node) is None
    assert broken_invariants(database) == {}


def test_only_the_lease_that_holds_parks_and_only_while_the_lane_is_open(database: Database) -> None:
    node = waiting(database)
    rows(database, "UPDATE nodes SET due_at = now() WHERE id = %(id)s", id=node)
    old = claimed(database, node).lease
    expire_lease(database, node)
    held = claimed(database, node).lease
    arguments: dict[str, Any] = {"attempt": 1, "provider": "p", "model": "m", "sent": {}, "body": {}}
    assert not batch_requests.park(database, old, **arguments)
    rows(database, "UPDATE processes SET batch_until = now()")
    assert not batch_requests.park(database, held, **arguments)
    assert row(database, "nodes", node)["lease_owner"] is not None
    # A heartbeat under way does not take the lease back that was given up.
    rows(database, "UPDATE processes SET batch_until = now() + interval '1 hour'")
    assert batch_requests.park(database, held, **arguments)
    assert extend_leases(database, [held], owner="worker:1", lease_seconds=30.0) == {held: "lost"}
    assert row(database, "nodes", node)["lease_owner"] is None
    assert value(database, "SELECT count(*) FROM batch_requests") == 1


def test_a_batch_has_no_more_bytes_than_it_may_unless_it_is_one_request(database: Database) -> None:
    for size in (100, 100, 100, 5_000, 100):
        waiting(database, size=size)
    assert collected(database, max_bytes=300) == 5
    assert rows(database, "SELECT requests FROM batches ORDER BY id") == [(2,), (1,), (1,), (1,)]


def test_collectors_at_once_share_the_requests_and_the_batches(database: Database) -> None:
    for _ in range(30):
        waiting(database)
    assert sum(in_threads(6, lambda _: collected(database, size=4))) == 30
    assert value(database, "SELECT count(*) FROM batch_requests WHERE batch_id IS NULL") == 0
    counted = rows(
        database,
        "SELECT b.requests = count(r.id) FROM batches b JOIN batch_requests r ON r.batch_id = b.id GROUP BY b.id",
    )
    assert set(counted) == {(True,)}
    found = [batch for batch in in_threads(8, lambda _: batches.visit(database, lease_seconds=60.0)) if batch]
    assert len({batch.id for batch in found}) == len(found)


def test_whoever_was_overtaken_writes_nothing_about_the_batch(database: Database) -> None:
    waiting(database)
    collected(database)
    slow = visited(database)
    assert batches.visit(database, lease_seconds=60.0) is None
    rows(database, "UPDATE batches SET next_visit_at = now()")
    quick = visited(database)
    assert not batches.sending(database, slow, 1)
    assert not batches.submitted(database, slow, "theirs", seconds=1.0)
    assert not batches.end(database, slow, "refused", detail="no")
    batches.put_off(database, slow, seconds=0.0, problem="too late")
    assert batches.visit(database, lease_seconds=60.0) is None
    assert batches.submitted(database, quick, "ours", seconds=60.0)
    assert row(database, "batches", quick.id)["provider_batch_id"] == "ours"


def test_answers_wake_their_nodes_and_no_others(database: Database) -> None:
    nodes = [waiting(database) for _ in range(4)]
    collected(database)
    batch = visited(database)
    answered, taken, moved, open_ = (request_of(database, node) for node in nodes)
    # One is in a worker's hands (the lane has ended for it), and one was stopped.
    rows(database, "UPDATE nodes SET due_at = now() WHERE id = %(id)s", id=nodes[1])
    lease = claimed(database, nodes[1]).lease
    processes.stop(database, row(database, "nodes", nodes[2])["process_id"], lambda _: {"success": False})
    assert batches.answer(database, batch, [(answered, {"n": 1}), (taken, {"n": 2}), (moved, {"n": 3})]) == 3
    assert batches.answer(database, batch, [(answered, {"n": 9})]) == 0
    assert [turn.node_id for turn in batches.wake(database, batch=10)] == [nodes[0]]
    assert batches.wake(database, batch=10) == []
    assert row(database, "nodes", nodes[1])["lease_owner"] is not None
    found = batch_requests.look(database, lease).filed
    assert found is not None
    assert (found.state, found.answer) == ("ANSWERED", {"n": 2})
    assert not batch_requests.withdraw(database, found.id)
    assert batches.end(database, batch, "completed", missing={"missing": "x"})
    assert row(database, "batch_requests", open_)["answer"] == {"missing": "x"}
    assert [turn.node_id for turn in batches.wake(database, batch=10)] == [nodes[3]]


def test_a_late_answer_is_noted_once_whoever_notes_it(database: Database) -> None:
    node = waiting(database, limits=Limits(max_calls=10))
    process: UUID = row(database, "nodes", node)["process_id"]
    collected(database)
    batch = visited(database)
    rows(database, "UPDATE nodes SET due_at = now() WHERE id = %(id)s", id=node)
    held = claimed(database, node)
    commit_turn(database, held, STEP, call=record(lane="normal"), elapsed_seconds=0.0)
    batches.answer(database, batch, [(request_of(database, node), {"n": 1})])
    (late,) = batches.clear(database, batch=10)
    assert (late.answer, late.provider, late.model) == ({"n": 1}, "openai", "gpt-4o")
    in_threads(4, lambda _: batches.note_late(database, late, record()))
    assert rows(database, "SELECT lane FROM llm_calls ORDER BY lane") == [("batch",), ("normal",)]
    used = row(database, "processes", process)
    assert (used["used_calls"], used["used_tokens"], float(used["used_cost_usd"])) == (2, 20, 0.02)
    assert batches.clear(database, batch=10) == []
    assert value(database, "SELECT count(*) FROM batch_requests") == 0


def test_what_was_used_is_deleted_and_not_noted_again(database: Database) -> None:
    node = waiting(database)
    collected(database)
    batch = visited(database)
    batches.answer(database, batch, [(request_of(database, node), {"n": 1})])
    batches.end(database, batch, "completed", missing={})
    batches.wake(database, batch=10)
    held = claimed(database, node)
    assert batches.clear(database, batch=10) == []
    assert value(database, "SELECT count(*) FROM batch_requests") == 1, "its turn is not over"
    commit_turn(database, held, STEP, call=record(), elapsed_seconds=0.0)
    assert batches.clear(database, batch=10) == []
    assert value(database, "SELECT count(*) FROM batch_requests") == 0
    assert value(database, "SELECT count(*) FROM llm_calls") == 1


def test_pruned_processes_take_their_requests_along_and_old_batches_are_forgotten(database: Database) -> None:
    node = waiting(database)
    process: UUID = row(database, "nodes", node)["process_id"]
    collected(database)
    batch = visited(database)
    processes.stop(database, process, lambda _: {"success": False})
    rows(database, "UPDATE processes SET created_at = now() - interval '9 days', closed_at = now() - interval '9 days',"
                   " delivered_at = now()")  # fmt: skip
    assert delete_old(database, Ages(keep=1)) == 1
    assert value(database, "SELECT count(*) FROM batch_requests") == 0
    batches.end(database, batch, "completed")
    batches.clear(database, batch=10)
    assert value(database, "SELECT count(*) FROM batches") == 1
    rows(database, "UPDATE batches SET ended_at = now() - interval '169 hours'")
    batches.clear(database, batch=10)
    assert value(database, "SELECT count(*) FROM batches") == 0


def test_a_late_answer_that_cannot_be_read_is_dropped(database: Database) -> None:
    node = waiting(database)
    late = Late(id=request_of(database, node), attempt=1, provider="p", model="m", sent={}, answer={}, waited_ms=1)
    batches.note_late(database, late, None)
    assert (
        value(database, "SELECT count(*) FROM batch_requests") == value(database, "SELECT count(*) FROM llm_calls") == 0
    )
