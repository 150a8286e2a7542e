"""State on its way from a spec to its evolved one: what is filled in, and whether all of it still has a place."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from engines.structured.text import describe
from engines.valem.effective import refusals, resolved
from engines.valem.evolution.errors import EvolutionError, misfit
from engines.valem.findings import Finding
from engines.valem.spec.addresses import EACH, ROOT, Address, BadAddress, Segment, parse_address
from engines.valem.spec.records import Json, ModelSpec

MAX_FINDINGS: Final = 40


def backfill(state: Mapping[str, Json], values: Mapping[str, Json]) -> dict[str, Json]:
    """A copy of ``state`` with ``values`` (address -> value) where nothing is yet, in the order given.

    Nothing that is there is overwritten, ``null`` included; arrays do not grow, ``[*]`` is each element there is. What
    stands in the way stays. Raises :class:`EvolutionError` for an address that is none.
    """
    filled = copy.deepcopy(dict(state))
    for text, value in values.items():
        try:
            address = parse_address(text)
        except BadAddress as error:
            hint = f"write {error.suggestion}" if error.suggestion else None
            raise misfit(f"backfill.{text}", "is not a canonical address", hint) from None
        if not address.segments:
            raise misfit(f"backfill.{text}", "the root $ is the whole state", "name the fields one by one")
        _fill(filled, address.segments, value)
    return filled


def _fill(container: Any, segments: tuple[Segment, ...], value: Json) -> None:
    segment, rest = segments[0], segments[1:]
    if isinstance(segment, str):
        if not isinstance(container, dict):
            return
        if segment in container:
            below = container[segment]
            if rest:
                _fill(below, rest, value)
        elif not rest:
            container[segment] = copy.deepcopy(value)
        elif all(isinstance(each, str) for each in rest):
            container[segment] = {}
            _fill(container[segment], rest, value)
        return
    if not isinstance(container, list) or not rest:
        return
    for item in container[segment : segment + 1] if isinstance(segment, int) else container:
        _fill(item, rest, value)


def check_carried_state(spec: ModelSpec, state: Mapping[str, Json]) -> None:
    """Refuse a spec that strands written state: a value without a field, or one that its field does not take.

    Derived fields are computed anew and not looked at; a field that is empty, or ``null``, strands nothing. Raises
    :class:`EvolutionError` with every finding, the first forty at most. The spec has to be a valid one.
    """
    derived = frozenset(_every_element(parse_address(item.path)) for item in spec.derivations)
    schema = spec.schema or {}
    found: list[Finding] = []
    for finding in _stranded(schema, schema, state, ROOT, derived):
        found.append(finding)
        if len(found) == MAX_FINDINGS:
            break
    if found:
        raise EvolutionError(found)


def _every_element(address: Address) -> Address:
    return Address(tuple(segment if isinstance(segment, str) else EACH for segment in address.segments))


def _stranded(
    root: Mapping[str, Json], schema: Mapping[str, Json], value: Any, at: Address, derived: frozenset[Address]
) -> Iterator[Finding]:
    if value is None or _every_element(at) in derived:
        return
    schema = resolved(root, schema)
    # A field that is read-only now keeps what it holds.
    refused = refusals({**schema, "readOnly": False}, value)
    for reason in refused:
        yield Finding(
            f"state {at}", reason, hint="let the evolved schema accept the value, or keep the field as it was"
        )
    if refused:
        return
    if isinstance(value, Mapping):
        for name, part in value.items():
            below = _property(schema, name)
            if below is None:
                yield from _lost(part, at.child(name), derived)
            else:
                yield from _stranded(root, below, part, at.child(name), derived)
    elif isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
        for index, part in enumerate(value):
            yield from _stranded(root, items, part, at.child(index), derived)


def _lost(value: Any, at: Address, derived: frozenset[Address]) -> Iterator[Finding]:
    if value is None or _every_element(at) in derived:
        return
    yield Finding(
        f"state {at}",
        f"the state holds {describe(value)} here, and the evolved schema has no such field",
        hint="keep the field in the schema, or empty it before it is removed",
    )


def _property(schema: Mapping[str, Json], name: str) -> Mapping[str, Json] | None:
    """The schema of a property: its own, or that of any other; ``None`` where the schema has no place for it."""
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    # A schema that names no properties at all takes any.
    anything = others is True or (others is None and not isinstance(properties, Mapping))
    found = properties.get(name) if isinstance(properties, Mapping) else None
    for candidate in (found, others):
        if isinstance(candidate, Mapping):
            return candidate
    return {} if anything or found is True else None
