"""An evolution applied to a spec, tier by tier, and the result checked as a whole. Pure: nothing of the base changes.

Order: schema, view, version, derivations, meta derivations, constraints, defaults, effects, constants, tests, library;
then the guard on dropped functions and the validation, both on the evolved spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from engines.structured.text import quote_all
from engines.valem.evolution.errors import EvolutionError, VersionConflict, misfit
from engines.valem.evolution.records import SpecEvolution
from engines.valem.evolution.schema import evolved_schema
from engines.valem.evolution.usage import exports, places_of_constant, places_of_function
from engines.valem.evolution.view import evolved_view
from engines.valem.findings import Finding
from engines.valem.spec.addresses import meta_key
from engines.valem.spec.records import Json, Library, ModelSpec

T = TypeVar("T")
Validate = Callable[[ModelSpec], Sequence[Finding]]
"""Everything there is to say about a spec."""

MAX_PLACES = 8


def apply_evolution(spec: ModelSpec, evolution: SpecEvolution, validate: Validate) -> ModelSpec:
    """The evolved spec; ``id``, ``template`` and ``lineage`` are the base's.

    Raises :class:`EvolutionError`: with one finding when a change does not fit the spec, with every error when the
    evolved spec is not valid.
    """
    schema = evolved_schema(spec.schema, evolution)
    view = evolved_view(spec.view_definition, evolution)
    evolved = replace(
        spec,
        schema=schema,
        view_definition=view,
        version=spec.version if evolution.new_version is None else evolution.new_version,
        derivations=_evolved_list(
            spec.derivations, evolution.remove_derivations, evolution.upsert_derivations, lambda item: item.path
        ),
        meta_derivations=_evolved_list(
            spec.meta_derivations,
            [_meta_name(name) for name in evolution.remove_meta_derivations],
            evolution.upsert_meta_derivations,
            lambda item: meta_key(item.path, item.property),
        ),
        constraints=_evolved_list(
            spec.constraints, evolution.remove_constraints, evolution.upsert_constraints, lambda item: item.id
        ),
        default_values=_evolved_list(
            spec.default_values,
            evolution.remove_default_values,
            evolution.upsert_default_values,
            lambda item: item.path,
        ),
        effects=_evolved_list(spec.effects, evolution.remove_effects, evolution.upsert_effects, lambda item: item.id),
        constants=_evolved_constants(spec, evolution),
        tests=spec.tests if evolution.new_tests is None else evolution.new_tests,
        library=_evolved_library(spec.library, evolution),
    )
    _refuse_dropped_functions(spec.library, evolved)
    errors = [finding for finding in validate(evolved) if finding.is_error]
    if errors:
        raise EvolutionError(errors, misfit=False)
    return evolved


def check_expected_version(evolution: SpecEvolution, spec_version: str, stored_version: int | None = None) -> None:
    """Raises :class:`VersionConflict` when the evolution was made for another version than the current one.

    spec_version: the spec's own ``version``. stored_version: the number of the stored row, ``None`` without one.
    """
    expected = evolution.expected_version
    if expected is None:
        return
    actual = stored_version if isinstance(expected, int) and stored_version is not None else spec_version
    if expected != actual:
        raise VersionConflict(expected, actual)


def _evolved_list(
    items: Sequence[T], removed: Iterable[str], upserts: Sequence[T], key: Callable[[T], str | None]
) -> tuple[T, ...]:
    """``items`` without the removed ones; an upsert takes the place of the item with its key, the others follow.

    A key that is removed and upserted moves to the end. Of two upserts of a key the last one counts.
    """
    new: dict[str, T] = {}
    nameless: list[T] = []
    for item in upserts:
        name = key(item)
        if name is None:
            # Left for the validator, which asks for the id.
            nameless.append(item)
        else:
            new[name] = item
    gone = frozenset(removed)
    kept = [item for item in items if key(item) not in gone]
    names = {key(item) for item in kept}
    in_place = [new.get(key(item) or "", item) for item in kept]
    return (*in_place, *(item for name, item in new.items() if name not in names), *nameless)


def _meta_name(name: str) -> str:
    """``$.a#readOnly`` is accepted for ``$.a#read_only``."""
    path, _, prop = name.rpartition("#")
    return meta_key(path, prop)


def _evolved_constants(spec: ModelSpec, evolution: SpecEvolution) -> Mapping[str, Json]:
    used = [
        key
        for key, change in (
            ("removeConstants", evolution.remove_constants),
            ("upsertConstants", evolution.upsert_constants),
        )
        if change
    ]
    if evolution.new_constants is not None:
        if used:
            raise misfit(
                "newConstants",
                f"replaces all constants and cannot be combined with {quote_all(used)}",
                f"leave out newConstants and keep {quote_all(used)}, or put everything into newConstants",
            )
        return evolution.new_constants
    for at, name in enumerate(evolution.remove_constants):
        places = [] if name in evolution.upsert_constants else places_of_constant(spec, name)
        if places:
            raise misfit(
                f"removeConstants[{at}]",
                f"$const.{name} is still referenced at {_listed(places)} of the current spec",
                "leave it out of removeConstants: it can go in a later evolution, once nothing refers to it",
            )
    new = {name: value for name, value in spec.constants.items() if name not in evolution.remove_constants}
    return {**new, **evolution.upsert_constants}


def _evolved_library(library: Library | None, evolution: SpecEvolution) -> Library | None:
    layers = library.layers if library is not None else ()
    if evolution.drops_library:
        return Library(layers=layers) if layers else None
    new = evolution.new_library
    if new is None:
        return library
    if new.layers and new.layers != layers:
        raise misfit(
            "newLibrary.layers",
            "an evolution changes the spec's own layer only, not those it inherits",
            'leave "layers" out',
        )
    return replace(new, layers=layers)


def _refuse_dropped_functions(base: Library | None, evolved: ModelSpec) -> None:
    dropped = _exported(base) - _exported(evolved.library)
    for name in sorted(dropped):
        places = places_of_function(evolved, name)
        if places:
            raise misfit(
                "newLibrary",
                f"the function ${name} is dropped and still called at {_listed(places)}",
                f"rewrite what calls ${name} in the same evolution, or keep it in newLibrary's list of names",
            )


def _exported(library: Library | None) -> frozenset[str]:
    layers = library.all_layers() if library is not None else ()
    return frozenset(name for layer in layers for name in exports(layer.define))


def _listed(places: Sequence[str]) -> str:
    more = len(places) - MAX_PLACES
    return ", ".join(places[:MAX_PLACES]) + (f" and {more} more places" if more > 0 else "")
