"""The view of a spec: identities, references and the closed vocabulary of component types, and what looks mistaken."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from engines.structured.text import quote, quote_all
from engines.valem.spec.addresses import EACH, Address, BadAddress, parse_address
from engines.valem.spec.checks.places import Places
from engines.valem.spec.checks.report import Report, check_unique
from engines.valem.spec.records import ModelSpec, ViewDefinition

Component = Mapping[str, Any]

_PLAIN: Final = ("label", "title", "placeholder", "helperText", "tooltip", "legend", "addLabel", "removeLabel")
_DISPLAY: Final = ("text", "value", "caption", "delta", "trend")
"""Plain text, or an expression when there is a ``$`` in it."""
_QUOTED: Final = re.compile(r"""\s*(?:'[^']*'|"[^"]*")\s*\Z""")
_FIELD: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*\Z")


def components(node: object, location: str) -> Iterator[tuple[str, Component]]:
    """Every component below ``node`` (a view, a component or a list of them), outermost first, with its place."""
    if isinstance(node, Mapping):
        yield from components(node.get("components"), f"{location}.components")
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for index, each in enumerate(node):
            if isinstance(each, Mapping):
                yield f"{location}[{index}]", each
                yield from components(each, f"{location}[{index}]")


def check_view(report: Report, definition: ViewDefinition | None, types: Sequence[str]) -> None:
    """types: the component types there are."""
    if definition is None:
        return
    views = definition.raw.get("views")
    if not isinstance(views, list):
        report.error("viewDefinition.views", "must be a list of views")
        return
    seen: dict[str, str] = {}
    for index, view in enumerate(views):
        at = f"viewDefinition.views[{index}]"
        if not isinstance(view, Mapping):
            report.error(at, "must be an object with id and components")
            continue
        if _text(view.get("id")) is None:
            report.error(f"{at}.id", "is missing: every view has an id of its own")
        else:
            check_unique(report, f"{at}.id", view["id"], seen, "the view")
        _check_components(report, at, view, types)
    if definition.raw.get("defaultView") is not None and definition.default_view not in seen:
        _dangling(report, "viewDefinition.defaultView", definition.raw["defaultView"], seen)
    for at, component in _all(definition):
        item_view = component.get("itemView")
        if isinstance(item_view, str) and item_view not in seen:
            _dangling(report, f"{at}.itemView", item_view, seen)


def lint_view(report: Report, spec: ModelSpec, places: Places) -> None:
    """Warnings of what would show, but not what was meant."""
    if spec.view_definition is None:
        return
    for at, component in _all(spec.view_definition):
        bind = component.get("bind")
        if isinstance(bind, str) and bind.startswith("$"):
            _lint_bind(report, f"{at}.bind", bind, places)
        for key in (*_PLAIN, *_DISPLAY):
            text = component.get(key)
            if not isinstance(text, str) or "$" in text:
                continue
            if _QUOTED.match(text):
                what = "plain text" if key in _PLAIN else "text without an expression"
                report.warn(f"{at}.{key}", f"{quote(text)} is {what} and shows with its quotes", "leave the quotes out")
            elif key in _DISPLAY and _FIELD.match(text) and places.names_a_field(text):
                report.warn(
                    f"{at}.{key}",
                    f"shows the word {quote(text)} and not the field's value",
                    f"bind the component to $.{text}, or write the expression $string({text})",
                )


def _lint_bind(report: Report, at: str, bind: str, places: Places) -> None:
    try:
        address = parse_address(bind)
    except BadAddress as error:
        report.warn(at, error.message)
        return
    if not places.has(Address(tuple(EACH if isinstance(part, int) else part for part in address.segments))):
        report.warn(at, f"{quote(bind)} is bound to nothing: the model has no such field", places.nearest(bind))


def _check_components(report: Report, at: str, view: Component, types: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for place, component in components(view, at):
        if _text(component.get("id")) is not None:
            check_unique(report, f"{place}.id", component["id"], seen, "the component")
        kind = _text(component.get("type"))
        if kind is None:
            report.error(f"{place}.type", "is missing: every component has a type")
        elif kind not in types:
            lowered = {each.lower(): each for each in types}
            near = difflib.get_close_matches(kind.lower(), lowered, n=1, cutoff=0.5)
            meant = f"did you mean {quote(lowered[near[0]])}? " if near else ""
            report.error(f"{place}.type", f"there is no component type {quote(kind)}", f"{meant}{_vocabulary(types)}")


def _vocabulary(types: Sequence[str]) -> str:
    return f"the types are {quote_all(types, len(types))}"


def _dangling(report: Report, at: str, name: object, views: Mapping[str, str]) -> None:
    there = f"there are {quote_all(views)}" if views else "there are no views"
    report.error(at, f"there is no view {quote(str(name))}: {there}")


def _all(definition: ViewDefinition) -> Iterator[tuple[str, Component]]:
    views = definition.raw.get("views")
    for index, view in enumerate(views if isinstance(views, list) else ()):
        yield from components(view, f"viewDefinition.views[{index}]")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
