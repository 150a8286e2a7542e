"""Valem's table: budgets of attempts, convergence, truncation, best effort, and the race for a version."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.conversation import Called, Exchange
from engines.valem import machine, params
from engines.valem.cursor import (
    MAX_REPLY_CHARS,
    Asked,
    Candidate,
    Chosen,
    Problem,
    Spending,
    Task,
    ValemPhase,
    ValemState,
)
from engines.valem.machine import (
    MAX_ROUND_TRIPS,
    MAX_SUFFIX,
    Closed,
    Confirmed,
    Event,
    Judged,
    Limits,
    Looked,
    NoMore,
    Onward,
    Refused,
    Replied,
    Returned,
    Step,
    Temperatures,
    TooLong,
    Verdict,
    Write,
    decide,
    temperature,
)
from engines.valem.results import wrapper_of

CALLS = (Called(id="1", name="eval_jsonata", arguments={"expr": "1"}), Called(id="2", name="web_fetch"))
GENERATE, EVOLVE = Limits(), Limits(task=Task.EVOLVE, model_id="loan")
ANSWER = Replied(text="{}", next_limit=16_384)


def candidate(name: str = "made", *, failing: int = 0, findings: int = 0, attempt: int = 1) -> Candidate:
    return Candidate(
        spec=json.dumps({"id": name, "version": "1.0.0", "schema": {}}),
        model_id=name,
        attempt=attempt,
        flaws=failing + findings,
        failing=tuple(f"test {n}" for n in range(failing)),
        findings=tuple(f"finding {n}" for n in range(findings)),
        colour="amber" if failing + findings else "green",
    )


def problem(words: str) -> Problem:
    return Problem(where="here", message=words, hint="do right")


def invalid(count: int, words: str = "wrong") -> Judged:
    return Judged(verdict=Verdict.INVALID, count=count, problems=(problem(words),) * count, previous="{repaired}")


def flawed(failing: int = 0, findings: int = 0, name: str = "made") -> Judged:
    found = candidate(name, failing=failing, findings=findings)
    return Judged(
        verdict=Verdict.FLAWED, count=found.flaws, problems=(problem("f"),), previous="{flawed}", candidate=found
    )


UNREADABLE = Judged(verdict=Verdict.UNREADABLE, problems=(problem("no JSON"),))
CUT = Judged(verdict=Verdict.UNREADABLE, problems=(problem("cut"),), truncated=True)
GOOD = Judged(verdict=Verdict.GOOD, count=0, candidate=candidate())


def play(*verdicts: Judged, limits: Limits = GENERATE, answer: Replied = ANSWER) -> tuple[Step, list[ValemState]]:
    """One answer for each verdict, until something else than an answer is due. Also the states before each answer."""
    state, asked = ValemState(base_version=3 if limits.task is Task.EVOLVE else None), []
    step: Step = Onward(state=state)
    for verdict in verdicts:
        asked.append(step.state)
        step = decide(step.state, answer, limits)
        assert step.state.phase is ValemPhase.CHECK
        step = decide(step.state, verdict, limits)
        if not isinstance(step, Onward) or step.state.phase is not ValemPhase.ASK:
            break
    return step, asked


@dataclass(frozen=True)
class Case:
    """Verdicts in the order of attempts, and how it ends."""

    name: str
    verdicts: tuple[Judged, ...]
    attempts: int
    ends: str
    """``good``, ``best`` or an error."""
    limits: Limits = GENERATE


CASES = (
    Case("a valid first answer is one attempt", (GOOD,), 1, "good"),
    Case("without progress it stops at the base", (invalid(2),) * 9, 3, "no_valid_spec"),
    Case("growing problems stop at the base", (invalid(1), invalid(2), invalid(3), GOOD), 3, "no_valid_spec"),
    Case("fewer problems each time go on to success", (invalid(3), invalid(2), invalid(1), GOOD), 4, "good",
         Limits(retries=2, retries_hard=4)),
    Case("convergence ends at the hard cap", tuple(invalid(n) for n in range(9, 0, -1)), 6, "no_valid_spec"),
    Case("an unreadable answer past the base stops", (invalid(5), invalid(4), invalid(3), UNREADABLE, GOOD), 4,
         "no_valid_spec"),
    Case("an unreadable answer at the base stops", (invalid(5), invalid(4), UNREADABLE, GOOD), 3, "no_valid_spec"),
    Case("what can be read after what could not counts as progress", (UNREADABLE, UNREADABLE, invalid(9), GOOD), 4,
         "good"),
    Case("one attempt and a readable answer converge", (invalid(9), invalid(9)), 2, "no_valid_spec",
         Limits(retries=1, retries_hard=6)),
    Case("failing tests are best effort in the end", (flawed(2), flawed(2), flawed(2)), 3, "best"),
    Case("a flawed spec outlives errors after it", (flawed(2), invalid(4), UNREADABLE), 3, "best"),
    Case("cut off at the end says so", (invalid(1), invalid(1), CUT), 3, "truncated"),
    Case("an evolution has the same budgets", (invalid(1),) * 9, 3, "no_valid_spec", EVOLVE),
    Case("an evolution with failing tests is best effort", (flawed(1), flawed(1), flawed(1)), 3, "best", EVOLVE),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_attempts_and_their_end(case: Case) -> None:
    step, asked = play(*case.verdicts, limits=case.limits)
    assert len(asked) == case.attempts
    if isinstance(step, Closed):
        assert (step.error, step.state.attempts) == (case.ends, case.attempts)
        return
    assert step.state.phase is ValemPhase.STORE
    assert step.state.chosen is not None
    assert step.state.chosen.best_effort is (case.ends == "best")
    assert step.state.attempt == case.attempts


def test_the_best_effort_has_fewest_flaws_and_is_the_earliest_of_equals() -> None:
    step, _ = play(flawed(3, name="a"), flawed(1, name="b"), flawed(1, name="c"))
    assert step.state.chosen is not None
    assert step.state.chosen.candidate.model_id == "b"


def test_what_each_attempt_is_asked() -> None:
    _, asked = play(invalid(9), flawed(failing=2, findings=1), flawed(findings=2), UNREADABLE)
    assert [(each.asked, each.previous, each.counted) for each in asked] == [
        (Asked.FIRST, "", None), (Asked.REPAIR, "{repaired}", 9), (Asked.TESTS, "{flawed}", 3),
        (Asked.VIEW, "{flawed}", 2),
    ]  # fmt: skip
    _, asked = play(flawed(failing=2), flawed(failing=1), limits=EVOLVE)
    assert asked[1].asked is Asked.REPAIR


def test_a_state_that_breaks_its_own_constraints_has_a_prompt_of_its_own() -> None:
    unstable = Judged(verdict=Verdict.UNSTABLE, count=1, problems=(problem("x > 0"),), previous="{}")
    assert play(unstable, GOOD)[1][1].asked is Asked.STATE
    assert play(unstable, GOOD, limits=EVOLVE)[1][1].asked is Asked.REPAIR


def test_an_answer_without_json_is_echoed_raw_and_not_endlessly() -> None:
    _, asked = play(UNREADABLE, UNREADABLE, answer=Replied(text="I think " * 20_000))
    assert asked[1].previous.startswith("I think I think")
    assert len(asked[1].previous) <= 60_000


def test_g15_the_first_cut_raises_the_limit_the_second_asks_for_less() -> None:
    _, asked = play(invalid(1), CUT, CUT, GOOD, limits=Limits(retries=5))
    assert [(each.asked, each.output_limit, len(each.problems), each.previous) for each in asked] == [
        (Asked.FIRST, None, 0, ""), (Asked.REPAIR, None, 1, "{repaired}"),
        (Asked.REPAIR, 16_384, 1, "{repaired}"), (Asked.SHORTER, None, 0, ""),
    ]  # fmt: skip


def test_a_limit_that_cannot_be_raised_goes_straight_to_the_short_prompt() -> None:
    _, asked = play(CUT, GOOD, answer=Replied(text="{", cut=True))
    assert (asked[1].asked, asked[1].output_limit) == (Asked.SHORTER, None)


def test_the_raised_limit_stays_while_the_answer_fits_it() -> None:
    _, asked = play(CUT, invalid(2), GOOD)
    assert [each.output_limit for each in asked] == [None, 16_384, 16_384]


def test_an_evolution_that_stays_cut_off_is_repaired_without_quoting_it() -> None:
    _, asked = play(CUT, CUT, GOOD, limits=EVOLVE)
    assert [(each.asked, each.output_limit, each.previous) for each in asked] == [
        (Asked.FIRST, None, ""), (Asked.FIRST, 16_384, ""), (Asked.REPAIR, 16_384, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "truncated"),
    [
        (Replied(text=" "), False),
        (Replied(text="", cut=True), True),
        (Replied(text="x" * (MAX_REPLY_CHARS + 1)), False),
    ],
)
def test_what_cannot_be_checked_is_an_attempt_without_a_check(reply: Replied, truncated: bool) -> None:
    step = decide(ValemState(), reply, GENERATE)
    assert isinstance(step, Onward)
    assert (step.state.phase, step.state.attempt, step.corrected) == (ValemPhase.ASK, 2, True)
    assert step.state.truncated is truncated


def test_results_meet_their_calls_and_the_last_round_trip_takes_the_tools_away() -> None:
    limits = Limits(round_trips=2)
    step = decide(ValemState(), Replied(text="t", calls=CALLS), limits)
    for phase in (ValemPhase.ASK, ValemPhase.ANSWER):
        assert step.state.phase is ValemPhase.TOOLS
        step = decide(step.state, Returned(results=("a", "b"), spending=Spending(calls={"web_fetch": 1})), limits)
        assert step.state.phase is phase
        assert [call.result for call in step.state.exchanges[-1].calls] == ["a", "b"]
        assert step.state.spending.calls == {"web_fetch": 1}
        if phase is ValemPhase.ASK:
            step = decide(step.state, Replied(text="", calls=CALLS), limits)
    # Calls where none are on offer: the words beside them are the answer.
    step = decide(step.state, Replied(text="{}", calls=CALLS), limits)
    assert (step.state.phase, step.state.reply) == (ValemPhase.CHECK, "{}")


def test_a_new_attempt_begins_a_new_conversation_and_keeps_what_was_spent() -> None:
    spending = Spending(calls={"web_fetch": 5}, remembered={"k": "page"})
    step = decide(ValemState(), Replied(text="", calls=CALLS), GENERATE)
    step = decide(step.state, Returned(results=("a", "b"), spending=spending), GENERATE)
    step = decide(decide(step.state, ANSWER, GENERATE).state, invalid(1), GENERATE)
    assert (step.state.exchanges, step.state.round_trips, step.state.spending) == ((), 0, spending)


def test_a_conversation_too_long_is_halved_until_it_cannot_be() -> None:
    long = (Called(id="1", name="n", result="x" * 9_000),)
    state = replace(decide(ValemState(), Replied(text="", calls=long), GENERATE).state, phase=ValemPhase.ASK)
    step = decide(state, TooLong(message="m"), GENERATE)
    assert isinstance(step, Onward)
    assert step.state.exchanges[0].characters < 6_000
    step = decide(ValemState(), TooLong(message="m"), GENERATE)
    assert isinstance(step, Closed)
    assert step.error == "llm_error"


@pytest.mark.parametrize(("limits", "asked"), [(GENERATE, Asked.SHORTER), (EVOLVE, Asked.REPAIR)])
def test_e6_a_repair_too_long_for_the_model_is_asked_for_without_its_quotation(limits: Limits, asked: Asked) -> None:
    state = play(invalid(2), limits=limits)[0].state
    step = decide(state, TooLong(message="m"), limits)
    assert isinstance(step, Onward)
    assert (step.state.asked, step.state.previous, step.state.attempt) == (asked, "", 2)
    step = decide(step.state, TooLong(message="m"), limits)
    assert isinstance(step, Closed)
    assert step.error == "llm_error"


def test_no_more_calls_end_with_the_best_there_is() -> None:
    step, _ = play(flawed(2))
    step = decide(step.state, NoMore(error="budget_exceeded", message="spent"), GENERATE)
    assert isinstance(step, Onward)
    assert step.state.phase is ValemPhase.STORE
    step = decide(decide(step.state, Looked(taken=None), GENERATE).state, Confirmed(ours=True), GENERATE)
    assert isinstance(step, Closed)
    wrapper = wrapper_of(step)
    assert (wrapper["success"], wrapper["bestEffort"], wrapper["forced"], wrapper["attempts"]) == (True, True, True, 1)
    assert wrapper["message"] == "budget_exceeded: spent"


def test_no_more_calls_without_anything_valid_is_a_failure() -> None:
    step, _ = play(invalid(2))
    step = decide(step.state, NoMore(error="refusal", message="no", counts=True), GENERATE)
    assert isinstance(step, Closed)
    wrapper = wrapper_of(step)
    assert (wrapper["error"], wrapper["attempts"], wrapper["errors"]) == (
        "refusal",
        2,
        ["[here] wrong — FIX: do right"] * 2,
    )
    assert wrapper["lastRaw"] == "{}"


# --- the store --------------------------------------------------------------------------------------------------------


def test_a_free_place_is_written_and_confirmed() -> None:
    step, _ = play(GOOD)
    step = decide(step.state, Looked(taken=None), GENERATE)
    assert isinstance(step, Write)
    assert (step.chosen.model_id, step.chosen.version) == ("made", 1)
    step = decide(step.state, Confirmed(ours=True), GENERATE)
    assert isinstance(step, Closed)
    wrapper = wrapper_of(step)
    assert (wrapper["success"], wrapper["modelId"], wrapper["version"]) == (True, "made", 1)
    assert (wrapper["bestEffort"], wrapper["report"], wrapper["spec"]["id"]) == (False, "green", "made")


def test_an_id_of_the_models_own_choice_gives_way() -> None:
    step, _ = play(GOOD)
    step = decide(step.state, Looked(taken=4), GENERATE)
    assert isinstance(step, Onward)
    assert step.state.chosen is not None
    assert (step.state.phase, step.state.chosen.model_id) == (ValemPhase.STORE, "made-2")
    step = decide(decide(step.state, Looked(taken=None), GENERATE).state, Confirmed(ours=False), GENERATE)
    step = decide(decide(step.state, Looked(taken=None), GENERATE).state, Confirmed(ours=True), GENERATE)
    assert isinstance(step, Closed)
    wrapper = wrapper_of(step)
    assert (wrapper["modelId"], wrapper["spec"]["id"], wrapper["version"]) == ("made-3", "made-3", 1)


def test_ids_are_not_tried_for_ever() -> None:
    step, _ = play(GOOD)
    looks = 0
    while isinstance(step, Onward):
        step = decide(step.state, Looked(taken=1), GENERATE)
        looks += 1
    assert isinstance(step, Closed)
    assert (step.error, looks) == ("version_conflict", MAX_SUFFIX)


@pytest.mark.parametrize("limits", [EVOLVE, Limits(model_id="loan")])
@pytest.mark.parametrize("late", [False, True])
def test_a_version_that_was_asked_for_does_not_give_way_and_nothing_is_lost(limits: Limits, late: bool) -> None:
    found = replace(candidate("loan"), evolution='{"newVersion": "1.1.0"}')
    step, _ = play(Judged(verdict=Verdict.GOOD, count=0, candidate=found), limits=limits)
    assert step.state.chosen is not None
    assert step.state.chosen.version == (4 if limits is EVOLVE else 1)
    if late:
        step = decide(decide(step.state, Looked(taken=None), limits).state, Confirmed(ours=False), limits)
    else:
        step = decide(step.state, Looked(taken=4), limits)
    assert isinstance(step, Closed)
    wrapper = wrapper_of(step)
    assert (wrapper["success"], wrapper["error"]) == (False, "version_conflict")
    assert wrapper["spec"]["id"] == "loan"
    assert wrapper["evolution"] == {"newVersion": "1.1.0"}


def test_a_spec_given_whole_is_evolved_and_not_stored() -> None:
    step, _ = play(GOOD, limits=Limits(task=Task.EVOLVE, stores=False))
    assert isinstance(step, Closed)
    wrapper = wrapper_of(step)
    assert (wrapper["success"], wrapper["version"], wrapper["modelId"]) == (True, None, "made")


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_temperatures_rise_and_stop_rising() -> None:
    assert [temperature(n, Temperatures()) for n in range(1, 9)] == [0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 0.8, 0.8]
    assert temperature(3, Temperatures(repair=0.9)) == 0.8


EVENTS = st.one_of(
    st.builds(
        Replied,
        text=st.sampled_from(["", "x"]),
        calls=st.sampled_from([(), CALLS]),
        cut=st.booleans(),
        next_limit=st.sampled_from([None, 10]),
    ),
    st.just(TooLong(message="m")),
    st.just(NoMore(error="llm_error", message="m")),
)
VERDICTS = st.one_of(
    st.integers(0, 9).map(invalid),
    st.builds(flawed, st.integers(0, 3), st.integers(0, 3)),
    st.sampled_from([UNREADABLE, CUT, GOOD]),
)


@settings(max_examples=300)
@given(st.data(), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.sampled_from(list(Task)))
def test_it_ends_within_its_calls_whatever_the_model_does(
    data: st.DataObject, retries: int, more: int, round_trips: int, task: Task
) -> None:
    limits = Limits(task=task, retries=retries, retries_hard=retries + more, round_trips=round_trips)
    state, calls, turns = ValemState(), 0, 0
    step: Step = Onward(state=state)
    while not isinstance(step, Closed):
        turns += 1
        event: Event
        match state.phase:
            case ValemPhase.ASK | ValemPhase.ANSWER:
                event = data.draw(EVENTS)
                calls += isinstance(event, Replied)
                if isinstance(event, Replied) and not round_trips:
                    event = replace(event, calls=())  # none are on offer
            case ValemPhase.TOOLS:
                event = Returned(results=("r",) * len(state.pending))
            case ValemPhase.CHECK:
                event = data.draw(VERDICTS)
            case ValemPhase.STORE:
                event = Looked(taken=data.draw(st.sampled_from([None, 1])))
            case ValemPhase.CONFIRM:
                event = Confirmed(ours=data.draw(st.booleans()))
        step = decide(state, event, limits)
        stored: dict[str, Any] = json.loads(json.dumps(step.state.to_cursor()))
        assert ValemState.from_cursor(stored) == step.state
        state = step.state
        assert state.attempt <= limits.retries_hard
    assert calls <= limits.retries_hard * (round_trips + 1)
    wrapper = wrapper_of(step)
    assert wrapper["attempts"] <= limits.retries_hard
    assert wrapper["success"] is (step.error is None)


# --- the README -------------------------------------------------------------------------------------------------------

README = (Path(machine.__file__).parent / "README.md").read_text(encoding="utf-8")
NO_MORE = NoMore(error="llm_error", message="m")
BEST = candidate(failing=1)


def target(state: ValemState, event: Event, limits: Limits = GENERATE) -> str:
    step = decide(state, event, limits)
    return "DONE" if isinstance(step, Closed) else step.state.phase.value


def at(phase: ValemPhase, *, last: bool = False, best: bool = False, round_trips: int = 0) -> ValemState:
    exchanges = (Exchange(text="", calls=(replace(CALLS[0], result="x" * 9_000),)),)
    stored = Chosen(candidate=candidate(), model_id="made", version=1)
    return ValemState(
        phase=phase,
        attempt=6 if last else 1,
        exchanges=exchanges,
        round_trips=round_trips,
        best=BEST if best else None,
        chosen=stored if phase in (ValemPhase.STORE, ValemPhase.CONFIRM) else None,
    )


def test_the_readme_draws_every_arrow_and_no_other() -> None:
    found: set[tuple[str, str, str]] = {("ASK", target(ValemState(), Refused(error="e", message="m")), "refused")}
    inline = Limits(task=Task.EVOLVE, stores=False)
    asked = Limits(model_id="made")
    for phase in (ValemPhase.ASK, ValemPhase.ANSWER):
        found.add((phase.value, target(at(phase), Replied(text="{}")), "answer"))
        found.add((phase.value, target(at(phase), TooLong(message="m")), "too long"))
        for state in (at(phase), at(phase, last=True), at(phase, last=True, best=True)):
            found.add((phase.value, target(state, Replied(text="")), "no answer"))
    found.add(("ASK", target(at(ValemPhase.ASK), Replied(text="", calls=CALLS)), "tool calls"))
    tools, once = at(ValemPhase.TOOLS), Limits(round_trips=1)
    found.add(("TOOLS", target(tools, Returned(results=("r",))), "results"))
    found.add(("TOOLS", target(tools, Returned(results=("r",)), once), "results at the cap"))
    check = at(ValemPhase.CHECK)
    found |= {("CHECK", target(check, GOOD, limits), "good") for limits in (GENERATE, inline)}
    found.add(("CHECK", target(check, invalid(1)), "flaws"))
    for best in (True, False):
        found.add(("CHECK", target(at(ValemPhase.CHECK, last=True, best=best), invalid(1)), "last attempt"))
    found.add(("STORE", target(at(ValemPhase.STORE), Looked(taken=None)), "free"))
    found |= {("STORE", target(at(ValemPhase.STORE), Looked(taken=1), limits), "taken") for limits in (GENERATE, asked)}
    confirm = at(ValemPhase.CONFIRM)
    found.add(("CONFIRM", target(confirm, Confirmed(ours=True)), "ours"))
    found |= {("CONFIRM", target(confirm, Confirmed(ours=False), limits), "taken") for limits in (GENERATE, asked)}
    found |= {
        (phase.value, target(at(phase, best=best), NO_MORE), "no more")
        for phase in ValemPhase
        for best in (True, False)
    }
    assert set(re.findall(r"^\s+(\w+) --> (\w+): ([\w ]+)$", README, re.MULTILINE)) == found


def test_the_readme_names_every_parameter_error_and_default() -> None:
    source = Path(params.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'params(?:\.get\(|, )"(\w+)"', source)) | {"lang", "domainDescription"}
    table = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", README, re.MULTILINE))
    assert names == params.PARAM_NAMES
    assert names <= set(table)
    numbers = re.findall(r'_(?:whole|number)\(params, "(\w+)", ([\w.]+), ([\d_.]+), ([\w.]+)\)', source)
    assert len(numbers) > 15
    for name, _, low, high in numbers:
        most = str(MAX_ROUND_TRIPS) if high == "MAX_ROUND_TRIPS" else high
        assert table[name] == f"{float(low):g}..{float(most.replace('_', '')):g}".replace("1e+06", "1000000"), name
    engine_source = "".join(path.read_text(encoding="utf-8") for path in Path(machine.__file__).parent.glob("*.py"))
    codes = set(re.findall(r'(?:error|code)="(\w+)"|Impossible\(\s*"(\w+)"', engine_source))
    for code in {first or second for first, second in codes}:
        assert f"`{code}`" in README, code
