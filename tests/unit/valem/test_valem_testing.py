"""Embedded tests: where they fail, what they say, how values compare, which failures prove something."""

from __future__ import annotations

from typing import Any

import pytest

from engines.valem.hints import hint_for
from engines.valem.jsonata.expression import UNDEFINED
from engines.valem.spec.parse import parse_spec
from engines.valem.testing import TestFailure, TestResult, equal, run_tests, verifiable

NOW = 1_700_000_000_000


def results(*tests: dict[str, Any], **parts: Any) -> tuple[TestResult, ...]:
    return run_tests(parse_spec({"id": "m", "schema": {}, "tests": list(tests), **parts}), now=NOW)


def run(given: dict[str, Any], expect: dict[str, Any], **parts: Any) -> TestResult:
    (result,) = results({"description": "one", "given": given, "expect": expect}, **parts)
    return result


def failure(given: dict[str, Any], expect: dict[str, Any], **parts: Any) -> TestFailure:
    (found,) = run(given, expect, **parts).failures
    return found


def derived(**exprs: str) -> list[dict[str, str]]:
    return [{"path": f"$.{name}", "expr": expr} for name, expr in exprs.items()]


def test_each_test_has_a_model_of_its_own() -> None:
    first = {"description": "writes", "given": {"$.a": 1}, "expect": {"$.b": 2}}
    second = {"given": {}, "expect": {"$.a": None, "$.b": None}}
    found = results(first, second, derivations=derived(b="a + 1"))
    assert [(result.description, result.passed) for result in found] == [("writes", True), ("", True)]


def test_a_rollback_while_seeding_fails_at_initialize() -> None:
    found = failure(
        {"$.x": 5}, {"$.x": 5},
        defaultValues=[{"path": "$", "expr": "{ 'x': 0 }"}],
        constraints=[{"id": "positive", "expr": "x > 0", "policy": "rollback", "message": "too small"}],
    )  # fmt: skip
    assert (found.path, found.message) == ("initialize", "constraint positive: too small")


def test_a_rollback_after_writing_fails_at_given_with_every_violation() -> None:
    rules = [{"id": name, "expr": f"{name} > 0", "policy": "rollback", "message": "no"} for name in ("x", "y")]
    found = run({"$.x": 0, "$.y": 0}, {"$.x": 0}, constraints=rules)
    assert [(each.path, each.message) for each in found.failures] == [
        ("given", "constraint x: no"), ("given", "constraint y: no"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"$.d": 1}, "$.d is derived and cannot be written"),
        ({"$.n": 5.0}, "$.n must be of type integer, not number 5.0"),
        ({"$.n": 0}, "$.n must be at least 1"),
        ({"$.locked": 1}, "$.locked is read-only"),
        ({"$.rows.0.x": 1}, "write $.rows[0].x"),
    ],
)
def test_what_may_not_be_written_fails_at_given(given: dict[str, Any], words: str) -> None:
    schema = {"properties": {"n": {"type": "integer", "minimum": 1}, "locked": {"readOnly": True}}}
    found = failure(given, {}, schema=schema, derivations=derived(d="1"))
    assert found.path == "given"
    assert words in found.message


def test_a_spec_that_cannot_run_fails_every_test_at_spec() -> None:
    found = failure({}, {"$.a": 1}, derivations=derived(a="b", b="a"))
    assert found.path == "spec"
    assert "$.a → $.b → $.a" in found.message


def test_a_failed_expectation_quotes_the_expression_and_a_hint() -> None:
    items = [{"p": 10, "q": 2}, {"p": 5, "q": 1}]
    wrong = failure({"$.items": items}, {"$.sum": 25}, derivations=derived(sum="$sum(items.p*q)"))
    assert wrong.expression == "$sum(items.p*q)"
    assert (wrong.path, wrong.expected, wrong.actual) == ("$.sum", 25, None)
    assert "expected 25, found null; the expression failed:" in wrong.message
    assert wrong.hint is not None
    assert run({"$.items": items}, {"$.sum": 25}, derivations=derived(sum="$sum(items.(p*q))")).passed


@pytest.mark.parametrize(
    ("expr", "given", "expect", "words"),
    [
        ("missing + 1", {}, 0, "no value"),
        ("n + 1", {"$.n": None}, 1, "no value"),
        ("0.1 * 3", {}, 0.3, "$round"),
        ("$round(2.5)", {}, 3, "half to the even side"),
        ("1 / 0", {}, 0, "no value"),
        ("'a'", {}, "b", "logic"),
        ("a", {"$.a": 100.004}, 100.0, "$round"),
        ("a", {"$.a": [1]}, [1.5], "logic"),
    ],
)
def test_the_hint_says_what_is_probably_wrong(expr: str, given: dict[str, Any], expect: Any, words: str) -> None:
    found = failure(given, {"$.x": expect}, derivations=derived(x=expr))
    assert found.hint is not None
    assert words in found.hint
    assert "Traceback" not in found.message


def test_a_single_match_where_an_array_is_expected_has_a_hint_of_its_own() -> None:
    assert "append []" in hint_for([5], 5)


