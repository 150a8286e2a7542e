"""Which JSON Schemas are accepted, and what is wrong with the others.

:func:`vet` lists every problem with its JSON pointer. Accepted are the keywords of :data:`ASSERTIONS` and the harmless
ones of :data:`ANNOTATIONS`; a keyword that would change what a valid reply is, but is not checked here, is refused
rather than ignored.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from engines.structured.patterns import BadPattern, compile_pattern
from engines.structured.text import child, one_line, quote, show_literal

MAX_LEVELS = 64
"""Schemas inside schemas; far above what any provider takes natively."""
MAX_PROPERTIES = 2_000
MAX_PROBLEMS = 50
"""More problems than this are not listed: the author has a different document in hand."""

TYPES: Final = ("string", "integer", "number", "boolean", "object", "array", "null")

Problem = tuple[str, str]

_TYPE_SYNONYMS: Final = {
    "str": "string", "text": "string", "char": "string", "varchar": "string", "date": "string", "datetime": "string",
    "int": "integer", "long": "integer", "bigint": "integer", "float": "number", "double": "number", "real": "number",
    "decimal": "number", "numeric": "number", "bool": "boolean", "dict": "object", "map": "object",
    "record": "object", "struct": "object", "list": "array", "tuple": "array", "set": "array", "none": "null",
    "nil": "null", "nonetype": "null",
}  # fmt: skip

_REFUSED: Final = {
    "$ref": "references are not supported: write the referenced schema in place",
    "$dynamicRef": "references are not supported: write the referenced schema in place",
    "$recursiveRef": "references are not supported: write the referenced schema in place",
    "$defs": "definitions are not supported, as nothing can refer to them: write each schema in place",
    "definitions": "definitions are not supported, as nothing can refer to them: write each schema in place",
    "$anchor": "anchors are not supported, as nothing can refer to them: leave it out",
    "$dynamicAnchor": "anchors are not supported, as nothing can refer to them: leave it out",
    "$vocabulary": "vocabularies are not supported: leave it out",
    "oneOf": "alternatives are not supported: use one object with an enum property that says which case it is",
    "anyOf": 'alternatives are not supported: use a list of types such as ["string", "null"], or one object with '
    "an enum property that says which case it is",
    "allOf": "combinations are not supported: write all keywords into one schema",
    "not": "negation is not supported: say what is allowed instead",
    "if": "conditions are not supported: say the condition in the description",
    "then": "conditions are not supported: say the condition in the description",
    "else": "conditions are not supported: say the condition in the description",
    "prefixItems": "positional items are not supported: use an object with one property per position",
    "additionalItems": "positional items are not supported: use an object with one property per position",
    "contains": "not supported: say it in the description",
    "minContains": "not supported: say it in the description",
    "maxContains": "not supported: say it in the description",
    "patternProperties": "not supported: use properties, or additionalProperties with a schema for every other name",
    "propertyNames": "not supported: use properties, or additionalProperties with a schema for every other name",
    "unevaluatedProperties": "not supported: use additionalProperties",
    "unevaluatedItems": "not supported: use items with minItems and maxItems",
    "dependentRequired": "not supported: say the condition in the description",
    "dependentSchemas": "not supported: say the condition in the description",
    "dependencies": "not supported: say the condition in the description",
    "nullable": 'not a JSON Schema keyword: write a list of types such as ["string", "null"]',
    "optional": "not a JSON Schema keyword: leave the property's name out of the object's required list",
    "$id": "only accepted at the top level, where it is ignored: leave it out here",
    "$schema": "only accepted at the top level: leave it out here",
}

ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment",
     "contentEncoding", "contentMediaType"}
)  # fmt: skip


def vet(schema: dict[str, Any]) -> list[Problem]:
    """Everything wrong with ``schema`` (plain JSON, bounded depth), as ``(json_pointer, message)`` pairs."""
    problems = list(_top_level(schema))
    properties = 0
    stack: list[tuple[str, Any, int]] = [("", schema, 1)]
    while stack:
        pointer, node, level = stack.pop()
        if isinstance(node, bool) and pointer:
            continue
        if not isinstance(node, dict):
            problems.append((pointer, f"must be a schema: an object, true or false, not {_kind(node)}"))
            continue
        if level > MAX_LEVELS:
            problems.append((pointer, f"is nested too deeply: at most {MAX_LEVELS} schemas inside each other"))
            continue
        problems.extend(_node_problems(pointer, node))
        subschemas = list(_subschemas(pointer, node))
        properties += len(node["properties"]) if isinstance(node.get("properties"), dict) else 0
        stack.extend((where, subschema, level + 1) for where, subschema in reversed(subschemas))
    if properties > MAX_PROPERTIES:
        problems.append(("", f"has {properties:,} properties: at most {MAX_PROPERTIES:,} are accepted"))
    return problems[:MAX_PROBLEMS]


def _top_level(schema: dict[str, Any]) -> Iterator[Problem]:
    if "type" not in schema and not any(keyword in schema for keyword in ("$ref", "anyOf", "oneOf", "allOf")):
        yield "", 'must describe an object: add "type": "object"'
    elif "type" in schema and schema["type"] != "object" and not _unknown_types(schema["type"]):
        yield (
            "/type",
            f'must be "object" at the top level, not {show_literal(schema["type"])}: wrap the value in a property',
        )
    if not isinstance(schema.get("$schema", ""), str):
        yield "/$schema", "must be a string"


def _subschemas(pointer: str, node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    properties = node.get("properties")
    if isinstance(properties, dict):
        for name, subschema in properties.items():
            yield child(child(pointer, "properties"), name), subschema
    for keyword in ("items", "additionalProperties"):
        # A list of items is the old spelling of prefixItems; its own check words that.
        if keyword in node and not isinstance(node[keyword], list):
            yield child(pointer, keyword), node[keyword]


def _node_problems(pointer: str, node: dict[str, Any]) -> Iterator[Problem]:
    for keyword, value in node.items():
        where = child(pointer, keyword)
        if keyword in ASSERTIONS:
            message = ASSERTIONS[keyword](value)
            if message:
                yield where, message
        elif keyword in ANNOTATIONS or keyword.startswith("x-") or (not pointer and keyword in ("$schema", "$id")):
            continue
        else:
            yield where, _REFUSED.get(keyword) or _unknown_keyword(keyword)
    yield from _contradictions(pointer, node)


def _unknown_keyword(keyword: str) -> str:
    names = [*ASSERTIONS, *ANNOTATIONS]
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(keyword.lower()[:40], by_lower, n=1, cutoff=0.7)
    return f"unknown keyword{f': did you mean {quote(by_lower[close[0]])}?' if close else ''}"


def _contradictions(pointer: str, node: dict[str, Any]) -> Iterator[Problem]:
    for low, high in (
        ("minimum", "maximum"),
        ("minLength", "maxLength"),
        ("minItems", "maxItems"),
        ("minProperties", "maxProperties"),
    ):
        if _is_number(node.get(low)) and _is_number(node.get(high)) and node[low] > node[high]:
            yield child(pointer, low), f"is greater than {high}: nothing could be valid"
    required, properties = node.get("required"), node.get("properties", {})
    if isinstance(required, list) and isinstance(properties, dict):
        for name in dict.fromkeys(name for name in required if isinstance(name, str)):
            if node.get("additionalProperties") is False and name not in properties:
                yield child(pointer, "required"), f"requires {quote(name)}, which additionalProperties: false forbids"
            elif properties.get(name) is False:
                yield child(pointer, "required"), f"requires {quote(name)}, whose schema is false"


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _is_number(value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _unknown_types(value: object) -> list[object]:
    return [name for name in (value if isinstance(value, list) else [value]) if name not in TYPES]


def _check_type(value: object) -> str | None:
    if not isinstance(value, str | list) or value == []:
        return f'must be a type name such as "string" or a list of them, not {_kind(value)}'
    for name in _unknown_types(value):
        if not isinstance(name, str):
            return f"must list type names, not {_kind(name)}"
        nearest = _TYPE_SYNONYMS.get(name.lower()) or next(
            iter(difflib.get_close_matches(name.lower()[:40], TYPES, n=1, cutoff=0.6)), None
        )
        known = f"did you mean {quote(nearest)}?" if nearest else f"the types are {', '.join(TYPES)}"
        return f"unknown type {quote(name)}: {known}"
    if isinstance(value, list) and len(set(value)) != len(value):
        return "lists a type twice"
    return None


def _check_properties(value: object) -> str | None:
    return None if isinstance(value, dict) else f"must be an object of property schemas, not {_kind(value)}"


def _check_required(value: object) -> str | None:
    if isinstance(value, bool):
        return "must be an array of property names on the object itself: list this property's name there"
    if not isinstance(value, list):
        return f"must be an array of property names, not {_kind(value)}"
    for name in value:
        if not isinstance(name, str):
            return f"must list property names (strings), not {_kind(name)}"
    twice = next((name for name in value if value.count(name) > 1), None) if len(set(value)) != len(value) else None
    return None if twice is None else f"lists {quote(twice)} twice"


def _check_items(value: object) -> str | None:
    return "must be one schema for every item; positional items are not supported" if isinstance(value, list) else None


def _check_enum(value: object) -> str | None:
    if not isinstance(value, list):
        return f"must be an array of the allowed values, not {_kind(value)}"
    return None if value else "must list at least one value"


def _check_pattern(value: object) -> str | None:
    if not isinstance(value, str):
        return f"must be a regular expression (a string), not {_kind(value)}"
    try:
        compile_pattern(value)
    except BadPattern as bad:
        return one_line(str(bad))
    return None


def _check_bound(value: object) -> str | None:
    return None if _is_number(value) else f"must be a number, not {_kind(value)}"


def _check_multiple_of(value: object) -> str | None:
    return _check_bound(value) or (None if isinstance(value, int | float) and value > 0 else "must be greater than 0")


def _check_count(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return None
    return f"must be a whole number, 0 or more, not {show_literal(value) if _is_number(value) else _kind(value)}"


def _check_flag(value: object) -> str | None:
    return None if isinstance(value, bool) else f"must be true or false, not {_kind(value)}"


def _check_text(value: object) -> str | None:
    return None if isinstance(value, str) else f"must be a string, not {_kind(value)}"


def _check_nothing(value: object) -> str | None:
    return None


ASSERTIONS: Final[dict[str, Callable[[object], str | None]]] = {
    "type": _check_type,
    "properties": _check_properties,
    "required": _check_required,
    "additionalProperties": _check_nothing,  # a subschema: vetted as one
    "items": _check_items,
    "enum": _check_enum,
    "const": _check_nothing,  # any value
    "pattern": _check_pattern,
    "format": _check_text,
    "minLength": _check_count,
    "maxLength": _check_count,
    "minimum": _check_bound,
    "maximum": _check_bound,
    "exclusiveMinimum": _check_bound,
    "exclusiveMaximum": _check_bound,
    "multipleOf": _check_multiple_of,
    "minItems": _check_count,
    "maxItems": _check_count,
    "uniqueItems": _check_flag,
    "minProperties": _check_count,
    "maxProperties": _check_count,
}
"""The checked keywords, each with what is wrong with its value (``None``: nothing). ``format`` gives hints only."""
