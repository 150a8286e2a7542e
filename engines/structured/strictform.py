"""A schema rewritten for a provider that compiles it into a grammar, or the reasons why it cannot be.

The rewritten schema accepts only what the caller's accepts (give or take the keywords listed in ``held_locally``):
every object is closed, and where the dialect has no optional properties, an optional one becomes required and nullable,
its nulls to be dropped from the reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from engines.structured.checks import has_type
from engines.structured.text import child, show_literal, show_pointer

_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_HARD_PATTERN: Final = re.compile(r"\(\?[=!<]|\\[1-9bBkpPAZ]|\(\?[a-zA-Z]")
"""Look-around, back references, word boundaries, Unicode classes: more than a provider's grammar takes."""
_BOUNDS: Final = {
    "minLength": "at least {} characters", "maxLength": "at most {} characters", "minimum": "at least {}",
    "maximum": "at most {}", "exclusiveMinimum": "more than {}", "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}", "minItems": "at least {} items", "maxItems": "at most {} items",
    "minProperties": "at least {} properties", "maxProperties": "at most {} properties",
    "uniqueItems": "no item twice", "pattern": "matches the regular expression {}", "format": "in the format {}",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictDialect:
    """What one provider's strict mode takes. A limit of ``None`` is none that is known."""

    keywords: frozenset[str]
    formats: frozenset[str]
    all_required: bool
    """Optional properties do not exist: they are sent as required and nullable."""
    max_properties: int | None = None
    max_object_levels: int | None = None
    max_enum_values: int | None = None
    max_name_chars: int | None = None
    """Property names, enum and const values together."""
    max_long_enum_chars: int | None = None
    """Characters of one enum of more than 250 strings."""
    max_optional: int | None = None
    max_unions: int | None = None


DIALECTS: Final[dict[str, StrictDialect]] = {
    "openai_strict": StrictDialect(
        keywords=frozenset(
            {"pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
             "minItems", "maxItems"}
        ),
        formats=_FORMATS,
        all_required=True,
        max_properties=5_000,
        max_object_levels=10,
        max_enum_values=1_000,
        max_name_chars=120_000,
        max_long_enum_chars=15_000,
    ),
    "anthropic_strict": StrictDialect(
        keywords=frozenset({"format"}),
        formats=_FORMATS | {"uri"},
        all_required=False,
        max_optional=24,
        max_unions=16,
    ),
}  # fmt: skip


@dataclass(slots=True)
class StrictForm:
    """The outcome: ``schema`` is to be sent if there are no ``reasons`` against it."""

    dialect: StrictDialect
    schema: dict[str, Any] = field(default_factory=dict)
    held_locally: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    introduced_nulls: bool = False
    properties: int = 0
    levels: int = 0
    enum_values: int = 0
    name_chars: int = 0
    optional: int = 0
    unions: int = 0

    def refuse(self, pointer: str, why: str) -> None:
        self.reasons.append(f"{show_pointer(pointer)}: {why}")


def strict_form(schema: dict[str, Any], dialect: StrictDialect) -> StrictForm:
    """``schema`` (a vetted one) in ``dialect``'s strict form."""
    form = StrictForm(dialect)
    form.schema = _node(form, "", schema, nullable=False, level=1)
    form.reasons.extend(_over_limits(form))
    return form


def _over_limits(form: StrictForm) -> Iterator[str]:
    dialect = form.dialect
    for count, limit, what in (
        (form.properties, dialect.max_properties, "properties"),
        (form.levels, dialect.max_object_levels, "levels of nested objects"),
        (form.enum_values, dialect.max_enum_values, "enum values"),
        (form.name_chars, dialect.max_name_chars, "characters of property names and enum values"),
        (form.optional, dialect.max_optional, "optional properties"),
        (form.unions, dialect.max_unions, "properties of more than one type"),
    ):
        if limit is not None and count > limit:
            yield f"(whole schema): {count:,} {what}, over the provider's limit of {limit:,}"


def _node(form: StrictForm, pointer: str, node: Any, *, nullable: bool, level: int) -> dict[str, Any]:
    """One subschema. ``nullable``: null is to be added to what it takes, for an optional property."""
    if isinstance(node, bool):
        form.refuse(pointer, f"schema {str(node).lower()}, which names no type")
        return {}
    if any(isinstance(member, dict | list) for member in [node.get("const"), *node.get("enum", ())]):
        form.refuse(pointer, "an enum or const value that is an object or array")
        return {}
    types = _types(node)
    kind = next((name for name in types if name != "null"), "null")
    if not types:
        form.refuse(pointer, "no type")
        return {}
    if len(types) > (2 if "null" in types else 1):
        form.refuse(pointer, "several types")
        return {}
    if nullable and not allows_null(node):
        form.introduced_nulls = True
    if nullable and "null" not in types:
        types = [*types, "null"]
    form.unions += len(types) > 1
    sent: dict[str, Any] = {"type": types if len(types) > 1 else types[0]}
    _literals(form, pointer, node, sent, nullable)
    if kind == "object":
        _object(form, pointer, node, sent, level)
    elif kind == "array":
        _array(form, pointer, node, sent, level)
    _bounds(form, pointer, node, sent)
    return sent


def allows_null(node: Any) -> bool:
    """Whether the caller's schema takes ``null`` at this place."""
    if isinstance(node, bool):
        return node
    if "const" in node and node["const"] is not None:
        return False
    if "enum" in node and not any(member is None for member in node["enum"]):
        return False
    return "type" not in node or has_type(None, node["type"])


def _types(node: dict[str, Any]) -> list[str]:
    """The node's types; those of its literals when it names none."""
    if "type" in node:
        return [node["type"]] if isinstance(node["type"], str) else list(node["type"])
    literals = [node["const"]] if "const" in node else node.get("enum", [])
    names = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}
    return list(dict.fromkeys(names.get(type(literal), "object") for literal in literals))


