"""How to put right what is wrong, where experience knows it: one sentence for whoever wrote the expression or test."""

from __future__ import annotations

import math
from typing import Any, Final

from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.expression import UNDEFINED
from engines.valem.jsonata.tokens import Unreadable, called_names, tokenise

ROUNDING_ABSOLUTE = 1e-6
ROUNDING_RELATIVE = 1e-4
_ROUND_PLACES: Final = 12

UNBALANCED: Final = (
    "the brackets do not match: count ( ), [ ] and { } one by one and close every one; one $reduce is easier"
    " to get right than two inside each other"
)
_MISPLACED: Final = {
    "between": "there is no between: write two comparisons, (x >= low and x <= high)",
    "mod": "there is no mod: the remainder of a by b is a % b",
    "**": "there is no ** between two values: write $power(base, exponent)",
    "|": "there is no ||: write or",
    ";": "several statements need brackets around them: ($x := 1; $x + 1)",
    ",": "statements are separated by semicolons and stand in brackets: ($x := 1; $x + 1)",
    ")": UNBALANCED,
    "]": UNBALANCED,
    "}": UNBALANCED,
}
"""What a parser meets behind a complete expression (S0201), by the token."""
_NO_OPERAND: Final = {
    "=": "one = tests for equality and != for the opposite; there is no ==, === or !==",
    "&": "& joins texts; there is no &&: write and",
    ">": "there are no arrows: a function is written function($v) { … }",
}
"""What a parser meets where a value should begin (S0211), by the token."""
_EXPECTED: Final = {
    'Expected "{"': "a function's body stands in braces: function($v) { … }",
    'Expected "}", got ";"': "several statements of a function need brackets in its braces: function($v) {( … ; … )}",
    'Expected ")", got ","': "statements in brackets are separated by semicolons; a list of values stands in [ ]",
}
"""By how the message of S0202 begins."""


def hint_for_error(error: ExpressionError) -> str | None:
    """For an expression that does not compile. ``None`` when the message says all that is known."""
    token = error.token or ""
    match error.code:
        case "S0201":
            return _MISPLACED.get(token)
        case "S0211":
            return _NO_OPERAND.get(token)
        case "S0204":
            return "there is no !: write $not( … ), or != between two values" if token == "!" else None
        case "S0202":
            found = (hint for start, hint in _EXPECTED.items() if error.message.startswith(start))
            return next(found, UNBALANCED)
        case "S0203" | "S0207":
            return UNBALANCED
    return None


def hint_for(expected: Any, actual: Any, expression: str | None = None, error: ExpressionError | None = None) -> str:
    """For a test that does not find what it expects. ``actual`` is ``UNDEFINED`` when there is no value at all.

    expression: that of the derivation at the place. error: why it has no value.
    """
    if actual is None or actual is UNDEFINED:
        return _without_value(error)
    if _is_number(expected) and _is_number(actual):
        return _other_number(expected, actual, expression or "")
    if isinstance(expected, list) and expected == [actual]:
        return "a single match is not an array: append [] to the path, or put the expression into [ ]"
    return (
        _lost_binding(expression or "")
        or "another value: check the logic, its conditions and the expected value itself"
    )


def _without_value(error: ExpressionError | None) -> str:
    if error is not None and error.code in ("T2001", "T2002"):
        return (
            "there is no value, since an operand is not one number: a path gives a list when it has several matches, so"
            " compute for each element, $sum(items.(price * quantity)), and check that every field has a value"
        )
    return "there is no value: check the names of the fields it reads, and that these have values in this test"


def _other_number(expected: float, actual: float, expression: str) -> str:
    if _is_close(expected, actual):
        return "the difference is one of rounding: use $round(value, places), which rounds a half to the even side"
    if "round" in called_names(expression) and _is_one_unit_off(expected, actual):
        return "$round rounds a half to the even side: 2.5 gives 2 and 3.5 gives 4; $floor(x + 0.5) rounds it up"
    return _lost_binding(expression) or "another number: check the formula, its brackets and which operator comes first"


def _lost_binding(expression: str) -> str | None:
    """For a variable that an inner block or a function binds anew: outside it stays what it was."""
    try:
        tokens = tokenise(expression)
    except Unreadable:
        return None
    scopes: list[set[str]] = [set()]
    for at, token in enumerate(tokens):
        if token.text in ("(", "{", "["):
            scopes.append(set())
        elif token.text in (")", "}", "]") and len(scopes) > 1:
            scopes.pop()
        elif token.text == ":=" and at:
            name = tokens[at - 1].text
            if any(name in scope for scope in scopes[:-1]):
                return (
                    f"{name} is bound again inside a block or a function, and outside it keeps its old value: carry the"
                    " value on with $reduce"
                )
            scopes[-1].add(name)
    return None


def _is_close(expected: int | float, actual: int | float) -> bool:
    try:
        return math.isclose(
            expected, actual, rel_tol=0, abs_tol=max(ROUNDING_ABSOLUTE, ROUNDING_RELATIVE * abs(expected))
        )
    except OverflowError:
        # A number beyond what a double can hold.
        return False


def _is_one_unit_off(expected: int | float, actual: int | float) -> bool:
    """Whether two numbers differ by one in some decimal place."""
    try:
        difference = abs(float(expected) - float(actual))
    except OverflowError:
        return False
    return any(abs(difference * 10**places - 1) < ROUNDING_ABSOLUTE for places in range(_ROUND_PLACES))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
