"""The schema says what the derivations mean: a computed field is read-only."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from engines.valem.spec.addresses import Address, BadAddress, parse_address


def mark_derived_read_only(spec: dict[str, Any]) -> dict[str, Any]:
    """The JSON form of a spec with ``readOnly: true`` on every field of its schema that a derivation computes.

    ``spec`` itself is not changed. Fields that are no derivation's stay as they are.
    """
    derivations = spec.get("derivations")
    paths = [
        item["path"]
        for item in (derivations if isinstance(derivations, list) else ())
        if isinstance(item, dict) and isinstance(item.get("path"), str)
    ]
    if not isinstance(spec.get("schema"), dict):
        return spec
    return {**spec, "schema": mark_read_only(spec["schema"], paths)}


def mark_read_only(schema: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """A copy of ``schema`` in which the fields at ``paths`` are read-only.

    Only ``properties`` and ``items`` are walked. A field the schema does not have is passed over, and so is one behind
    a ``$ref``: the definition may serve other fields, and a keyword beside ``$ref`` is not read by everyone.
    """
    marked = copy.deepcopy(schema)
    for path in paths:
        try:
            node = _field(marked, parse_address(path))
        except BadAddress:
            continue
        if node is not None:
            node["readOnly"] = True
    return marked


def _field(schema: dict[str, Any], address: Address) -> dict[str, Any] | None:
    node: Any = schema
    for segment in address.segments:
        below = node.get("properties") if isinstance(segment, str) else node.get("items")
        node = below.get(segment) if isinstance(segment, str) and isinstance(below, dict) else below
        if not isinstance(node, dict) or "$ref" in node:
            return None
    return node if address.segments and isinstance(node, dict) else None
