"""Jeltz end to end on the real store and runner, with a scripted model. Numbers name the behaviours."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import redis
from factory import PROBE, broken_invariants, expire_lease, root_node, row, rows, value
from processes import eventually
from rig import CollectingPublisher, Rig

from engines.jeltz.engine import Jeltz
from engines.llm.base import CancelToken, ErrorKind, LlmError, LlmRequest, StopKind
from engines.llm.scripted import Script, ScriptedAnswer, ScriptedUsage
from models.records import Limits
from models.store import processes, read
from models.store.processes import Closing, Delivery
from models.store.sweep import take_back_expired
from tasks.delivery import Deliverer
from tasks.heartbeat import Heartbeat
from tasks.lessons import Lessons
from tasks.plans import PlanFeed, channel
from tasks.progress import Background
from tasks.runner import TurnRunner
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare

S1 = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
BREAK_OFF = 15.0


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url) as rig:
        yield rig


def spawn(rig: Rig, *, limits: dict[str, Any] | None = None, schema: Any = None, **params: Any) -> UUID:
    """Submit the bundled recipe as a caller would."""
    payload = {
        "recipe": "jeltz",
        "params": {"prompt": "How many?", "schema": S1 if schema is None else schema, **params},
        "limits": limits or {},
    }
    return rig.send(prepare(parse_submission(payload), load_settings({}), rig.engines))


def run(rig: Rig, *answers: Any, **params: Any) -> dict[str, Any]:
    """One job to its end: its wrapper, checked against what must hold of every job."""
    rig.script.add(*answers)
    process = spawn(rig, **params)
    rig.drain(skip_delays=True)
    return closed(rig, process)


def closed(rig: Rig, process: UUID) -> dict[str, Any]:
    found = read.status(rig.database, process)
    wrapper = rig.result(process)
    assert found is not None
    assert wrapper is not None
    assert (found["status"], found["close_reason"]) == ("CLOSED", "DONE")
    results = [each for each in read.messages(rig.database, process) if each["kind"] == "result"]
    assert [json.loads(each["content"]) for each in results] == [wrapper]
    assert [each.wrapper for each in rig.background.deliveries if each.process_id == process] == [wrapper]
    assert broken_invariants(rig.database) == {}
    return wrapper


def stopped(closing: Closing) -> dict[str, Any]:
    return Jeltz().wrapper(closing.cursor, error="stopped", message="stopped on request")


def invalid(n: int) -> dict[str, Any]:
    return {"n": f"no number {n}"}


def test_1_valid_first_reply(rig: Rig) -> None:
    wrapper = run(rig, {"n": 1})
    assert wrapper["success"] is True
    assert (wrapper["attempts"], wrapper["data"]) == (1, {"n": 1})


def test_2_violation_then_valid_is_two_attempts_and_two_turns(rig: Rig) -> None:
    rig.script.add(invalid(1), {"n": 2})
    process = spawn(rig)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["attempts"], wrapper["data"]) == (True, 2, {"n": 2})
    records = read.phase_history(rig.database, process)
    assert [(each["reason"], each["iteration"], each["turn"]) for each in records] == [
        ("CORRECTED", 1, 1), ("CONCLUDED", 2, 2),
    ]  # fmt: skip
    kinds = [(each["role"], each["kind"]) for each in read.messages(rig.database, process)]
    assert kinds == [("user", "prompt"), ("assistant", "reply"), ("system", "correction"), ("assistant", "result")]


@pytest.mark.parametrize("attempts", [2, 3, 5])
def test_3_always_invalid_uses_up_its_attempts(rig: Rig, attempts: int) -> None:
    wrapper = run(rig, *[invalid(n) for n in range(attempts)], maxAttempts=attempts)
    assert (wrapper["success"], wrapper["error"]) == (False, "max_attempts_exceeded")
    assert (wrapper["attempts"], wrapper["lastInvalid"]) == (attempts, invalid(attempts - 1))
    assert rig.client.calls == attempts


@pytest.mark.parametrize(
    ("params", "error"),
    [({"prompt": " "}, "invalid_params"), ({"schema": 7}, "invalid_params"), ({"schema": []}, "invalid_schema")],
)
def test_4_to_6_bad_parameters_end_in_a_wrapper_without_a_call(rig: Rig, params: dict[str, Any], error: str) -> None:
    wrapper = run(rig, **params)
    assert (wrapper["error"], wrapper["attempts"], rig.client.calls) == (error, 0, 0)


def test_7_a_provider_that_refuses_is_an_error_with_its_message(rig: Rig) -> None:
    wrapper = run(rig, LlmError(ErrorKind.BAD_REQUEST, "no such model"))
    assert wrapper["error"] == "llm_error"
    assert "no such model" in wrapper["message"]
    assert rig.client.calls == 1


def test_7_transport_failures_are_retried_by_the_runner_and_are_no_attempts(rig: Rig) -> None:
    wrapper = run(rig, ErrorKind.OVERLOADED, ErrorKind.OVERLOADED, {"n": 1})
    assert (wrapper["success"], wrapper["attempts"], rig.client.calls) == (True, 1, 3)


def test_8_a_late_provider_failure_keeps_the_earlier_answer(rig: Rig) -> None:
    wrapper = run(rig, invalid(1), LlmError(ErrorKind.AUTH, "key expired"))
    assert (wrapper["error"], wrapper["lastInvalid"]) == ("llm_error", invalid(1))


def test_9_stop_while_open_writes_a_stopped_wrapper(rig: Rig) -> None:
    rig.script.add(invalid(1))
    process = spawn(rig)
    rig.run_next()
    assert processes.stop(rig.database, process, stopped) == (process,)
    rig.drain()
    wrapper = rig.result(process)
    assert wrapper is not None
    assert (wrapper["error"], wrapper["attempts"], wrapper["lastInvalid"]) == ("stopped", 1, invalid(1))
    assert row(rig.database, "processes", process)["close_reason"] == "STOPPED"
    assert rig.client.calls == 1


def test_10_stop_when_closed_writes_nothing(rig: Rig) -> None:
    rig.script.add({"n": 1})
    process = spawn(rig)
    rig.drain()
    before = (read.status(rig.database, process), read.messages(rig.database, process), rig.result(process))
    assert processes.stop(rig.database, process, stopped) == ()
    assert (read.status(rig.database, process), read.messages(rig.database, process), rig.result(process)) == before


def test_17_resume_of_a_closed_job_is_a_no_op_and_otherwise_it_goes_on_where_it_was(rig: Rig) -> None:
    rig.script.add(invalid(1), {"n": 2})
    process = spawn(rig)
    rig.run_next()
    processes.suspend(rig.database, process)
    rig.drain()
    assert rig.client.calls == 1
    turns = processes.resume(rig.database, process)
    assert turns is not None
    rig.publisher.publish(turns)
    rig.publisher.publish(turns)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["attempts"], rig.client.calls) == (2, 2)
    assert processes.resume(rig.database, process) is None
    assert rig.drain() == 0
    assert rig.client.calls == 2


def test_18_a_late_answer_after_a_stop_adds_no_second_wrapper(rig: Rig) -> None:
    started, release = threading.Event(), threading.Event()

    def deaf(request: LlmRequest, cancel: CancelToken | None) -> None:
        started.set()
        assert release.wait(BREAK_OFF)

    rig.client.during = deaf
    rig.script.add({"n": 1})
    process = spawn(rig)
    thread = threading.Thread(target=rig.run_next)
    thread.start()
    assert started.wait(BREAK_OFF)
    processes.stop(rig.database, process, stopped)
    release.set()
    thread.join(BREAK_OFF)
    wrapper = rig.result(process)
    assert wrapper is not None
    assert wrapper["error"] == "stopped"
    assert len([each for each in read.messages(rig.database, process) if each["kind"] == "result"]) == 1
    assert rig.background.deliveries == []
    assert broken_invariants(rig.database) == {}


def test_a_job_taken_over_in_the_middle_goes_on_with_the_attempt_it_was_in(database_url: str) -> None:
    publisher = CollectingPublisher()
    with (
        Rig(database_url, invalid(1), publisher=publisher) as first,
        Rig(database_url, {"n": 2}, publisher=publisher) as second,
    ):
        process = spawn(first)
        first.run_next()
        node = root_node(first.database, process)
        # The first worker dies with its second turn.
        value(
            first.database,
            "UPDATE nodes SET lease_owner = 'dead', lease_expires_at = now() WHERE id = %(id)s RETURNING id",
            id=node,
        )
        expire_lease(first.database, node)
        publisher.publish(take_back_expired(first.database, batch=10))
        second.drain()
        wrapper = closed(second, process)
        assert (wrapper["attempts"], wrapper["data"]) == (2, {"n": 2})
        (request,) = second.script.requests
        assert "no number 1" in json.dumps([message.content for message in request.messages])


class CollectingDeliverer(Deliverer):
    """Hands over and marks in memory."""

    def __init__(self) -> None:
        self.handed: list[UUID] = []
        self.marked: list[UUID] = []

    def hand_over(self, deliveries: list[Delivery]) -> list[UUID]:
        self.handed += [each.process_id for each in deliveries]
        return [each.process_id for each in deliveries]

    def mark(self, process_ids: list[UUID]) -> None:
        self.marked += process_ids


def test_25_chunks_are_published_while_the_call_runs(rig: Rig, redis_url: str) -> None:
    # The real channel: a subscriber sees the pieces, then the turn, then the end.
    client = redis.Redis.from_url(redis_url)
    deliverer = CollectingDeliverer()
    background = Background(client, deliverer, PlanFeed(client, rig.database))
    heartbeat = Heartbeat(rig.database, lease_seconds=30.0)
    runner = TurnRunner(
        database=rig.database, engines=rig.engines, client=rig.client, heartbeat=heartbeat, gate=rig.gate,
        lessons=Lessons(client), publisher=rig.publisher, background=background, lease_seconds=30.0,  # type: ignore[arg-type]
    )  # fmt: skip
    padding = " " * 200
    rig.script.add(ScriptedAnswer(chunks=(f'{{"n":{padding}', f"1{padding}", "}")))
    process = spawn(rig)
    seen: list[dict[str, Any]] = []
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(channel(process))
        listener.get_message(timeout=1)
        turn = rig.publisher.take()
        assert turn is not None
        runner.run(turn.engine, turn.node_id, turn.turn)

        def ended() -> bool:
            message = listener.get_message(timeout=0.2)
            if message is not None:
                seen.append(json.loads(message["data"]))
            return bool(seen) and seen[-1]["kind"] == "closed"

        eventually(ended, "the end is announced")
    assert background.flush(5)
    heartbeat.close()
    client.close()
    kinds = [each["kind"] for each in seen]
    assert kinds[-2:] == ["turn", "closed"]
    assert kinds.count("chunk") >= 2
    assert json.loads("".join(each["text"] for each in seen if each["kind"] == "chunk")) == {"n": 1}
    assert {each["process"] for each in seen} == {str(process)}
    assert deliverer.handed == deliverer.marked == [process]


def test_a_lone_surrogate_in_a_stream_costs_no_other_event(rig: Rig, redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    background = Background(client, CollectingDeliverer(), PlanFeed(client, rig.database))
    root = UUID(int=1)
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(channel(root))
        listener.get_message(timeout=1)
        for text in ("one", "\ud83d", "two"):
            background.emit(root, {"kind": "chunk", "text": text})
        seen: list[str] = []

        def all_there() -> bool:
            message = listener.get_message(timeout=0.2)
            if message is not None:
                seen.append(json.loads(message["data"])["text"])
            return len(seen) == 3

        eventually(all_there, "all three pieces arrive")
    assert (seen[0], seen[2]) == ("one", "two")
    client.close()


def test_26_every_attempt_is_in_the_ledger_and_in_the_budget(rig: Rig) -> None:
    # D20
    usage = ScriptedUsage(input_tokens=70, output_tokens=30)
    answers = [ScriptedAnswer(json=invalid(n), usage=usage) for n in range(2)]
    rig.script.add(*answers, ScriptedAnswer(json={"n": 1}, usage=usage))
    process = spawn(rig, limits={"maxCalls": 9})
    rig.drain()
    closed(rig, process)
    ledger = read.calls(rig.database, process)
    assert [(each["attempt"], each["input_tokens"] + each["output_tokens"]) for each in ledger] == [
        (1, 100), (2, 100), (3, 100),
    ]  # fmt: skip
    found = row(rig.database, "processes", process)
    assert (found["used_calls"], found["used_tokens"], found["reserved_calls"]) == (3, 300, 0)
    status = read.status(rig.database, process)
    assert status is not None
    assert (status["usage"]["calls"], status["usage"]["input_tokens"]) == (3, 210)


def test_26_what_failed_attempts_cost_is_kept_when_the_job_fails_too(rig: Rig) -> None:
    usage = ScriptedUsage(input_tokens=100)
    broken = ScriptedAnswer(error=ErrorKind.BAD_REQUEST, usage=usage, reached_inference=True, message="gone")
    rig.script.add(ScriptedAnswer(json=invalid(1), usage=usage), broken)
    process = spawn(rig)
    rig.drain()
    assert closed(rig, process)["error"] == "llm_error"
    ledger = read.calls(rig.database, process)
    assert [(each["error_kind"], each["input_tokens"]) for each in ledger] == [(None, 100), ("bad_request", 100)]


def test_27_a_spawn_makes_no_call_and_the_wrapper_is_there_afterwards(rig: Rig) -> None:
    rig.script.add({"n": 1})
    process = spawn(rig)
    assert rig.client.calls == 0
    assert (rig.status(process), rig.result(process)) == ("INIT", None)
    rig.drain()
    assert closed(rig, process)["data"] == {"n": 1}


@pytest.mark.parametrize("limits", [{"maxCalls": 1}, {"maxTokens": 1}, {"deadlineSeconds": 0.000_001}])
def test_28_a_refusal_by_the_budget_ends_in_a_wrapper(rig: Rig, limits: dict[str, Any]) -> None:
    wrapper = run(rig, invalid(1), invalid(2), limits=limits)
    assert (wrapper["success"], wrapper["error"]) == (False, "budget_exceeded")
    assert rig.client.calls == wrapper["attempts"] == (1 if "maxCalls" in limits else 0)
    assert value(rig.database, "SELECT bool_or(forced) FROM phase_records")


# -- what the cases of group D say about Jeltz -------------------------------------------------------------------------


def test_d1_a_nul_in_an_answer_is_replaced_and_the_job_ends(rig: Rig) -> None:
    schema = {"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}
    rig.script.add('{"s":"a\\u0000b"}')
    process = spawn(rig, schema=schema, prompt="with a \x00")
    rig.drain()
    stored = rig.result(process)
    assert stored is not None
    assert stored["data"] == {"s": "a\ufffdb"}
    assert row(rig.database, "processes", process)["close_reason"] == "DONE"
    assert value(rig.database, "SELECT sum(replaced_characters)::int FROM phase_records") > 0
    assert broken_invariants(rig.database) == {}


def test_b6_the_digits_of_a_big_integer_survive(rig: Rig) -> None:
    wrapper = run(rig, '{"n": 12345678901234567890123}')
    assert wrapper["data"] == {"n": 12345678901234567890123}


def test_a10_what_no_json_has_is_corrected_and_never_stored(rig: Rig) -> None:
    schema = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}
    wrapper = run(rig, '{"score": NaN}', '{"score": 1e400}', {"score": 1.5}, schema=schema)
    assert (wrapper["attempts"], wrapper["data"]) == (3, {"score": 1.5})


def test_a9_cut_answers_get_more_room_and_do_not_grow_the_prompt(rig: Rig) -> None:
    cut = ScriptedAnswer(text='{"n": 1' + " " * 5_000, stop=StopKind.LENGTH)
    rig.script.add(cut, cut, cut)
    process = spawn(rig, maxOutputTokens=16)
    rig.drain()
    assert closed(rig, process)["error"] == "truncated"
    requests = rig.script.requests
    limits = [request.max_output_tokens or 0 for request in requests]
    assert limits == sorted(set(limits))
    sizes = [sum(len(message.content) for message in request.messages) for request in requests]
    assert max(sizes) - sizes[0] < 1_000


def stored_bytes(rig: Rig, process: UUID) -> int:
    tables = {
        "messages": "process_id = %(id)s",
        "results": "process_id = %(id)s",
        "nodes": "process_id = %(id)s",
        "phase_records": "node_id IN (SELECT id FROM nodes WHERE process_id = %(id)s)",
        "llm_calls": "process_id = %(id)s",
        "artifacts": "node_id IN (SELECT id FROM nodes WHERE process_id = %(id)s)",
    }
    sizes = (
        value(
            rig.database, f"SELECT coalesce(sum(length(t::text)), 0)::bigint FROM {table} t WHERE {where}", id=process
        )
        for table, where in tables.items()
    )
    return sum(sizes)


def test_d16_what_is_stored_grows_with_the_text_and_not_with_its_square(database_url: str) -> None:
    text = "x" * 20_000
    with Rig(database_url, engines={"jeltz": Jeltz(), "probe": PROBE}) as rig:
        grown = []
        for attempts in (1, 5, 10):
            rig.script.add(*[{"n": text}] * attempts)
            process = spawn(rig, maxAttempts=attempts)
            rig.drain()
            closed(rig, process)
            grown.append(stored_bytes(rig, process) / len(text))
        one, five, ten = grown
        assert ten - five == pytest.approx(five - one, rel=0.5)
        assert ten < 3 * 10


def test_d16_the_history_of_a_tree_grows_with_its_nodes(database_url: str) -> None:
    text = "y" * 10_000
    with Rig(database_url, script=Script.from_data({"default": {"text": text}})) as rig:
        sizes = []
        for number in (5, 20):
            process = rig.submit({"fan_out": number, "steps": [{"ask": "q"}]}, limits=Limits())
            rig.drain()
            assert rig.result(process) is not None
            sizes.append(stored_bytes(rig, process) / (number * len(text)))
        assert sizes[1] == pytest.approx(sizes[0], rel=0.2)
        assert max(sizes) < 3
        assert rows(rig.database, "SELECT 1 FROM nodes WHERE length(cursor::text) > 2000") == []
