"""The Jeltz state machine: every event from every state, and the diagram that promises them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.jeltz import machine
from engines.jeltz.machine import (
    Accepted,
    Again,
    Closed,
    CutOff,
    Ended,
    ErrorCode,
    Event,
    Grown,
    JeltzState,
    Rejected,
    Violated,
    clamp_attempts,
    decide,
)

REJECTED = Rejected(excerpt='{"n": "x"}', correction="n must be an integer")
VIOLATED = Violated(message="/n: found text, expected integer", rejected=REJECTED, last_invalid={"n": "x"})
CUT = CutOff(
    message="the answer was truncated at its limit of 16 tokens",
    rejected=Rejected(excerpt="", correction="shorter"),
    last_invalid='{"n":',
    next_limit=32,
)
CUT_AT_CEILING = CutOff(message="truncated", rejected=CUT.rejected, last_invalid='{"n":', next_limit=None)
ACCEPTED = Accepted(data={"n": 1})


@dataclass(frozen=True)
class Case:
    id: str
    event: Event
    maximum: int = 3
    before: JeltzState = field(default_factory=JeltzState)
    again: bool = False
    attempts: int = 0
    error: str | None = None
    last_invalid: Any = None


CASES = [
    Case("first answer accepted", ACCEPTED, attempts=1),
    Case("accepted on the second attempt", ACCEPTED, before=JeltzState(attempts=1), attempts=2),
    Case("violation leaves another attempt", VIOLATED, again=True, attempts=1, last_invalid={"n": "x"}),
    Case(
        "last violation",
        VIOLATED,
        before=JeltzState(attempts=2),
        attempts=3,
        error="max_attempts_exceeded",
        last_invalid={"n": "x"},
    ),
    Case("only attempt", VIOLATED, maximum=1, attempts=1, error="schema_violation", last_invalid={"n": "x"}),
    Case("cut off, may be longer", CUT, again=True, attempts=1, last_invalid='{"n":'),
    Case("cut off at the ceiling", CUT_AT_CEILING, attempts=1, error="truncated", last_invalid='{"n":'),
    Case("cut off at the last attempt", CUT, maximum=1, attempts=1, error="truncated", last_invalid='{"n":'),
    Case(
        "grown too long is no attempt",
        Grown(rejected=Rejected(excerpt="", correction="c")),
        before=JeltzState(attempts=1, rejected=REJECTED, last_invalid={"n": "x"}),
        again=True,
        attempts=1,
        last_invalid={"n": "x"},
    ),
    Case(
        "provider failure keeps the earlier answer",
        Ended(error=ErrorCode.LLM_ERROR, message="overloaded: no", counts=True),
        before=JeltzState(attempts=1, last_invalid={"n": "x"}),
        attempts=2,
        error="llm_error",
        last_invalid={"n": "x"},
    ),
    Case("refused", Ended(error=ErrorCode.REFUSAL, message="cannot", counts=True), attempts=1, error="refusal"),
    Case(
        "budget spent before the call",
        Ended(error=ErrorCode.BUDGET_EXCEEDED, message="spent", counts=False, forced=True),
        attempts=0,
        error="budget_exceeded",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_decisions(case: Case) -> None:
    step = decide(case.before, case.event, case.maximum)
    assert isinstance(step, Again) is case.again
    assert step.state.attempts == case.attempts
    assert step.state.last_invalid == case.last_invalid
    if isinstance(step, Closed):
        assert step.wrapper["attempts"] == case.attempts
        assert step.wrapper["success"] is (case.error is None)
        assert step.wrapper.get("error") == case.error
        assert step.wrapper.get("lastInvalid") == (case.last_invalid if case.error else None)
        if case.error:
            assert step.wrapper["message"]


def test_a_raised_limit_is_remembered_and_a_cut_answer_is_not_quoted() -> None:
    step = decide(JeltzState(), CUT, 3)
    assert isinstance(step, Again)
    assert step.state.output_limit == 32
    assert step.state.rejected is not None
    assert step.state.rejected.excerpt == ""


def test_extras_of_a_success_are_only_there_when_they_say_something() -> None:
    plain = decide(JeltzState(), ACCEPTED, 3)
    assert isinstance(plain, Closed)
    assert set(plain.wrapper) == {"success", "attempts", "data"}
    full = decide(JeltzState(), Accepted(data={}, repaired=True, hints=("t: no date",), model="m"), 3)
    assert isinstance(full, Closed)
    assert full.wrapper | {"attempts": 1} == {
        "success": True,
        "attempts": 1,
        "data": {},
        "repaired": True,
        "hints": ["t: no date"],
        "model": "m",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, 1),
        (-5, 1),
        (9999, 10),
        (7, 7),
        ("4", 4),
        (" 4 ", 4),
        ("x", 3),
        (None, 3),
        (True, 3),
        (2.0, 2),
        (2.5, 3),
        ([], 3),
    ],
)
def test_max_attempts_is_clamped(given: object, expected: int) -> None:
    assert clamp_attempts(given) == expected


STATES = st.builds(
    JeltzState,
    attempts=st.integers(0, 10),
    rejected=st.none() | st.builds(Rejected, excerpt=st.text(), correction=st.text()),
    last_invalid=st.none() | st.text(min_size=1) | st.dictionaries(st.text(), st.integers()),
    message=st.text(),
    truncated=st.booleans(),
    output_limit=st.none() | st.integers(1, 100_000),
)


@given(STATES)
def test_a_state_survives_its_cursor(state: JeltzState) -> None:
    assert JeltzState.from_cursor(state.to_cursor()) == state


@given(st.lists(st.sampled_from([VIOLATED, CUT, CUT_AT_CEILING, ACCEPTED]), min_size=10), st.integers(1, 10))
def test_it_always_ends_within_its_attempts(events: list[Event], maximum: int) -> None:
    state, judged = JeltzState(), 0
    for event in events:
        step = decide(state, event, maximum)
        judged += 1
        state = step.state
        if isinstance(step, Closed):
            break
    assert isinstance(step, Closed)
    assert judged == state.attempts <= maximum


def test_the_readme_draws_every_arrow_and_no_other() -> None:
    text = (Path(machine.__file__).parent / "README.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^\s+ANSWER --> (\S+): (\w+)", text, re.MULTILINE))
    possible = set()
    events: list[Event] = [VIOLATED, CUT, CUT_AT_CEILING, ACCEPTED, Grown(rejected=REJECTED)]
    events += [Ended(error=code, message="m", counts=True) for code in ErrorCode]
    for event in events:
        for state in (JeltzState(), JeltzState(attempts=2)):
            for maximum in (1, 3):
                step = decide(state, event, maximum)
                if isinstance(step, Again):
                    possible.add(("ANSWER", type(event).__name__))
                else:
                    possible.add(("[*]", step.wrapper.get("error", "success")))
    assert drawn == possible
