"""The turn runner on the real store, with a scripted model: what a turn costs, what failures come to, what is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest
from factory import (
    ProbeEngine,
    Step,
    broken_invariants,
    deadlocks,
    expire_lease,
    make_everything_due,
    root_node,
    row,
    rows,
    value,
)
from processes import eventually
from rig import CollectingPublisher, Rig, in_threads, is_commit

from engines.llm.base import CancelToken, ErrorKind, LlmError, LlmRequest, StructuredPath, Usage
from engines.llm.catalogue import Candidate
from engines.llm.scripted import Script, ScriptedAnswer, ScriptedUsage
from models.records import Limits, Reason
from models.store import processes, read
from models.store.claim import HARD_LOSSES, MAX_LOSSES
from models.store.database import DatabaseUnavailable
from models.store.sweep import poisoned_processes, take_back_expired
from tasks.control import stop_process
from tasks.runner import MAX_CRASHES

ASK: Step = {"ask": "question"}
BREAK_OFF = 15.0
"""Seconds after which a test gives up waiting for a thread."""


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url) as rig:
        yield rig


def reasons(rig: Rig, process: UUID) -> list[str]:
    return [record["reason"] for record in read.phase_history(rig.database, process)]


def error_of(rig: Rig, process: UUID) -> Any:
    found = rig.result(process)
    assert found is not None
    return found["error"]


class Blocked:
    """A call in the middle of which the test may look around; it ends when it is released or cancelled."""

    def __init__(self, rig: Rig) -> None:
        self.started = threading.Event()
        self.release = threading.Event()
        self.cancelled = False
        rig.client.during = self._wait

    def _wait(self, request: LlmRequest, cancel: CancelToken | None) -> None:
        self.started.set()
        assert cancel is not None
        forget = cancel.on_cancel(self.release.set)
        assert self.release.wait(BREAK_OFF)
        forget()
        if cancel.is_set():
            self.cancelled = True
            raise LlmError(ErrorKind.CANCELLED, "cancelled", provider="scripted", usage=Usage(input_tokens=5))


def in_background(rig: Rig) -> threading.Thread:
    thread = threading.Thread(target=rig.run_next)
    thread.start()
    return thread


# -- what a turn costs -------------------------------------------------------------------------------------------------


def test_a_turn_is_one_claim_and_one_commit(rig: Rig) -> None:
    rig.script.add("one", "two")
    rig.submit(ASK, {"say": "x"}, ASK)
    rig.database.sent.clear()
    for _ in range(4):
        rig.run_next()
        assert len(rig.database.sent) == 2, rig.database.sent
        assert "SET lease_owner" in rig.database.sent[0]
        assert is_commit(rig.database.sent[1])
        rig.database.sent.clear()
    assert rig.all_closed()


def test_a_counted_call_costs_one_statement_more(rig: Rig) -> None:
    rig.script.add("one")
    rig.submit(ASK, limits=Limits(max_calls=3))
    rig.database.sent.clear()
    rig.run_next()
    assert len(rig.database.sent) == 3


def test_a_duplicated_old_or_unknown_message_costs_one_statement_and_does_nothing(rig: Rig) -> None:
    process = rig.submit({"say": "x"}, {"say": "y"})
    turn = rig.publisher.turns[0]
    rig.run_next()
    before = row(rig.database, "nodes", turn.node_id)
    rig.database.sent.clear()
    assert rig.runner.run("probe", turn.node_id, turn.turn) == 0
    assert rig.runner.run("probe", turn.node_id, 99) == 0
    assert rig.runner.run("probe", 10**9, 1) == 0
    assert len(rig.database.sent) == 3
    assert row(rig.database, "nodes", turn.node_id) == before
    rig.drain()
    assert reasons(rig, process) == ["ADVANCED", "ADVANCED", "CONCLUDED"]


def test_the_same_message_many_times_at_once_runs_the_turn_once(rig: Rig) -> None:
    rig.script.add("one", "two")
    rig.submit(ASK)
    turn = rig.publisher.turns[0]
    assert sum(in_threads(8, lambda _: rig.runner.run("probe", turn.node_id, turn.turn))) == 1
    assert rig.client.calls == 1


def test_a_message_on_another_engines_queue_does_no_harm(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    process = rig.submit({"finish": 1})
    turn = rig.publisher.turns[0]
    assert rig.runner.run("other", turn.node_id, turn.turn) == 0
    assert "wrong queue" in caplog.text
    rig.drain()
    assert rig.result(process) == {"success": True, "attempts": 0, "data": 1}


# -- trees -------------------------------------------------------------------------------------------------------------

TREE: tuple[Step, ...] = (
    ASK,
    {"fan_out": 3, "steps": [{"say": "child"}, {"fan_out": 2, "steps": [{"write": ["k", "v"]}]}]},
    {"fan_out": 2, "mode": "SEQUENTIAL", "each": [[{"fail": "first"}], [{"say": "second"}]]},
    {"call": [{"call": [{"say": "deep"}], "count": 2}], "engine": "other"},
    {"wait": 3600},
    {"finish": "all"},
)  # fmt: skip


def story(rig: Rig, root: UUID) -> dict[str, list[Any]]:
    """What is in the tables of a root process and below, without what differs from run to run."""
    below = "node_id IN (SELECT n.id FROM nodes n JOIN processes p ON p.id = n.process_id WHERE p.root_id = %(r)s)"
    queries = {
        "nodes": "SELECT status, phase, cursor::text, turn, depth, failure FROM nodes n WHERE "
        + below.replace("node_id", "n.id", 1)
        + " ORDER BY 5, 3, 1, 4",
        "records": f"SELECT turn, reason, output::text FROM phase_records WHERE {below} ORDER BY 1, 2, 3",
        "messages": f"SELECT role, kind, content FROM messages WHERE {below} ORDER BY 1, 2, 3",
        "artifacts": f"SELECT key, content FROM artifacts WHERE {below}",
        "calls": f"SELECT turn, attempt, error_kind, input_tokens, output_tokens FROM llm_calls WHERE {below}",
        "results": "SELECT wrapper::text FROM processes JOIN results ON process_id = id WHERE root_id = %(r)s",
    }
    return {name: sorted(rows(rig.database, sql, r=root), key=repr) for name, sql in queries.items()}


def test_a_tree_of_everything_ends_the_same_with_and_without_bursts(database_url: str) -> None:
    stories = []
    for burst in (1, 3, 100):
        with Rig(database_url, "one", burst=burst) as rig:
            process = rig.submit(*TREE)
            assert rig.drain(skip_delays=True) == 36
            result = rig.result(process)
            assert result is not None
            assert (result["success"], result["data"], len(result["calls"])) == (True, "all", 1)
            assert len(result["calls"][0]["calls"]) == 2
            assert broken_invariants(rig.database) == {}
            stories.append(story(rig, process))
            messages = len(rig.publisher.seen)
            assert messages == 36 if burst == 1 else messages < 36
    assert stories[0] == stories[1] == stories[2]
    assert [each[0] for each in stories[0]["nodes"]].count("DONE") == 14
    assert [each[1] for each in stories[0]["records"]].count("FANNED_OUT") == 5


def test_a_burst_is_bounded_and_publishes_what_it_leaves(database_url: str) -> None:
    with Rig(database_url, burst=3) as rig:
        rig.submit(*[{"say": str(n)} for n in range(5)])
        assert rig.run_next() == 3
        assert [turn.turn for turn in rig.publisher.turns] == [4]
        assert rig.run_next() == 3
        assert rig.all_closed()


def test_a_tree_in_many_threads(database_url: str) -> None:
    script = Script.from_data({"default": {"text": "answer"}})
    wide: Step = {"fan_out": 6, "steps": [ASK, {"fan_out": 3, "steps": [ASK]}, {"call": [ASK]}]}
    with Rig(database_url, script=script, pool_size=8) as rig:
        ids = [rig.submit(ASK, wide, {"finish": "end"}) for _ in range(3)]
        rig.drain_in_threads(8, until=rig.all_closed)
        assert [rig.result(each) for each in ids] == [{"success": True, "attempts": 2, "data": "end"}] * 3
        assert rig.client.calls == 3 * (1 + 6 * (1 + 3 + 1))
        assert value(rig.database, "SELECT count(*) FROM llm_calls") == rig.client.calls
        assert (broken_invariants(rig.database), deadlocks(rig.database)) == ({}, 0)


# -- failures of the provider ------------------------------------------------------------------------------------------


def test_a_failure_that_passes_is_a_due_time_and_a_ledger_row(rig: Rig) -> None:
    busy = ScriptedAnswer(error=ErrorKind.RATE_LIMITED, retry_after=7200)
    rig.script.add(busy, ErrorKind.OVERLOADED, "at last")
    process = rig.submit(ASK)
    rig.run_next()
    node = root_node(rig.database, process)
    wait = value(
        rig.database, "SELECT extract(epoch FROM due_at - now())::float8 FROM nodes WHERE id = %(id)s", id=node
    )
    assert wait > 7100
    assert rig.publisher.turns == type(rig.publisher.turns)()
    rig.drain(skip_delays=True)
    assert reasons(rig, process)[:3] == ["RETRY_LATER", "RETRY_LATER", "ADVANCED"]
    ledger = read.calls(rig.database, process)
    assert [call["error_kind"] for call in ledger] == ["rate_limited", "overloaded", None]
    assert {call["attempt"] for call in ledger} == {1}
    assert row(rig.database, "nodes", node)["transport"] == {}
    assert rig.result(process) == {"success": True, "attempts": 1, "data": None}


def test_a_step_down_happens_at_once_and_stays_with_the_node(rig: Rig) -> None:
    rig.script.add(
        ScriptedAnswer(error=ErrorKind.SAMPLING_REJECTED, parameter="temperature"), "one", "two"
    )  # fmt: skip
    process = rig.submit(ASK, ASK)
    rig.run_next()
    assert row(rig.database, "nodes", root_node(rig.database, process))["transport"]["without"] == ["temperature"]
    rig.drain()
    assert reasons(rig, process)[0] == Reason.STEPPED_DOWN
    assert [request.without for request in rig.script.requests] == [
        frozenset(), frozenset({"temperature"}), frozenset({"temperature"}),
    ]  # fmt: skip


def test_failures_are_counted_over_turns_until_the_policy_gives_up(rig: Rig) -> None:
    rig.script.add(*[ErrorKind.EMPTY] * 3)
    process = rig.submit(ASK)
    rig.drain(skip_delays=True)
    assert error_of(rig, process) == "llm_error"
    assert len(read.calls(rig.database, process)) == 3


def test_what_a_failed_call_cost_is_in_the_ledger_and_in_the_budget(rig: Rig) -> None:
    # D20: fail, fail, succeed with 100 tokens each is 300 tokens, a row for each.
    usage = ScriptedUsage(input_tokens=60, output_tokens=40)
    failed = ScriptedAnswer(error=ErrorKind.TRANSPORT, usage=usage, cost_usd=0.01, reached_inference=True)
    rig.script.add(failed, failed, ScriptedAnswer(text="ok", usage=usage, cost_usd=0.01))
    process = rig.submit(ASK, limits=Limits(max_calls=10))
    rig.drain(skip_delays=True)
    ledger = read.calls(rig.database, process)
    assert [call["input_tokens"] + call["output_tokens"] for call in ledger] == [100, 100, 100]
    found = row(rig.database, "processes", process)
    assert (found["used_calls"], found["used_tokens"], found["used_cost_usd"]) == (3, 300, 0.03)
    assert (found["reserved_calls"], found["reserved_tokens"], found["reserved_cost_usd"]) == (0, 0, 0)


def test_nothing_configured_is_no_call(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(request: LlmRequest) -> Any:
        raise LlmError(ErrorKind.NOT_CONFIGURED, "set VANCETOPE_OPENAI_API_KEY")

    monkeypatch.setattr(rig.client, "candidate", nobody)
    process = rig.submit(ASK)
    rig.drain()
    assert error_of(rig, process) == "llm_error"
    assert (rig.client.calls, read.calls(rig.database, process)) == (0, [])


# -- failures of the engine --------------------------------------------------------------------------------------------


def test_an_engine_that_crashes_for_a_while_is_tried_again(rig: Rig) -> None:
    process = rig.submit({"crash": "boom", "times": 2}, {"finish": 1})
    rig.run_next()
    delayed = value(rig.database, "SELECT due_at > now() FROM nodes")
    assert delayed
    rig.drain(skip_delays=True)
    assert reasons(rig, process) == ["CRASHED", "CRASHED", "ADVANCED", "CONCLUDED"]
    assert rig.result(process) == {"success": True, "attempts": 1, "data": 1}


def test_an_engine_that_keeps_crashing_is_told_to_give_up(rig: Rig) -> None:
    process = rig.submit({"crash": "boom"})
    rig.drain(skip_delays=True)
    assert reasons(rig, process)[:MAX_CRASHES] == ["CRASHED"] * MAX_CRASHES
    result = rig.result(process)
    assert result is not None
    assert result["error"] == "internal_error"
    assert "boom" in result["message"]
    assert broken_invariants(rig.database) == {}


@pytest.mark.parametrize("speechless", [False, True])
def test_an_engine_that_will_not_give_up_either_is_closed_over_its_head(rig: Rig, speechless: bool) -> None:
    process = rig.submit({"crash": "boom"}, params={"stubborn": True}, cursor={"speechless": speechless})
    rig.drain(skip_delays=True)
    assert error_of(rig, process) == "internal_error"
    assert row(rig.database, "processes", process)["close_reason"] == "FAILED"
    assert len(reasons(rig, process)) == MAX_CRASHES
    assert broken_invariants(rig.database) == {}


@pytest.mark.parametrize("what", ["nan", "settled", "stranded", "duplicate", "crowd"])
def test_a_decision_that_cannot_be_written_counts_as_a_crash(rig: Rig, what: str) -> None:
    process = rig.submit({"say": "fine"}, {"give": what})
    rig.drain(skip_delays=True)
    assert reasons(rig, process)[:4] == ["ADVANCED", "CRASHED", "CRASHED", "CRASHED"]
    assert error_of(rig, process) == "internal_error"
    assert broken_invariants(rig.database) == {}


class ThinksTwice(ProbeEngine):
    """Fails to decide about the first replies."""

    def decide(self, view: Any, outcome: Any) -> Any:
        if view.node.transport.get("crashes", 0) < 1:
            raise RuntimeError("no idea")
        return super().decide(view, outcome)


def test_a_reply_that_was_paid_for_is_in_the_ledger_although_deciding_about_it_failed(database_url: str) -> None:
    with Rig(database_url, "one", "two", engines={"probe": ThinksTwice()}) as rig:
        process = rig.submit(ASK, limits=Limits(max_calls=5, max_cost_usd=1.0))
        rig.drain(skip_delays=True)
        assert reasons(rig, process)[:2] == ["CRASHED", "ADVANCED"]
        assert len(read.calls(rig.database, process)) == rig.client.calls == 2
        found = row(rig.database, "processes", process)
        assert (found["used_calls"], found["reserved_calls"], found["reserved_tokens"]) == (2, 0, 0)


# -- workers that die --------------------------------------------------------------------------------------------------


def die(rig: Rig) -> None:
    """A worker claims the published turn and is never seen again; the sweeper takes the turn back."""
    turn = rig.publisher.take()
    assert turn is not None
    killed = Rig(rig.database.url, engines={"probe": Mortal(), "other": Mortal()})
    try:
        with pytest.raises(Killed):
            killed.runner.run(turn.engine, turn.node_id, turn.turn)
    finally:
        killed.close()
    expire_lease(rig.database, turn.node_id)
    rig.publisher.publish(take_back_expired(rig.database, batch=10))


class Killed(BaseException):
    pass


class Mortal(ProbeEngine):
    def prepare(self, view: Any) -> Any:
        raise Killed

    def decide(self, view: Any, outcome: Any) -> Any:
        raise Killed


def test_a_turn_that_loses_workers_is_given_up_by_its_engine(rig: Rig) -> None:
    process = rig.submit({"say": "x"}, ASK)
    rig.run_next()
    for _ in range(MAX_LOSSES):
        die(rig)
    rig.drain()
    result = rig.result(process)
    assert result is not None
    assert result["error"] == "internal_error"
    assert "3 workers were lost" in result["message"]
    assert rig.client.calls == 0


def test_losses_begin_anew_with_each_turn(rig: Rig) -> None:
    process = rig.submit(*[{"say": str(n)} for n in range(3)])
    for _ in range(4):
        die(rig)
        die(rig)
        rig.run_next()
    assert rig.result(process) == {"success": True, "attempts": 3, "data": None}


def test_a_turn_that_kills_even_when_told_to_give_up_is_found_by_the_sweeper(rig: Rig) -> None:
    process = rig.submit(ASK)
    for _ in range(HARD_LOSSES):
        die(rig)

    assert poisoned_processes(rig.database, batch=10) == [process]


def test_the_worker_that_comes_back_too_late_writes_nothing(database_url: str) -> None:
    # D6: paused past its lease, another one finishes the node, then it goes on.
    with Rig(database_url, "late answer") as first, Rig(database_url, "answer") as second:
        process = first.submit(ASK)
        turn = first.publisher.turns[0]
        call = Blocked(first)
        thread = in_background(first)
        assert call.started.wait(BREAK_OFF)
        expire_lease(first.database, turn.node_id)
        second.runner.run("probe", turn.node_id, turn.turn)
        second.drain()
        call.release.set()
        thread.join(BREAK_OFF)
        assert first.publisher.turns == type(first.publisher.turns)()
        kept = [message["content"] for message in read.messages(first.database, process)]
        assert "late answer" not in kept
        assert len(read.calls(first.database, process)) == 1
        assert broken_invariants(first.database) == {}


def test_a_call_cut_off_by_the_workers_own_end_is_given_back_and_counts_no_loss(rig: Rig) -> None:
    def going_down(request: LlmRequest, cancel: CancelToken | None) -> None:
        raise LlmError(ErrorKind.CANCELLED, "shutdown", provider="scripted")

    rig.client.during = going_down
    process = rig.submit(ASK)
    rig.run_next()
    found = row(rig.database, "nodes", root_node(rig.database, process))
    assert (found["lease_owner"], found["losses"], found["turn"]) == (None, 0, 1)
    rig.client.during = None
    rig.script.add("answer")
    rig.publish_due()
    rig.drain()
    assert rig.all_closed()


# -- stop, suspend, deadline while a call runs -------------------------------------------------------------------------


def test_a_stop_reaches_the_running_call_and_its_answer_is_dropped(rig: Rig) -> None:
    # C17
    rig.script.add("never seen")
    process = rig.submit(ASK, limits=Limits(max_calls=5))
    call = Blocked(rig)
    thread = in_background(rig)
    assert call.started.wait(BREAK_OFF)
    closed = processes.stop(rig.database, process, lambda closing: {"success": False, "error": "stopped"})
    assert closed == (process,)
    rig.heartbeat.beat()
    thread.join(BREAK_OFF)
    assert call.cancelled
    assert rig.result(process) == {"success": False, "error": "stopped"}
    assert (read.calls(rig.database, process), reasons(rig, process)) == ([], [])
    assert rig.publisher.turns == type(rig.publisher.turns)()
    assert broken_invariants(rig.database) == {}


def test_stopping_hands_the_result_over(rig: Rig) -> None:
    process = rig.submit(ASK)
    handed: list[Any] = []

    class Wired:
        engines = rig.engines
        database = rig.database
        deliverer = staticmethod(handed.extend)
        background = rig.background

    assert stop_process(Wired, process) == (process,)  # type: ignore[arg-type]
    assert [each.wrapper["error"] for each in handed] == ["stopped"]
    assert stop_process(Wired, process) == ()  # type: ignore[arg-type]
    assert len(handed) == 1


def test_the_deadline_reaches_the_running_call_and_the_engine_concludes(rig: Rig) -> None:
    process = rig.submit(ASK, limits=Limits(deadline_seconds=3600))
    call = Blocked(rig)
    thread = in_background(rig)
    assert call.started.wait(BREAK_OFF)
    rows(rig.database, "UPDATE processes SET deadline_at = now() - interval '1 ms'")
    rig.heartbeat.beat()
    thread.join(BREAK_OFF)
    assert call.cancelled
    assert error_of(rig, process) == "budget_exceeded"
    (paid,) = read.calls(rig.database, process)
    assert (paid["error_kind"], paid["input_tokens"]) == ("cancelled", 5)
    assert read.phase_history(rig.database, process)[0]["forced"]


def test_past_the_deadline_no_call_is_made(rig: Rig) -> None:
    process = rig.submit(ASK, limits=Limits(deadline_seconds=0.000_001))
    rig.drain()
    assert error_of(rig, process) == "budget_exceeded"
    assert rig.client.calls == 0


def test_a_reply_that_lands_in_a_suspended_process_is_kept(rig: Rig) -> None:
    rig.script.add("kept")
    process = rig.submit(ASK, {"finish": "end"})
    call = Blocked(rig)
    thread = in_background(rig)
    assert call.started.wait(BREAK_OFF)
    assert processes.suspend(rig.database, process)
    rig.heartbeat.beat()
    call.release.set()
    thread.join(BREAK_OFF)
    assert not call.cancelled
    rig.drain()
    assert rig.status(process) == "SUSPENDED"
    assert [message["content"] for message in read.messages(rig.database, process)] == ["kept"]
    turns = processes.resume(rig.database, process)
    assert turns is not None
    rig.publisher.publish(turns)
    rig.drain()
    assert (rig.status(process), rig.client.calls) == ("CLOSED", 1)


def test_a_suspension_that_aborts_makes_the_call_again_after_the_resume(rig: Rig) -> None:
    rig.script.add("second")
    process = rig.submit(ASK)
    call = Blocked(rig)
    thread = in_background(rig)
    assert call.started.wait(BREAK_OFF)
    processes.suspend(rig.database, process, abort_running=True)
    rig.heartbeat.beat()
    thread.join(BREAK_OFF)
    assert call.cancelled
    rig.client.during = None
    turns = processes.resume(rig.database, process)
    assert turns is not None
    rig.publisher.publish(turns)
    rig.drain()
    assert rig.client.calls == 2
    assert len(read.calls(rig.database, process)) == 1


def test_the_heartbeat_thread_keeps_a_lease_shorter_than_the_call(database_url: str) -> None:
    with Rig(database_url, "slow", lease_seconds=1.0) as rig:
        process = rig.submit(ASK)
        node = root_node(rig.database, process)
        call = Blocked(rig)
        thread = in_background(rig)
        assert call.started.wait(BREAK_OFF)
        first = row(rig.database, "nodes", node)["lease_expires_at"]
        beats = iter(range(3))

        def extended() -> bool:
            nonlocal first
            now = row(rig.database, "nodes", node)["lease_expires_at"]
            if now == first:
                return False
            first = now
            return next(beats, None) == 2

        eventually(extended, "three beats have extended the lease")
        assert take_back_expired(rig.database, batch=10) == []
        call.release.set()
        thread.join(BREAK_OFF)
        assert read.calls(rig.database, process)[0]["error_kind"] is None


# -- connections and PostgreSQL ----------------------------------------------------------------------------------------


def test_no_connection_is_held_and_no_transaction_is_open_during_a_call(rig: Rig) -> None:
    # D3
    rig.script.add("answer")
    rig.submit(ASK, limits=Limits(max_calls=3))
    call = Blocked(rig)
    thread = in_background(rig)
    assert call.started.wait(BREAK_OFF)
    assert rig.database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    states = rows(
        rig.database,
        "SELECT state, xact_start IS NULL FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'vancetope-rig' AND pid <> pg_backend_pid()",
    )
    assert all(state == ("idle", True) for state in states), states
    call.release.set()
    thread.join(BREAK_OFF)


def test_more_threads_than_connections_all_finish(database_url: str) -> None:
    # D4
    script = Script.from_data({"default": {"text": "answer", "delay": 0.02}})
    with Rig(database_url, script=script, pool_size=2) as rig:
        ids = [rig.submit(ASK, ASK, limits=Limits(max_calls=5)) for _ in range(24)]
        rig.drain_in_threads(8, until=rig.all_closed)
        assert all(rig.result(each) == {"success": True, "attempts": 2, "data": None} for each in ids)
        assert rig.client.calls == 48


@pytest.mark.parametrize("times", [1, 3])
def test_a_commit_that_fails_is_tried_again_and_lands_once(rig: Rig, times: int) -> None:
    left = iter(range(times))

    def away(sql: str) -> None:
        if is_commit(sql) and next(left, None) is not None:
            raise DatabaseUnavailable("away")

    rig.script.add("paid")
    process = rig.submit(ASK)
    rig.database.hooks.append(away)
    rig.drain()
    assert (rig.client.calls, len(read.calls(rig.database, process))) == (1, 1)
    assert rig.all_closed()


def test_a_backend_that_is_killed_under_the_commit_is_replaced_and_the_commit_lands_once(rig: Rig) -> None:
    # D5: the lock makes the commit wait; then its backend dies in the middle.
    rig.script.add("paid")
    process = rig.submit(ASK)
    node = root_node(rig.database, process)
    call = Blocked(rig)
    thread = in_background(rig)
    assert call.started.wait(BREAK_OFF)
    with psycopg.connect(rig.database.url) as session:
        session.execute("SELECT 1 FROM nodes WHERE id = %s FOR UPDATE", [node])
        call.release.set()
        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            " AND query LIKE '%moved AS%'"
        )
        with psycopg.connect(rig.database.url, autocommit=True) as admin:
            pid = eventually(lambda: admin.execute(waiting).fetchone(), "the commit waits")[0]
            admin.execute("SELECT pg_terminate_backend(%s)", [pid])
        session.rollback()
    thread.join(BREAK_OFF)
    rig.drain()
    assert (rig.client.calls, len(read.calls(rig.database, process))) == (1, 1)
    assert rig.all_closed()
    assert broken_invariants(rig.database) == {}


def test_a_commit_whose_answer_was_lost_is_not_repeated_and_its_turns_are_found(rig: Rig) -> None:
    # The commit landed, the connection broke before the worker heard of it.
    real = rig.database.statement
    lost = iter([True])

    def statement(sql: str, params: dict[str, Any]) -> list[Any]:
        found = real(sql, params)
        if is_commit(sql) and next(lost, False):
            raise DatabaseUnavailable("gone")
        return found

    rig.database.statement = statement  # type: ignore[method-assign]
    rig.script.add("paid")
    process = rig.submit(ASK)
    rig.run_next()
    assert rig.publisher.turns == type(rig.publisher.turns)()
    make_everything_due(rig.database)
    rows(rig.database, "UPDATE nodes SET next_hint_at = now() WHERE settled_at IS NULL")
    rig.publish_due()
    rig.drain()
    assert (rig.client.calls, len(read.calls(rig.database, process))) == (1, 1)
    assert rig.all_closed()


def test_a_commit_is_given_up_in_the_end_and_the_lease_runs_out(database_url: str) -> None:
    with Rig(database_url, "lost", "again", patience=0.05) as rig:
        process = rig.submit(ASK)

        def away(sql: str) -> None:
            if is_commit(sql):
                raise DatabaseUnavailable("away")

        rig.database.hooks.append(away)
        assert rig.run_next() == 0
        rig.database.hooks.clear()
        assert row(rig.database, "nodes", root_node(rig.database, process))["lease_owner"] is not None
        expire_lease(rig.database, root_node(rig.database, process))
        rig.publisher.publish(take_back_expired(rig.database, batch=10))
        rig.drain()
        assert rig.all_closed()


def test_without_a_database_a_claim_is_given_up_quietly(rig: Rig) -> None:
    rig.submit({"finish": 1})

    def away(sql: str) -> None:
        raise DatabaseUnavailable("away")

    rig.database.hooks.append(away)
    assert rig.run_next() == 0


def test_a_reservation_that_cannot_be_made_now_gives_the_turn_back(rig: Rig) -> None:
    process = rig.submit(ASK, limits=Limits(max_calls=3))
    failed = iter([True])

    def away(sql: str) -> None:
        if "holder" in sql and next(failed, False):
            raise DatabaseUnavailable("pool timeout")

    rig.database.hooks.append(away)
    rig.run_next()
    found = row(rig.database, "nodes", root_node(rig.database, process))
    assert (found["lease_owner"], found["losses"], rig.client.calls) == (None, 0, 0)
    rig.script.add("answer")
    rig.drain(skip_delays=True)
    assert rig.all_closed()


# -- budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits", [Limits(max_calls=2), Limits(max_tokens=18_500), Limits(max_calls=2, max_cost_usd=9.0)]
)
def test_a_spent_budget_ends_in_a_result_never_in_an_open_process(database_url: str, limits: Limits) -> None:
    reply = ScriptedAnswer(text="x", usage=ScriptedUsage(input_tokens=9_000, output_tokens=200))
    with Rig(database_url, *[reply] * 10) as rig:
        process = rig.submit(*[{"ask": "q", "limit": 200}] * 5, limits=limits)
        rig.drain()
        assert error_of(rig, process) == "budget_exceeded"
        assert rig.client.calls == 2
        assert broken_invariants(rig.database) == {}


def test_a_limit_on_money_lets_nobody_call_what_may_cost_anything(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    own = rig.client.candidate

    def unpriced(request: LlmRequest) -> Candidate:
        found = own(request)
        assert found.spec.prices is None
        return replace(found, provider=found.provider.model_copy(update={"wire": "openai"}), model="bigthink-9")

    monkeypatch.setattr(rig.client, "candidate", unpriced)
    process = rig.submit(ASK, limits=Limits(max_cost_usd=5.0))
    rig.drain()
    assert error_of(rig, process) == "budget_exceeded"
    assert "maxCostUsd is 5, and bigthink-9 has no price" in str(read.result(rig.database, process))
    assert (rig.client.calls, broken_invariants(rig.database)) == (0, {})


def test_children_and_sub_processes_share_the_budget_in_threads(database_url: str) -> None:
    script = Script.from_data({"default": {"text": "x", "delay": 0.005}})
    with Rig(database_url, script=script, pool_size=8) as rig:
        steps = {"fan_out": 8, "steps": [ASK, {"call": [ASK, ASK]}]}
        process = rig.submit(steps, ASK, limits=Limits(max_calls=10))
        rig.drain_in_threads(8, until=rig.all_closed)
        assert rig.client.calls <= 10
        found = row(rig.database, "processes", process)
        assert found["used_calls"] == rig.client.calls == len(read.calls(rig.database, process))
        assert (found["reserved_calls"], found["reserved_tokens"]) == (0, 0)
        assert (broken_invariants(rig.database), deadlocks(rig.database)) == ({}, 0)


# -- the gate ----------------------------------------------------------------------------------------------------------


def test_the_concurrency_limit_holds_over_workers_and_everybody_gets_a_turn(database_url: str, redis_url: str) -> None:
    script = Script.from_data({"default": {"text": "x", "delay": 0.05}})
    publisher = CollectingPublisher()
    shared: dict[str, Any] = {"script": script, "redis_url": redis_url, "shared": True, "concurrency": 2}
    with (
        Rig(database_url, publisher=publisher, **shared) as one,
        Rig(database_url, publisher=publisher, **shared) as two,
    ):
        two.client = one.client
        two.runner._client = one.client
        for _ in range(6):
            one.submit(ASK)
        worker = threading.Thread(target=lambda: two.drain_in_threads(3, until=two.all_closed))
        worker.start()
        one.drain_in_threads(3, until=one.all_closed)
        worker.join(BREAK_OFF)
        assert one.client.most_running == 2
        assert one.client.calls == 6
        assert value(one.database, "SELECT max(losses) FROM nodes") == 0
        assert one.redis.zcard("vancetope:gate:{fake}:slots") == 0


def test_the_breaker_opens_lets_one_probe_through_and_closes_again(database_url: str, redis_url: str) -> None:
    options: dict[str, Any] = {"redis_url": redis_url, "shared": True, "breaker_failures": 3, "breaker_seconds": 60}
    with Rig(database_url, *[ErrorKind.OVERLOADED] * 3, **options) as rig:
        for _ in range(3):
            rig.submit(ASK)
        rig.drain()
        assert rig.client.calls == 3
        held = rig.submit(ASK)
        rig.drain()
        assert rig.client.calls == 3
        found = row(rig.database, "nodes", root_node(rig.database, held))
        assert (found["lease_owner"], found["turn"], found["losses"]) == (None, 1, 0)
        assert found["due_at"] is not None

        state = "vancetope:gate:{fake}:state"
        rig.redis.hset(state, "open_until", 1)  # it has been open long enough
        assert not isinstance(rig.gate.enter("fake"), float), "one probe goes through"
        assert isinstance(rig.gate.enter("fake"), float), "and only one"
        rig.redis.hdel(state, "probe_until")
        rig.script.add(*["fine"] * 4)
        rig.drain(skip_delays=True)
        assert rig.all_closed()
        assert rig.redis.hget(state, "open_until") is None


def test_a_probe_that_finds_no_free_slot_is_not_lost(redis_url: str, database_url: str) -> None:
    options: dict[str, Any] = {"redis_url": redis_url, "shared": True, "concurrency": 1, "breaker_failures": 1}
    with Rig(database_url, **options) as rig:
        busy = rig.gate.enter("fake")
        assert not isinstance(busy, float)
        rig.redis.hset("vancetope:gate:{fake}:state", "open_until", 1)
        assert isinstance(rig.gate.enter("fake"), float)
        rig.gate.leave(busy, "neutral")
        assert not isinstance(rig.gate.enter("fake"), float)


def test_a_long_queue_comes_back_spread_over_the_longest_wait(redis_url: str, database_url: str) -> None:
    with Rig(database_url, redis_url=redis_url, shared=True, concurrency=2) as rig:
        assert all(not isinstance(rig.gate.enter("fake"), float) for _ in range(2))
        waits = [rig.gate.enter("fake") for _ in range(1_000)]
        numbers = [wait for wait in waits if isinstance(wait, float)]
        assert len(numbers) == 1_000
        thirds = [sum(low < wait <= low + 20 for wait in numbers) for low in (0, 20, 40)]
        assert min(thirds) > 200, thirds


def test_without_redis_every_call_is_let_through(database_url: str) -> None:
    with Rig(database_url, "one", shared=True, concurrency=1, breaker_failures=1) as rig:
        process = rig.submit(ASK)
        rig.drain()
        assert rig.result(process) == {"success": True, "attempts": 1, "data": None}


def test_the_rung_of_an_earlier_refusal_is_remembered_for_other_nodes(database_url: str, redis_url: str) -> None:
    refused = LlmError(
        ErrorKind.SAMPLING_REJECTED, "no temperature", parameter="temperature", path=StructuredPath.STRICT
    )
    with Rig(database_url, refused, "one", "two", redis_url=redis_url, shared=True) as rig:
        rig.submit(ASK)
        rig.drain()
        rig.submit(ASK)
        rig.drain()
        assert rig.client.calls == 3
        assert rig.script.requests[-1].without == frozenset({"temperature"})
