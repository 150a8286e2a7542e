"""Which addresses a model has: those of its schema, and those its derivations and effects fill."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from engines.valem.spec.addresses import EACH, ROOT, Address, BadAddress, parse_address
from engines.valem.spec.records import ModelSpec

_MAX_DEPTH: Final = 12
"""Of fields listed for a suggestion: a definition may refer to itself."""
_MAX_LISTED: Final = 2_000


class Places:
    """The fields of one spec. Addresses are given with ``[*]`` for any element."""

    def __init__(self, spec: ModelSpec) -> None:
        self._schema = spec.schema or {}
        filled = [item.path for item in spec.derivations]
        for effect in spec.effects:
            filled += [*effect.response_set, *([effect.status_path] if effect.status_path else [])]
        self._filled = tuple(_general(path) for path in filled)

    def has(self, address: Address) -> bool:
        """Whether there can be a value at ``address``. What is computed as a whole may hold anything."""
        if any(address.is_within(place) or place.starts_with(address) for place in self._filled):
            return True
        return _follow(self._schema, self._schema, address.segments)

    def names_a_field(self, text: str) -> bool:
        """Whether ``text`` (``order.total``), read as an expression, is a field of the model."""
        try:
            return self.has(_general(f"$.{text}"))
        except BadAddress:
            return False

    def nearest(self, text: str) -> str | None:
        """A suggestion for the address ``text``, which there is not."""
        known = [*dict.fromkeys([*map(str, self._filled), *map(str, _listed(self._schema))])]
        found = difflib.get_close_matches(text, known, n=1)
        return f"did you mean {found[0]}?" if found else None


def _general(path: str) -> Address:
    try:
        address = parse_address(path)
    except BadAddress:
        return Address((path,))
    return Address(tuple(EACH if isinstance(part, int) else part for part in address.segments))


def resolve(schema: Mapping[str, Any], node: object) -> Mapping[str, Any]:
    """``node`` with its local reference followed, as far as there is one."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(node, Mapping):
            return {}
        ref = node.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/$defs/"):
            return node
        defs = schema.get("$defs")
        node = defs.get(ref.removeprefix("#/$defs/")) if isinstance(defs, Mapping) else None
    return {}


def _follow(schema: Mapping[str, Any], node: object, segments: tuple[object, ...]) -> bool:
    node = resolve(schema, node)
    if not segments:
        return True
    head, rest = segments[0], segments[1:]
    if isinstance(head, str):
        alternatives = [part for key in ("allOf", "anyOf", "oneOf") for part in node.get(key) or ()]
        if any(_follow(schema, part, segments) for part in alternatives if isinstance(part, Mapping)):
            return True
        properties = node.get("properties")
        if isinstance(properties, Mapping) and properties:
            return head in properties and _follow(schema, properties[head], rest)
        # An object that lists no fields may have any.
        return (
            node.get("type", "object") == "object"
            and not alternatives
            and node.get("additionalProperties") is not False
        )
    items = node.get("items")
    if isinstance(items, Mapping):
        return _follow(schema, items, rest)
    return bool(node.get("type", "array") == "array")


def _listed(schema: Mapping[str, Any]) -> Iterator[Address]:
    waiting: list[tuple[Address, object]] = [(ROOT, schema)]
    for _ in range(_MAX_LISTED):
        if not waiting:
            return
        address, node = waiting.pop(0)
        if len(address.segments) > _MAX_DEPTH:
            continue
        found = resolve(schema, node)
        properties = found.get("properties")
        if isinstance(properties, Mapping):
            for name, below in properties.items():
                yield address.child(str(name))
                waiting.append((address.child(str(name)), below))
        if isinstance(found.get("items"), Mapping):
            waiting.append((address.child(EACH), found["items"]))
