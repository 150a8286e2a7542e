"""What probably is wrong when a test does not find the value it expects: one sentence for whoever wrote both."""

from __future__ import annotations

import math
from typing import Any

from engines.valem.jsonata.expression import UNDEFINED

ROUNDING_ABSOLUTE = 1e-6
ROUNDING_RELATIVE = 1e-4


def hint_for(expected: Any, actual: Any) -> str:
    """``actual`` is ``UNDEFINED`` when there is no value at all."""
    if actual is None or actual is UNDEFINED:
        return "there is no value: check the names of the fields it reads, and that these have values in this test"
    if _is_number(expected) and _is_number(actual):
        if _is_close(expected, actual):
            return "the difference is one of rounding: use $round(value, places), which rounds a half to the even side"
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
