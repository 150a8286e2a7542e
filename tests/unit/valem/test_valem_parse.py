"""Specs from JSON and back: what is read, what is refused where, what is dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines.valem.spec.parse import SpecParseError, dump_spec, parse_spec
from engines.valem.spec.records import Evaluation, Library, MetaProperty, Policy

SMALL: dict[str, Any] = {"id": "shop", "schema": {"type": "object"}}


def spec_with(**parts: Any) -> dict[str, Any]:
    return {**SMALL, **parts}


def refused(**parts: Any) -> SpecParseError:
    with pytest.raises(SpecParseError) as error:
        parse_spec(spec_with(**parts))
    return error.value


EVERYTHING = spec_with(
    version="2.1.0-rc.1",
    constants={"rate": 0.2, "table": [{"upTo": None}]},
    library={
        "define": '( $f := function($x) { $x }; ["f"] )',
        "signatures": {"f": "<n:n>"},
        "layers": [{"define": '( $g := 1; ["g"] )', "extends": "acme/base@1.0.0", "constants": ["rate"]}],
    },
    defaultValues=[{"path": "$", "expr": '{"a": 1}'}],
    derivations=[
        {"path": "$.b", "expr": "a + 1"},
        {"path": "$.c", "expr": "b", "evaluation": "lazy", "description": "slow"},
    ],
    metaDerivations=[{"path": "$.a", "property": "maximum", "expr": "c"}],
    constraints=[
        {"id": "one", "expr": "a > 0", "policy": "flag", "message": "positive"},
        {"id": "two", "path": "$.a", "expr": "$ > 0", "policy": "rollback"},
        {"id": "three", "path": ["$.a", "$.b"], "expr": "$ > 0", "policy": "rollback"},
        {"id": "four"},
    ],
    effects=[
        {"id": "tell", "executor": "caller", "trigger": "a > 5", "emit": "big", "payload": {"a": "a"}},
        {"id": "ask", "trigger": "true", "request": {"url": "https://a.example"}, "policy": {"retries": 2}},
        {"id": "wait", "executor": "timer", "trigger": "true", "afterMs": 500, "response": {"set": {"$.a": "0"}}},
        {"id": "several", "trigger": "true", "requests": [], "body": {"x": [1]}},
    ],
    tests=[{"given": {"$.a": 1}, "expect": {"$.b": 2, "$.a": {"$meta": {"maximum": 2}}}}],
    viewDefinition={"defaultView": "main", "views": [{"id": "main", "components": []}]},
    template={"ref": "acme/base@1.0.0"},
    lineage=[{"ref": "acme/base@1.0.0"}],
)


def test_a_whole_spec_survives_the_round_trip() -> None:
    spec = parse_spec(EVERYTHING)
    dumped = json.loads(json.dumps(dump_spec(spec)))
    assert parse_spec(dumped) == spec
    assert dump_spec(parse_spec(dumped)) == dumped
    assert spec.derivations[1].evaluation is Evaluation.LAZY
    assert spec.constraints[2].paths == ("$.a", "$.b")
    assert spec.view_definition is not None
    assert spec.view_definition.default_view == "main"
    assert [view["id"] for view in spec.view_definition.views] == ["main"]
    assert spec.effects[2].after_ms == "500"
    assert spec.effects[1].policy is not None
    assert spec.effects[1].policy.timeout_ms == 5_000


def test_the_order_of_keys_is_always_the_same() -> None:
    backwards = dict(reversed(EVERYTHING.items()))
    assert json.dumps(dump_spec(parse_spec(backwards))) == json.dumps(dump_spec(parse_spec(EVERYTHING)))


def test_an_absent_version_becomes_the_first_one() -> None:
    assert parse_spec(SMALL).version == "1.0.0"


def test_absent_id_and_schema_are_left_to_the_validator() -> None:
    spec = parse_spec({"schema": None})
    assert (spec.id, spec.schema) == ("", None)


def test_unknown_keys_are_ignored_and_dropped() -> None:
    spec = parse_spec(spec_with(_name="Shop", derivations=[{"path": "$.a", "expr": "1", "colour": "red"}]))
    assert dump_spec(spec) == {**SMALL, "version": "1.0.0", "derivations": [{"path": "$.a", "expr": "1"}]}


@pytest.mark.parametrize(("key", "value"), [("actions", [{"id": "x"}]), ("initialState", {"$.a": 1})])
def test_removed_parts_are_refused_unless_they_are_empty(key: str, value: Any) -> None:
    error = refused(**{key: value})
    assert error.location == key
    assert "instead" in error.detail
    assert parse_spec(spec_with(**{key: type(value)()})).id == "shop"


@pytest.mark.parametrize(
    ("parts", "location"),
    [
        ({"derivations": [{"path": "$.a", "expr": "1"}, {"path": "$.b"}]}, "derivations[1].expr"),
        ({"derivations": [{"expr": "1"}]}, "derivations[0].path"),
        ({"derivations": [None]}, "derivations[0]"),
        ({"derivations": {"path": "$.a"}}, "derivations"),
        ({"derivations": [{"path": "$.a", "expr": 5}]}, "derivations[0].expr"),
        ({"derivations": [{"path": "$.a", "expr": "1", "evaluation": "later"}]}, "derivations[0].evaluation"),
        ({"metaDerivations": [{"path": "$.a", "expr": "1"}]}, "metaDerivations[0].property"),
        ({"defaultValues": [{"path": "$"}]}, "defaultValues[0].expr"),
        ({"effects": [{"id": "a"}]}, "effects[0].trigger"),
        ({"effects": [{"id": "a", "trigger": "1", "payload": {"x": 1}}]}, "effects[0].payload.x"),
        ({"effects": [{"id": "a", "trigger": "1", "policy": {"retries": 1e999}}]}, "effects[0].policy.retries"),
        ({"tests": [{"expect": {}}]}, "tests[0].given"),
        ({"tests": [{"given": {}}]}, "tests[0].expect"),
        ({"constraints": [{"path": 3}]}, "constraints[0].path"),
        ({"constraints": [{"path": ["$.a", 3]}]}, "constraints[0].path"),
        ({"schema": []}, "schema"),
        ({"library": 7}, "library"),
    ],
)
def test_what_no_record_can_hold_is_refused_at_its_place(parts: dict[str, Any], location: str) -> None:
    assert refused(**parts).location == location


def test_a_spec_that_is_no_object_is_refused() -> None:
    with pytest.raises(SpecParseError, match="must be an object, not array of 1 item"):
        parse_spec([1])


def test_a_spec_nested_too_deeply_is_refused() -> None:
    deep: Any = 1
    for _ in range(98):
        deep = [deep]
    assert parse_spec(spec_with(constants={"deep": deep})).id == "shop"
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(SpecParseError, match="more than 100 levels"):
        parse_spec(spec_with(constants={"deep": deep}))


def test_an_unknown_choice_names_the_nearest_or_all() -> None:
    assert 'did you mean "readOnly"' in refused(metaDerivations=[{"path": "$.a", "property": "readonly"}]).detail
    assert '"rollback", "flag"' in refused(constraints=[{"policy": "warn"}]).detail


def test_keys_missing_in_a_constraint_are_left_to_the_validator() -> None:
    (constraint,) = parse_spec(spec_with(constraints=[{}])).constraints
    assert (constraint.id, constraint.expr, constraint.policy) == (None, None, None)


def test_a_constraint_takes_one_path_or_several() -> None:
    one, several = parse_spec(EVERYTHING).constraints[1:3]
    assert one.paths == ("$.a",)
    assert several.paths == ("$.a", "$.b")
    assert one.policy is Policy.ROLLBACK


@pytest.mark.parametrize(("value", "text"), [(100, "100"), (0.5, "0.5"), (["a", "b"], '["a", "b"]'), (True, "true")])
def test_a_literal_meta_expression_becomes_its_json_text(value: Any, text: str) -> None:
    spec = parse_spec(spec_with(metaDerivations=[{"path": "$.a", "property": "maximum", "expr": value}]))
    assert spec.meta_derivations[0].expr == text
    assert spec.meta_derivations[0].property is MetaProperty.MAXIMUM


def test_a_bare_library_text_is_its_definition() -> None:
    text = '( $f := function($x) { $x }; ["f"] )'
    assert parse_spec(spec_with(library=text)) == parse_spec(spec_with(library={"define": text}))


def test_the_layers_come_before_the_own_definition() -> None:
    library = parse_spec(EVERYTHING).library
    assert library is not None
    assert [layer.define for layer in library.all_layers()] == [library.layers[0].define, library.define]
    assert Library(layers=library.layers).all_layers() == library.layers
