"""Whatever a spec holds, running it gives results and never an exception."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engines.valem.initial import initial_state
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.expression import compile_expression
from engines.valem.spec.parse import SpecParseError, dump_spec, parse_spec
from engines.valem.testing import run_tests, verifiable

NAMES = ("a", "b", "rows", "o")
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.just(0.5) | st.just(10**400) | st.sampled_from(["", "x"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
GOOD_PATHS = (
    *("$", "$.a", "$.b", "$.o", "$.o.a", "$.rows", "$.rows[*]", "$.rows[*].a", "$.rows[*].b", "$.rows[0].a"),
    *("$.rows[2]", "$.rows[*].rows[*].a", "$[0]"),
)
PATHS = st.sampled_from(GOOD_PATHS)
ANY_PATHS = st.sampled_from((*GOOD_PATHS, "a.b", "$.rows.0.a"))
EXPRESSIONS = st.sampled_from(
    (
        *(
            "1",
            "a",
            "b + 1",
            "o.a & 'x'",
            "rows",
            "rows.a",
            "$sum(rows.a)",
            "$count(rows)",
            "$parent.a",
            "$parent.b * 2",
        ),
        *(
            "$",
            "$self",
            "missing",
            "null",
            "1 + 'x'",
            "{ 'a': a, 'rows': [] }",
            "{ 'o': { 'b': 1 } }",
            "[1, 2]",
            "$f(a)",
        ),
        *("$const.k", "$now()", "$eval('a')", "rows[a > 1].b", "$keys($)", "-a", "function($x) { $x }", "a ? b : o"),
    )
)


def items(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.fixed_dictionaries(fields), max_size=3)


SPECS = st.fixed_dictionaries(
    {
        "id": st.just("m"),
        "schema": st.sampled_from(
            [{}, {"type": "object", "properties": {"a": {"type": "integer", "default": 1}, "rows": {"type": "array"}}}]
        ),
        "constants": st.just({"k": 1}),
        "library": st.sampled_from([None, "( $f := function($x) { $x }; ['f'] )"]),
        "defaultValues": items(path=PATHS, expr=EXPRESSIONS),
        "derivations": items(path=PATHS, expr=EXPRESSIONS, evaluation=st.sampled_from(["eager", "lazy"])),
        "metaDerivations": items(
            path=PATHS, expr=EXPRESSIONS, property=st.sampled_from(["maximum", "enum", "readOnly", "pattern"])
        ),
        "constraints": items(
            id=st.just("c"), expr=EXPRESSIONS, path=PATHS | st.none() | st.lists(PATHS, max_size=2),
            policy=st.sampled_from(["flag", "rollback"]),
        ),
        "tests": items(
            given=st.dictionaries(ANY_PATHS, VALUES, max_size=3),
            expect=st.dictionaries(ANY_PATHS, VALUES | st.fixed_dictionaries({"$meta": VALUES}), max_size=3),
        ),
    }
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(SPECS)
def test_running_a_spec_never_raises(data: dict[str, Any]) -> None:
    spec = parse_spec(data)
    assert parse_spec(dump_spec(spec)) == spec
    results = run_tests(spec, now=0)
    assert len(results) == len(spec.tests)
    assert len(verifiable(spec, results)) == len(results)
    created = initial_state(spec, now=0)
    if not created.findings:
        json.dumps(created.document)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["id", "schema", "derivations", "tests", "library", "constraints"]), VALUES))
def test_any_json_is_a_spec_or_refused_with_its_place(data: dict[str, Any]) -> None:
    try:
        spec = parse_spec(data)
    except SpecParseError as refused:
        message = refused.message
        assert message.startswith(f"{refused.location}: ")  # noqa: PT017
    else:
        assert parse_spec(dump_spec(spec)) == spec


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="abc$.()[]{}+-*/%'\"`;:=?,<>&|^#@~! 1/", max_size=30))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        compile_expression(text).evaluate({"a": 1}, now=0)
    except ExpressionError as error:
        assert error.message  # noqa: PT017
