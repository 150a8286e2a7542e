"""What exactly is wrong with a value: one :class:`Violation` per place, with what was found and what was expected.

:func:`scan` finds what no JSON value may hold (NaN, infinities, endless nesting); :func:`explain` walks value and
schema together. The accept-or-reject answer itself is :mod:`engines.structured.verdict`'s; both agree (a property test
holds them together).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from difflib import get_close_matches
from typing import Any, Final

from engines.structured.patterns import MatchClock, PatternTimeout, compile_pattern
from engines.structured.text import child, describe, one_line, quote, quote_all, shorten, show_literal, show_pointer
from engines.structured.verdict import identity

MAX_VALUE_DEPTH = 128
"""Arrays and objects inside each other in a reply. Deeper ones are refused: an encoder behind us might not survive."""
TOO_DEEP: Final = "deeper nesting"
FOUND_CHARS = 300
EXPECTED_CHARS = 400


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong with a reply, at a JSON pointer (``""``: the whole reply). ``str()`` is one bounded line."""

    pointer: str
    found: str
    expected: str

    def __str__(self) -> str:
        found, expected = shorten(one_line(self.found), FOUND_CHARS), shorten(one_line(self.expected), EXPECTED_CHARS)
        return f"{show_pointer(self.pointer)}: found {found}, expected {expected}"


def scan(value: object) -> list[Violation]:
    """The numbers in ``value`` that are not finite and the places nested too deeply, in document order."""
    found: list[Violation] = []
    stack: list[tuple[str, object, int]] = [("", value, 0)]
    while stack:
        pointer, item, depth = stack.pop()
        if isinstance(item, float) and not math.isfinite(item):
            name = "NaN" if math.isnan(item) else "a number too large to keep (or Infinity)"
            found.append(Violation(pointer, name, "a finite number"))
        elif isinstance(item, list | dict) and depth >= MAX_VALUE_DEPTH:
            found.append(Violation(pointer, TOO_DEEP, f"at most {MAX_VALUE_DEPTH} levels of nesting"))
        elif isinstance(item, dict):
            stack.extend((child(pointer, key), item[key], depth + 1) for key in reversed(item))
        elif isinstance(item, list):
            stack.extend((child(pointer, at), item[at], depth + 1) for at in range(len(item) - 1, -1, -1))
    return found


def walk(schema: Any, value: object, pointer: str = "") -> Iterator[tuple[str, dict[str, Any] | bool, object]]:
    """Every place of ``value`` a schema speaks about, as ``(pointer, schema, value)``, in document order."""
    yield pointer, schema, value
    if isinstance(schema, bool):
        return
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for key, item in value.items():
            if key in properties:
                yield from walk(properties[key], item, child(pointer, key))
            elif others is not True and others is not False:
                yield from walk(others, item, child(pointer, key))
    elif isinstance(value, list) and isinstance(schema.get("items"), dict | bool):
        for at, item in enumerate(value):
            yield from walk(schema["items"], item, child(pointer, at))


def explain(schema: dict[str, Any], value: object) -> Iterator[Violation]:
    """Every violation of the keywords, ``pattern`` apart."""
    for pointer, node, item in walk(schema, value):
        if isinstance(node, bool):
            if not node:
                yield Violation(pointer, describe(item), "nothing here")
        elif not (isinstance(item, float) and not math.isfinite(item)):
            yield from _at_node(pointer, node, item)


def pattern_violations(schema: dict[str, Any], value: object) -> Iterator[Violation]:
    """Every string that does not match its ``pattern``, or whose match was stopped by the time limit."""
    clock = MatchClock()
    for pointer, node, item in walk(schema, value):
        if isinstance(node, bool) or "pattern" not in node or not isinstance(item, str):
            continue
        expected = f"a string matching the pattern {quote(node['pattern'], 200)}"
        try:
            if not compile_pattern(node["pattern"]).found_in(item, clock):
                yield Violation(pointer, describe(item), expected)
        except PatternTimeout:
            yield Violation(pointer, f"{describe(item)}, which could not be matched in time", expected)


