"""Bursts: the commit leases the node's next turn to the same worker, and everything else stays as with a claim."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from factory import (
    ProbeEngine,
    Step,
    broken_invariants,
    claim,
    claimed,
    expire_lease,
    make_everything_due,
    make_node,
    make_process,
    new_process,
    root_node,
    row,
    rows,
    value,
)
from processes import eventually
from rig import CollectingPublisher, RecordingDatabase, Rig, is_commit

from engines.base import Need
from engines.llm.base import CancelToken, ErrorKind, LlmError, LlmRequest
from models.records import Limits, View
from models.store import processes, read
from models.store.claim import HARD_LOSSES, Claim, Keep, Reservation, reserve_budget
from models.store.commit import Committed, StaleTurn, commit_turn
from models.store.database import DatabaseUnavailable
from models.store.sweep import republish_due, take_back_expired
from models.transition import AppendMessage, PhaseNote, Transition, WriteArtifact, advance, park

ASK: Step = {"ask": "question"}
KEEP = Keep(owner="worker:1", lease_seconds=30.0, nonce="next")
NOTE = PhaseNote(phase="STEP", iteration=1)
BREAK_OFF = 15.0
"""Seconds after which a test gives up waiting for a thread."""


class Forgetful(ProbeEngine):
    """A probe that reads no history, like the engines that ship; it remembers what it was shown."""

    history = 0

    def __init__(self, name: str = "probe") -> None:
        super().__init__(name)
        self.seen: list[View] = []

    def prepare(self, view: View) -> Need:
        self.seen.append(view)
        return super().prepare(view)


class Attentive(Forgetful):
    history = 20


@pytest.fixture
def engine() -> Forgetful:
    return Forgetful()


@pytest.fixture
def rig(database_url: str, engine: Forgetful) -> Iterator[Rig]:
    with Rig(database_url, engines={"probe": engine}, burst=10) as rig:
        yield rig


@pytest.fixture
def database(database_url: str) -> Iterator[RecordingDatabase]:
    database = RecordingDatabase(database_url)
    yield database
    database.dispose()


def run(rig: Rig) -> tuple[int, list[str]]:
    """Run the published turn and what follows it. Returns how many turns, and ``claim``, ``commit``, … as sent."""
    rig.database.sent.clear()
    done = rig.run_next()
    names = (("SET lease_owner = %(owner)s", "claim"), ("phase_records", "commit"), ("holder AS", "reserve"))
    return done, [next((name for part, name in names if part in sql), sql) for sql in rig.database.sent]


def before_next_turn(rig: Rig, what: Any) -> None:
    """Do that once: after the burst's first commit, before anything of its next turn has begun."""
    emit, left = rig.background.emit, iter([True])

    def emitted(root_id: UUID, event: dict[str, Any]) -> None:
        emit(root_id, event)
        if event["kind"] == "turn" and next(left, False):
            what()

    rig.background.emit = emitted  # type: ignore[method-assign]


def stopped(rig: Rig, process: UUID) -> None:
    assert processes.stop(rig.database, process, lambda closing: {"success": False, "error": "stopped"}) == (process,)


def kept_by(database: RecordingDatabase, held: Claim, step: Transition | None = None) -> Committed:
    return commit_turn(database, held, step or advance("STEP", {}, note=NOTE), call=None, elapsed_seconds=0, keep=KEEP)


# -- what it costs, and what the next turn sees -----------------------------------------------------------------------


def test_a_burst_is_one_claim_and_a_commit_for_each_turn(rig: Rig) -> None:
    rig.script.add("one", "two")
    process = rig.submit(ASK, {"say": "x"}, ASK)
    assert run(rig) == (4, ["claim", "commit", "commit", "commit", "commit"])
    assert (rig.status(process), rig.client.calls, list(rig.publisher.turns)) == ("CLOSED", 2, [])
    assert broken_invariants(rig.database) == {}


def test_a_counted_call_of_a_burst_reserves_anew_and_gives_back_what_it_held(rig: Rig) -> None:
    rig.script.add("one", "two", "three")
    process = rig.submit(ASK, ASK, ASK, limits=Limits(max_calls=2))
    done, sent = run(rig)
    assert (done, sent[:5]) == (3, ["claim", "reserve", "commit", "reserve", "commit"])
    found = row(rig.database, "processes", process)
    assert (rig.client.calls, found["used_calls"], found["reserved_calls"], found["reserved_tokens"]) == (2, 2, 0, 0)
    assert rig.result(process) == {
        "success": False, "attempts": 2, "error": "budget_exceeded",
        "message": "the budget of the process is spent: maxCalls is 2, and 2 are made or under way",
    }  # fmt: skip