def _literals(form: StrictForm, pointer: str, node: dict[str, Any], sent: dict[str, Any], nullable: bool) -> None:
    if "const" not in node and "enum" not in node:
        return
    if "const" in node and "enum" in node:
        form.held_locally.append(child(pointer, "enum"))  # the constant is sent: the narrower of the two
    members = [node["const"]] if "const" in node else list(node["enum"])
    if nullable and None not in members:
        members.append(None)
    form.enum_values += len(members)
    chars = sum(len(member) for member in members if isinstance(member, str))
    form.name_chars += chars
    limit = form.dialect.max_long_enum_chars
    if limit is not None and len(members) > 250 and chars > limit:
        form.refuse(pointer, f"an enum of {chars:,} characters, over the provider's limit of {limit:,}")
    sent["enum"] = members


def _object(form: StrictForm, pointer: str, node: dict[str, Any], sent: dict[str, Any], level: int) -> None:
    form.levels = max(form.levels, level)
    # A property whose schema is false may not appear: a closed object says so by not naming it.
    properties = {name: item for name, item in node.get("properties", {}).items() if item is not False}
    required = node.get("required", [])
    if not properties:
        form.refuse(pointer, "object without properties")
    if node.get("additionalProperties", False) is not False:
        form.refuse(pointer, "additionalProperties, where the provider takes closed objects only")
    for name in required:
        if name not in properties:
            form.refuse(pointer, f"requires {show_literal(name)}, which is not among its properties")
    form.properties += len(properties)
    form.name_chars += sum(map(len, properties))
    form.optional += 0 if form.dialect.all_required else len(properties.keys() - set(required))
    sent["properties"] = {
        name: _node(
            form,
            child(child(pointer, "properties"), name),
            item,
            nullable=form.dialect.all_required and name not in required,
            level=level + 1,
        )
        for name, item in properties.items()
    }
    sent["required"] = [name for name in properties if form.dialect.all_required or name in required]
    sent["additionalProperties"] = False


def _array(form: StrictForm, pointer: str, node: dict[str, Any], sent: dict[str, Any], level: int) -> None:
    items = node.get("items", True)
    if isinstance(items, bool) or not _types(items):
        form.refuse(pointer, "array without items" if "items" not in node else "array whose items name no type")
        return
    sent["items"] = _node(form, child(pointer, "items"), items, nullable=False, level=level)


def _bounds(form: StrictForm, pointer: str, node: dict[str, Any], sent: dict[str, Any]) -> None:
    """Keep the bounds the dialect takes; say the others in the description and leave them to the local validator."""
    said: list[str] = []
    for keyword, words in _BOUNDS.items():
        value = node.get(keyword)
        if value is None or value is False:
            continue
        if _is_taken(form.dialect, keyword, value):
            sent[keyword] = value
            continue
        said.append(words.format(show_literal(value)))
        if keyword != "format":  # only a hint for us, too
            form.held_locally.append(child(pointer, keyword))
    notes = [str(node["description"])] if isinstance(node.get("description"), str) else []
    if said:
        notes.append(f"({'; '.join(said)})")
    if notes:
        sent["description"] = " ".join(notes)
    if isinstance(node.get("title"), str):
        sent["title"] = node["title"]


def _is_taken(dialect: StrictDialect, keyword: str, value: Any) -> bool:
    if keyword == "format":
        return keyword in dialect.keywords and value in dialect.formats
    if keyword == "pattern":
        return keyword in dialect.keywords and not _HARD_PATTERN.search(value)
    return keyword in dialect.keywords or (keyword == "minItems" and value in (0, 1))
