"""The accept-or-reject answer, compiled by fastjsonschema from an already vetted schema.

fastjsonschema writes a Python function per schema: fast, and the reason it only ever sees what :func:`_reduced` lets
through. Left out are all annotations (hostile texts, ``$id``), ``default`` and ``format`` (must not act), ``pattern``
(unbounded matching; see :mod:`engines.structured.patterns`). Rewritten are ``const`` (becomes a one-member ``enum``:
the resolver walks into ``const`` objects and would act on a ``$ref`` or ``$id`` in there) and deep nesting (becomes
functions of its own: Python refuses more than twenty nested loops in one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import fastjsonschema

LEVELS_PER_FUNCTION = 8

_KEPT: Final = (
    "type", "required", "enum", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip


class BlockedFetch(Exception):
    """fastjsonschema tried to fetch something: a vetted schema never makes it."""


def compile_verdict(schema: dict[str, Any]) -> Callable[[object], bool | None]:
    """A function saying whether a value fits ``schema`` (patterns apart): ``None`` when it could not be decided.

    Undecided are the values whose arithmetic overflows in the generated code; the caller's own checks then decide.
    Raises whatever fastjsonschema raises for a schema it cannot compile.
    """
    definitions: dict[str, Any] = {}
    root = _reduced(schema, 1, definitions)
    if definitions:
        root["definitions"] = definitions
    run = fastjsonschema.compile(
        root, handlers=_NoFetching(), use_default=False, use_formats=False, detailed_exceptions=False
    )

    def verdict(value: object) -> bool | None:
        try:
            run(value)
        except fastjsonschema.JsonSchemaException:
            return False
        except (ArithmeticError, ValueError, RecursionError):
            return None
        return True

    return verdict


class _NoFetching(dict[str, Callable[[str], Any]]):
    """Handlers for every scheme there is, all of which refuse."""

    def __contains__(self, scheme: object) -> bool:
        return True

    def __missing__(self, scheme: str) -> Callable[[str], Any]:
        return _refuse


def _refuse(uri: str) -> NoReturn:
    raise BlockedFetch(uri)


def _reduced(node: Any, level: int, definitions: dict[str, Any]) -> Any:
    if isinstance(node, bool):
        return node
    if level % LEVELS_PER_FUNCTION == 0 and ("properties" in node or "items" in node or "additionalProperties" in node):
        name = str(len(definitions))
        definitions[name] = {}  # taken before the recursion below can take it
        definitions[name] = _keywords(node, level, definitions)
        return {"$ref": f"#/definitions/{name}"}
    return _keywords(node, level, definitions)


def _keywords(node: dict[str, Any], level: int, definitions: dict[str, Any]) -> dict[str, Any]:
    reduced: dict[str, Any] = {keyword: node[keyword] for keyword in _KEPT if keyword in node}
    if "const" in node:
        # Both at once mean both hold; the enum that is left is the common part.
        same = "enum" not in node or any(identity(node["const"]) == identity(member) for member in node["enum"])
        reduced["enum"] = [node["const"]] if same else []
    if "properties" in node:
        reduced["properties"] = {
            name: _reduced(subschema, level + 1, definitions) for name, subschema in node["properties"].items()
        }
    for keyword in ("items", "additionalProperties"):
        if keyword in node:
            reduced[keyword] = _reduced(node[keyword], level + 1, definitions)
    return reduced


def identity(value: object) -> object:
    """A hashable stand-in, equal for the same JSON values: ``1`` and ``1.0`` are the same, ``1`` and ``true`` not."""
    match value:
        case bool():
            return ("boolean", value)
        case list():
            return ("array", tuple(identity(item) for item in value))
        case dict():
            return ("object", frozenset((key, identity(item)) for key, item in value.items()))
        case _:
            return value
