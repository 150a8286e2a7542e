"""How a model behaves: seeding, writing, deriving, judging; each step as a spec's author sees it."""

from __future__ import annotations

from typing import Any

import pytest

from engines.valem.compiled import compile_spec
from engines.valem.initial import initial_state
from engines.valem.jsonata.errors import KILLED, ExpressionError
from engines.valem.jsonata.evaluation import Evaluation, evaluate_here
from engines.valem.jsonata.expression import UNDEFINED
from engines.valem.model import Model, Outcome
from engines.valem.spec.addresses import parse_address
from engines.valem.spec.parse import parse_spec

NOW = 1_700_000_000_000


def spec(**parts: Any) -> dict[str, Any]:
    return {"id": "m", "schema": {"type": "object"}, **parts}


def derivations(**exprs: str) -> list[dict[str, str]]:
    return [{"path": f"$.{name}", "expr": expr} for name, expr in exprs.items()]


def constraint(expr: str, policy: str = "rollback", **more: Any) -> dict[str, Any]:
    return {"id": "c", "expr": expr, "policy": policy, "message": "not allowed", **more}


def model(**parts: Any) -> Model:
    """A model that was created without complaint."""
    found = Model(compile_spec(parse_spec(spec(**parts)), now=NOW), now=NOW)
    assert found.initialise() == Outcome()
    return found


def values(found: Model, *paths: str) -> list[Any]:
    return [found.read(parse_address(path)) for path in paths]


def value(found: Model, path: str) -> Any:
    return found.read(parse_address(path))


# Seeding


def test_a_root_default_fills_what_is_absent_and_a_write_overrides_it() -> None:
    found = model(defaultValues=[{"path": "$", "expr": "{ 'a': 1, 'o': { 'b': 2, 'n': null }, 'rows': [] }"}])
    assert found.state.base == {"a": 1, "o": {"b": 2}, "rows": []}
    assert found.write({"$.a": 5}).committed
    assert found.state.base["a"] == 5


def test_root_defaults_build_on_each_other_in_their_order() -> None:
    rules = [{"path": "$", "expr": "{ 'a': 1 }"}, {"path": "$", "expr": "{ 'a': 9, 'b': $self.a + 1, 'c': $parent.a }"}]
    assert model(defaultValues=rules).state.base == {"a": 1, "b": 2, "c": 1}


def test_a_schema_default_fills_only_what_the_rules_left_absent() -> None:
    schema = {
        "$defs": {"Node": {"properties": {"depth": {"default": 1}, "next": {"$ref": "#/$defs/Node"}}}},
        "properties": {
            "a": {"type": "integer", "default": 10},
            "b": {"type": "integer", "default": 20},
            "o": {"type": "object", "properties": {"c": {"default": "x"}, "d": {"type": "string"}}},
            "rows": {"type": "array", "items": {"properties": {"e": {"default": 1}}}},
            "node": {"$ref": "#/$defs/Node"},
        },
    }
    found = model(schema=schema, defaultValues=[{"path": "$", "expr": "{ 'a': 1 }"}])
    assert found.state.base == {"a": 1, "b": 20, "o": {"c": "x"}, "node": {"depth": 1}}


def test_derived_fields_are_never_seeded() -> None:
    found = model(
        schema={"properties": {"b": {"default": 7}}},
        defaultValues=[{"path": "$", "expr": "{ 'a': 1, 'b': 99, 'o': { 'd': 99 } }"}],
        derivations=derivations(b="a + 1", **{"o.d": "a"}),
    )
    assert found.state.base == {"a": 1}
    assert values(found, "$.b", "$.o.d") == [2, 1]


def test_a_new_element_gets_its_default_with_parent_and_self() -> None:
    rule = {"path": "$.items[*]", "expr": "{ 'no': $count($parent), 'twice': $self.n * 2, 'tax': rate, 'n': 99 }"}
    found = model(defaultValues=[{"path": "$", "expr": "{ 'rate': 7 }"}, rule])
    assert found.write({"$.items[0].n": 4}).committed
    assert found.state.base["items"] == [{"n": 4, "no": 1, "twice": 8, "tax": 7}]