def test_a_burst_ends_at_its_number_with_a_turn_that_is_due_and_published(database_url: str) -> None:
    with Rig(database_url, engines={"probe": Forgetful()}, burst=3) as rig:
        process = rig.submit(*[{"say": str(n)} for n in range(4)])
        assert run(rig) == (3, ["claim", "commit", "commit", "commit"])
        assert [turn.turn for turn in rig.publisher.turns] == [4]
        assert row(rig.database, "nodes", root_node(rig.database, process))["lease_owner"] is None
        assert run(rig) == (2, ["claim", "commit", "commit"])
        assert rig.all_closed()


def test_a_burst_whose_time_is_up_lets_go_of_the_node_with_the_commit(rig: Rig) -> None:
    rig.script.add("slow")
    rig.submit(ASK, {"say": "x"})
    now = iter([0.0])
    rig.runner._clock = lambda: next(now, 3_600.0)
    assert run(rig) == (1, ["claim", "commit"])
    assert [turn.turn for turn in rig.publisher.turns] == [2]


@pytest.mark.parametrize("place", ["root", "child", "root of a sub-process"])
def test_the_kept_turn_is_the_one_that_a_claim_would_have_given(database: RecordingDatabase, place: str) -> None:
    # Numbers that are stored differently from what was sent, keys in an order of their own, a character that is not
    # stored: the next turn must see what any other worker would see.
    cursor = {"zz": 1.0, "a": 1e30, "nul": "a\x00b", "list": [2.50, None], "größe": {"b": 1, "a": 2}}
    process = make_process(database, limits=Limits(max_calls=3, deadline_seconds=3600))
    root = make_node(database, process)
    node = root
    if place == "child":
        node = make_node(database, process, parent=root)
    elif place == "root of a sub-process":
        node = make_node(database, make_process(database, parent_node=root))
    held = claimed(database, node)
    assert reserve_budget(database, held, tokens=10, cost_usd=0.5) is not None
    step = advance("NEXT", cursor, note=NOTE).with_transport({"crashes": 1.0, "path": "x"})
    committed = kept_by(
        database, dataclasses.replace(held, reserved=Reservation(calls=1, tokens=10, cost_usd=0.5)), step
    )
    kept = committed.kept
    assert kept is not None
    assert (committed.due, committed.next_turn is not None) == ((), True)
    stored = row(database, "nodes", node)
    assert (stored["turn"], stored["fence"]) == (kept.lease.turn, kept.lease.fence)
    assert (stored["lease_owner"], stored["losses"], stored["hints"]) == ("worker:1", 0, 0)
    assert stored["lease_expires_at"] is not None
    # Given up, the same turn is claimed by somebody else.
    rows(
        database, "UPDATE nodes SET lease_owner = NULL, lease_expires_at = NULL WHERE id = %(id)s RETURNING id", id=node
    )
    other = claimed(database, node)
    assert kept.reserved == other.reserved
    assert kept.view == dataclasses.replace(other.view, nonce="next", claimed_in=0)
    assert repr(kept.view.node) == repr(other.view.node)
    assert dataclasses.replace(kept.lease, fence=0) == dataclasses.replace(other.lease, fence=0)


def test_fences_of_kept_turns_cannot_be_guessed_from_the_turn_before(database: RecordingDatabase) -> None:
    held = claimed(database, make_node(database, make_process(database)))
    steps = []
    for _ in range(4):
        kept = kept_by(database, held).kept
        assert kept is not None
        steps.append(kept.lease.fence - held.lease.fence)
        held = kept
    assert len(set(steps)) == 4


def test_every_turn_of_a_burst_has_a_nonce_of_its_own(rig: Rig, engine: Forgetful) -> None:
    rig.submit({"say": "x"}, {"say": "y"})
    rig.run_next()
    nonces = [view.nonce for view in engine.seen]
    assert (len(nonces), len(set(nonces)), "" in nonces) == (3, 3, False)


def test_an_engine_that_reads_the_history_claims_each_turn_and_sees_what_was_said(database_url: str) -> None:
    engine = Attentive()
    with Rig(database_url, engines={"probe": engine}, burst=10) as rig:
        rig.submit({"say": "first"}, {"say": "second"})
        assert run(rig) == (3, ["claim", "commit"] * 3)
        assert [[message.content for message in view.messages] for view in engine.seen] == [
            [], ["first"], ["first", "second"],
        ]  # fmt: skip


