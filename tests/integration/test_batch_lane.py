"""Jobs in the batch lane: the real store and runner, the official SDKs, and a fake provider over HTTP."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from factory import claimed, deadlocks, expire_lease, root_node, rows, value
from fakes.provider import FakeProvider, Recorded
from fakes.wire_formats import Answer
from lanes import HOUR, MODELS, S1, BatchLaneStage
from plans import WEB_RESEARCH, closed_plan, straight, subtasks
from plans import call as plan_call
from rig import in_threads

from engines.llm.batch import BatchClient
from engines.llm.client import shutdown
from engines.llm.openai_batch import Batches
from models.store import batch_requests, batches, processes, read
from models.store.database import DatabaseUnavailable
from models.store.sweep import take_back_expired, wake_overdue
from tasks.lane import TOO_LATE
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare

MakeStage = Callable[..., BatchLaneStage]


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(default=Answer(json={"n": 1})) as fake:
        yield fake
        shutdown()


@pytest.fixture
def make(provider: FakeProvider, database_url: str, redis_url: str) -> Iterator[MakeStage]:
    made: list[BatchLaneStage] = []

    def stage(wire: str = "openai", **options: object) -> BatchLaneStage:
        made.append(BatchLaneStage(database_url, redis_url, provider, wire, **options))
        return made[-1]

    yield stage
    for each in made:
        each.close()


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_job_goes_through_a_batch_and_costs_half(make: MakeStage, wire: str) -> None:
    stage = make(wire)
    usage = {"input": 1_000, "output": 100}
    stage.provider.rule("How many?", Answer(json={"n": 7}, usage=usage))
    process = stage.jeltz()
    stage.park()
    assert stage.states() == ["WAITING"]
    stage.settle()
    wrapper = stage.wrapper(process)
    assert (wrapper["success"], wrapper["data"], wrapper["attempts"]) == (True, {"n": 7}, 1)
    assert stage.ledger(process) == [("batch", None)]
    assert stage.calls_at_once() == 0
    assert stage.batches() == [("ENDED", "completed", 1)]

    live = stage.jeltz(lane="normal")
    stage.rig.drain()
    assert stage.wrapper(live)["data"] == {"n": 7}
    assert stage.ledger(live) == [("normal", None)]
    assert stage.cost(process) == pytest.approx(stage.cost(live) / 2)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_answers_find_their_jobs_in_any_order_and_errors_their_policy(make: MakeStage, wire: str) -> None:
    stage = make(wire)
    overloaded = Answer(status=529 if wire == "anthropic" else 503, body=error("overloaded_error", "busy"))
    stage.provider.rule("busy first", overloaded, Answer(json={"n": 2}))
    stage.provider.rule("never", Answer(status=400, body=error("invalid_request_error", "no such thing")))
    stage.provider.rule("odd one", Answer(json={"n": 3}))
    busy, never, odd = (stage.jeltz(prompt) for prompt in ("busy first", "never", "odd one"))
    stage.park()
    stage.collect()
    assert stage.batches() == [("SUBMITTED", None, 3)]
    stage.collect()
    stage.settle()
    assert stage.wrapper(busy)["data"] == {"n": 2}
    assert stage.wrapper(odd)["data"] == {"n": 3}
    assert (stage.wrapper(never)["success"], stage.wrapper(never)["error"]) == (False, "llm_error")
    assert "no such thing" in stage.wrapper(never)["message"]
    assert stage.ledger(busy) == [("batch", "overloaded"), ("batch", None)]
    assert stage.ledger(never) == [("batch", "bad_request")]
    assert stage.batches() == [("ENDED", "completed", 3), ("ENDED", "completed", 1)]
    assert stage.calls_at_once() == 0


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_correction_is_another_call_of_another_batch(make: MakeStage, wire: str) -> None:
    stage = make(wire)
    stage.provider.enqueue(Answer(json={"n": "many"}), Answer(json={"n": 4}))
    process = stage.jeltz()
    stage.settle()
    assert (stage.wrapper(process)["data"], stage.wrapper(process)["attempts"]) == ({"n": 4}, 2)
    assert stage.ledger(process) == [("batch", None), ("batch", None)]
    second = stage.provider.batches.made[1].lines[0][1]
    assert "many" in str(second["messages"])


@pytest.mark.parametrize(("wire", "rung"), [("openai", "response_format"), ("anthropic", "tools")])
def test_a_refused_schema_goes_one_rung_down_and_is_read_as_it_was_sent(make: MakeStage, wire: str, rung: str) -> None:
    stage = make(wire)
    refusal = "Invalid schema for response_format" if wire == "openai" else "output_config: schema is too complex"
    stage.provider.enqueue(Answer(status=400, body=error("invalid_request_error", refusal)), Answer(json={"n": 5}))
    process = stage.jeltz()
    stage.settle()
    assert stage.wrapper(process)["data"] == {"n": 5}
    assert stage.ledger(process) == [("batch", "schema_rejected"), ("batch", None)]
    assert rung in stage.provider.batches.made[1].lines[0][1]
    paths = [each["structured_path"] for each in read.calls(stage.rig.database, process)]
    assert paths == ["strict", "loose"]


def test_what_a_lane_does_not_have_is_called_at_once_and_the_record_says_so(make: MakeStage) -> None:
    stage = make("groq")
    process = stage.jeltz()
    stage.rig.drain()
    assert stage.wrapper(process)["data"] == {"n": 1}
    assert (stage.ledger(process), stage.notes(process)) == ([("normal", None)], ["groq has no batches"])
    assert (stage.requests(), stage.calls_at_once()) == ([], 1)


def test_requests_are_grouped_by_model_size_and_age(make: MakeStage) -> None:
    stage = make()
    for number in range(5):
        stage.jeltz(f"question {number}")
    for number in range(2):
        stage.jeltz(f"other {number}", params={"model": "openai:gpt-4o-mini"})
    stage.park()
    patient = stage.another_collector(size=2, wait_seconds=HOUR)
    patient.collect()
    sizes = rows(stage.rig.database, "SELECT model, requests FROM batches ORDER BY model, id")
    assert sizes == [("gpt-4o", 2), ("gpt-4o", 2), ("gpt-4o", 1), ("gpt-4o-mini", 2)]
    stage.jeltz("alone")
    stage.park()
    patient.collect()
    assert stage.states()[-1] == "WAITING"
    rows(stage.rig.database, "UPDATE batch_requests SET created_at = now() - interval '2 hours' RETURNING id")
    patient.collect()
    assert stage.states()[-1] != "WAITING"
    stage.settle()
    assert stage.calls_at_once() == 0


def test_at_the_deadline_the_call_is_made_at_once_and_the_late_answer_is_only_paid(make: MakeStage) -> None:
    stage = make()
    stage.provider.batches.hold()
    stage.provider.rule("How many?", Answer(json={"n": 6}, usage={"input": 1_000, "output": 100}))
    process = stage.jeltz(limits={"maxCalls": 10})
    stage.park()
    stage.collect()
    assert stage.states() == ["SENT"]
    stage.end_the_lane()
    stage.rig.drain()
    assert stage.wrapper(process)["data"] == {"n": 6}
    assert (stage.ledger(process), stage.notes(process)) == ([("normal", None)], [TOO_LATE])
    at_once = stage.cost(process)
    # Nobody waits for the batch any more: it is cancelled. This one was done before.
    stage.provider.batches.release()
    stage.settle()
    assert stage.ledger(process) == [("normal", None), ("batch", None)]
    assert stage.cost(process) == pytest.approx(at_once * 1.5)
    used = rows(stage.rig.database, "SELECT used_calls, used_tokens, used_cost_usd, reserved_calls FROM processes")[0]
    assert (used[0], used[1], used[3]) == (2, 2_200, 0)
    assert float(used[2]) == pytest.approx(at_once * 1.5)
    assert stage.wrapper(process)["data"] == {"n": 6}


def test_an_answer_that_comes_during_the_call_at_once_is_there_for_a_worker_that_takes_over(make: MakeStage) -> None:
    stage = make()
    stage.provider.batches.hold()
    process = stage.jeltz()
    stage.park()
    stage.collect()
    stage.end_the_lane()
    node = root_node(stage.rig.database, process)
    assert stage.rig.batches is not None
    lost = claimed(stage.rig.database, node)
    filed = batch_requests.look(stage.rig.database, lost.lease).filed
    assert filed is not None
    assert batch_requests.withdraw(stage.rig.database, filed.id)
    stage.provider.batches.release()
    stage.collect()
    expire_lease(stage.rig.database, node)
    stage.rig.publisher.publish(take_back_expired(stage.rig.database, batch=10))
    stage.settle()
    assert stage.wrapper(process)["data"] == {"n": 1}
    assert (stage.ledger(process), stage.calls_at_once()) == ([("batch", None)], 0)


def test_a_worker_lost_with_the_answer_in_its_hands_costs_nothing(make: MakeStage) -> None:
    stage = make()
    process = stage.jeltz(limits={"maxCalls": 1})
    stage.park()
    stage.collect()
    stage.collect()
    assert stage.states() == ["ANSWERED"]
    node = root_node(stage.rig.database, process)
    stage.rig.publisher.turns.clear()
    claimed(stage.rig.database, node)
    expire_lease(stage.rig.database, node)
    stage.rig.publisher.publish(take_back_expired(stage.rig.database, batch=10))
    stage.settle()
    assert stage.wrapper(process)["success"] is True
    assert stage.ledger(process) == [("batch", None)]
    used = rows(stage.rig.database, "SELECT used_calls, reserved_calls, reserved_tokens FROM processes")
    assert used == [(1, 0, 0)]


@pytest.mark.parametrize("sent", [False, True])
def test_a_stop_withdraws_what_waits(make: MakeStage, sent: bool) -> None:
    stage = make()
    stage.provider.batches.hold()
    process = stage.jeltz(limits={"maxCalls": 3})
    stage.park()
    if sent:
        stage.collect()
    assert processes.stop(stage.rig.database, process, lambda _: {"success": False, "error": "stopped"})
    stage.settle()
    made = stage.provider.batches.made
    assert [batch.cancelled for batch in made] == ([True] if sent else [])
    assert (stage.ledger(process), stage.calls_at_once()) == ([], 0)
    assert rows(stage.rig.database, "SELECT used_calls, reserved_calls FROM processes") == [(0, 0)]


def test_only_a_batch_that_nobody_waits_for_is_cancelled(make: MakeStage) -> None:
    stage = make()
    stage.provider.batches.hold()
    stopped, other = stage.jeltz("one"), stage.jeltz("two")
    stage.park()
    stage.collect()
    processes.stop(stage.rig.database, stopped, lambda _: {"success": False, "error": "stopped"})
    stage.collect()
    stage.collect()
    assert stage.states() == ["WITHDRAWN", "SENT"]
    stage.provider.batches.release()
    stage.settle()
    assert stage.provider.batches.made[0].cancelled is False
    assert stage.wrapper(other)["success"] is True
    # Paid is paid.
    assert stage.ledger(stopped) == [("batch", None)]


def test_a_suspended_job_sends_nothing_and_keeps_its_answer(make: MakeStage) -> None:
    stage = make()
    unsent, sent = stage.jeltz("one"), stage.jeltz("two")
    stage.park()
    processes.suspend(stage.rig.database, unsent)
    stage.collect()
    assert stage.states() == ["WAITING", "SENT"]
    processes.suspend(stage.rig.database, sent)
    stage.collect()
    assert stage.states() == ["WAITING", "ANSWERED"]
    stage.rig.drain()
    assert [stage.rig.status(each) for each in (unsent, sent)] == ["SUSPENDED", "SUSPENDED"]
    for each in (unsent, sent):
        stage.rig.publisher.publish(processes.resume(stage.rig.database, each) or [])
    stage.settle()
    assert [stage.ledger(each) for each in (unsent, sent)] == [[("batch", None)], [("batch", None)]]
    assert stage.calls_at_once() == 0


def test_past_its_deadline_a_process_waits_for_no_batch(make: MakeStage) -> None:
    stage = make()
    stage.provider.batches.hold()
    process = stage.jeltz(limits={"deadlineSeconds": 1_000})
    stage.park()
    stage.collect()
    rows(stage.rig.database, "UPDATE processes SET deadline_at = now() RETURNING id")
    stage.rig.publisher.publish(wake_overdue(stage.rig.database, batch=10))
    stage.settle()
    assert (stage.wrapper(process)["success"], stage.wrapper(process)["error"]) == (False, "budget_exceeded")
    assert (stage.ledger(process), stage.calls_at_once()) == ([], 0)
    assert stage.provider.batches.made[0].cancelled is True


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_batch_whose_id_was_never_kept_is_found_again_and_not_sent_twice(
    make: MakeStage, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make(wire)
    jobs = [stage.jeltz(f"question {number}") for number in range(3)]
    stage.park()
    with monkeypatch.context() as patch:
        patch.setattr(batches, "submitted", _gone)
        stage.collect()
    assert (stage.batches(), len(stage.provider.batches.made)) == ([("SUBMITTING", None, 3)], 1)
    stage.settle()
    assert [stage.wrapper(job)["success"] for job in jobs] == [True, True, True]
    assert len(stage.provider.batches.made) == 1


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_batch_that_was_never_sent_is_not_taken_for_another_of_its_size(
    make: MakeStage, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make(wire)
    stage.provider.batches.hold()
    first = stage.jeltz("first")
    stage.park()
    stage.collect()
    second = stage.jeltz("second")
    stage.park()
    with monkeypatch.context() as patch:
        patch.setattr(BatchClient, "submit", _gone)
        stage.collect()
    assert [state for state, *_ in stage.batches()] == ["SUBMITTED", "SUBMITTING"]
    stage.provider.batches.release()
    stage.settle()
    assert [stage.ledger(job) for job in (first, second)] == [[("batch", None)], [("batch", None)]]
    assert len(stage.provider.batches.made) == 2


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_batch_whose_creation_was_not_confirmed_is_looked_for_first(make: MakeStage, wire: str) -> None:
    stage = make(wire)
    stage.provider.batches.plan(lose=True)
    process = stage.jeltz()
    stage.park()
    stage.collect()
    assert stage.batches() == [("SUBMITTING", None, 1)]
    stage.settle()
    assert stage.wrapper(process)["success"] is True
    assert len(stage.provider.batches.made) == 1


@pytest.mark.parametrize("finds", [True, False])
def test_a_collector_that_took_too_long_gives_way(
    make: MakeStage, finds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make()
    stage.provider.batches.hold()
    process = stage.jeltz()
    stage.park()
    quick = stage.another_collector()
    if not finds:
        monkeypatch.setattr(Batches, "find", _nothing)

    def another_visits(sql: str) -> None:
        if "state = 'SUBMITTED'" in sql:
            stage.rig.database.hooks.clear()
            rows(stage.rig.database, "UPDATE batches SET next_visit_at = now() RETURNING id")
            quick.collect()

    stage.rig.database.hooks.append(another_visits)
    stage.collect()
    # The second one found the batch there, or sent another one; then the first is taken back.
    assert [batch.cancelled for batch in stage.provider.batches.made] == ([False] if finds else [True, False])
    stage.provider.batches.release()
    stage.settle()
    assert stage.ledger(process) == [("batch", None)]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_an_expired_batch_answers_some_and_the_others_go_into_another(make: MakeStage, wire: str) -> None:
    stage = make(wire)
    stage.provider.batches.plan(ending="expired", answered=1)
    jobs = [stage.jeltz(f"question {number}") for number in range(2)]
    stage.park()
    stage.settle()
    assert [stage.ledger(job) for job in jobs] == [[("batch", None)], [("batch", "timeout"), ("batch", None)]]
    assert [outcome for _, outcome, _ in stage.batches()] == ["expired", "completed"]


def test_a_file_the_provider_does_not_accept_sends_its_calls_to_the_normal_lane(make: MakeStage) -> None:
    stage = make()
    stage.provider.batches.plan(ending="failed")
    process = stage.jeltz()
    stage.settle()
    assert stage.wrapper(process)["success"] is True
    assert stage.ledger(process) == [("normal", None)]
    assert stage.notes(process) == ["openai refuses the batch: invalid_file: the file is not valid"]
    assert stage.batches() == [("ENDED", "failed", 1)]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_refused_batch_sends_its_calls_to_the_normal_lane(make: MakeStage, wire: str) -> None:
    stage = make(wire)
    stage.provider.batches.plan(refuse=403)
    process = stage.jeltz()
    stage.settle()
    assert stage.ledger(process) == [("normal", None)]
    (note,) = stage.notes(process)
    assert note is not None
    assert "no batches today (403)" in note
    assert stage.batches() == [("ENDED", "refused", 1)]


def test_a_provider_that_is_busy_gets_the_batch_later(make: MakeStage) -> None:
    stage = make()
    stage.provider.batches.plan(refuse=429)
    stage.provider.batches.plan(refuse=503)
    process = stage.jeltz()
    stage.park()
    stage.collect()
    assert rows(stage.rig.database, "SELECT state, failures FROM batches") == [("SUBMITTING", 1)]
    stage.settle()
    assert stage.ledger(process) == [("batch", None)]
    assert len(stage.provider.batches.made) == 1


def test_a_batch_the_provider_forgot_is_asked_for_in_vain_for_some_days_only(make: MakeStage) -> None:
    stage = make()
    stage.provider.batches.hold()
    process = stage.jeltz()
    stage.park()
    stage.collect()
    stage.provider.batches.made.clear()
    stage.collect()
    assert stage.batches() == [("SUBMITTED", None, 1)]
    rows(stage.rig.database, "UPDATE batches SET created_at = now() - interval '73 hours' RETURNING id")
    stage.provider.batches.release()
    stage.settle()
    assert stage.ledger(process) == [("batch", "transport"), ("batch", None)]
    assert [outcome for _, outcome, _ in stage.batches()] == ["expired", "completed"]


def test_results_of_others_and_of_nobody_are_left_alone(make: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = make()
    real = Batches.answers

    async def more(self: Batches, batch_id: str) -> list[tuple[str, dict[str, Any]]]:
        found = await real(self, batch_id)
        key = found[0][0].rpartition("-")[0]
        strange = ("", "x", key, f"{key}-", f"{key}-0", f"{key}-{10**30}", f"{key}-1e1", "None")
        return [*((each, {"response": None}) for each in strange), *found, *found]

    monkeypatch.setattr(Batches, "answers", more)
    process = stage.jeltz()
    stage.settle()
    assert stage.wrapper(process)["success"] is True
    assert stage.ledger(process) == [("batch", None)]


def test_several_collectors_at_once_send_each_request_once(make: MakeStage) -> None:
    stage = make(pool_size=8)
    jobs = [stage.jeltz(f"question {number}") for number in range(40)]
    stage.park()
    collectors = [stage.another_collector(size=7) for _ in range(4)]
    in_threads(4, lambda index: collectors[index].collect())
    asked = [body for batch in stage.provider.batches.made for _, body in batch.lines]
    assert len(asked) == len({str(body) for body in asked}) == 40
    stage.settle()
    assert [stage.ledger(job) for job in jobs] == [[("batch", None)]] * 40
    assert deadlocks(stage.rig.database) == 0


def test_a_call_that_waits_holds_its_budget_and_no_slot(make: MakeStage) -> None:
    stage = make(concurrency=1)
    stage.provider.batches.hold()
    waiting = stage.jeltz(limits={"maxCalls": 1, "maxCostUsd": 1.0})
    stage.park()
    stage.collect()
    reserved = rows(stage.rig.database, "SELECT reserved_calls, reserved_cost_usd > 0, used_calls FROM processes")
    assert reserved == [(1, True, 0)]
    assert rows(stage.rig.database, "SELECT lease_owner, status FROM nodes") == [(None, "WAITING")]
    live = stage.jeltz(lane="normal")
    stage.rig.drain()
    assert stage.wrapper(live)["success"] is True
    stage.provider.batches.release()
    stage.settle()
    settled = rows(
        stage.rig.database,
        "SELECT reserved_calls, reserved_cost_usd, used_calls FROM processes WHERE id = %(id)s",
        id=waiting,
    )
    assert settled == [(0, 0, 1)]


def test_a_call_that_falls_back_is_reserved_once(make: MakeStage) -> None:
    stage = make()
    stage.provider.batches.plan(ending="failed")
    process = stage.jeltz(limits={"maxCalls": 1})
    stage.settle()
    assert stage.wrapper(process)["success"] is True
    assert rows(stage.rig.database, "SELECT used_calls, reserved_calls FROM processes") == [(1, 0)]


def test_a_plan_waits_in_waves_with_all_it_calls(make: MakeStage, tmp_path: Path) -> None:
    (tmp_path / "web-research.yaml").write_text(WEB_RESEARCH.replace("scripted:scripted", MODELS["openai"]))
    stage = make()
    stage.provider.default = _plays
    payload = {"recipe": "marvin", "goal": "All", "lane": "batch", "limits": {"maxCalls": 100}}
    params = {"model": stage.model, "availableRecipes": ["web-research"], "defaultExecutionMode": "PARALLEL"}
    settings = load_settings({"VANCETOPE_RECIPES_DIR": str(tmp_path)})
    process = stage.rig.send(prepare(parse_submission({**payload, "params": params}), settings, stage.rig.engines))
    sizes = []
    for _ in range(40):
        stage.rig.drain()
        if stage.rig.all_closed():
            break
        assert stage.rig.status(process) == "RUNNING"
        stage.provider.batches.hold()
        stage.collect()
        sizes.append(len(stage.provider.batches.made[-1].lines))
        stage.provider.batches.release()
        stage.collect()
    wrapper = closed_plan(stage.rig, process)
    assert (wrapper["result"], wrapper["nodeCount"]) == ("All of it", 4)
    # The root's scope; then its three children side by side, one of which calls a recipe.
    assert (sizes[0], max(sizes)) == (1, 3)
    lanes = Counter(stage.ledger(process))
    assert lanes == {("batch", None): sum(sizes)}
    assert stage.calls_at_once() == 0
    assert value(stage.rig.database, "SELECT count(*) FROM processes WHERE parent_node_id IS NOT NULL") == 1
    stage.settle()


def _plays(request: Recorded) -> Answer:
    """Three parts, the second of which looks something up."""
    phase = request.body["response_format"]["json_schema"]["name"].upper()
    found = re.search(r"<<< Goal \[\w+\]\n(.*?)\n\[\w+\] end >>>", request.text, re.DOTALL)
    goal = found[1] if found else ""
    if phase == "ANSWER":
        return Answer(json={"text": "a fact"})
    if phase == "SCOPE" and goal == "All":
        return Answer(json=subtasks("one", "two", "three"))
    if phase == "SCOPE" and goal == "two":
        return Answer(json=plan_call("web-research", "look it up"))
    return Answer(json=straight("All of it" if goal == "All" else f"{goal} done")(phase))


def test_a_job_of_the_normal_lane_asks_nothing_of_the_batch_lane(make: MakeStage) -> None:
    stage = make()
    stage.rig.send(prepare(parse_submission(normal(stage.model)), load_settings({}), stage.rig.engines))
    stage.rig.database.sent.clear()
    stage.rig.drain()
    assert len(stage.rig.database.sent) == 2
    assert not any("batch_requests" in sql for sql in stage.rig.database.sent)


def normal(model: str) -> dict[str, Any]:
    return {"recipe": "jeltz", "params": {"prompt": "How many?", "schema": S1, "model": model}}


def error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


async def _nothing(*_: Any, **__: Any) -> None:
    """The provider does not show it yet."""


def _gone(*_: Any, **__: Any) -> bool:
    raise DatabaseUnavailable("the worker is gone")
