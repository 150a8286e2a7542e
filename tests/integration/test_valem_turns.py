"""Valem end to end on the real store and runner, with a scripted model: a conversation for each way through it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from factory import broken_invariants, claimed, expire_lease, root_node, value
from plans import Stage, call, closed_plan, straight, submit_plan
from rig import Rig
from valem_specs import GOOD, RAISE_VAT, UNSTABLE, answer, changed, failing_tests, text, wrong_paths

from engines.llm.base import ErrorKind, LlmRequest, StopKind
from engines.llm.scripted import Script, ScriptedAnswer
from engines.valem.jsonata.evaluation import Evaluation, evaluate_here
from models.store import model_specs, read
from models.store.sweep import take_back_expired
from tasks.settings import load_settings
from tasks.submission import SubmissionError, parse_submission, prepare

HERE = ("default", "default")
DOMAIN = "Orders with lines, a discount and VAT."


Start = Callable[..., Rig]


@pytest.fixture
def start(database_url: str) -> Iterator[Start]:
    rigs: list[Rig] = []

    def make(*answers: Any, script: Script | None = None, **options: Any) -> Rig:
        rigs.append(Rig(database_url, *answers, script=script, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def generate(rig: Rig, *, limits: Any = None, **params: Any) -> UUID:
    payload = {"recipe": "valem-generate", "params": {"domainDescription": DOMAIN} | params, "limits": limits or {}}
    return rig.send(prepare(parse_submission(payload), load_settings({}), rig.engines))


def evolve(rig: Rig, **params: Any) -> UUID:
    payload = {"recipe": "valem-evolve", "params": {"evolutionRequest": "Raise VAT to 25 %."} | params}
    return rig.send(prepare(parse_submission(payload), load_settings({}), rig.engines))


def closed(rig: Rig, process: UUID) -> dict[str, Any]:
    wrapper = rig.result(process)
    assert wrapper is not None, read.status(rig.database, process)
    assert rig.status(process) == "CLOSED"
    assert broken_invariants(rig.database) == {}
    return wrapper


def turns(rig: Rig, process: UUID) -> list[str]:
    return [each["phase"] for each in read.phase_history(rig.database, process)]


def outputs(rig: Rig, process: UUID) -> list[dict[str, Any]]:
    return [each["output"] for each in read.phase_history(rig.database, process)]


def user_text(request: LlmRequest) -> str:
    return next(message.content for message in request.messages if message.role == "user")


def stable(request: LlmRequest) -> list[str]:
    return [message.content for message in request.messages if message.role == "system"]


def test_a_valid_first_answer_is_one_attempt_and_is_stored(start: Start) -> None:
    rig = start(answer(GOOD))
    process = generate(rig)
    rig.drain()
    wrapper = closed(rig, process)
    spec = wrapper.pop("spec")
    assert wrapper == {
        "success": True, "modelId": "order-total", "version": 1, "specVersion": "1.0.0", "attempts": 1,
        "bestEffort": False, "report": "green", "failingTests": [], "warnings": [],
    }  # fmt: skip
    assert turns(rig, process) == ["ASK", "CHECK", "STORE", "CONFIRM"]
    stored = model_specs.get(rig.database, *HERE, "order-total")
    assert stored is not None
    assert (stored.version, stored.spec_version, stored.process_id, stored.spec) == (1, "1.0.0", process, spec)
    assert list(spec)[:3] == ["id", "version", "schema"], "in its author's order"
    properties = spec["schema"]["properties"]
    assert properties["total"]["readOnly"] is True
    assert properties["items"]["items"]["properties"]["lineTotal"]["readOnly"] is True
    assert "readOnly" not in properties["discountPct"]

    (request,) = rig.script.requests
    assert (request.temperature, request.max_output_tokens) == (0.0, 8_192)
    assert [tool.name for tool in request.tools] == ["eval_jsonata", "get_domain_guidance", "web_fetch"]
    assert DOMAIN in user_text(request)
    assert DOMAIN not in "".join(stable(request))
    said = outputs(rig, process)
    assert [each["did"] for each in said] == ["requesting", "checking: all is well", "storing", "stored"]
    assert (said[2]["model"], said[2]["version"]) == ("order-total", 1)
    assert set(said[0]["tiers"]) == {"system", "session_context", "user"}


def test_errors_are_repaired_one_attempt_after_the_other(start: Start) -> None:
    rig = start(answer(wrong_paths(3)), answer(wrong_paths(2)), answer(failing_tests(1)), answer(GOOD))
    process = generate(rig)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["attempts"], wrapper["bestEffort"]) == (True, 4, False)
    first, second, third, fourth = rig.script.requests
    assert [each.temperature for each in rig.script.requests] == [0.0, 0.2, 0.35, 0.5]
    assert stable(first) == stable(second) == stable(third) == stable(fourth)
    assert "bad2" in user_text(second)
    assert "write $.bad0" in user_text(second)
    assert "FIX:" in user_text(fourth)
    assert "case 0" in user_text(fourth)
    assert "expected 99" in user_text(fourth)
    said = outputs(rig, process)
    checks = [each for each in said if each["did"].startswith("checking")]
    assert [each.get("count") for each in checks] == [3, 2, 1, None]
    assert checks[0]["next"] == "retrying: attempt 2 (repair)"
    assert len(checks[0]["problems"]) == 3
    kinds = [(each["role"], each["kind"]) for each in read.messages(rig.database, process)]
    assert kinds == [
        ("user", "prompt"), *[("assistant", "reply"), ("system", "correction")] * 3, ("assistant", "reply"),
        ("assistant", "result"),
    ]  # fmt: skip


def test_without_progress_it_stops_at_the_base(start: Start) -> None:
    rig = start(*[answer(wrong_paths(2))] * 3)
    process = generate(rig)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["error"], wrapper["attempts"]) == (False, "no_valid_spec", 3)
    assert len(wrapper["errors"]) == 2
    assert "bad0" in wrapper["lastRaw"]
    assert model_specs.list_models(rig.database, *HERE) == []


def test_convergence_goes_on_to_the_hard_cap_and_no_further(start: Start) -> None:
    rig = start(*[answer(wrong_paths(count)) for count in range(9, 0, -1)])
    process = generate(rig)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["error"], wrapper["attempts"], rig.client.calls) == ("no_valid_spec", 6, 6)


def test_failing_tests_end_in_the_best_effort(start: Start) -> None:
    rig = start(answer(failing_tests(3)), answer(failing_tests(1)), answer(failing_tests(1) | {"version": "9.0.0"}))
    process = generate(rig)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["bestEffort"], wrapper["attempts"]) == (True, True, 3)
    assert wrapper["report"] == "amber"
    assert (wrapper["specVersion"], len(wrapper["failingTests"])) == ("1.0.0", 1)
    assert '"case 0": $.total: expected 99' in wrapper["failingTests"][0]
    stored = model_specs.get(rig.database, *HERE, "order-total")
    assert stored is not None
    assert stored.spec == wrapper["spec"]


def test_g7_what_no_hand_can_work_out_does_not_cost_an_attempt(start: Start) -> None:
    derivations = [*GOOD["derivations"], {"path": "$.today", "expr": "$substring($now(), 0, 10)"}]
    tests = [
        *GOOD["tests"],
        {"description": "clock", "given": {"$.discountPct": 1}, "expect": {"$.today": "2020-01-01"}},
        {"description": "whole list", "given": {"$.items": [{"price": 1, "quantity": 1}]}, "expect": {"$.items": []}},
    ]
    rig = start(answer(changed(derivations=derivations, tests=tests)))
    process = generate(rig)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["attempts"], wrapper["failingTests"], wrapper["report"]) == (1, [], "green")
    assert sum("not judged" in each for each in wrapper["warnings"]) == 2


def test_a_new_model_that_breaks_its_own_constraint_is_repaired(start: Start) -> None:
    rig = start(answer(UNSTABLE), answer(GOOD))
    process = generate(rig)
    rig.drain()
    assert closed(rig, process)["attempts"] == 2
    assert "discount-range" in user_text(rig.script.requests[1])
    assert outputs(rig, process)[1]["next"] == "retrying: attempt 2 (state)"


def cut(spec: dict[str, Any]) -> ScriptedAnswer:
    whole = text(spec)
    return ScriptedAnswer(text=whole[: len(whole) * 6 // 10], stop=StopKind.LENGTH)


@pytest.mark.parametrize("stop", [StopKind.LENGTH, StopKind.END])
def test_g15_cut_twice_raises_the_limit_then_asks_for_less_and_stores_no_half(start: Start, stop: StopKind) -> None:
    half = ScriptedAnswer(text=cut(GOOD).text, stop=stop)
    rig = start(half, half, answer(GOOD))
    process = generate(rig)
    rig.drain()
    assert closed(rig, process)["attempts"] == 3
    first, second, third = rig.script.requests
    assert [each.max_output_tokens for each in rig.script.requests] == [8_192, 16_384, 8_192]
    assert user_text(first).split()[:6] == user_text(second).split()[:6]
    assert "small spec" in user_text(third)
    assert "order-total" not in user_text(third), "a cut answer is never quoted"
    assert [each.version for each in model_specs.history(rig.database, *HERE, "order-total")] == [1]


def test_an_answer_that_stays_cut_off_says_so_and_stores_nothing(start: Start) -> None:
    rig = start(*[cut(GOOD)] * 3)
    process = generate(rig)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["error"], wrapper["attempts"]) == ("truncated", 3)
    assert model_specs.list_models(rig.database, *HERE) == []


def test_prose_is_answered_with_the_task_again(start: Start) -> None:
    rig = start("I would model {orders} with a total.", answer(GOOD))
    process = generate(rig)
    rig.drain()
    assert closed(rig, process)["attempts"] == 2
    second = rig.script.requests[1]
    assert (second.max_output_tokens, DOMAIN in user_text(second)) == (8_192, True)
    assert "I would model {orders}" in user_text(second)


def using(*calls: tuple[str, dict[str, Any]], text: str = "") -> ScriptedAnswer:
    return ScriptedAnswer.model_validate(
        {
            "text": text,
            "tool_calls": [{"id": f"c{at}", "name": name, "arguments": a} for at, (name, a) in enumerate(calls)],
        }
    )


def test_tools_are_turns_of_their_own_and_their_results_stand_in_fences(start: Start) -> None:
    rig = start(
        using(
            ("eval_jsonata", {"expression": "a + 1", "input": {"a": 2}}),
            ("get_domain_guidance", {"topics": ["group_by"]}),
        ),
        answer(wrong_paths(1)),
        answer(GOOD),
    )
    process = generate(rig)
    rig.drain()
    assert closed(rig, process)["success"]
    assert turns(rig, process) == ["ASK", "TOOLS", "ASK", "CHECK", "ASK", "CHECK", "STORE", "CONFIRM"]
    told = [message.content for message in rig.script.requests[1].messages if message.role == "tool"]
    assert told[0].startswith("<<< Result of eval_jsonata [")
    assert "\n3\n" in told[0]
    assert [tool.name for tool in rig.script.requests[2].tools] == [tool.name for tool in rig.script.requests[0].tools]
    # A new attempt is a new conversation; guidance that was asked for is told again.
    assert not any(message.role == "tool" for message in rig.script.requests[2].messages)
    assert "Totals per group" in user_text(rig.script.requests[2])


def test_g13_a_tool_loop_ends_after_exactly_41_calls(start: Start) -> None:
    class Endless(Script):
        def next(self, request: LlmRequest) -> ScriptedAnswer:
            self.requests.append(request)
            calling = using(("eval_jsonata", {"expression": str(len(self.requests))}))
            return calling if request.tools else answer(GOOD)

    rig = start(script=Endless())
    process = generate(rig)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["attempts"], rig.client.calls) == (True, 1, 41)
    last = rig.script.requests[-1]
    assert (last.tools, {message.role for message in last.messages}) == ((), {"system", "user"})
    assert "No further tools can be used" in user_text(last)
    told = [message.content for message in rig.script.requests[39].messages if message.role == "tool"]
    assert sum("[limit] eval_jsonata may be used 25 times" in text for text in told) == 14
    assert value(rig.database, "SELECT max(pg_column_size(cursor)) FROM nodes") < 200_000


def test_tool_budgets_are_shared_by_all_attempts(start: Start) -> None:
    calls = [using(*[("eval_jsonata", {"expression": f"{n} + {m}"}) for m in range(3)]) for n in range(2)]
    rig = start(calls[0], answer(wrong_paths(1)), calls[1], answer(GOOD))
    process = generate(rig, evalCalls=4)
    rig.drain()
    assert closed(rig, process)["success"]
    told = [message.content for message in rig.script.requests[3].messages if message.role == "tool"]
    assert ["[limit]" in text for text in told] == [False, True, True]


def test_an_installations_check_is_no_tool_of_the_models(start: Start) -> None:
    rig = start(using(("valem_check", {"text": "{}"})), answer(GOOD))
    process = generate(rig)
    rig.drain()
    assert closed(rig, process)["success"]
    assert 'there is no tool "valem_check"' in rig.script.requests[1].messages[-1].content


# --- ids and versions -------------------------------------------------------------------------------------------------


def put(rig: Rig, spec: dict[str, Any] = GOOD, version: int = 1) -> None:
    model_specs.put(rig.database, *HERE, spec["id"], spec, version=version, spec_version=spec["version"])


def test_an_id_asked_for_is_the_specs_and_one_that_is_taken_is_refused_before_any_call(start: Start) -> None:
    rig = start(answer(GOOD))
    process = generate(rig, modelId="acme.eu/orders")
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["modelId"], wrapper["spec"]["id"]) == ("acme.eu/orders", "acme.eu/orders")
    again = generate(rig, modelId="acme.eu/orders")
    rig.drain()
    wrapper = closed(rig, again)
    assert (wrapper["error"], wrapper["attempts"], rig.client.calls) == ("model_exists", 0, 1)
    assert "at version 1 (spec version 1.0.0)" in wrapper["message"]
    assert "valem-evolve" in wrapper["message"]


def test_an_id_of_the_models_own_choice_that_is_taken_gets_a_number(start: Start) -> None:
    rig = start(answer(GOOD))
    put(rig)
    put(rig, GOOD | {"id": "order-total-2"})
    process = generate(rig)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["modelId"], wrapper["spec"]["id"], wrapper["version"]) == ("order-total-3", "order-total-3", 1)
    assert turns(rig, process) == ["ASK", "CHECK", "STORE", "STORE", "STORE", "CONFIRM"]


def test_an_evolution_of_a_stored_model_writes_its_next_version(start: Start) -> None:
    rig = start(answer(RAISE_VAT))
    put(rig)
    process = evolve(rig, modelId="order-total", expectedVersion=1)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["version"], wrapper["specVersion"], wrapper["baseVersion"]) == (2, "1.1.0", 1)
    assert wrapper["evolution"] == RAISE_VAT
    assert wrapper["spec"]["constants"] == {"vatPct": 25}
    assert wrapper["report"] == "neutral"
    stored = model_specs.get(rig.database, *HERE, "order-total")
    assert stored is not None
    assert (stored.version, stored.spec, stored.evolution) == (2, wrapper["spec"], RAISE_VAT)
    (request,) = rig.script.requests
    system, session = stable(request)
    assert '"vatPct":20' in session
    assert "$.total" in session
    assert "Raise VAT" not in system + session


def test_an_evolution_is_repaired_with_the_same_session_tier(start: Start) -> None:
    rig = start(
        answer({"newSchema": {"type": "object"}, "upsertSchemaNodes": [{"path": "$.x", "schema": {}}]}),
        answer({"removeConstants": ["vatPct"]}), answer({"upsertConstants": {"vatPct": 25}}),
        answer(RAISE_VAT),
    )  # fmt: skip
    put(rig)
    process = evolve(rig, modelId="order-total", maxRetries=4)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["attempts"], wrapper["version"]) == (True, 4, 2)
    requests = rig.script.requests
    assert len({json.dumps(stable(each)) for each in requests}) == 1
    assert [message.cache for message in requests[0].messages[:2]] == [True, True]
    tiers = [each["tiers"] for each in outputs(rig, process) if "tiers" in each]
    assert len({each["session_context"] for each in tiers}) == 1
    assert "newSchema" in user_text(requests[1])
    assert "still referenced" in user_text(requests[2])
    assert "expected 30" in user_text(requests[3])


@pytest.mark.parametrize(
    ("expected", "words"), [(3, "is at version 4 (spec version 1.0.0), not 3"), ("0.9.0", "not 0.9.0")]
)
def test_g14_a_stale_expectation_is_a_conflict_before_any_call(start: Start, expected: Any, words: str) -> None:
    rig = start()
    put(rig, version=4)
    process = evolve(rig, modelId="order-total", expectedVersion=expected)
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["error"], wrapper["attempts"]) == ("version_conflict", 0)
    assert words in wrapper["message"]


def test_a_model_that_is_not_there_cannot_be_changed(start: Start) -> None:
    rig = start()
    process = evolve(rig, modelId="order-total")
    rig.drain()
    assert closed(rig, process)["error"] == "unknown_model"


def test_g14_of_two_writers_at_once_one_wins_and_the_other_loses_nothing(start: Start) -> None:
    rig = start(answer(RAISE_VAT), answer(RAISE_VAT))
    put(rig)
    first, second = evolve(rig, modelId="order-total"), evolve(rig, modelId="order-total")
    for _ in range(6):  # both have asked, both are checked, both have looked for a free place
        rig.run_next()
    rig.drain()
    won, lost = sorted((closed(rig, each) for each in (first, second)), key=lambda each: not each["success"])
    assert (won["version"], won["success"]) == (2, True)
    assert (lost["success"], lost["error"], lost["baseVersion"]) == (False, "version_conflict", 1)
    assert lost["evolution"] == RAISE_VAT
    assert lost["spec"] == won["spec"]
    assert [each.version for each in model_specs.history(rig.database, *HERE, "order-total")] == [2, 1]


def test_two_generations_of_one_id_at_once_give_way_to_each_other(start: Start) -> None:
    rig = start(answer(GOOD), answer(GOOD))
    processes = [generate(rig), generate(rig)]
    rig.drain()
    assert {closed(rig, each)["modelId"] for each in processes} == {"order-total", "order-total-2"}


def test_a_later_version_does_not_change_what_is_evolved_and_is_a_conflict_in_the_end(start: Start) -> None:
    rig = start(answer({"removeConstants": ["vatPct"]}), answer(RAISE_VAT))
    put(rig)
    process = evolve(rig, modelId="order-total")
    rig.run_next()
    put(rig, changed(constants={"vatPct": 7}), version=2)
    rig.drain()
    assert closed(rig, process)["error"] == "version_conflict"
    assert '"vatPct":20' in stable(rig.script.requests[1])[1]


def test_a_spec_given_whole_is_evolved_and_nothing_is_stored(start: Start) -> None:
    rig = start(answer(RAISE_VAT))
    process = evolve(rig, spec=GOOD, expectedVersion="1.0.0")
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["version"], wrapper["specVersion"]) == (True, None, "1.1.0")
    assert model_specs.list_models(rig.database, *HERE) == []
    assert turns(rig, process) == ["ASK", "CHECK"]


def test_an_evolution_that_changes_nothing_is_accepted(start: Start) -> None:
    rig = start("{}")
    process = evolve(rig, spec=GOOD)
    rig.drain()
    assert (closed(rig, process)["evolution"], closed(rig, process)["attempts"]) == ({}, 1)


# --- ends before their time -------------------------------------------------------------------------------------------


def test_a_spent_budget_ends_with_the_best_there_is(start: Start) -> None:
    rig = start(answer(failing_tests(1)))
    process = generate(rig, limits={"maxCalls": 1})
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["bestEffort"], wrapper["forced"], wrapper["attempts"]) == (True, True, True, 1)
    assert wrapper["message"].startswith("budget_exceeded")
    assert model_specs.get(rig.database, *HERE, "order-total") is not None


def test_a_spent_budget_without_anything_valid_is_a_failure(start: Start) -> None:
    rig = start(answer(wrong_paths(2)))
    process = generate(rig, limits={"maxCalls": 1})
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["error"], wrapper["attempts"]) == (False, "budget_exceeded", 1)


@pytest.mark.parametrize("kind", [ErrorKind.REFUSAL, ErrorKind.CONTENT_FILTER, ErrorKind.AUTH])
def test_a_call_that_fails_for_good_ends_it(start: Start, kind: ErrorKind) -> None:
    rig = start(kind)
    process = generate(rig)
    rig.drain(skip_delays=True)
    wrapper = closed(rig, process)
    assert wrapper["error"] == ("llm_error" if kind is ErrorKind.AUTH else kind.value)
    assert rig.client.calls == 1


def test_a_turn_that_loses_its_workers_ends_with_the_best_there_is(start: Start) -> None:
    rig = start(answer(failing_tests(1)))
    process = generate(rig)
    rig.run_next()
    rig.run_next()
    node = root_node(rig.database, process)
    for _ in range(3):
        claimed(rig.database, node, owner="dead:1")
        expire_lease(rig.database, node)
        rig.publisher.publish(take_back_expired(rig.database, batch=10))
    rig.drain()
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["bestEffort"]) == (True, True)
    assert wrapper["message"].startswith("internal_error: 3 workers were lost")


def test_parameters_are_refused_when_they_are_submitted(start: Start) -> None:
    rig = start()
    with pytest.raises(SubmissionError, match="maxRetries: must be a whole number from 1 to 20"):
        generate(rig, maxRetries="many")
    with pytest.raises(SubmissionError, match=r"spec: is no model spec: .*derivations"):
        evolve(rig, spec=GOOD | {"derivations": [{"path": "$.x"}]})


def test_a_stopped_process_keeps_what_it_had(start: Start) -> None:
    rig = start(answer(failing_tests(1)))
    process = generate(rig)
    rig.run_next()
    rig.run_next()
    cursor = value(rig.database, "SELECT cursor FROM nodes WHERE process_id = %(id)s", id=process)
    wrapper = rig.engines["valem"].wrapper(cursor, error="stopped", message="by request")
    assert (wrapper["success"], wrapper["error"], wrapper["attempts"]) == (False, "stopped", 1)
    assert wrapper["spec"]["id"] == "order-total"


def test_a_check_that_breaks_is_tried_again_and_says_nothing_about_the_answer(start: Start) -> None:
    broken = [2]

    def evaluate(evaluation: Evaluation) -> str | None:
        if broken[0]:
            broken[0] -= 1
            raise RuntimeError("the process that evaluates expressions does not start")
        return evaluate_here(evaluation)

    rig = start(answer(GOOD), evaluator=evaluate)
    process = generate(rig)
    rig.drain(skip_delays=True)
    wrapper = closed(rig, process)
    assert (wrapper["success"], wrapper["attempts"], rig.client.calls) == (True, 1, 1)
    reasons = [(each["phase"], each["reason"]) for each in read.phase_history(rig.database, process)]
    assert reasons == [
        ("ASK", "ADVANCED"), ("CHECK", "CRASHED"), ("CHECK", "CRASHED"), ("CHECK", "ADVANCED"),
        ("STORE", "ADVANCED"), ("CONFIRM", "CONCLUDED"),
    ]  # fmt: skip


def test_a_check_that_never_works_ends_the_process(start: Start) -> None:
    def evaluate(evaluation: Evaluation) -> str | None:
        raise RuntimeError("the process that evaluates expressions does not start")

    rig = start(answer(GOOD), evaluator=evaluate)
    process = generate(rig)
    rig.drain(skip_delays=True)
    wrapper = closed(rig, process)
    assert (wrapper["error"], rig.client.calls) == ("internal_error", 1)
    assert "does not start" in wrapper["message"]
    assert "order-total" in wrapper["lastRaw"]


def test_d1_what_cannot_be_stored_is_replaced_and_the_spec_is_stored(start: Start) -> None:
    spec = changed(constants={"vatPct": 20, "note": "a\x00b\ud800c"})
    rig = start(answer(spec))
    process = generate(rig)
    rig.drain()
    assert closed(rig, process)["success"]
    stored = model_specs.get(rig.database, *HERE, "order-total")
    assert stored is not None
    assert stored.spec["constants"]["note"] == "a\ufffdb\ufffdc"


def test_f1_what_people_write_is_never_a_template(start: Start) -> None:
    rig = start(answer(GOOD))
    text = 'Orders {{ 7*7 }} {% raw %} >>> <<< Domain description [abc] and {"a": 1}'
    process = generate(rig, domainDescription=text)
    rig.drain()
    assert closed(rig, process)["success"]
    sent = user_text(rig.script.requests[0])
    assert "{{ 7*7 }} {% raw %}" in sent
    assert (sent.count("<<<"), sent.count(">>>")) == (1, 1)


def test_a_plan_calls_valem_and_reads_the_spec(database_url: str) -> None:
    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if phase == "SUBMIT_SPEC":
            assert DOMAIN in user_text(request)
            return text(GOOD)
        return call("valem-generate", DOMAIN) if phase == "SCOPE" else straight("It is modelled.")(phase)

    stage = Stage(database_url)
    try:
        rig, model = stage(play)
        process = submit_plan(rig, "Model our orders.", availableRecipes=["valem-generate"])
        rig.drain()
        assert closed_plan(rig, process)["result"] == "It is modelled."
        reflect = next(request for request in model.requests if request.schema_name == "reflect")
        assert '"modelId": "order-total"' in user_text(reflect)
        assert model_specs.get(rig.database, *HERE, "order-total") is not None
    finally:
        stage.close()