def test_a_node_that_has_called_claims_each_turn_and_sees_the_results(rig: Rig, engine: Forgetful) -> None:
    process = rig.submit({"call": [{"finish": "called"}]}, {"say": "x"}, {"say": "y"})
    rig.drain()
    after = [view for view in engine.seen if view.process.id == process and view.node.turn > 1]
    assert [[call.closed for call in view.calls] for view in after] == [[True]] * 3
    assert rig.all_closed()


@pytest.mark.parametrize(
    "step",
    [
        advance("STEP", {}, note=NOTE, delay_seconds=60),
        park("STEP", {}, note=NOTE, reason=advance("STEP", {}, note=NOTE).reason, effects=(), timeout_seconds=0),
    ],
)
def test_a_node_that_waits_is_let_go(database: RecordingDatabase, step: Transition) -> None:
    node = make_node(database, make_process(database))
    assert kept_by(database, claimed(database, node), step).kept is None
    found = row(database, "nodes", node)
    assert (found["lease_owner"], found["lease_expires_at"]) == (None, None)


def test_effects_of_a_turn_that_goes_on_are_written_once(database: RecordingDatabase) -> None:
    node = make_node(database, make_process(database))
    effects = (AppendMessage(role="assistant", kind="note", content="m"), WriteArtifact(key="k", content="c"))
    committed = kept_by(database, claimed(database, node), advance("STEP", {}, note=NOTE, effects=effects))
    assert committed.kept is not None
    counts = (
        "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM artifacts), (SELECT count(*) FROM phase_records)"
    )
    assert rows(database, counts) == [(1, 1, 1)]
    kept_by(database, committed.kept)
    assert rows(database, counts) == [(1, 1, 2)]


# -- what happens between two turns -----------------------------------------------------------------------------------


def test_a_stop_between_two_turns_is_the_end_of_the_burst(rig: Rig) -> None:
    rig.script.add("first", "never kept")
    process = rig.submit(ASK, ASK, limits=Limits(max_calls=5))
    before_next_turn(rig, lambda: stopped(rig, process))
    assert rig.run_next() == 1
    assert rig.result(process) == {"success": False, "error": "stopped"}
    assert [message["content"] for message in read.messages(rig.database, process)][:1] == ["first"]
    assert "never kept" not in str(read.messages(rig.database, process))
    assert (len(read.calls(rig.database, process)), list(rig.publisher.turns)) == (1, [])
    assert broken_invariants(rig.database) == {}


def test_a_stop_reaches_the_call_of_a_kept_turn(rig: Rig) -> None:
    rig.script.add("first", "never kept")
    process = rig.submit(ASK, ASK)
    cancelled = []

    def during(request: LlmRequest, cancel: CancelToken | None) -> None:
        if rig.client.calls == 2:
            stopped(rig, process)
            rig.heartbeat.beat()
            assert cancel is not None
            cancelled.append(cancel.is_set())
            raise LlmError(ErrorKind.CANCELLED, "cancelled", provider="scripted")

    rig.client.during = during
    assert rig.run_next() == 1
    assert cancelled == [True]
    assert rig.result(process) == {"success": False, "error": "stopped"}


def test_a_suspension_under_a_turn_ends_the_burst_with_its_commit(rig: Rig) -> None:
    rig.script.add("kept", "after")
    process = rig.submit(ASK, ASK)
    rig.client.during = lambda request, cancel: rig.client.calls == 1 and processes.suspend(rig.database, process)
    assert rig.run_next() == 1
    found = row(rig.database, "nodes", root_node(rig.database, process))
    assert (rig.status(process), found["lease_owner"], found["turn"]) == ("SUSPENDED", None, 2)
    assert rig.client.calls == 1
    turns = processes.resume(rig.database, process)
    assert turns is not None
    rig.publisher.publish(turns)
    rig.drain()
    assert (rig.status(process), rig.client.calls) == ("CLOSED", 2)


def test_a_suspension_that_the_commit_waits_for_is_seen_by_it(database: RecordingDatabase) -> None:
    process = make_process(database)
    node = make_node(database, process)
    held, committed = claimed(database, node), []
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(database.url) as session:
        session.execute("UPDATE processes SET status = 'SUSPENDED' WHERE id = %s", [process])
        committing = threading.Thread(target=lambda: committed.append(kept_by(database, held)))
        committing.start()
        eventually(lambda: value(database, waiting) == 1, "the commit waits")
    committing.join(BREAK_OFF)
    assert [(each.kept, len(each.due)) for each in committed] == [(None, 1)]
    found = row(database, "nodes", node)
    assert (found["turn"], found["lease_owner"], found["lease_expires_at"]) == (2, None, None)