def _at_node(pointer: str, node: dict[str, Any], value: object) -> Iterator[Violation]:
    if "type" in node and not has_type(value, node["type"]):
        yield Violation(pointer, describe(value), expected_of(node))
        return  # the other keywords would only repeat it
    if "const" in node and identity(value) != identity(node["const"]):
        yield Violation(pointer, describe(value), f"exactly {show_literal(node['const'])}")
    if "enum" in node and not any(identity(value) == identity(member) for member in node["enum"]):
        yield Violation(pointer, describe(value), _one_of(node["enum"]))
    match value:
        case bool() | None:
            return
        case str():
            yield from _sizes(pointer, node, value, len(value), "Length", "character")
        case int() | float():
            yield from _number_bounds(pointer, node, value)
        case list():
            yield from _sizes(pointer, node, value, len(value), "Items", "item")
            yield from _duplicates(pointer, node, value)
        case dict():
            yield from _sizes(pointer, node, value, len(value), "Properties", "property")
            yield from _names(pointer, node, value)


def has_type(value: object, types: str | list[str]) -> bool:
    return any(_HAS_TYPE[name](value) for name in ([types] if isinstance(types, str) else types))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    # JSON has one kind of number: 2.0 is as whole as 2.
    return _is_number(value) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


_HAS_TYPE: Final[dict[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": _is_number,
    "integer": _is_integer,
}


def expected_of(node: dict[str, Any] | bool) -> str:
    """What a schema asks for, in a few words: its literals, or its type."""
    if isinstance(node, bool):
        return "any value" if node else "nothing here"
    if "const" in node:
        return f"exactly {show_literal(node['const'])}"
    if "enum" in node:
        return _one_of(node["enum"])
    types = node.get("type", "any value")
    return types if isinstance(types, str) else " or ".join(types)


def _one_of(members: list[object]) -> str:
    shown = ", ".join(show_literal(member) for member in members[:12])
    return f"one of {shown}" + (f" and {len(members) - 12} more" if len(members) > 12 else "")


def _sizes(pointer: str, node: dict[str, Any], value: object, size: int, suffix: str, unit: str) -> Iterator[Violation]:
    plural = "properties" if unit == "property" else f"{unit}s"
    found = f"{describe(value)} ({size} characters)" if unit == "character" else describe(value)
    low, high = node.get(f"min{suffix}"), node.get(f"max{suffix}")
    if low is not None and size < low:
        yield Violation(pointer, found, f"at least {low} {unit if low == 1 else plural}")
    if high is not None and size > high:
        yield Violation(pointer, found, f"at most {high} {unit if high == 1 else plural}")


def _number_bounds(pointer: str, node: dict[str, Any], value: int | float) -> Iterator[Violation]:
    for keyword, (words, holds) in _BOUNDS.items():
        if keyword in node and not holds(value, node[keyword]):
            yield Violation(pointer, describe(value), f"{words} {show_literal(node[keyword])}")


def _is_multiple(value: int | float, step: int | float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        # As written, not as stored: 19.01 is a multiple of 0.01 though their binary forms are not.
        quotient = Decimal(repr(value)) / Decimal(repr(step))
        return quotient == quotient.to_integral_value()
    except (DecimalException, ValueError):
        return False


_BOUNDS: Final[dict[str, tuple[str, Callable[[int | float, int | float], bool]]]] = {
    "minimum": ("at least", operator.ge),
    "exclusiveMinimum": ("more than", operator.gt),
    "maximum": ("at most", operator.le),
    "exclusiveMaximum": ("less than", operator.lt),
    "multipleOf": ("a multiple of", _is_multiple),
}


def _duplicates(pointer: str, node: dict[str, Any], value: list[Any]) -> Iterator[Violation]:
    if not node.get("uniqueItems"):
        return
    first_at: dict[object, int] = {}
    for at, item in enumerate(value):
        first = first_at.setdefault(identity(item), at)
        if first != at:
            yield Violation(child(pointer, at), f"{describe(item)}, the same as item {first}", "no item twice")


def _names(pointer: str, node: dict[str, Any], value: dict[str, Any]) -> Iterator[Violation]:
    properties: dict[str, Any] = node.get("properties", {})
    for name in node.get("required", ()):
        if name not in value:
            what = expected_of(properties.get(name, True))
            yield Violation(child(pointer, name), "nothing", f"a required property: {what}")
    if node.get("additionalProperties") is not False:
        return
    for name in value:
        if name not in properties:
            close = get_close_matches(name[:60], list(properties), n=1, cutoff=0.75)
            known = f"did you mean {quote(close[0])}?" if close else f"known are {quote_all(properties)}"
            yield Violation(child(pointer, name), describe(value[name]), f"no such property; {known}")
