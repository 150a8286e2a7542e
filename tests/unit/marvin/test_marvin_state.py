"""What a node and a process carry: the cursor, the limits, the way children run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.marvin.caps import RANGES, Caps
from engines.marvin.modes import execution_mode
from engines.marvin.outputs import PostAction
from engines.marvin.state import MarvinState, Rejected
from engines.marvin.words import Phase, TaskKind
from models.records import ChildMode

COUNT = st.integers(0, 20)
STATES = st.builds(
    MarvinState,
    phase=st.sampled_from(Phase),
    reflect_iter=COUNT,
    validate_iter=COUNT,
    conclude_retries=COUNT,
    need_more_data_iter=COUNT,
    post_children_rounds=COUNT,
    asked=COUNT,
    corrections=COUNT,
    rejected=st.none() | st.builds(Rejected, excerpt=st.text(), correction=st.text()),
    output_limit=st.none() | st.integers(1, 100_000),
    candidate=st.none() | st.text(),
    post_actions=st.lists(
        st.builds(PostAction, tool=st.text(), args=st.dictionaries(st.text(), st.text() | st.integers())), max_size=2
    ).map(tuple),
    hints=st.lists(st.text(), max_size=3).map(tuple),
    audit_warning=st.none() | st.text(),
)


@given(STATES)
def test_a_state_survives_its_cursor(state: MarvinState) -> None:
    stored = json.loads(json.dumps(state.to_cursor()))
    assert MarvinState.from_cursor(stored) == state


def test_a_new_node_starts_in_scope() -> None:
    assert MarvinState.from_cursor({}) == MarvinState(phase=Phase.SCOPE)
    assert MarvinState().to_cursor() == {"phase": "SCOPE"}


@pytest.mark.parametrize(
    ("state", "iteration", "cap"),
    [
        (MarvinState(), 1, 1),
        (MarvinState(phase=Phase.REFLECT, reflect_iter=2), 2, 3),
        (MarvinState(phase=Phase.POST_CHILDREN, post_children_rounds=2), 2, None),
        (MarvinState(phase=Phase.CONCLUDE, validate_iter=2), 3, 3),
        (MarvinState(phase=Phase.VALIDATE, validate_iter=2), 2, 2),
    ],
)
def test_each_call_of_a_phase_has_its_number(state: MarvinState, iteration: int, cap: int | None) -> None:
    assert (state.iteration(), state.iteration_cap(Caps())) == (iteration, cap)


@pytest.mark.parametrize(("rounds", "asked", "level"), [(0, 0, 2), (1, 0, 2), (2, 0, 3), (2, 1, 2), (5, 1, 5)])
def test_further_rounds_count_as_levels(rounds: int, asked: int, level: int) -> None:
    assert MarvinState(post_children_rounds=rounds, asked=asked).level(2) == level


def test_the_defaults_are_those_of_the_parameters() -> None:
    assert Caps.from_params({}) == Caps()
    for field, limit in RANGES.items():
        assert getattr(Caps(), field) == limit.default
        assert limit.low <= limit.default <= limit.high


@pytest.mark.parametrize("field", list(RANGES))
def test_every_limit_can_be_set_by_a_recipe(field: str) -> None:
    limit = RANGES[field]
    given = limit.low + 1
    assert getattr(Caps.from_params({limit.name: given}), field) == given
    assert getattr(Caps.from_params({limit.name: f" {given} "}), field) == given
    assert getattr(Caps.from_params({limit.name: float(given)}), field) == given
    assert getattr(Caps.from_params({limit.name: -7}), field) == limit.low
    assert getattr(Caps.from_params({limit.name: 10**30}), field) == limit.high


@pytest.mark.parametrize("junk", [None, True, "many", "", [], {}, 2.5, float("nan"), float("inf"), "9" * 5_000])
def test_junk_means_the_default(junk: Any) -> None:
    assert Caps.from_params({limit.name: junk for limit in RANGES.values()}) == Caps()


@pytest.mark.parametrize(
    ("spec", "params", "expected"),
    [
        ({}, {}, ChildMode.SEQUENTIAL),
        ({}, {"defaultExecutionMode": "PARALLEL"}, ChildMode.PARALLEL),
        ({}, {"defaultExecutionMode": "parallel "}, ChildMode.PARALLEL),
        (
            {},
            {"defaultExecutionMode": "PARALLEL", "defaultExecutionModePerKind": {"WORKER": "SEQUENTIAL"}},
            ChildMode.SEQUENTIAL,
        ),
        ({}, {"defaultExecutionModePerKind": {"worker": "PARALLEL"}}, ChildMode.PARALLEL),
        ({}, {"defaultExecutionModePerKind": {"EXPAND_FROM_DOC": "PARALLEL"}}, ChildMode.SEQUENTIAL),
        (
            {"executionMode": "SEQUENTIAL"},
            {"defaultExecutionModePerKind": {"WORKER": "PARALLEL"}, "defaultExecutionMode": "PARALLEL"},
            ChildMode.SEQUENTIAL,
        ),
        ({"executionMode": "PARALLEL"}, {"defaultExecutionMode": "SEQUENTIAL"}, ChildMode.PARALLEL),
        ({"executionMode": "sideways"}, {"defaultExecutionMode": "PARALLEL"}, ChildMode.SEQUENTIAL),
        ({"executionMode": 3}, {"defaultExecutionMode": "PARALLEL"}, ChildMode.SEQUENTIAL),
        ({"executionMode": None}, {"defaultExecutionMode": "PARALLEL"}, ChildMode.PARALLEL),
        ({}, {"defaultExecutionModePerKind": "PARALLEL"}, ChildMode.SEQUENTIAL),
    ],
)
def test_the_nearest_setting_decides_how_children_run(
    spec: dict[str, Any], params: dict[str, Any], expected: ChildMode
) -> None:
    assert execution_mode(TaskKind.WORKER, spec, params) is expected


def test_entries_of_a_document_run_together_by_default() -> None:
    assert execution_mode(TaskKind.EXPAND_FROM_DOC, {}, {}) is ChildMode.PARALLEL
    assert execution_mode(TaskKind.EXPAND_FROM_DOC, {}, {"defaultExecutionMode": "SEQUENTIAL"}) is ChildMode.SEQUENTIAL
