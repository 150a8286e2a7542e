"""Where in a spec, or in an evolution, a string is an expression: only there may a repair change it."""

from __future__ import annotations

from typing import Final

from engines.valem.repair.jsontext import Path

_ITEM_LISTS: Final = frozenset({"derivations", "metaDerivations", "constraints", "defaultValues"})
_EFFECT_EXPRESSIONS: Final = frozenset({"trigger", "dedupeKey", "afterMs", "at", "prompt"})
_VIEW_ROOTS: Final = frozenset({"viewDefinition", "newViewDefinition", "upsertViews", "upsertComponents"})
_VIEW_EXPRESSIONS: Final = frozenset({"visible", "enabled", "readOnly", "required", "className", "text", "optionsExpr"})
_VIEW_HANDLERS: Final = frozenset({"onChange", "onClick"})
_PERHAPS_PLAIN: Final = frozenset({"className", "text", "prompt"})


def is_expression(path: Path) -> bool:
    """Whether the string at ``path`` of a spec or an evolution is an expression."""
    match path:
        case (str(section), int(), "expr"):
            return _singular(section) in _ITEM_LISTS
        case (str(section), int(), *rest) if _singular(section) == "effects":
            return _in_effect(rest)
        case (str(root), *_, _, str(key)) if root in _VIEW_ROOTS and key in _VIEW_EXPRESSIONS:
            return True
        case (str(root), *_, str(handler), "mutations") if root in _VIEW_ROOTS:
            return handler in _VIEW_HANDLERS
    return False


def perhaps_plain(path: Path) -> bool:
    """Whether the expression at ``path`` may as well be plain language for a reader."""
    return bool(path) and path[-1] in _PERHAPS_PLAIN


def is_expression_key(path: Path) -> bool:
    """The same guess for a text that is no JSON, where only the last key can be relied on."""
    if not path:
        return False
    return path[-1] in {"expr", "mutations"} | _EFFECT_EXPRESSIONS | _VIEW_EXPRESSIONS


def is_constraint(path: Path) -> bool:
    match path:
        case ("constraints" | "upsertConstraints", int()):
            return True
    return False


def _in_effect(rest: list[str | int]) -> bool:
    match rest:
        case [str(key)]:
            return key in _EFFECT_EXPRESSIONS
        case ["payload", str()] | ["response", "set", str()]:
            return True
    return False


def _singular(section: str) -> str:
    """``upsertDerivations`` as ``derivations``; any other name as it is."""
    name = section.removeprefix("upsert")
    return section if name == section else name[:1].lower() + name[1:]
