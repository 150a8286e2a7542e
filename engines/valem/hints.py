"""What probably is wrong when a test does not find the value it expects: one sentence for whoever wrote both."""

from __future__ import annotations

import math
from typing import Any

from engines.valem.jsonata.expression import UNDEFINED

ROUNDING_ABSOLUTE = 1e-6
ROUNDING_RELATIVE = 1e-4
MOST_PLACES = 6


def hint_for(expected: Any, actual: Any, expression: str = "") -> str:
    """``actual`` is ``UNDEFINED`` when there is no value at all; ``expression`` is what gave it."""
    if actual is None or actual is UNDEFINED:
        return "there is no value: check the names of the fields it reads, and that these have values in this test"
    if _is_number(expected) and _is_number(actual):
        if _is_close(expected, actual):
            return "the difference is one of rounding: put the expression into $round(…, places)"
        if "$round" in expression and _is_one_step(expected, actual):
            return "$round takes a half to the even side ($round(2.5) is 2): expect that, or use $floor(value + 0.5)"
        return "another number: check the formula, its brackets and which operator comes first"
    if isinstance(expected, list) and expected == [actual]:
        return "a single match is not an array: append [] to the path, or put the expression into [ ]"
    return "another value: check the logic, its conditions and the expected value itself"


def _is_close(expected: int | float, actual: int | float) -> bool:
    try:
        return math.isclose(
            expected, actual, rel_tol=0, abs_tol=max(ROUNDING_ABSOLUTE, ROUNDING_RELATIVE * abs(expected))
        )
    except OverflowError:
        # A number beyond what a double can hold.
        return False


def _is_one_step(expected: int | float, actual: int | float) -> bool:
    """Whether the two are neighbours when written with some number of decimal places."""
    try:
        gap = abs(float(expected) - float(actual))
    except OverflowError:
        return False
    return any(math.isclose(gap, 10.0**-places, rel_tol=1e-6) for places in range(MOST_PLACES + 1))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