def test_defaults_of_nested_containers_apply_from_the_outside_in() -> None:
    rules = [
        {"path": "$.o.p", "expr": "{ 'from': $parent.name }"},
        {"path": "$.o", "expr": "{ 'name': 'outer' }"},
    ]
    found = model(defaultValues=rules)
    assert found.write({"$.o.p.x": 1}).committed
    assert found.state.base == {"o": {"name": "outer", "p": {"x": 1, "from": "outer"}}}


def test_an_array_written_whole_gets_no_element_defaults() -> None:
    found = model(defaultValues=[{"path": "$.items[*]", "expr": "{ 'n': 1 }"}, {"path": "$.o", "expr": "{ 'n': 1 }"}])
    assert found.write({"$.items": [{"a": 1}], "$.o": {"a": 1}}).committed
    assert found.state.base == {"items": [{"a": 1}], "o": {"a": 1}}


def test_an_existing_container_gets_no_defaults_again() -> None:
    found = model(defaultValues=[{"path": "$.items[*]", "expr": "{ 'n': 1 }"}])
    assert found.write({"$.items[0].a": 1}).committed
    assert found.write({"$.items[0].n": None}).committed
    assert found.write({"$.items[0].a": 2}).committed
    assert found.state.base == {"items": [{"a": 2, "n": None}]}


def test_a_default_that_fails_or_gives_no_object_fills_nothing_and_is_reported() -> None:
    rules = [{"path": "$.o", "expr": "1 + 'x'"}, {"path": "$.p", "expr": "[1]"}, {"path": "$.q", "expr": "nothing"}]
    found = model(defaultValues=rules)
    assert found.write({"$.o.a": 1, "$.p.a": 1, "$.q.a": 1}).committed
    assert found.state.base == {"o": {"a": 1}, "p": {"a": 1}, "q": {"a": 1}}
    assert [remark.location for remark in found.state.remarks] == [f"defaultValues[{at}]" for at in range(3)]
    assert "array of 1 item" in found.state.remarks[1].message


# Writing


@pytest.mark.parametrize("path", ["$.d", "$.d.part", "$.rows[0].d"])
def test_a_derived_field_cannot_be_written(path: str) -> None:
    found = model(derivations=derivations(d="1", **{"rows[*].d": "2"}))
    (refusal,) = found.write({path: 1}).refusals
    assert (refusal.path, refusal.message) == (path, "is derived and cannot be written")


FIELDS = {
    "whole": {"type": "integer"},
    "some": {"type": "number", "minimum": 1, "maximum": 5},
    "open": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "text": {"type": "string", "minLength": 2, "maxLength": 4},
    "code": {"type": "string", "pattern": "[a-z]+"},
    "slow": {"type": "string", "pattern": "(a+)+b"},
    "kind": {"enum": ["x", 2, True]},
    "shut": {"type": "string", "readOnly": True},
    "any": {"type": ["string", "number"]},
    "ref": {"$ref": "#/$defs/Small"},
    "rows": {"type": "array", "items": {"properties": {"n": {"type": "boolean"}}}},
    "deep": {"type": "object", "properties": {"n": {"type": "string"}}},
}
FIELD_SCHEMA = {"properties": FIELDS, "$defs": {"Small": {"$ref": "#/$defs/Smaller"}, "Smaller": {"maximum": 3}}}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("$.whole", 5.0, "must be of type integer, not number 5.0"),
        ("$.whole", True, "must be of type integer"),
        ("$.some", "3", 'must be of type number, not string "3"'),
        ("$.some", 0.5, "must be at least 1, not 0.5"),
        ("$.some", 6, "must be at most 5, not 6"),
        ("$.open", 0, "must be more than 0"),
        ("$.open", 1, "must be less than 1"),
        ("$.text", "a", "at least 2 characters, not 1"),
        ("$.text", "abcde", "at most 4 characters, not 5"),
        ("$.code", "abc1", "must match the pattern"),
        ("$.code", "a" * 100_001, "is longer than the 100,000 characters"),
        ("$.kind", "y", 'must be one of "x", 2, true'),
        ("$.kind", 1, "must be one of"),
        ("$.shut", "x", "is read-only"),
        ("$.ref", 4, "must be at most 3"),
        ("$.rows[7].n", 1, "must be of type boolean"),
    ],
)
def test_a_value_that_its_field_does_not_take_is_refused(path: str, value: Any, words: str) -> None:
    (refusal,) = model(schema=FIELD_SCHEMA).write({path: value}).refusals
    assert refusal.path == path
    assert words in refusal.message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.whole", 5),
        ("$.some", 1.0),
        ("$.code", "abc"),
        ("$.kind", True),
        ("$.any", True),
        ("$.some", None),
        ("$.deep", {"n": 5}),
        ("$.elsewhere", {"x": 1}),
    ],
)
def test_only_the_written_value_itself_is_judged(path: str, value: Any) -> None:
    assert model(schema=FIELD_SCHEMA).write({path: value}).committed


