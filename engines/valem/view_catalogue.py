"""The closed vocabulary of view components, from ``view_catalogue.yaml``: for the validator and for the prompt."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

import yaml

_NEEDED = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentType:
    """One type of component. ``fields`` are the names it may have, those of its group and of every type included."""

    name: str
    about: str
    group: str
    own: tuple[str, ...]
    """What only this type has, as the file writes it: ``*`` at the end of a name means that it must be there."""
    fields: frozenset[str]
    needed: frozenset[str]


@dataclass(frozen=True, slots=True)
class ComponentGroup:
    """Types that are used alike, with the fields they share, as the file writes them."""

    name: str
    about: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewCatalogue:
    """All types by name, in the order of the file, their groups, and the fields that every component may have."""

    types: Mapping[str, ComponentType]
    groups: tuple[ComponentGroup, ...]
    every: tuple[str, ...]


@functools.cache
def view_catalogue() -> ViewCatalogue:
    """The bundled vocabulary. Immutable; the same object each time."""
    text = resources.files("engines.valem").joinpath("view_catalogue.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.safe_load(text)
    every = tuple(data["every"])
    types: dict[str, ComponentType] = {}
    groups = []
    for group_name, group in data["groups"].items():
        shared = tuple(group["fields"])
        groups.append(ComponentGroup(group_name, group["about"], shared))
        for name, entry in group["types"].items():
            own = tuple(entry.get("fields", ()))
            written = (*every, *shared, *own)
            types[name] = ComponentType(
                name=name,
                about=entry["about"],
                group=group_name,
                own=own,
                fields=frozenset(field.rstrip(_NEEDED) for field in written),
                needed=frozenset(field.rstrip(_NEEDED) for field in written if field.endswith(_NEEDED)),
            )
    return ViewCatalogue(MappingProxyType(types), tuple(groups), every)