def test_a_suspension_between_two_turns_finds_a_running_turn(rig: Rig) -> None:
    # Leased is running: like any running turn it may finish, and nothing follows it.
    rig.script.add("first", "second", "third")
    process = rig.submit(ASK, ASK, ASK)
    before_next_turn(rig, lambda: processes.suspend(rig.database, process))
    assert rig.run_next() == 2
    assert (rig.status(process), rig.client.calls) == ("SUSPENDED", 2)
    turns = processes.resume(rig.database, process)
    assert turns is not None
    rig.publisher.publish(turns)
    rig.drain()
    assert (rig.status(process), rig.client.calls) == ("CLOSED", 3)


def test_a_suspension_that_aborts_takes_the_kept_turn_back(rig: Rig) -> None:
    rig.script.add("first", "dropped", "second")
    process = rig.submit(ASK, ASK)
    before_next_turn(rig, lambda: processes.suspend(rig.database, process, abort_running=True))
    assert rig.run_next() == 1
    assert len(read.calls(rig.database, process)) == 1
    turns = processes.resume(rig.database, process)
    assert turns is not None
    assert [turn.turn for turn in turns] == [2]
    rig.publisher.publish(turns)
    rig.drain()
    assert [message["content"] for message in read.messages(rig.database, process)][:2] == ["first", "second"]
    assert rig.all_closed()


@pytest.mark.parametrize("status", ["INIT", "BLOCKED"])
def test_a_process_that_is_not_yet_running_again_is_left_to_the_claim(database: RecordingDatabase, status: str) -> None:
    # The claim skips a process that is locked just then; its status is the next claim's to change.
    process = make_process(database)
    node = make_node(database, process)
    held = claimed(database, node)
    rows(database, "UPDATE processes SET status = %(status)s WHERE id = %(id)s RETURNING id", status=status, id=process)
    committed = kept_by(database, held)
    assert (committed.kept, len(committed.due)) == (None, 1)
    assert claim(database, node) is not None
    assert row(database, "processes", process)["status"] == "RUNNING"


def test_a_deadline_that_passes_within_a_burst_is_seen_by_the_next_turn(rig: Rig) -> None:
    rig.script.add("first", "too late")
    process = rig.submit(ASK, ASK, limits=Limits(deadline_seconds=3600))

    def during(request: LlmRequest, cancel: CancelToken | None) -> None:
        rows(rig.database, "UPDATE processes SET deadline_at = now() - interval '1 ms' RETURNING id")

    rig.client.during = during
    assert rig.run_next() == 2
    assert rig.client.calls == 1
    result = rig.result(process)
    assert result is not None
    assert (result["error"], result["message"]) == ("budget_exceeded", "overdue")


def test_a_deadline_that_passes_under_the_call_of_a_kept_turn_aborts_it(rig: Rig) -> None:
    rig.script.add("first")
    process = rig.submit(ASK, ASK, limits=Limits(deadline_seconds=3600))

    def during(request: LlmRequest, cancel: CancelToken | None) -> None:
        if rig.client.calls == 2:
            rows(rig.database, "UPDATE processes SET deadline_at = now() - interval '1 ms' RETURNING id")
            rig.heartbeat.beat()
            assert cancel is not None
            assert cancel.is_set()
            raise LlmError(ErrorKind.CANCELLED, "cancelled", provider="scripted")

    rig.client.during = during
    assert rig.run_next() == 2
    result = rig.result(process)
    assert result is not None
    assert result["error"] == "budget_exceeded"


def test_a_kept_lease_that_ran_out_belongs_to_who_claims_it(rig: Rig) -> None:
    rig.script.add("first", "late")
    process = rig.submit(ASK, ASK)
    node = root_node(rig.database, process)
    with Rig(rig.database.url, "other's", engines={"probe": Forgetful()}) as other:

        def taken() -> None:
            expire_lease(rig.database, node)
            assert other.runner.run("probe", node, 2) == 1

        before_next_turn(rig, taken)
        assert rig.run_next() == 1
        other.drain()
    assert [message["content"] for message in read.messages(rig.database, process)][:2] == ["first", "other's"]
    assert len(read.calls(rig.database, process)) == 2
    assert broken_invariants(rig.database) == {}


def test_a_lost_lease_keeps_nothing(database: RecordingDatabase) -> None:
    node = make_node(database, make_process(database))
    held = claimed(database, node)
    expire_lease(database, node)
    other = claimed(database, node, owner="worker:2")
    with pytest.raises(StaleTurn):
        kept_by(database, held)
    found = row(database, "nodes", node)
    assert (found["lease_owner"], found["turn"], found["fence"]) == ("worker:2", 1, other.lease.fence)


# -- crashes ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def killed() -> None:
    raise Killed