def test_matching_a_pattern_may_not_take_for_ever() -> None:
    (refusal,) = model(schema=FIELD_SCHEMA).write({"$.slow": "a" * 60}).refusals
    assert "cannot be checked" in refusal.message or "must match" in refusal.message


def test_refusals_are_all_reported_and_nothing_is_written() -> None:
    found = model(schema=FIELD_SCHEMA)
    outcome = found.write({"$.any": 1, "$.whole": "x", "$.text": "a", "a.b": 1, "$.rows[*].n": True})
    assert [refusal.path for refusal in outcome.refusals] == ["$.whole", "$.text", "a.b"]
    assert "$.a.b" in outcome.refusals[2].message
    assert found.state.base == {}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"$.a": 5, "$.a.b": 1}, "$.a is integer 5, not an object"),
        ({"$.a": {}, "$.a[0]": 1}, "$.a is empty object, not an array"),
        ({"$.rows[*].n": 1}, "names no single place"),
        ({"$.rows[123456789].n": 1}, "an array has at most 10,000 elements"),
        ({"$": [1]}, "must be an object, not array"),
    ],
)
def test_what_is_in_the_way_of_a_write_undoes_all_of_it(values: dict[str, Any], words: str) -> None:
    found = model(schema={}, defaultValues=[{"path": "$", "expr": "{ 'kept': 1 }"}])
    (refusal,) = found.write({"$.kept": 2, **values}).refusals
    assert words in refusal.message
    assert found.state.base == {"kept": 1}


def test_elements_may_be_written_in_any_order() -> None:
    found = model()
    assert found.write({"$.rows[1].n": 2, "$.rows[0].n": 1}).committed
    assert found.state.base == {"rows": [{"n": 1}, {"n": 2}]}


def test_a_written_value_is_not_shared_with_who_wrote_it() -> None:
    given: dict[str, Any] = {"$.o": {"a": 1}}
    found = model(derivations=[{"path": "$.o.d", "expr": "o.a"}])
    assert found.write(given).committed
    assert found.write({"$.o.a": 2}).committed
    assert given == {"$.o": {"a": 1}}


# Deriving


def test_later_derivations_see_the_results_of_earlier_ones() -> None:
    found = model(derivations=derivations(d="c * 2", c="b + 1", b="a + 1"))
    assert found.write({"$.a": 1}).committed
    assert values(found, "$.b", "$.c", "$.d") == [2, 3, 6]


def test_derivations_that_do_not_read_each_other_give_the_same_in_any_order() -> None:
    exprs = {"b": "$exists(c) ? 'seen' : a", "e": "$count(x) + a", "f": "$keys(o)"}
    forwards, backwards = (
        model(derivations=derivations(**exprs)),
        model(derivations=derivations(**dict(reversed(exprs.items())))),
    )
    for found in (forwards, backwards):
        assert found.write({"$.a": 1, "$.o": {"k": 1}}).committed
    assert forwards.state.merged == backwards.state.merged
    assert value(forwards, "$.b") == 1


def test_a_wildcard_derivation_is_computed_per_element() -> None:
    found = model(derivations=[{"path": "$.rows[*].t", "expr": "$parent.n * factor"}])
    assert found.write({"$.factor": 10, "$.rows": [{"n": 1}, {"n": 2}, {}]}).committed
    assert values(found, "$.rows[0].t", "$.rows[1].t", "$.rows[2].t") == [10, 20, UNDEFINED]
    assert found.state.merged["rows"] == [{"n": 1, "t": 10}, {"n": 2, "t": 20}, {}]
    assert found.state.base["rows"] == [{"n": 1}, {"n": 2}, {}]


