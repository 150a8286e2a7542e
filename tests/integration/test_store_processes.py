"""Whole processes: submitted once, stopped once, closed with one result, whoever comes in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from factory import (
    PROBE,
    broken_invariants,
    claim,
    claimed,
    deadlocks,
    make_node,
    make_process,
    new_process,
    root_node,
    row,
    rows,
    value,
)
from processes import eventually
from rig import in_threads, other_session

from models.records import CloseReason, Limits, Reason
from models.store import processes, read
from models.store.clean import NotStorable
from models.store.commit import StaleTurn, commit_turn
from models.store.database import Database
from models.store.processes import Closing
from models.transition import CloseProcess, PhaseNote, SpawnProcess, advance, finish, park

NOTE = PhaseNote(phase="S", iteration=1)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_size=20)
    yield database
    database.dispose()


def stopped(closing: Closing) -> dict[str, Any]:
    return PROBE.wrapper(closing.cursor, error="stopped", message="stopped on request")


def stop(database: Database, process: UUID) -> tuple[UUID, ...]:
    return processes.stop(database, process, stopped)


def ending(result: dict[str, Any]) -> Any:
    effect = CloseProcess(reason=CloseReason.DONE, result=result, message="done")
    return finish("S", {}, note=NOTE, effects=(effect,))


def tree(database: Database) -> tuple[UUID, UUID, UUID]:
    """A root that called a process that called one: all open."""
    root = make_process(database)
    middle = make_process(database, parent_node=make_node(database, root, "parked"))
    leaf = make_process(database, parent_node=make_node(database, middle, "parked"))
    make_node(database, leaf, "leased")
    return root, middle, leaf


# -- submit ------------------------------------------------------------------------------------------------------------


def test_submitting_twice_is_once(database: Database) -> None:
    process = new_process([{"say": "one"}])
    (turn,) = processes.submit(database, [process])
    assert turn.turn == 1
    assert processes.submit(database, [process]) == []
    assert processes.submit(database, [new_process([{"say": "two"}], id=process.id)]) == []
    assert value(database, "SELECT params ->> 'steps' FROM process_inputs") == '[{"say":"one"}]'
    assert broken_invariants(database) == {}


def test_the_same_id_twice_in_one_batch_is_one_process(database: Database) -> None:
    process, other = new_process(), new_process()
    assert len(processes.submit(database, [process, other, process])) == 2
    assert value(database, "SELECT count(*) FROM nodes") == 2


def test_batches_with_the_same_ids_at_the_same_time_store_each_once(database: Database) -> None:
    batch = [new_process() for _ in range(30)]
    turns = in_threads(8, lambda index: processes.submit(database, batch if index % 2 else batch[::-1]))
    assert sum(len(each) for each in turns) == 30
    assert deadlocks(database) == 0
    assert broken_invariants(database) == {}


def test_a_batch_that_cannot_be_stored_stores_nothing(database: Database) -> None:
    with pytest.raises(NotStorable):
        processes.submit(database, [new_process(), new_process(params={"x": float("nan")})])
    assert value(database, "SELECT count(*) FROM processes") == 0


def test_limits_and_priority_are_stored(database: Database) -> None:
    limits = Limits(max_calls=1, max_tokens=2, max_cost_usd=0.5, deadline_seconds=100)
    (turn,) = processes.submit(database, [new_process(limits=limits, priority=0, trace_context={"a": "b"})])
    assert turn.priority == 0
    found = read.status(database, claimed(database, turn.node_id).lease.process_id)
    assert found is not None
    assert (found["max_calls"], found["max_tokens"], float(found["max_cost_usd"])) == (1, 2, 0.5)
    assert 99 <= (found["deadline_at"] - found["created_at"]).total_seconds() <= 101


def test_a_rejected_submission_is_closed_with_its_answer_once(database: Database) -> None:
    process = new_process()
    wrapper = {"success": False, "attempts": 0, "error": "invalid_params", "message": "no"}
    assert processes.submit_rejected(database, process, wrapper, "no")
    assert not processes.submit_rejected(database, process, {"other": 1}, "again")
    assert read.result(database, process.id) == wrapper
    delivery = processes.delivery_of(database, process.id)
    assert delivery is not None
    assert delivery.wrapper == wrapper
    assert processes.submit(database, [process]) == []


def test_a_rejection_does_not_touch_a_process_that_runs(database: Database) -> None:
    process = new_process()
    processes.submit(database, [process])
    assert not processes.submit_rejected(database, process, {"success": False}, "no")
    assert row(database, "processes", process.id)["status"] == "INIT"


# -- stop --------------------------------------------------------------------------------------------------------------


def test_stop_closes_the_whole_tree_once(database: Database) -> None:
    root, middle, leaf = tree(database)
    parent = make_node(database, root, "awaiting", parent=root_node(database, root))
    make_node(database, root, "queued_behind", parent=parent)
    other = make_process(database)
    make_node(database, other)
    assert set(stop(database, root)) == {root, middle, leaf}
    assert stop(database, root) == ()
    assert {read.result(database, each)["error"] for each in (root, middle, leaf)} == {"stopped"}  # type: ignore[index]
    assert rows(database, "SELECT DISTINCT status FROM nodes WHERE process_id <> %(o)s", o=other) == [("SKIPPED",)]
    assert row(database, "processes", other)["status"] == "RUNNING"
    assert broken_invariants(database) == {}


def test_what_had_ended_before_the_stop_keeps_how_it_ended(database: Database) -> None:
    root = make_process(database)
    parent = make_node(database, root, "awaiting")
    done, failed = (
        make_node(database, root, state, parent=parent, order=n) for n, state in enumerate(("done", "failed"))
    )
    stop(database, root)
    assert row(database, "nodes", done)["status"] == "DONE"
    assert row(database, "nodes", failed)["failure"] == "for a reason"


def test_stopping_a_sub_process_wakes_its_caller(database: Database) -> None:
    caller = make_node(database, make_process(database), "parked")
    inner = make_process(database, parent_node=caller)
    make_node(database, inner)
    assert claim(database, caller) is None
    assert stop(database, inner) == (inner,)
    (call,) = claimed(database, caller).view.calls
    assert (call.close_reason, call.result and call.result["error"]) == (CloseReason.STOPPED, "stopped")
    assert broken_invariants(database) == {}


def test_stop_at_the_same_time_closes_once(database: Database) -> None:
    root, _, leaf = tree(database)
    closed = in_threads(8, lambda index: stop(database, root if index % 2 else leaf))
    assert sum(len(each) for each in closed) == 3
    assert (broken_invariants(database), deadlocks(database)) == ({}, 0)


def test_stop_of_an_unknown_or_closed_process_changes_nothing(database: Database) -> None:
    process = make_process(database, "CLOSED")
    before = row(database, "processes", process)
    assert stop(database, process) == ()
    assert stop(database, uuid4()) == ()
    assert row(database, "processes", process) == before
    assert value(database, "SELECT count(*) FROM messages") == 0


@pytest.mark.parametrize("status", ["INIT", "RUNNING", "BLOCKED", "SUSPENDED"])
def test_every_open_process_can_be_stopped(database: Database, status: str) -> None:
    process = make_process(database, status)
    make_node(database, process)
    assert stop(database, process) == (process,)
    assert row(database, "processes", process)["close_reason"] == "STOPPED"


@pytest.mark.parametrize("first", ["stop", "commit", "fail"])
def test_exactly_one_result_whoever_comes_first(database: Database, first: str) -> None:
    process = make_process(database)
    found = claimed(database, make_node(database, process))

    def commit() -> None:
        commit_turn(database, found, ending({"success": True}), call=None, elapsed_seconds=0)

    def fail() -> None:
        processes.fail_process(database, process, stopped, failure="f")

    acts: dict[str, Callable[[], Any]] = {"stop": lambda: stop(database, process), "commit": commit, "fail": fail}
    acts.pop(first)()
    winner = read.result(database, process)
    for name, act in acts.items():
        if name == "commit":
            with pytest.raises(StaleTurn):
                act()
        else:
            act()
    assert read.result(database, process) == winner
    assert broken_invariants(database) == {}


def test_a_worker_that_lost_its_turn_cannot_fail_the_process(database: Database) -> None:
    process = make_process(database)
    node = make_node(database, process)
    old = claimed(database, node)
    commit_turn(database, old, advance("S", {}, note=NOTE), call=None, elapsed_seconds=0)
    assert processes.fail_process(database, process, stopped, failure="f", lease=old.lease) == ()
    assert row(database, "processes", process)["status"] == "RUNNING"
    fresh = claimed(database, node)
    assert processes.fail_process(database, process, stopped, failure="f", lease=fresh.lease) == (process,)
    assert row(database, "processes", process)["close_reason"] == "FAILED"


# A commit that calls a sub-process is held up in the middle, by a row of the same id that somebody else is inserting:
# it holds its locks, and what it has written is not yet to be seen.


@pytest.mark.parametrize("verb", ["stop", "suspend"])
def test_a_sub_process_that_is_being_called_does_not_escape(database: Database, database_url: str, verb: str) -> None:
    root = make_process(database)
    middle = make_process(database, parent_node=make_node(database, root, "parked"))
    found = claimed(database, make_node(database, middle))
    sub = SpawnProcess(
        id=uuid4(), key="0:0", engine="probe", recipe_name="r", recipe={}, params={}, goal="", first_phase="S"
    )
    step = park("S", {}, note=NOTE, reason=Reason.CALLED, effects=(sub,))
    act = {"stop": lambda: stop(database, root), "suspend": lambda: processes.suspend(database, root)}[verb]
    with other_session(database_url) as session:
        with session.transaction(force_rollback=True):
            session.execute(
                "INSERT INTO processes (id, root_id, tenant, project, engine, recipe_name)"
                " VALUES (%s, %s, 't', 'p', 'e', 'r')",
                [sub.id, sub.id],
            )
            committing = threading.Thread(
                target=lambda: commit_turn(database, found, step, call=None, elapsed_seconds=0)
            )
            committing.start()
            eventually(lambda: value(database, WAITING) == 1, "the commit is held up")
            acting = threading.Thread(target=act)
            acting.start()
            eventually(lambda: value(database, WAITING) == 2, "it waits for the commit")
        committing.join(20)
        acting.join(20)
    expected = {"stop": "CLOSED", "suspend": "SUSPENDED"}[verb]
    assert rows(database, "SELECT DISTINCT status FROM processes") == [(expected,)]
    assert (broken_invariants(database), deadlocks(database)) == ({}, 0)


# -- suspend and resume ------------------------------------------------------------------------------------------------


def test_a_suspended_tree_is_not_claimed_and_goes_on_after_the_resume(database: Database) -> None:
    root = make_process(database)
    caller = make_node(database, root, "parked")
    inner = make_process(database, "INIT", parent_node=caller, engine="other")
    node = make_node(database, inner)
    assert processes.suspend(database, root)
    assert not processes.suspend(database, root)
    assert claim(database, node) is None
    turns = processes.resume(database, root)
    assert turns is not None
    assert [(turn.node_id, turn.engine) for turn in turns] == [(node, "other")]
    assert rows(database, "SELECT status FROM processes ORDER BY created_at") == [("RUNNING",), ("INIT",)]
    assert claim(database, node) is not None
    assert processes.resume(database, root) is None


def test_a_running_turn_may_commit_into_a_suspended_process(database: Database) -> None:
    process = make_process(database)
    node = make_node(database, process)
    found = claimed(database, node)
    processes.suspend(database, process)
    committed = commit_turn(database, found, advance("S", {"at": 1}, note=NOTE), call=None, elapsed_seconds=0)
    assert committed.next_turn is not None
    assert claim(database, node) is None
    assert row(database, "processes", process)["status"] == "SUSPENDED"
    processes.resume(database, process)
    assert claimed(database, node).view.node.cursor == {"at": 1}


def test_what_a_running_turn_calls_into_a_suspended_process_rests_too_until_the_resume(database: Database) -> None:
    process = make_process(database)
    found = claimed(database, make_node(database, process))
    processes.suspend(database, process)
    sub = SpawnProcess(
        id=uuid4(), key="0", engine="probe", recipe_name="probe", recipe={}, params={}, goal="called", first_phase="S"
    )
    parked = park("S", {}, note=NOTE, reason=Reason.CALLED, effects=(sub,))
    commit_turn(database, found, parked, call=None, elapsed_seconds=0)
    inner = root_node(database, sub.id)
    assert row(database, "processes", sub.id)["status"] == "SUSPENDED"
    assert claim(database, inner) is None
    turns = processes.resume(database, process)
    assert turns is not None
    assert [turn.node_id for turn in turns] == [inner]
    assert claim(database, inner) is not None


def test_a_call_whose_time_ran_out_during_a_suspension_has_it_again_after_the_resume(database: Database) -> None:
    process = make_process(database)
    node = make_node(database, process)
    sub = SpawnProcess(
        id=uuid4(), key="0", engine="probe", recipe_name="probe", recipe={}, params={}, goal="called", first_phase="S"
    )
    parked = park("S", {}, note=NOTE, reason=Reason.CALLED, effects=(sub,), timeout_seconds=900)
    commit_turn(database, claimed(database, node), parked, call=None, elapsed_seconds=0)
    inner = root_node(database, sub.id)
    processes.suspend(database, process)
    # An hour later.
    rows(database, "UPDATE nodes SET due_at = due_at - interval '1 hour', next_hint_at = now()")
    rows(database, "UPDATE phase_records SET created_at = created_at - interval '1 hour'")
    turns = processes.resume(database, process)
    assert turns is not None
    assert [turn.node_id for turn in turns] == [inner], "who is called goes on, and the caller waits"
    assert claim(database, node) is None
    left = "SELECT extract(epoch FROM due_at - now()) FROM nodes WHERE id = %(id)s AND next_hint_at = due_at"
    assert 600 < value(database, left, id=node) <= 900


def test_a_suspension_that_aborts_takes_the_lease_away_and_counts_no_loss(database: Database) -> None:
    process = make_process(database)
    node = make_node(database, process)
    found = claimed(database, node)
    processes.suspend(database, process, abort_running=True)
    with pytest.raises(StaleTurn):
        commit_turn(database, found, advance("S", {}, note=NOTE), call=None, elapsed_seconds=0)
    processes.resume(database, process)
    assert claimed(database, node).view.node.losses == 0


@pytest.mark.parametrize("status", ["CLOSED", "RUNNING", "INIT"])
def test_resuming_what_is_not_suspended_is_a_no_op(database: Database, status: str) -> None:
    process = make_process(database, status)
    before = row(database, "processes", process)
    assert processes.resume(database, process) is None
    assert processes.resume(database, uuid4()) is None
    assert row(database, "processes", process) == before


def test_a_closed_process_is_not_suspended(database: Database) -> None:
    assert not processes.suspend(database, make_process(database, "CLOSED"))


# -- delivery ----------------------------------------------------------------------------------------------------------


def undelivered(database: Database) -> list[UUID]:
    return [each.process_id for each in processes.undelivered(database, batch=100)]


def test_a_result_is_offered_until_it_is_marked(database: Database) -> None:
    process = make_process(database, "CLOSED")
    make_process(database, "CLOSED", delivered=True)
    make_process(database)
    rows(database, "UPDATE processes SET closed_at = closed_at - interval '4 s' WHERE closed_at IS NOT NULL")
    assert undelivered(database) == []
    rows(database, "UPDATE processes SET closed_at = closed_at - interval '2 s' WHERE closed_at IS NOT NULL")
    assert undelivered(database) == [process]
    assert undelivered(database) == []
    rows(database, "UPDATE processes SET deliver_at = now()")
    assert undelivered(database) == [process]
    processes.mark_delivered(database, [process])
    rows(database, "UPDATE processes SET deliver_at = now()")
    assert undelivered(database) == []
    assert processes.delivery_of(database, process) is None


def test_a_result_that_cannot_be_delivered_is_tried_ever_more_rarely_however_old_it_is(database: Database) -> None:
    make_process(database, "CLOSED")
    rows(database, "UPDATE processes SET closed_at = closed_at - interval '1 day'")
    gaps = []
    for _ in range(10):
        assert len(undelivered(database)) == 1
        assert undelivered(database) == []
        gaps.append(value(database, "SELECT extract(epoch FROM deliver_at - now())::float8 FROM processes"))
        rows(database, "UPDATE processes SET deliver_at = now()")
    assert gaps == pytest.approx([min(2.0**n, 300.0) for n in range(1, 11)], abs=1.0)


def test_results_are_offered_to_one_sweeper_at_a_time(database: Database) -> None:
    for _ in range(20):
        make_process(database, "CLOSED")
    rows(database, "UPDATE processes SET closed_at = closed_at - interval '6 s'")
    offered = in_threads(4, lambda _: [each for _ in range(3) for each in undelivered(database)])
    assert len([each for found in offered for each in found]) == 20
    in_threads(
        4, lambda index: processes.mark_delivered(database, offered[0] + offered[1] if index % 2 else offered[1][::-1])
    )
    assert deadlocks(database) == 0


def test_a_message_nobody_can_act_on_is_set_aside(database: Database) -> None:
    processes.set_aside(database, task="t\x00", problem="p", payload="\ud800")
    assert rows(database, "SELECT task, problem, payload FROM dead_letters") == [("t\ufffd", "p", "\ufffd")]
