"""Documents in JSON and YAML: strict loading, and the bodies of the kinds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from engines.documents.errors import DocumentError, Problem
from engines.documents.markdown import MAX_TREE_DEPTH
from engines.documents.model import Branch, Item, Row
from engines.documents.table import OVERFLOW, schema_of
from engines.errors import RecipeError
from engines.recipes.yamltext import YamlText
from engines.structured.text import quote

MAX_VALUE_DEPTH = 100
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def load_json(text: str) -> dict[str, Any]:
    """The object in ``text``. Raises :class:`DocumentError`: malformed, a key twice, a number JSON cannot carry."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise DocumentError(Problem.TOO_DEEP, "the JSON document is nested too deeply") from None
    except ValueError as error:
        raise DocumentError(Problem.MALFORMED, f"not valid JSON: {error}") from None
    return _mapping(value, "JSON")


def load_yaml(text: str) -> dict[str, Any]:
    """The mapping in ``text``. Raises :class:`DocumentError`: malformed, a key twice, an alias, a tag."""
    try:
        value = YamlText(text, "document").data
    except RecipeError as error:
        raise DocumentError(Problem.MALFORMED, error.message) from None
    return _mapping(value, "YAML")


def check_storable(text: str) -> None:
    """Raises for characters that no database text can hold."""
    found = _UNSTORABLE.search(text)
    if found:
        raise DocumentError(
            Problem.MALFORMED, f"the document contains U+{ord(found.group()):04X}, which cannot be stored"
        )


def _mapping(value: Any, syntax: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DocumentError(Problem.MALFORMED, f"a {syntax} document must be a mapping at its top level")
    todo: list[tuple[Any, int]] = [(value, 0)]
    while todo:
        part, depth = todo.pop()
        if depth > MAX_VALUE_DEPTH:
            raise DocumentError(Problem.TOO_DEEP, f"the {syntax} document is nested too deeply")
        if isinstance(part, str):
            check_storable(part)
        elif isinstance(part, dict):
            todo.extend((child, depth + 1) for pair in part.items() for child in pair)
        elif isinstance(part, list):
            todo.extend((child, depth + 1) for child in part)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {quote(key)} stands twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too big")
    return number


def take_entries(fields: dict[str, Any], *names: str) -> list[Any]:
    """Takes the list of entries out of ``fields``: under the first of ``names`` that is there."""
    given = [name for name in names if fields.get(name) is not None]
    found = fields.pop(given[0]) if given else []
    fields.pop(names[0], None)  # it may be there as null
    if not isinstance(found, list):
        raise DocumentError(Problem.MALFORMED, f"{given[0]} must be a list")
    return found


def read_items(entries: list[Any]) -> tuple[Item, ...]:
    """Objects with a ``text``, and plain texts; other shapes are no items."""
    found = ({"text": entry} if isinstance(entry, str) else entry for entry in entries)
    return tuple(
        Item(text=text, extra=_without(entry, "text")) for entry in found if (text := _text(entry)) is not None
    )


def read_branches(entries: Any, depth: int = 1) -> tuple[Branch, ...]:
    """Objects with a ``text`` and perhaps ``children``; other shapes are no entries of a tree."""
    if not isinstance(entries, list) or not entries:
        return ()
    if depth > MAX_TREE_DEPTH:
        raise DocumentError(Problem.TOO_DEEP, f"the tree has more than {MAX_TREE_DEPTH} levels")
    return tuple(
        Branch(
            text=text,
            children=read_branches(entry.get("children"), depth + 1),
            extra=_without(entry, "text", "children"),
        )
        for entry in entries
        if (text := _text(entry)) is not None
    )


def _text(entry: Any) -> str | None:
    """The text of an entry; a number or truth value counts as its text, which YAML makes of ``- text: 1984``."""
    value = entry.get("text") if isinstance(entry, Mapping) else None
    if isinstance(value, str):
        return value
    return None if value is None or isinstance(value, (dict, list)) else cell_text(value)


def _without(entry: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in names}


def read_schema(value: Any) -> tuple[str, ...]:
    """Field names from a list or a comma-separated text."""
    if isinstance(value, str):
        return schema_of(value.split(","))
    if isinstance(value, list) and all(isinstance(name, (str, int, float)) for name in value):
        return schema_of([cell_text(name) for name in value])
    if value is None:
        return schema_of([])
    raise DocumentError(Problem.NO_SCHEMA, "the schema of a records document must be a list of field names")


def read_rows(entries: list[Any], schema: tuple[str, ...]) -> tuple[Row, ...]:
    """Objects; other shapes are no rows."""
    return tuple(_row(entry, schema) for entry in entries if isinstance(entry, dict))


def _row(entry: dict[str, Any], schema: tuple[str, ...]) -> Row:
    extra = _without(entry, *schema)
    overflow: tuple[str, ...] = ()
    surplus = extra.get(OVERFLOW)
    if isinstance(surplus, list) and all(isinstance(cell, str) for cell in surplus):
        overflow = tuple(extra.pop(OVERFLOW))
    return Row(values={name: cell_text(entry.get(name)) for name in schema}, extra=extra, overflow=overflow)


def cell_text(value: Any) -> str:
    """A JSON value as the text of a cell: nothing for ``null``, JSON for what is no text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
