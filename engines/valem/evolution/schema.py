"""Changes to parts of a schema: definitions by name, fields by their address in the data."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from engines.structured.text import child, describe, quote, quote_all
from engines.valem.evolution.errors import misfit
from engines.valem.evolution.records import SchemaNode, SpecEvolution
from engines.valem.spec.addresses import EACH, Address, BadAddress, Segment, parse_address
from engines.valem.spec.records import Json

_DEFS: Final = "$defs"


def evolved_schema(schema: Mapping[str, Json] | None, evolution: SpecEvolution) -> Mapping[str, Json] | None:
    """``schema`` after the evolution's changes; itself when there are none. Raises :class:`EvolutionError`."""
    changes = {
        "upsertSchemaDefs": evolution.upsert_schema_defs,
        "removeSchemaNodes": evolution.remove_schema_nodes,
        "upsertSchemaNodes": evolution.upsert_schema_nodes,
        "removeSchemaDefs": evolution.remove_schema_defs,
    }
    used = [key for key, change in changes.items() if change]
    if evolution.new_schema is not None:
        if used:
            raise misfit(
                "newSchema",
                f"replaces the whole schema and cannot be combined with {quote_all(used)}",
                f"leave out newSchema and keep {quote_all(used)}, or put everything into newSchema",
            )
        return evolution.new_schema
    if not used:
        return schema
    new = copy.deepcopy(dict(schema or {}))
    _upsert_definitions(new, evolution.upsert_schema_defs)
    for at, path in enumerate(evolution.remove_schema_nodes):
        _remove_node(new, path, f"removeSchemaNodes[{at}]")
    for at, node in enumerate(evolution.upsert_schema_nodes):
        _upsert_node(new, node, f"upsertSchemaNodes[{at}]")
    _remove_definitions(new, evolution.remove_schema_defs)
    return new


def references(schema: Json, name: str, place: str = "$") -> Iterator[str]:
    """Where in ``schema`` the definition ``name`` is referred to, as dotted places. A field may be called ``$ref``."""
    target = child(f"#/{_DEFS}", name)
    stack: list[tuple[str, Json, bool]] = [(place, schema, False)]
    while stack:
        at, node, names_fields = stack.pop()
        if isinstance(node, Mapping):
            ref = None if names_fields else node.get("$ref")
            if isinstance(ref, str) and (ref == target or ref.startswith(f"{target}/")):
                yield at
            stack.extend(
                (f"{at}.{key}", part, not names_fields and key in ("properties", _DEFS)) for key, part in node.items()
            )
        elif isinstance(node, list):
            stack.extend((f"{at}[{index}]", part, False) for index, part in enumerate(node))


def _upsert_definitions(schema: dict[str, Any], definitions: Mapping[str, Json]) -> None:
    if not definitions:
        return
    known = _part(schema, _DEFS, "upsertSchemaDefs")
    for name, definition in definitions.items():
        if not isinstance(definition, Mapping):
            raise misfit(
                f"upsertSchemaDefs.{name}",
                f"must be a schema (an object), not {describe(definition)}",
                "to drop a definition, name it in removeSchemaDefs",
            )
        known[name] = copy.deepcopy(definition)


def _remove_definitions(schema: dict[str, Any], names: tuple[str, ...]) -> None:
    known = schema.get(_DEFS)
    for name in names:
        if isinstance(known, dict):
            known.pop(name, None)
    for at, name in enumerate(names):
        places = sorted(references(schema, name))
        if places:
            raise misfit(
                f"removeSchemaDefs[{at}]",
                f"the definition {quote(name)} is still referenced at {', '.join(places[:8])}",
                "in the same evolution, replace what refers to it (upsertSchemaNodes, upsertSchemaDefs), or keep it",
            )


def _remove_node(schema: dict[str, Any], path: str, location: str) -> None:
    address = _address(path, location)
    parent: Any = schema
    for segment in address.segments[:-1]:
        _refuse_reference(parent, address, location)
        parent = _below(parent, segment)
    _refuse_reference(parent, address, location)
    last = address.segments[-1]
    if _below(parent, last) is None:
        raise misfit(location, f"the schema has no field {path}", "leave the entry out, or correct its path")
    if isinstance(last, str):
        del parent["properties"][last]
        _require(parent, last, False)
    else:
        del parent["items"]


def _upsert_node(schema: dict[str, Any], node: SchemaNode, location: str) -> None:
    address = _address(node.path, location)
    if not isinstance(node.schema, Mapping):
        raise misfit(
            f"{location}.schema",
            f"must be a schema (an object), not {describe(node.schema)}",
            'write the whole schema of the field, such as {"type": "number"}; to drop a field, use removeSchemaNodes',
        )
    parent: dict[str, Any] = schema
    for segment in address.segments[:-1]:
        _refuse_reference(parent, address, location)
        if isinstance(segment, str):
            parent = _part(_part(parent, "properties", location), segment, location)
        else:
            parent = _part(parent, "items", location)
    _refuse_reference(parent, address, location)
    last = address.segments[-1]
    if isinstance(last, str):
        _part(parent, "properties", location)[last] = copy.deepcopy(node.schema)
        if node.required is not None:
            _require(parent, last, node.required)
    elif node.required is not None:
        raise misfit(f"{location}.required", "is for a property; the elements of an array are not", "leave it out")
    else:
        parent["items"] = copy.deepcopy(node.schema)


def _address(path: str, location: str) -> Address:
    try:
        address = parse_address(path)
    except BadAddress as error:
        hint = f"write {error.suggestion}" if error.suggestion else "write an address such as $.order.items[*].price"
        raise misfit(location, f"{quote(path)} is not a canonical address", hint) from None
    if not address.segments:
        raise misfit(location, "the root $ is the whole schema", "use newSchema to replace it")
    if any(isinstance(segment, int) for segment in address.segments):
        every = Address(tuple(EACH if isinstance(segment, int) else segment for segment in address.segments))
        raise misfit(
            location, f"{path} names one element, and all elements of an array share a schema", f"write {every}"
        )
    return address


def _refuse_reference(node: Any, address: Address, location: str) -> None:
    if isinstance(node, dict) and isinstance(node.get("$ref"), str):
        raise misfit(
            location,
            f"the path {address} goes through a reference ({node['$ref']}): the change would reach every use of it",
            "change the definition with upsertSchemaDefs, or first replace the referring field by a schema of its own",
        )


def _below(node: Any, segment: Segment) -> Any:
    """The schema of a field or of the elements; ``None`` when there is none."""
    if not isinstance(node, dict):
        return None
    if not isinstance(segment, str):
        return node.get("items")
    properties = node.get("properties")
    return properties.get(segment) if isinstance(properties, dict) else None


def _part(node: dict[str, Any], key: str, location: str) -> dict[str, Any]:
    """The object at ``key``, made when it is not there."""
    found = node.setdefault(key, {})
    if not isinstance(found, dict):
        raise misfit(
            location, f"{quote(key)} on the way is {describe(found)}, not an object", "replace that part first"
        )
    return found


def _require(parent: dict[str, Any], name: str, required: bool) -> None:
    listed = parent.get("required")
    names = list(listed) if isinstance(listed, list) else []
    if required and name not in names:
        parent["required"] = [*names, name]
    elif not required and name in names:
        parent["required"] = [known for known in names if known != name]