def test_a_nested_wildcard_is_computed_per_innermost_element() -> None:
    found = model(derivations=[{"path": "$.a[*].b[*].t", "expr": "$parent.n + 1"}])
    assert found.write({"$.a": [{"b": [{"n": 1}, {"n": 2}]}, {"b": [{"n": 3}]}]}).committed
    assert values(found, "$.a[0].b[1].t", "$.a[1].b[0].t") == [3, 4]


def test_a_shrunk_array_leaves_no_element_behind() -> None:
    found = model(
        derivations=[{"path": "$.rows[*].t", "expr": "$parent.n"}],
        metaDerivations=[{"path": "$.rows[*].n", "property": "maximum", "expr": "n"}],
    )
    assert found.write({"$.rows": [{"n": 1}, {"n": 2}]}).committed
    assert found.write({"$.rows": [{"n": 3}]}).committed
    assert values(found, "$.rows[0].t", "$.rows[1].t", "$.rows[1]") == [3, UNDEFINED, UNDEFINED]
    assert found.state.merged["rows"] == [{"n": 3, "t": 3}]
    assert found.schema_at(parse_address("$.rows[1].n")) == {}


def test_a_derived_element_never_makes_an_array_longer() -> None:
    found = model(derivations=[{"path": "$.rows[2].t", "expr": "1"}, {"path": "$.n", "expr": "$count(rows)"}])
    assert found.write({"$.rows": [{}]}).committed
    assert value(found, "$.n") == 1


def test_a_failed_expression_gives_null_and_an_undefined_one_nothing() -> None:
    found = model(derivations=derivations(bad="1 + 'x'", none="missing", division="1 / zero"))
    assert found.write({"$.zero": 0}).committed
    assert values(found, "$.bad", "$.none", "$.division") == [None, UNDEFINED, None]
    assert found.state.merged == {"zero": 0, "bad": None, "division": None}
    assert "1 / zero"[2] in found.state.errors[parse_address("$.division")].token


def test_a_lazy_value_is_computed_when_it_is_read() -> None:
    asked: list[str] = []

    def evaluator(evaluation: Evaluation) -> str | None:
        asked.append(evaluation.text)
        return evaluate_here(evaluation)

    lazy = [
        {"path": "$.x", "expr": "y & '!'", "evaluation": "lazy"},
        {"path": "$.y", "expr": "'<' & a", "evaluation": "lazy"},
    ]
    found = Model(compile_spec(parse_spec(spec(derivations=lazy)), now=NOW), now=NOW, evaluator=evaluator)
    assert found.initialise().committed
    assert found.write({"$.a": "k"}).committed
    assert asked == []
    assert value(found, "$.x") == "<k!"
    assert value(found, "$.x") == "<k!"
    assert asked == ["'<' & a", "y & '!'"]
    assert found.write({"$.a": "m"}).committed
    assert value(found, "$.x") == "<m!"


def test_a_lazy_value_is_there_for_the_eager_ones_that_read_it() -> None:
    lazy = [{"path": "$.y", "expr": "a + 1", "evaluation": "lazy"}, {"path": "$.z", "expr": "y * 2"}]
    found = model(derivations=lazy, constraints=[constraint("z < 10")])
    assert found.write({"$.a": 1}).committed
    assert value(found, "$.z") == 4
    assert not found.write({"$.a": 5}).committed


def test_a_part_of_a_derived_array_is_read_by_its_index() -> None:
    found = model(derivations=derivations(rows="[1..3].{ 'n': $ }"))
    assert values(found, "$.rows[2].n", "$.rows[3].n", "$.rows[0]") == [3, UNDEFINED, {"n": 1}]


def test_a_derived_value_is_not_changed_by_what_is_derived_into_it() -> None:
    found = model(derivations=[{"path": "$.box", "expr": "{ 'a': 1 }"}, {"path": "$.box.b", "expr": "2"}])
    assert value(found, "$.box") == {"a": 1}
    assert found.state.merged == {"box": {"a": 1, "b": 2}}


# The traps of evaluating by level


def test_order_of_declaration_makes_no_difference() -> None:
    found = model(derivations=derivations(total="net + vat", vat="net * 0.2", net="price * 2"))
    assert found.write({"$.price": 50}).committed
    assert value(found, "$.total") == 120


