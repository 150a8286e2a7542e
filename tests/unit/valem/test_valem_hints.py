"""Hints: what an author is told beside an error or a failing test, and that nothing is told where nothing is known."""

from __future__ import annotations

from typing import Any

import pytest

from engines.valem.hints import UNBALANCED, hint_for
from engines.valem.jsonata.expression import UNDEFINED
from engines.valem.spec.parse import parse_spec
from engines.valem.spec.validate import validate_spec
from engines.valem.testing import TestFailure, run_tests


def spec_of(expr: str, **tests: Any) -> dict[str, Any]:
    fields = {"a": {}, "b": {"type": "number"}, "items": {"type": "array"}, "x": {}}
    return {
        "id": "m",
        "schema": {"type": "object", "properties": fields},
        "derivations": [{"path": "$.x", "expr": expr}],
        **tests,
    }


def compile_hint(expr: str) -> str | None:
    (finding,) = (finding for finding in validate_spec(parse_spec(spec_of(expr))) if finding.is_error)
    assert finding.location == "derivations[0].expr"
    return finding.hint


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("b between 1", "two comparisons"),
        ("5 mod", "%"),
        ("a ** b", "$power(base, exponent)"),
        ("a == b", "one = tests"),
        ("a !== b", "one = tests"),
        ("a && b", "write and"),
        ("a || b", "write or"),
        ("!a", "$not("),
        ("$map(items, $v => $v)", "function($v)"),
        ("function($v)($v)", "in braces"),
        ("function($v) {$s := 1; $s}", "{( … ; … )}"),
        ("$s := 1; $s", "need brackets around them"),
        ("($s := 1, $s)", "semicolons"),
    ],
)
def test_habits_of_other_languages_are_answered_with_what_to_write(expr: str, words: str) -> None:
    assert words in (compile_hint(expr) or "")


@pytest.mark.parametrize(
    "expr", ["(a + b", "$sum(items.(p * q)", "[1, 2", '{"a": 1', "a +", "(a))", "$f(a]", "items[0"]
)
def test_brackets_that_do_not_match_are_counted(expr: str) -> None:
    assert compile_hint(expr) == UNBALANCED


@pytest.mark.parametrize("expr", ["x := 1", "a is null", "'open", "a // b", "a ~ b"])
def test_other_errors_are_left_as_they_are(expr: str) -> None:
    assert compile_hint(expr) is None


def failure(expr: str, given: dict[str, Any], expected: Any) -> TestFailure:
    tests = [{"description": "t", "given": given, "expect": {"$.x": expected}}]
    (result,) = run_tests(parse_spec(spec_of(expr, tests=tests)), now=0)
    (found,) = result.failures
    return found


@pytest.mark.parametrize(
    ("expr", "given", "expected", "words"),
    [
        ("missing + 1", {}, 0, "there is no value"),
        ("b + 1", {"$.b": None}, 0, "not one number"),
        ("$sum(missing)", {}, 0, "there is no value"),
        ("$round(2.5)", {}, 3, "a half to the even side"),
        ("$round(0.125, 2)", {}, 0.13, "a half to the even side"),
        ("0.1 + 0.2", {}, 0.3, "use $round(value, places)"),
        ("b * 3", {"$.b": 0.1}, 0.3, "use $round(value, places)"),
        ("$sum(items.p*q)", {"$.items": [{"p": 1, "q": 5}, {"p": 10, "q": 2}]}, 25, "$sum(items.(price * quantity))"),
        ("items.p > 6", {"$.items": [{"p": 1}, {"p": 10}]}, True, "no value"),
        ("1 + 2 * 3", {}, 9, "which operator comes first"),
        ("items.p[]", {"$.items": [{"p": 1}]}, 1, "the expected value itself"),
        ("items.p", {"$.items": [{"p": 1}]}, [1], "append []"),
        ("($t := 0; $map(items, function($v) {($t := $t + $v.p)}); $t)", {"$.items": [{"p": 1}]}, 1, "$reduce"),
        ("($s := ''; $map(items, function($v) {($s := $s & $v.p)}); $s)", {"$.items": [{"p": 1}]}, "1", "$reduce"),
    ],
)
def test_a_failing_test_is_told_the_likely_reason_with_its_derivation(
    expr: str, given: dict[str, Any], expected: Any, words: str
) -> None:
    found = failure(expr, given, expected)
    assert words in (found.hint or "")
    assert found.expression == expr
    assert "Traceback" not in found.message


def test_a_division_by_zero_is_an_error_of_the_language() -> None:
    found = failure("1 / 0", {}, 1)
    assert "the expression failed" in found.message
    assert "ZeroDivisionError" not in found.message


@pytest.mark.parametrize("expression", [None, "", "'open", ") := ( := $x", ":= 1", "round(1)", "$floor(1)"])
def test_hints_survive_any_expression(expression: str | None) -> None:
    assert hint_for(3, 2, expression).startswith("another number")
    assert hint_for(10**400, 2, expression).startswith("another number")
    assert hint_for("a", "b", expression).startswith("another value")
    assert hint_for(1, UNDEFINED, expression).startswith("there is no value")