def test_a_crash_right_after_a_commit_that_kept_the_node_is_a_loss_of_the_next_turn(rig: Rig) -> None:
    rig.script.add("first", "second")
    process = rig.submit(ASK, ASK)
    node = root_node(rig.database, process)
    before_next_turn(rig, killed)
    with pytest.raises(Killed):
        rig.run_next()
    # Nobody publishes a turn that is leased, however late its hint.
    make_everything_due(rig.database)
    rows(rig.database, "UPDATE nodes SET next_hint_at = now() RETURNING id")
    assert republish_due(rig.database, batch=10) == []
    assert take_back_expired(rig.database, batch=10) == []
    expire_lease(rig.database, node)
    turns = take_back_expired(rig.database, batch=10)
    assert [(turn.node_id, turn.turn) for turn in turns] == [(node, 2)]
    assert row(rig.database, "nodes", node)["losses"] == 1
    rig.publisher.publish(turns)
    rig.drain()
    assert (rig.status(process), rig.client.calls, len(read.calls(rig.database, process))) == ("CLOSED", 2, 2)
    assert broken_invariants(rig.database) == {}


def test_losses_of_a_turn_are_forgotten_by_the_commit_that_keeps_the_next_one(database: RecordingDatabase) -> None:
    node = make_node(database, make_process(database))
    for _ in range(HARD_LOSSES - 1):
        held = claimed(database, node)
        expire_lease(database, node)
        assert len(take_back_expired(database, batch=10)) == 1
    held = claimed(database, node)
    assert held.view.node.losses == HARD_LOSSES - 1
    kept = kept_by(database, held).kept
    assert kept is not None
    assert kept.view.node.losses == row(database, "nodes", node)["losses"] == 0


def test_a_commit_that_kept_the_node_and_whose_answer_was_lost_ends_with_the_lease(rig: Rig) -> None:
    real, lost = rig.database.statement, iter([True])

    def statement(sql: str, params: dict[str, Any]) -> list[Any]:
        found = real(sql, params)
        if is_commit(sql) and next(lost, False):
            raise DatabaseUnavailable("gone")
        return found

    rig.database.statement = statement  # type: ignore[method-assign]
    rig.script.add("paid", "second")
    process = rig.submit(ASK, ASK)
    node = root_node(rig.database, process)
    assert rig.run_next() == 0
    assert row(rig.database, "nodes", node)["turn"] == 2
    expire_lease(rig.database, node)
    rig.publisher.publish(take_back_expired(rig.database, batch=10))
    rig.drain()
    assert (rig.client.calls, len(read.calls(rig.database, process))) == (2, 2)
    assert rig.all_closed()


def test_the_heartbeat_extends_the_lease_of_a_kept_turn(rig: Rig) -> None:
    rig.script.add("first", "second")
    process = rig.submit(ASK, ASK)
    node = root_node(rig.database, process)
    until = "SELECT lease_expires_at FROM nodes WHERE id = %(id)s"

    def during(request: LlmRequest, cancel: CancelToken | None) -> None:
        if rig.client.calls == 2:
            first = value(rig.database, until, id=node)
            rig.heartbeat.beat()
            assert value(rig.database, until, id=node) > first
            assert cancel is not None
            assert not cancel.is_set()

    rig.client.during = during
    assert rig.run_next() == 3
    assert rig.all_closed()


# -- many at once -----------------------------------------------------------------------------------------------------

WIDE: tuple[Step, ...] = (
    ASK,
    {"fan_out": 4, "steps": [ASK, {"say": "x"}, {"call": [ASK, {"say": "y"}]}, ASK]},
    {"say": "back"},
    ASK,
)  # fmt: skip


@pytest.mark.parametrize("limits", [Limits(), Limits(max_calls=500)])
def test_trees_in_many_threads_with_doubled_messages(database_url: str, limits: Limits) -> None:
    publisher = CollectingPublisher()
    engines = {"probe": Forgetful()}
    with Rig(database_url, *["x"] * 200, engines=engines, burst=10, pool_size=8, publisher=publisher) as rig:
        ids = [rig.send(new_process(WIDE, limits=limits)) for _ in range(3)]
        publisher.publish(list(publisher.turns))
        rig.drain_in_threads(6, until=rig.all_closed)
        assert [rig.status(each) for each in ids] == ["CLOSED"] * 3
        assert rig.client.calls == 3 * (2 + 4 * 3) == value(rig.database, "SELECT count(*) FROM llm_calls")
        assert value(rig.database, "SELECT max(losses) FROM nodes") == 0
        assert value(rig.database, "SELECT sum(reserved_calls) FROM processes") == 0
        assert broken_invariants(rig.database) == {}