def test_a_single_value_where_the_schema_declares_an_array_is_remarked_on() -> None:
    schema = {"properties": {"names": {"type": "array"}}}
    given = {"$.rows": [{"name": "x"}]}
    (remark,) = run(given, {"$.names": "x"}, schema=schema, derivations=derived(names="rows.name")).remarks
    assert remark.location == "derivations[0]"
    assert not remark.is_error
    assert remark.hint is not None
    assert "append []" in remark.hint
    fixed = run(given, {"$.names[0]": "x"}, schema=schema, derivations=derived(names="rows.name[]"))
    assert fixed.passed
    assert fixed.remarks == ()


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (100, 100.0, True),
        (2**53 + 1, float(2**53), True),
        (-0.0, 0, False),
        (0, 0.0, True),
        (1, True, False),
        (0, False, False),
        pytest.param(10**400, 10**400, True, id="beyond doubles"),
        (None, None, True),
        (None, UNDEFINED, True),
        (None, 0, False),
        (0, UNDEFINED, False),
        ("", UNDEFINED, False),
        ("a", "a", True),
        ([6], [6], True),
        ([6], [6.0], False),
        ({"a": 1, "b": [None]}, {"b": [None], "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([True], [1], False),
        ([1], [1, 2], False),
    ],
)
def test_when_two_values_are_the_same(expected: Any, actual: Any, same: bool) -> None:
    assert equal(expected, actual) is same


def test_schema_keywords_are_compared_one_by_one() -> None:
    schema = {"properties": {"a": {"type": "string"}}}
    metas = [
        {"path": "$.a", "property": "relevant", "expr": "on"},
        {"path": "$.a", "property": "maxLength", "expr": "5"},
    ]
    expect = {"$.a": {"$meta": {"type": "string", "relevant": True, "maxLength": 6, "pattern": None, "title": "A"}}}
    found = run({"$.on": True}, expect, schema=schema, metaDerivations=metas)
    assert [(each.keyword, each.expected, each.actual) for each in found.failures] == [
        ("maxLength", 6, 5), ("title", "A", UNDEFINED),
    ]  # fmt: skip
    assert "maxLength" in found.failures[0].message


@pytest.mark.parametrize(
    ("path", "expected", "words"),
    [
        ("a.b", 1, "write $.a.b"),
        ("$.rows[*].n", 1, "names no single value"),
        ("$.a", {"$meta": 5}, "must be an object of schema keywords"),
    ],
)
def test_an_expectation_that_cannot_be_looked_up_says_why(path: str, expected: Any, words: str) -> None:
    assert words in failure({}, {path: expected}).message


def test_expectations_look_at_derived_values_then_at_what_was_written() -> None:
    expect = {"$.rows[0].t": 2, "$.rows": [{"n": 1}], "$.sums[1]": 3, "$.o.d": 9, "$.rows[1].t": None}
    rules = [{"path": "$.rows[*].t", "expr": "$parent.n * 2"}, *derived(sums="[2, 3]", **{"o.d": "9"})]
    assert run({"$.rows": [{"n": 1}]}, expect, derivations=rules).failures == ()


def test_flags_are_reported_beside_a_passed_test() -> None:
    rule = {"id": "c", "expr": "a < 5", "policy": "flag", "message": "big"}
    found = run({"$.a": 9}, {"$.a": 9}, constraints=[rule])
    assert found.passed
    assert [flag.id for flag in found.flags] == ["c"]


def test_only_failures_that_prove_something_count() -> None:
    parts: dict[str, Any] = {
        "derivations": [
            *derived(stamp="$now()", age="$millis () - born", late="stamp", rows="[1, 2]", n="2"),
            {"path": "$.list[*].at", "expr": "$now()"},
        ],
        "metaDerivations": [{"path": "$.stamp", "property": "maxLength", "expr": "5"}],
    }
    given = {"$.list": [{}], "$.born": 1}
    expect: dict[str, Any] = {
        "$.stamp": "2020-01-01", "$.age": 7, "$.list[0].at": "x", "$.rows": [1, 2, 3], "$.o": {"a": 1},
        "$.late": "2020-01-01", "$.n": 3,
    }  # fmt: skip
    meta = {"$.stamp": {"$meta": {"maxLength": 9}}}
    tests = [{"given": given, "expect": expect}, {"given": given, "expect": meta}, {"given": {"$.n": 1}, "expect": {}}]
    spec = parse_spec({"id": "m", "schema": {}, "tests": tests, **parts})
    found = run_tests(spec, now=NOW)
    assert [len(result.failures) for result in found] == [7, 1, 1]
    counted = verifiable(spec, found)
    assert [[each.path for each in result.failures] for result in counted] == [
        ["$.late", "$.n"],
        ["$.stamp"],
        ["given"],
    ]


def test_a_test_whose_failures_prove_nothing_passes() -> None:
    spec = parse_spec(
        {"id": "m", "schema": {}, "derivations": derived(t="$now()"), "tests": [{"given": {}, "expect": {"$.t": "x"}}]}
    )
    assert [result.passed for result in verifiable(spec, run_tests(spec, now=NOW))] == [True]


def test_numbers_beyond_doubles_are_compared_all_the_same() -> None:
    assert "another number" in hint_for(10**400, 0.5)
    assert "$round" in hint_for(1_000_000, 1_000_000.5)