def test_a_sum_sees_the_derived_fields_of_elements() -> None:
    items = [{"path": "$.total", "expr": "$sum(items.t)"}, {"path": "$.items[*].t", "expr": "$parent.n * 2"}]
    found = model(derivations=items)
    assert found.write({"$.items": [{"n": 1}, {"n": 2}]}).committed
    assert value(found, "$.total") == 6


def test_constants_and_parameters_named_like_fields_are_no_cycle() -> None:
    exprs = {"rate": "$const.rate", "total": "$sum($map(items, function($i) { $i.total }))"}
    found = model(constants={"rate": 3}, derivations=derivations(**exprs))
    assert found.write({"$.items": [{"total": 4}]}).committed
    assert values(found, "$.rate", "$.total") == [3, 4]


def test_a_constraint_with_a_path_fires_when_its_field_is_written() -> None:
    found = model(constraints=[constraint("$ >= 1900", path="$.year")])
    outcome = found.write({"$.year": 1800})
    assert [str(each) for each in outcome.rollbacks] == ["constraint c at $.year: not allowed"]
    assert found.write({"$.year": 1950}).committed
    assert found.write({"$.other": 1}).committed


def test_a_derivation_of_constants_alone_has_its_value_from_the_start() -> None:
    found = model(constants={"k": 2}, derivations=derivations(a="$const.k * 2", b="'fixed'"))
    assert values(found, "$.a", "$.b") == [4, "fixed"]


# Meta values


def test_a_meta_value_overlays_the_schema_and_guards_the_next_write() -> None:
    found = model(
        schema={"properties": {"n": {"type": "integer", "maximum": 100}}},
        metaDerivations=[
            {"path": "$.n", "property": "maximum", "expr": "limit"},
            {"path": "$.n", "property": "enum", "expr": "choices"},
            {"path": "$.n", "property": "relevant", "expr": "limit > 1"},
            {"path": "$.n", "property": "minimum", "expr": "missing"},
        ],
    )
    n = parse_address("$.n")
    assert found.write({"$.limit": 5, "$.choices": 4, "$.n": 50}).committed
    assert found.schema_at(n) == {"type": "integer", "maximum": 5, "enum": [4], "x-valem-relevant": True}
    assert len(found.write({"$.n": 6}).refusals) == 2


def test_a_meta_value_of_elements_sees_the_element_only() -> None:
    meta = [{"path": "$.rows[*].n", "property": "maximum", "expr": "limit"}]
    found = model(metaDerivations=meta)
    assert found.write({"$.limit": 99, "$.rows": [{"limit": 1}, {}]}).committed
    assert found.schema_at(parse_address("$.rows[0].n")) == {"maximum": 1}
    assert found.schema_at(parse_address("$.rows[1].n")) == {}


def test_a_fixed_meta_value_holds_from_the_start_and_for_new_elements() -> None:
    meta = [
        {"path": "$.a", "property": "maximum", "expr": 3},
        {"path": "$.rows[*].n", "property": "minimum", "expr": 1},
    ]
    found = model(metaDerivations=meta)
    assert found.write({"$.a": 4}).refusals
    assert found.write({"$.rows[0].other": 1}).committed
    assert found.schema_at(parse_address("$.rows[0].n")) == {"minimum": 1}


def test_a_meta_expression_that_fails_overlays_nothing_and_is_reported() -> None:
    found = model(metaDerivations=[{"path": "$.a", "property": "maximum", "expr": "a + 1"}])
    assert found.write({"$.a": "x"}).committed
    assert found.schema_at(parse_address("$.a")) == {}
    assert [remark.location for remark in found.state.remarks] == ["metaDerivations[0]"]


# Constraints


def test_a_flag_lets_the_write_stand_and_is_reported() -> None:
    found = model(constraints=[constraint("a < 5", "flag")])
    outcome = found.write({"$.a": 9})
    assert outcome.committed
    assert [flag.id for flag in outcome.flags] == ["c"]
    assert found.state.base == {"a": 9}


def test_several_rollbacks_are_reported_together_and_leave_no_trace() -> None:
    rules = [constraint("a < 5", id="one"), constraint("b < 5", id="two"), constraint("a > 0", "flag", id="three")]
    found = model(constraints=rules, derivations=derivations(d="a"))
    assert found.write({"$.a": 1, "$.b": 1}).committed
    outcome = found.write({"$.a": 9, "$.b": 9})
    assert [each.id for each in outcome.rollbacks] == ["one", "two"]
    assert found.state.base == {"a": 1, "b": 1}
    assert value(found, "$.d") == 1


