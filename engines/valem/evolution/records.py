"""An evolution in memory: the changes to one spec, all of them optional, tier by tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.valem.spec.records import (
    Constraint,
    DefaultValue,
    Derivation,
    Effect,
    Json,
    Library,
    MetaDerivation,
    TestCase,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaNode:
    """A field's schema to put at a data address. required: whether its parent lists it then; ``None``: as before."""

    path: str
    schema: Json
    required: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentAt:
    """A component of a view, by its id."""

    view_id: str
    component_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentChange:
    """A component to put into a view. With neither parent nor anchor, one that is there keeps its place.

    parent_id: the container it goes into. before_id: the component it is put in front of.
    """

    view_id: str
    component: Mapping[str, Json]
    parent_id: str | None = None
    before_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecEvolution:
    """``None`` and empty mean no change.

    expected_version: a text is a spec's ``version``, a number that of the stored row; not looked at when applied.
    new_library: the spec's own layer. drops_library: ``newLibrary`` was an explicit ``null``.
    new_tests: empty clears them.
    backfill: address -> value for state that is not there yet; not looked at when applied.
    """

    new_version: str | None = None
    expected_version: str | int | None = None
    remove_derivations: tuple[str, ...] = ()
    upsert_derivations: tuple[Derivation, ...] = ()
    remove_constraints: tuple[str, ...] = ()
    upsert_constraints: tuple[Constraint, ...] = ()
    remove_meta_derivations: tuple[str, ...] = ()
    upsert_meta_derivations: tuple[MetaDerivation, ...] = ()
    remove_default_values: tuple[str, ...] = ()
    upsert_default_values: tuple[DefaultValue, ...] = ()
    remove_effects: tuple[str, ...] = ()
    upsert_effects: tuple[Effect, ...] = ()
    new_schema: Mapping[str, Json] | None = None
    upsert_schema_defs: Mapping[str, Json] = field(default_factory=dict)
    remove_schema_nodes: tuple[str, ...] = ()
    upsert_schema_nodes: tuple[SchemaNode, ...] = ()
    remove_schema_defs: tuple[str, ...] = ()
    new_view_definition: Mapping[str, Json] | None = None
    remove_views: tuple[str, ...] = ()
    upsert_views: tuple[Mapping[str, Json], ...] = ()
    remove_components: tuple[ComponentAt, ...] = ()
    upsert_components: tuple[ComponentChange, ...] = ()
    new_default_view: str | None = None
    new_constants: Mapping[str, Json] | None = None
    remove_constants: tuple[str, ...] = ()
    upsert_constants: Mapping[str, Json] = field(default_factory=dict)
    new_library: Library | None = None
    drops_library: bool = False
    new_tests: tuple[TestCase, ...] | None = None
    backfill: Mapping[str, Json] = field(default_factory=dict)
