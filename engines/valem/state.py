"""A model's values: the document that is written, what is derived from it, and reading and writing by address."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engines.errors import EngineError
from engines.structured.text import describe
from engines.valem.findings import Finding
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.expression import UNDEFINED
from engines.valem.spec.addresses import EACH, ROOT, Address, Segment
from engines.valem.spec.records import MetaProperty

MAX_ELEMENTS = 10_000
"""An array grows to this by writing to an index beyond its end; what lies between is ``null``."""


class CannotWrite(EngineError):
    """A value cannot be put at an address. The message says what is in the way."""


@dataclass(slots=True)
class State:
    """Everything a model holds.

    base: what was written or seeded, an object.
    derived: concrete address -> value, for every derivation that has one.
    metas: (concrete address, keyword) -> value.
    errors: why a derived value is ``null``.
    remarks: what else went wrong in the last change: expressions of defaults and meta values that failed.
    merged: ``base`` with the derived values put in; what expressions see.
    """

    base: dict[str, Any] = field(default_factory=dict)
    derived: dict[Address, Any] = field(default_factory=dict)
    metas: dict[tuple[Address, MetaProperty], Any] = field(default_factory=dict)
    errors: dict[Address, ExpressionError] = field(default_factory=dict)
    remarks: list[Finding] = field(default_factory=list)
    merged: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> State:
        """A state that shares nothing that changes. Derived values are replaced, never changed in place."""
        return State(
            copy.deepcopy(self.base),
            dict(self.derived),
            dict(self.metas),
            dict(self.errors),
            list(self.remarks),
            copy.deepcopy(self.merged),
        )

    def value(self, address: Address) -> Any:
        """The value at ``address``: a derived one, else the written one, else a part of a derived one, else none."""
        if address in self.derived:
            return self.derived[address]
        found = get(self.base, address)
        if found is not UNDEFINED:
            return found
        for above in reversed(address.ancestors()):
            if above in self.derived:
                return get(self.derived[above], Address(address.segments[len(above.segments) :]))
        return UNDEFINED


def get(document: Any, address: Address) -> Any:
    """The value at a concrete address, or ``UNDEFINED``."""
    for segment in address.segments:
        match document, segment:
            case dict(), str() if segment in document:
                document = document[segment]
            case list(), int() if segment < len(document):
                document = document[segment]
            case _:
                return UNDEFINED
    return document


def put(root: dict[str, Any], address: Address, value: Any) -> None:
    """Write ``value`` (not copied) at a concrete address; what is missing on the way comes into being.

    Raises :class:`CannotWrite` when something else than an object or array is in the way.
    """
    if address == ROOT:
        if not isinstance(value, dict):
            raise CannotWrite(f"the whole document must be an object, not {describe(value)}")
        root.clear()
        root.update(value)
        return
    node: Any = root
    for at, (segment, after) in enumerate(zip(address.segments, (*address.segments[1:], None), strict=True)):
        _make_room(node, segment, Address(address.segments[:at]))
        if after is None:
            node[segment] = value
            return
        below = node.get(segment) if isinstance(node, dict) else node[segment]
        if below is None:
            below = node[segment] = {} if isinstance(after, str) else []
        node = below


def splice(root: dict[str, Any], address: Address, value: Any) -> None:
    """Put a derived value into a merged document. Arrays do not grow; a place that is not there stays empty."""
    above = address.ancestors()
    for container, segment in zip(above, address.segments, strict=True):
        if isinstance(segment, int):
            array = get(root, container)
            if not isinstance(array, list) or segment >= len(array):
                return
    try:
        put(root, address, value)
    except CannotWrite:
        return


def expand(document: Any, pattern: Address) -> Iterator[Address]:
    """The concrete addresses that ``pattern`` stands for in ``document``: one per element for each ``[*]``."""
    if not pattern.has_wildcard:
        yield pattern
        return
    at = pattern.segments.index(EACH)
    array = get(document, Address(pattern.segments[:at]))
    if isinstance(array, list):
        for index in range(len(array)):
            yield from expand(document, Address((*pattern.segments[:at], index, *pattern.segments[at + 1 :])))


def _make_room(node: Any, segment: Segment, container: Address) -> None:
    """Make sure that ``node[segment]`` can be assigned."""
    if isinstance(segment, str):
        if not isinstance(node, dict):
            raise CannotWrite(f"{container} is {describe(node)}, not an object")
        return
    if not isinstance(segment, int):
        raise CannotWrite("an address with [*] names no single place: write an index")
    if not isinstance(node, list):
        raise CannotWrite(f"{container} is {describe(node)}, not an array")
    if segment >= MAX_ELEMENTS:
        raise CannotWrite(f"index {segment} is too large: an array has at most {MAX_ELEMENTS:,} elements here")
    node.extend([None] * (segment + 1 - len(node)))
