"""Changes to parts of a view definition: whole views, and components wherever they are nested."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from engines.structured.text import quote, quote_all
from engines.valem.evolution.errors import misfit
from engines.valem.evolution.records import ComponentChange, SpecEvolution
from engines.valem.spec.records import Json, ViewDefinition

Component = dict[str, Any]


def evolved_view(view: ViewDefinition | None, evolution: SpecEvolution) -> ViewDefinition | None:
    """``view`` after the evolution's changes; itself when there are none. Raises :class:`EvolutionError`."""
    changes = {
        "removeViews": evolution.remove_views,
        "upsertViews": evolution.upsert_views,
        "removeComponents": evolution.remove_components,
        "upsertComponents": evolution.upsert_components,
        "newDefaultView": evolution.new_default_view,
    }
    used = [key for key, change in changes.items() if change]
    if evolution.new_view_definition is not None:
        if used:
            raise misfit(
                "newViewDefinition",
                f"replaces all views and cannot be combined with {quote_all(used)}",
                f"leave out newViewDefinition and keep {quote_all(used)}, or put everything into newViewDefinition",
            )
        return ViewDefinition(raw=evolution.new_view_definition)
    if not used:
        return view
    raw = copy.deepcopy(dict(view.raw)) if view is not None else {}
    views = raw.get("views")
    raw["views"] = views = views if isinstance(views, list) else []
    for at, view_id in enumerate(evolution.remove_views):
        views.remove(_view(views, view_id, f"removeViews[{at}]"))
    for at, new in enumerate(evolution.upsert_views):
        _upsert_view(views, new, f"upsertViews[{at}]")
    for at, removed in enumerate(evolution.remove_components):
        location = f"removeComponents[{at}]"
        found = _view(views, removed.view_id, f"{location}.viewId")
        siblings, index = _component(found, removed.component_id, f"{location}.componentId")
        del siblings[index]
    for at, change in enumerate(evolution.upsert_components):
        location = f"upsertComponents[{at}]"
        _upsert_component(_view(views, change.view_id, f"{location}.viewId"), change, location)
    if evolution.new_default_view is not None:
        raw["defaultView"] = evolution.new_default_view
    return ViewDefinition(raw=raw)


def _view(views: list[Any], view_id: str, location: str) -> dict[str, Any]:
    for view in views:
        if isinstance(view, dict) and view.get("id") == view_id:
            return view
    known = [str(view["id"]) for view in views if isinstance(view, dict) and "id" in view]
    raise misfit(location, f"there is no view {quote(view_id)}", _known("views", known))


def _upsert_view(views: list[Any], new: Mapping[str, Json], location: str) -> None:
    view_id = new.get("id")
    if not isinstance(view_id, str) or not view_id:
        raise misfit(location, "a view needs an id", "give the id of the view to replace, or a new one")
    made = copy.deepcopy(dict(new))
    for at, view in enumerate(views):
        if isinstance(view, dict) and view.get("id") == view_id:
            views[at] = made
            return
    views.append(made)


def _upsert_component(view: dict[str, Any], change: ComponentChange, location: str) -> None:
    component_id = change.component.get("id")
    if not isinstance(component_id, str) or not component_id:
        raise misfit(
            f"{location}.component", "a component needs an id", "give the id of the one to replace, or a new one"
        )
    made = copy.deepcopy(dict(change.component))
    place = _find(view, component_id)
    if place is not None and change.parent_id is None and change.before_id is None:
        siblings, index = place
        siblings[index] = made
        return
    if place is not None:
        siblings, index = place
        old = siblings[index]
        for key, other in (("parentId", change.parent_id), ("beforeId", change.before_id)):
            if other is not None and (other == component_id or _find(old, other) is not None):
                raise misfit(
                    f"{location}.{key}",
                    f"{quote(other)} is the component {quote(component_id)} itself or inside it",
                    "choose a place outside of what is moved",
                )
        del siblings[index]
    target, index = _target(view, change, location)
    target.insert(index, made)


def _target(view: dict[str, Any], change: ComponentChange, location: str) -> tuple[list[Any], int]:
    """The list that a component goes into, and where."""
    if change.parent_id is None and change.before_id is not None:
        return _component(view, change.before_id, f"{location}.beforeId")
    container = view
    if change.parent_id is not None:
        siblings, index = _component(view, change.parent_id, f"{location}.parentId")
        container = siblings[index]
    target = container.get("components")
    if not isinstance(target, list):
        container["components"] = target = []
    if change.before_id is None:
        return target, len(target)
    for at, sibling in enumerate(target):
        if isinstance(sibling, dict) and sibling.get("id") == change.before_id:
            return target, at
    raise misfit(
        f"{location}.beforeId",
        f"{quote(change.parent_id or '')} holds no component {quote(change.before_id)}",
        _known("components", [str(item["id"]) for item in target if isinstance(item, dict) and "id" in item]),
    )


def _component(view: dict[str, Any], component_id: str, location: str) -> tuple[list[Any], int]:
    found = _find(view, component_id)
    if found is None:
        known = [str(component["id"]) for component in _all(view) if "id" in component]
        raise misfit(location, f"there is no component {quote(component_id)}", _known("components", known))
    return found


def _find(container: dict[str, Any], component_id: str) -> tuple[list[Any], int] | None:
    """The list that holds the component, and its index in it, at any depth below ``container``."""
    stack: list[dict[str, Any]] = [container]
    while stack:
        siblings = _children(stack.pop())
        for at, component in enumerate(siblings):
            if isinstance(component, dict):
                if component.get("id") == component_id:
                    return siblings, at
                stack.append(component)
    return None


def _all(container: dict[str, Any]) -> list[Component]:
    found: list[Component] = []
    stack: list[dict[str, Any]] = [container]
    while stack:
        below = [item for item in _children(stack.pop()) if isinstance(item, dict)]
        found += below
        stack += reversed(below)
    return found


def _children(container: dict[str, Any]) -> list[Any]:
    children = container.get("components")
    return children if isinstance(children, list) else []


def _known(what: str, names: list[str]) -> str:
    return f"the {what} there are {quote_all(names)}" if names else f"there are no {what} yet"
