"""The effective schema of a field: what the spec's schema says of it, overlaid with what the spec computes for it.

Also whether a value may be written there. Only the value itself is judged, not what is inside it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from typing import Any, Final

from engines.structured.checks import has_type
from engines.structured.patterns import BadPattern, compile_pattern
from engines.structured.text import describe, quote, show_literal
from engines.valem.spec.addresses import Address
from engines.valem.spec.records import Json, MetaProperty

MAX_PATTERN_TEXT: Final = 100_000
"""Characters; a longer text is not matched against a ``pattern`` and refused."""
PATTERN_SECONDS: Final = 1.0
RELEVANT_KEYWORD: Final = "x-valem-relevant"
"""``relevant`` is no keyword of JSON Schema; this is where an effective schema has it."""
_LOCAL = "#/$defs/"
_MAX_REFS = 100


def fragment(schema: Mapping[str, Json] | None, address: Address) -> Mapping[str, Json]:
    """What the schema says of the field at ``address``, references resolved; empty when it says nothing."""
    root: Mapping[str, Json] = schema or {}
    node = resolved(root, root)
    for segment in address.segments:
        below: Json = node.get("properties") if isinstance(segment, str) else node.get("items")
        if isinstance(segment, str):
            below = below.get(segment) if isinstance(below, dict) else None
        if not isinstance(below, dict):
            return {}
        node = resolved(root, below)
    return node


def resolved(root: Mapping[str, Json], node: Mapping[str, Json]) -> Mapping[str, Json]:
    """``node``, or the definition that it refers to; empty for a reference that leads nowhere."""
    definitions = root.get("$defs")
    for _ in range(_MAX_REFS):
        reference = node.get("$ref")
        if reference is None:
            return node
        name = reference.removeprefix(_LOCAL) if isinstance(reference, str) else None
        found = definitions.get(name) if isinstance(definitions, dict) else None
        if not isinstance(found, dict):
            return {}
        node = found
    return {}


def effective_schema(
    schema: Mapping[str, Json] | None, metas: Mapping[tuple[Address, MetaProperty], Any], address: Address
) -> dict[str, Json]:
    """The schema of one field as it is now."""
    found = dict(fragment(schema, address))
    for prop in MetaProperty:
        value = metas.get((address, prop))
        if value is not None:
            found[RELEVANT_KEYWORD if prop is MetaProperty.RELEVANT else prop.value] = value
    return found


def refusals(schema: Mapping[str, Json], value: Any) -> tuple[str, ...]:
    """Why ``value`` may not be written to a field with this effective schema; empty when it may.

    ``null`` empties a field, which only ``readOnly`` forbids.
    """
    if schema.get("readOnly") is True:
        return ("is read-only",)
    return () if value is None else tuple(_refusals(schema, value))


def _refusals(schema: Mapping[str, Json], value: Any) -> Iterator[str]:
    wanted = schema.get("type")
    if isinstance(wanted, str) and not _has_type(value, wanted):
        yield f"must be of type {wanted}, not {describe(value)}"
        return
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(_same(value, choice) for choice in choices):
        yield f"must be one of {', '.join(show_literal(choice) for choice in choices[:12])}, not {describe(value)}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _out_of_bounds(schema, value)
    if isinstance(value, str):
        yield from _wrong_text(schema, value)


def _has_type(value: Any, wanted: str) -> bool:
    if wanted == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return has_type(value, wanted) if wanted in _TYPES else True


_TYPES: Final = frozenset({"string", "number", "boolean", "object", "array", "null"})


def _out_of_bounds(schema: Mapping[str, Json], value: int | float) -> Iterator[str]:
    for keyword, words, is_right in (
        ("minimum", "at least", operator.ge),
        ("maximum", "at most", operator.le),
        ("exclusiveMinimum", "more than", operator.gt),
        ("exclusiveMaximum", "less than", operator.lt),
    ):
        bound = _number(schema.get(keyword))
        if bound is not None and not is_right(value, bound):
            yield f"must be {words} {show_literal(bound)}, not {show_literal(value)}"


def _wrong_text(schema: Mapping[str, Json], text: str) -> Iterator[str]:
    least, most = _number(schema.get("minLength")), _number(schema.get("maxLength"))
    if least is not None and len(text) < least:
        yield f"must have at least {show_literal(least)} characters, not {len(text)}"
    if most is not None and len(text) > most:
        yield f"must have at most {show_literal(most)} characters, not {len(text)}"
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return
    if len(text) > MAX_PATTERN_TEXT:
        yield f"is longer than the {MAX_PATTERN_TEXT:,} characters that a pattern is matched against"
        return
    try:
        if not _matches(pattern, text):
            yield f"must match the pattern {quote(pattern)}, not {quote(text)}"
    except BadPattern as error:
        yield f"cannot be checked: the pattern {quote(pattern)} {error}"
    except (TimeoutError, MemoryError):
        yield f"cannot be checked: matching the pattern {quote(pattern)} takes longer than {PATTERN_SECONDS:g} s"


def _matches(pattern: str, text: str) -> bool:
    """The whole text, unlike in JSON Schema, where a part is enough."""
    found = compile_pattern(pattern).compiled.fullmatch(text, timeout=PATTERN_SECONDS)
    return found is not None


def _number(value: Any) -> int | float | None:
    """A bound; ``None`` for what is none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
