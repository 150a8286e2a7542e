"""Ford's table: what follows what, within which bounds; and that its README says so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.conversation import MAX_CALLS_AT_ONCE, Called, Exchange
from engines.ford import engine, machine
from engines.ford.machine import (
    Closed,
    Event,
    FordPhase,
    FordState,
    Limits,
    NoMore,
    Onward,
    Replied,
    Returned,
    TooLong,
    decide,
    error_wrapper,
)

README = (Path(machine.__file__).parent / "README.md").read_text(encoding="utf-8")
LIMITS = Limits(round_trips=2)
CALLS = (Called(id="1", name="probe", arguments={"a": 1}), Called(id="2", name="probe"))
NO_MORE = NoMore(error="llm_error", message="m")


def at(phase: FordPhase, round_trips: int = 0) -> FordState:
    exchanges = (Exchange(text="t", calls=CALLS),) if phase is not FordPhase.ASK else ()
    return FordState(phase=phase, exchanges=exchanges, round_trips=round_trips)


def target(state: FordState, event: Event, limits: Limits = LIMITS) -> str:
    step = decide(state, event, limits)
    return step.state.phase.value if isinstance(step, Onward) else "DONE"


def test_the_readme_draws_every_arrow_and_no_other() -> None:
    events: list[tuple[str, Event]] = [
        ("tool calls", Replied(text="", calls=CALLS)),
        ("cut off", Replied(text="x", cut=True, next_limit=10)),
        ("answer", Replied(text="x")),
        ("answer", Replied(text="")),
        ("answer", Replied(text="x", cut=True)),
        ("no more", NO_MORE),
    ]
    found = {
        (phase.value, target(at(phase), event), word)
        for phase in (FordPhase.ASK, FordPhase.ANSWER)
        for word, event in events
        # Without tools there are no calls; what looks like one is left out and the text is the answer.
        if not (phase is FordPhase.ANSWER and word == "tool calls")
    }
    returned = Returned(results=("a", "b"))
    long = (Exchange(text="", calls=(Called(id="1", name="n", result="x" * 9_000),)),)
    for phase in (FordPhase.ASK, FordPhase.ANSWER):
        found.add((phase.value, target(FordState(phase=phase, exchanges=long), TooLong(message="m")), "too long"))
        assert target(FordState(phase=phase), TooLong(message="m")) == "DONE"
    found.add(("TOOLS", target(at(FordPhase.TOOLS), returned), "results"))
    found.add(("TOOLS", target(at(FordPhase.TOOLS, 1), returned), "results at the cap"))
    found.add(("QUERY", target(at(FordPhase.QUERY), returned), "results"))
    found.add(("QUERY", target(at(FordPhase.QUERY, 1), returned), "results at the cap"))
    found.add(("TOOLS", target(at(FordPhase.TOOLS), Returned(results=("a", None))), "queries"))
    found.add(("TOOLS", target(at(FordPhase.TOOLS), NO_MORE), "no more"))
    found.add(("QUERY", target(at(FordPhase.QUERY), NO_MORE), "no more"))
    assert set(re.findall(r"^\s+(\w+) --> (\w+): ([\w ]+)$", README, re.MULTILINE)) == found


def test_the_readme_names_parameters_errors_and_limits() -> None:
    source = Path(engine.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'params\.get\("(\w+)"\)', source)) | {"lang"}
    assert [name for name in names if f"`{name}`" not in README] == []
    assert f"at most {MAX_CALLS_AT_ONCE})" in README
    assert f"{machine.MAX_ROUND_TRIPS} batches are {machine.MAX_ROUND_TRIPS + 1} model calls" in README


def test_a_cut_answer_is_asked_for_once_more() -> None:
    cut = Replied(text="beginning", cut=True, next_limit=200)
    step = decide(FordState(), cut, LIMITS)
    assert isinstance(step, Onward)
    assert (step.corrected, step.state.output_limit) == (True, 200)
    step = decide(step.state, cut, LIMITS)
    assert isinstance(step, Closed)
    assert step.wrapper == {"success": True, "result": "beginning", "roundTrips": 0, "truncated": True}
    step = decide(FordState(), Replied(text=" ", cut=True), LIMITS)
    assert isinstance(step, Closed)
    assert step.wrapper["error"] == "truncated"


def test_the_last_call_is_marked_as_forced_and_its_tool_calls_are_left_out() -> None:
    step = decide(at(FordPhase.ANSWER, 2), Replied(text="so", calls=CALLS), LIMITS)
    assert isinstance(step, Closed)
    assert (step.forced, step.wrapper) == (True, {"success": True, "result": "so", "roundTrips": 2, "forced": True})


def test_results_meet_their_calls_and_documents_are_kept_once() -> None:
    state = at(FordPhase.TOOLS)
    step = decide(state, Returned(results=("a", "b"), documents=("x.md", "x.md")), LIMITS)
    assert [call.result for call in step.state.exchanges[-1].calls] == ["a", "b"]
    assert step.state.documents == ("x.md",)
    assert step.state.pending == ()
    with pytest.raises(ValueError, match="zip"):
        decide(state, Returned(results=("a",)), LIMITS)


def test_what_was_said_is_kept_in_an_error() -> None:
    assert error_wrapper(at(FordPhase.TOOLS), "stopped", "m")["partial"] == "t"
    assert "partial" not in error_wrapper(FordState(), "stopped", "m")


EVENTS = st.one_of(
    st.builds(Replied, text=st.sampled_from(["", "x"]), calls=st.sampled_from([(), CALLS]), cut=st.booleans(),
              next_limit=st.sampled_from([None, 10])),
    st.just(NO_MORE),
    st.just(TooLong(message="m")),
)  # fmt: skip


@given(st.lists(EVENTS, min_size=100, max_size=100), st.integers(0, 5))
def test_it_ends_within_its_calls_whatever_the_model_does(events: list[Any], round_trips: int) -> None:
    state, calls = FordState(), 0
    for event in events:
        if state.phase is FordPhase.TOOLS:
            step = decide(state, Returned(results=("r",) * len(state.pending)), Limits(round_trips=round_trips))
        else:
            calls += not isinstance(event, TooLong)  # refused before the model began
            step = decide(state, event, Limits(round_trips=round_trips))
        stored = json.loads(json.dumps(step.state.to_cursor()))
        assert FordState.from_cursor(stored) == step.state
        state = step.state
        if isinstance(step, Closed):
            break
    else:
        pytest.fail("did not end")
    # One more for the answer that was cut off; a first ASK with calls counts even where no round trip is allowed.
    assert calls <= max(1, round_trips) + 2