def test_a_constraint_is_asked_only_when_something_it_reads_has_changed() -> None:
    found = model(constraints=[constraint("a > 0")], derivations=derivations(d="x"))
    assert found.write({"$.b": 1, "$.x": 1}).committed
    assert not found.write({"$.a": 0}).committed
    on_derived = model(constraints=[constraint("d > 0")], derivations=derivations(d="x"))
    assert not on_derived.write({"$.x": 0}).committed


def test_a_constraint_of_elements_is_asked_for_each() -> None:
    found = model(constraints=[constraint("n > 0", path="$.rows[*]")])
    outcome = found.write({"$.rows": [{"n": 1}, {"n": 0}, {}]})
    assert [str(each.address) for each in outcome.rollbacks] == ["$.rows[1]", "$.rows[2]"]


@pytest.mark.parametrize("expr", ["true", "1", "-0.5", "'x'"])
def test_what_counts_as_holding(expr: str) -> None:
    assert model(constraints=[constraint(f"a = a ? {expr} : a")]).write({"$.a": 1}).committed


@pytest.mark.parametrize("expr", ["false", "0", "''", "null", "missing", "[1]", "{'x': 1}", "1 + 'x'", "$sum"])
def test_what_counts_as_violated(expr: str) -> None:
    assert not model(constraints=[constraint(f"a = a ? ({expr}) : a")]).write({"$.a": 1}).committed


def test_an_error_in_a_constraint_is_a_violation_that_tells_the_error() -> None:
    (violation,) = model(constraints=[constraint("a + 'x'")]).write({"$.a": 1}).violations
    assert violation.detail is not None
    assert violation.detail in str(violation)


# Creation


def test_a_seed_that_breaks_a_constraint_keeps_the_model_from_being_created() -> None:
    found = initial_state(
        parse_spec(
            spec(defaultValues=[{"path": "$", "expr": "{ 'x': 0 }"}], constraints=[constraint("x > 0", id="positive")])
        ),
        now=NOW,
    )
    (finding,) = found.findings
    assert (finding.location, finding.is_error) == ("defaultValues", True)
    assert "positive" in finding.message
    assert found.document == {}


def test_a_seed_that_fails_is_told_beside_the_constraint_that_misses_it() -> None:
    parts = spec(
        defaultValues=[{"path": "$", "expr": "{ 'x': 1 }"}, {"path": "$", "expr": "{ 'y': 1 + 'a' }"}],
        constraints=[constraint("x + y > 0")],
    )
    found = initial_state(parse_spec(parts), now=NOW)
    assert len(found.findings) == 1
    assert [remark.location for remark in found.remarks] == ["defaultValues[1]"]


def test_a_created_model_shows_seeds_and_derived_values() -> None:
    parts = spec(
        defaultValues=[{"path": "$", "expr": "{ 'x': 2 }"}],
        derivations=derivations(y="x + 1", z="$const.k"),
        constants={"k": 1},
        constraints=[constraint("x > 5", "flag")],
    )
    found = initial_state(parse_spec(parts), now=NOW)
    assert found.findings == ()
    assert found.document == {"x": 2, "y": 3, "z": 1}
    assert [flag.id for flag in found.flags] == ["c"]


def test_a_spec_that_cannot_run_is_a_finding_too() -> None:
    (finding,) = initial_state(parse_spec(spec(derivations=derivations(a="b", b="a"))), now=NOW).findings
    assert finding.location == "derivations"
    assert "$.a → $.b → $.a" in finding.message


def test_an_evaluation_that_is_ended_is_an_error_like_any_other() -> None:
    def killed(evaluation: Evaluation) -> str | None:
        raise ExpressionError(KILLED, "the evaluation was ended")

    parts = spec(derivations=derivations(a="x"), constraints=[constraint("a > 0", "flag")])
    found = Model(compile_spec(parse_spec(parts), now=NOW), now=NOW, evaluator=killed)
    assert found.initialise().committed
    assert found.write({"$.x": 1}).flags[0].detail == "the evaluation was ended"
    assert value(found, "$.a") is None
