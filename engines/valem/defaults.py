"""What fills a document by itself: default rules for containers that come into being, and ``default`` in the schema."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engines.valem.effective import resolved
from engines.valem.jsonata.expression import UNDEFINED
from engines.valem.spec.addresses import Address
from engines.valem.spec.records import Json
from engines.valem.state import CannotWrite, get, put

Leaf = tuple[Address, Any]


def leaves(container: Address, value: Mapping[str, Json]) -> Iterator[Leaf]:
    """Every single value in an object with its address: arrays whole, ``null`` left out."""
    for name, below in value.items():
        address = container.child(name)
        if isinstance(below, dict) and below:
            yield from leaves(address, below)
        elif below is not None:
            yield address, below


def schema_leaves(
    root: Mapping[str, Json], node: Mapping[str, Json], container: Address, within: tuple[int, ...] = ()
) -> Iterator[Leaf]:
    """Every ``default`` of the properties of a schema node, nested objects included, elements of arrays not."""
    properties = node.get("properties")
    if not isinstance(properties, dict) or id(node) in within:
        # A definition inside itself would go on for ever.
        return
    for name, below in properties.items():
        if not isinstance(below, dict):
            continue
        target = resolved(root, below)
        address = container.child(name)
        default = below.get("default", target.get("default"))
        if default is not None:
            yield address, default
        yield from schema_leaves(root, target, address, (*within, id(node)))


def fill(base: dict[str, Any], found: Iterator[Leaf]) -> list[Address]:
    """Write those values whose place is absent or ``null``. Returns the places that were filled."""
    filled: list[Address] = []
    for address, value in found:
        if get(base, address) in (UNDEFINED, None):
            try:
                put(base, address, copy.deepcopy(value))
            except CannotWrite:
                # Something else than an object is where the rule expects one: what is written stands.
                continue
            filled.append(address)
    return filled


def new_containers(base: Mapping[str, Any], written: Iterable[Address]) -> list[Address]:
    """The objects that writing to these addresses brings into being, outermost first; arrays do not count."""
    found: dict[Address, None] = {}
    for address in written:
        for at, above in enumerate(address.ancestors()):
            is_object = isinstance(address.segments[at], str)
            if is_object and get(base, above) in (UNDEFINED, None):
                found[above] = None
    return sorted(found, key=lambda address: len(address.segments))
