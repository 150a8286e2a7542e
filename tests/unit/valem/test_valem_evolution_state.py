"""State carried over to an evolved spec: filled in where nothing is, refused where it has no place any more."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engines.valem.evolution.carried import MAX_FINDINGS, backfill, check_carried_state
from engines.valem.evolution.errors import EvolutionError
from engines.valem.spec.parse import parse_spec


def test_backfill_never_overwrites() -> None:
    state = {"a": 1, "n": None, "o": {"x": 0}, "items": [{"sku": "s"}, {}, 3]}
    before = copy.deepcopy(state)
    values = {
        "$.a": 9, "$.n": 9, "$.o.x": 9, "$.o.y": 9, "$.new": [1], "$.deep.er": True, "$.a.b": 9,
        "$.items[*].sku": "none", "$.items[1].n": 5, "$.items[7].n": 5, "$.absent[*].x": 1, "$.items[0]": 9,
    }  # fmt: skip
    assert backfill(state, values) == {
        "a": 1,
        "n": None,
        "o": {"x": 0, "y": 9},
        "items": [{"sku": "s"}, {"sku": "none", "n": 5}, 3],
        "new": [1],
        "deep": {"er": True},
    }
    assert state == before
    assert backfill(backfill(state, values), values) == backfill(state, values)


def test_backfilled_values_are_not_shared() -> None:
    value: dict[str, Any] = {"x": 1}
    filled = backfill({"items": [{}, {}]}, {"$.items[*].o": value})
    filled["items"][0]["o"]["x"] = 2
    assert (filled["items"][1]["o"], value) == ({"x": 1}, {"x": 1})


@pytest.mark.parametrize("address", ["a", "$", "$.items.0.x"])
def test_a_bad_address_to_backfill_is_refused(address: str) -> None:
    with pytest.raises(EvolutionError) as raised:
        backfill({}, {address: 1})
    assert raised.value.findings[0].location == f"backfill.{address}"


SCHEMA = {
    "properties": {
        "age": {"type": "integer", "minimum": 0, "readOnly": True},
        "name": {"type": "string", "pattern": "[a-z]+"},
        "who": {"$ref": "#/$defs/Person"},
        "items": {"type": "array", "items": {"properties": {"sku": {"enum": ["x", "y"]}, "sum": {}}}},
        "free": {"type": "object"},
        "map": {"properties": {}, "additionalProperties": {"type": "number"}},
        "open": {"properties": {"k": {}}, "additionalProperties": True},
    },
    "required": ["age", "name"],
    "$defs": {"Person": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
SPEC = parse_spec(
    {
        "id": "m",
        "schema": SCHEMA,
        "derivations": [{"path": "$.total", "expr": "1"}, {"path": "$.items[*].sum", "expr": "1"}],
    }
)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"age": 3, "name": "abc", "who": {"city": "Tartu"}, "items": [{"sku": "x"}, {}]},
        {"age": None, "gone": None, "who": {"gone": None}},
        {"total": "old", "items": [{"sum": "old"}]},
        {"free": {"any": {"thing": 1}}, "map": {"a": 1, "b": 2.5}, "open": {"k": 1, "l": "x"}},
    ],
)
def test_state_that_has_its_place_is_carried(state: dict[str, Any]) -> None:
    check_carried_state(SPEC, state)


@pytest.mark.parametrize(
    ("state", "location"),
    [
        ({"gone": 1}, "state $.gone"),
        ({"age": "three"}, "state $.age"),
        ({"age": -1}, "state $.age"),
        ({"name": "abc1"}, "state $.name"),
        ({"who": "me"}, "state $.who"),
        ({"who": {"street": "x"}}, "state $.who.street"),
        ({"who": {"city": 5}}, "state $.who.city"),
        ({"items": [{"sku": "x"}, {"sku": "z"}]}, "state $.items[1].sku"),
        ({"items": {}}, "state $.items"),
        ({"map": {"a": "x"}}, "state $.map.a"),
    ],
)
def test_stranded_state_is_refused_with_its_place(state: dict[str, Any], location: str) -> None:
    with pytest.raises(EvolutionError) as raised:
        check_carried_state(SPEC, state)
    (finding,) = raised.value.findings
    assert finding.location == location
    assert finding.hint


def test_findings_about_state_are_bounded() -> None:
    with pytest.raises(EvolutionError) as raised:
        check_carried_state(SPEC, {"items": [{"gone": 1}] * 10_000})
    assert len(raised.value.findings) == MAX_FINDINGS
