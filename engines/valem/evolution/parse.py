"""From JSON to an evolution. What cannot be put into a record is a parse failure, with its place in the evolution."""

from __future__ import annotations

from collections.abc import Mapping

from engines.structured.text import describe
from engines.valem.evolution.records import ComponentAt, ComponentChange, SchemaNode, SpecEvolution
from engines.valem.spec.nodes import Node, SpecParseError
from engines.valem.spec.parse import (
    REMOVED,
    read_constraint,
    read_default_value,
    read_derivation,
    read_effect,
    read_library,
    read_meta_derivation,
    read_test,
)
from engines.valem.spec.records import Json


def parse_evolution(data: object) -> SpecEvolution:
    """The evolution that the JSON value ``data`` holds; unknown keys are ignored, ``null`` means absent.

    Only ``newLibrary`` tells ``null`` from absent. Raises :class:`SpecParseError` at the first thing it cannot read.
    """
    node = Node(data, "")
    for key, instead in (("upsertActions", "upsertEffects"), ("removeActions", "removeEffects"), *REMOVED.items()):
        if node.get(key):
            node.fail(key, f"is no part of an evolution: {instead if ' ' in instead else f'write {instead} instead'}")
    library = node.get("newLibrary")
    return SpecEvolution(
        new_version=node.text("newVersion"),
        expected_version=_version(node),
        remove_derivations=_names(node, "removeDerivations"),
        upsert_derivations=node.each("upsertDerivations", read_derivation),
        remove_constraints=_names(node, "removeConstraints"),
        upsert_constraints=node.each("upsertConstraints", read_constraint),
        remove_meta_derivations=_names(node, "removeMetaDerivations"),
        upsert_meta_derivations=node.each("upsertMetaDerivations", read_meta_derivation),
        remove_default_values=_names(node, "removeDefaultValues"),
        upsert_default_values=node.each("upsertDefaultValues", read_default_value),
        remove_effects=_names(node, "removeEffects"),
        upsert_effects=node.each("upsertEffects", read_effect),
        new_schema=node.mapping("newSchema"),
        upsert_schema_defs=node.mapping("upsertSchemaDefs") or {},
        remove_schema_nodes=_names(node, "removeSchemaNodes"),
        upsert_schema_nodes=node.each("upsertSchemaNodes", _schema_node),
        remove_schema_defs=_names(node, "removeSchemaDefs"),
        new_view_definition=node.mapping("newViewDefinition"),
        remove_views=_names(node, "removeViews"),
        upsert_views=node.each("upsertViews", _object),
        remove_components=node.each("removeComponents", _component_at),
        upsert_components=node.each("upsertComponents", _component_change),
        new_default_view=node.text("newDefaultView"),
        new_constants=node.mapping("newConstants"),
        remove_constants=_names(node, "removeConstants"),
        upsert_constants=node.mapping("upsertConstants") or {},
        new_library=None if library is None else read_library(library, "newLibrary"),
        drops_library=library is None and isinstance(data, Mapping) and "newLibrary" in data,
        new_tests=None if node.items("newTests") is None else node.each("newTests", read_test),
        backfill=node.mapping("backfill") or {},
    )


def _version(node: Node) -> str | int | None:
    found = node.get("expectedVersion")
    if found is not None and (isinstance(found, bool) or not isinstance(found, str | int)):
        node.fail("expectedVersion", f"must be a version such as 1.2.0, or a stored number, not {describe(found)}")
    return found


def _names(node: Node, key: str) -> tuple[str, ...]:
    return node.each(key, _name)


def _name(data: object, location: str) -> str:
    if not isinstance(data, str):
        raise SpecParseError(location, f"must be a text, not {describe(data)}")
    return data


def _object(data: object, location: str) -> Mapping[str, Json]:
    if not isinstance(data, Mapping):
        raise SpecParseError(location, f"must be an object, not {describe(data)}")
    return data


def _schema_node(data: object, location: str) -> SchemaNode:
    node = Node(data, location)
    required = node.get("required")
    if required is not None and not isinstance(required, bool):
        node.fail("required", f"must be true or false, not {describe(required)}")
    return SchemaNode(path=node.required_text("path"), schema=node.get("schema"), required=required)


def _component_at(data: object, location: str) -> ComponentAt:
    node = Node(data, location)
    return ComponentAt(view_id=node.required_text("viewId"), component_id=node.required_text("componentId"))


def _component_change(data: object, location: str) -> ComponentChange:
    node = Node(data, location)
    component = node.mapping("component")
    if component is None:
        node.fail("component", "is missing")
    return ComponentChange(
        view_id=node.required_text("viewId"),
        component=component,
        parent_id=node.text("parentId"),
        before_id=node.text("beforeId"),
    )
