"""Who in a spec uses a constant or a function of the library: by reading texts, since an expression may do no more than
mention it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from engines.valem.jsonata.tokens import Kind, Unreadable, tokenise
from engines.valem.repair.expression import bound_variables
from engines.valem.spec.dump import dump_item
from engines.valem.spec.records import DefaultValue, Derivation, Json, MetaDerivation, ModelSpec

Place = str
_VARIABLE: Final = re.compile(r"\$\w+")


def texts(spec: ModelSpec) -> Iterator[tuple[Place, str]]:
    """Every text of ``spec`` that is an expression or may hold one, with its place (``derivations[0] ($.b)``)."""
    lists: dict[str, Sequence[Derivation | MetaDerivation | DefaultValue]] = {
        "derivations": spec.derivations,
        "metaDerivations": spec.meta_derivations,
        "defaultValues": spec.default_values,
    }
    for name, items in lists.items():
        for at, item in enumerate(items):
            yield f"{name}[{at}] ({item.path})", item.expr
    for at, constraint in enumerate(spec.constraints):
        yield f"constraints[{at}] ({constraint.id})", constraint.expr or ""
    for at, effect in enumerate(spec.effects):
        for text in _strings(dump_item(effect)):
            yield f"effects[{at}] ({effect.id})", text
    if spec.view_definition is not None:
        for view in spec.view_definition.views:
            for text in _strings(view):
                yield f"viewDefinition ({view.get('id')})", text
    for at, layer in enumerate(spec.library.all_layers() if spec.library else ()):
        yield f"library, layer {at + 1}", layer.define


def places_of_constant(spec: ModelSpec, name: str) -> list[Place]:
    """Where ``$const.name`` is written. Access by a computed name is not seen."""
    wanted = re.compile(rf"\$const\s*\.\s*(?:{re.escape(name)}(?![\w])|`{re.escape(name)}`)")
    return _without_repeats(place for place, text in texts(spec) if wanted.search(text))


def places_of_function(spec: ModelSpec, name: str) -> list[Place]:
    """Where ``$name`` is called or handed on, and not bound by the very expression."""
    variable = f"${name}"
    return _without_repeats(
        place
        for place, text in texts(spec)
        if variable in text and variable in _variables(text) and variable not in bound_variables(text)
    )


def exports(define: str) -> frozenset[str]:
    """The names that a layer's definition lists at its end for others to call; those it binds when it lists none."""
    try:
        tokens = tokenise(define)
    except Unreadable:
        return frozenset()
    last = max((at for at, token in enumerate(tokens) if token.text == ";"), default=-1)
    listed = {token.text[1:-1] for token in tokens[last + 1 :] if token.kind is Kind.STRING}
    return frozenset(listed) or frozenset(name[1:] for name in bound_variables(define))


def _variables(text: str) -> set[str]:
    try:
        return {token.text for token in tokenise(text) if token.kind is Kind.VARIABLE}
    except Unreadable:
        return set(_VARIABLE.findall(text))


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _strings(part)


def _without_repeats(places: Iterator[Place]) -> list[Place]:
    return list(dict.fromkeys(places))
