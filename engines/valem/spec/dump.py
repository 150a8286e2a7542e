"""From records back to JSON: keys always in the same order, everything left out that reading back would fill in."""

from __future__ import annotations

from typing import assert_never

from engines.valem.spec.records import (
    Constraint,
    DefaultValue,
    Derivation,
    Effect,
    EffectPolicy,
    Evaluation,
    Json,
    Library,
    LibraryLayer,
    MetaDerivation,
    ModelSpec,
    TestCase,
)

Item = Derivation | MetaDerivation | DefaultValue | Constraint | Effect | EffectPolicy | TestCase | LibraryLayer


def dump_spec(spec: ModelSpec) -> dict[str, Json]:
    """The JSON form: ``id``, ``version`` and ``schema`` always, other parts when they hold anything.

    ``parse_spec(dump_spec(spec)) == spec``. The values are those of the records, not copies.
    """
    parts = {
        "constants": spec.constants or None,
        "library": dump_library(spec.library),
        "defaultValues": [dump_item(item) for item in spec.default_values] or None,
        "derivations": [dump_item(item) for item in spec.derivations] or None,
        "metaDerivations": [dump_item(item) for item in spec.meta_derivations] or None,
        "constraints": [dump_item(item) for item in spec.constraints] or None,
        "effects": [dump_item(item) for item in spec.effects] or None,
        "tests": [dump_item(item) for item in spec.tests] or None,
        "viewDefinition": spec.view_definition.raw if spec.view_definition else None,
        "template": spec.template,
        "lineage": list(spec.lineage) or None,
    }
    return {"id": spec.id, "version": spec.version, "schema": spec.schema, **_present(parts)}


def dump_library(library: Library | None) -> dict[str, Json] | None:
    """The JSON form of a library, always as an object."""
    if library is None:
        return None
    return _present(
        {
            "define": library.define,
            "signatures": library.signatures or None,
            "description": library.description,
            "extends": library.extends,
            "layers": [dump_item(layer) for layer in library.layers] or None,
        }
    )


def dump_item(item: Item) -> dict[str, Json]:
    """The JSON form of one part of a spec."""
    found: dict[str, Json]
    match item:
        case Derivation():
            lazy = None if item.evaluation is Evaluation.EAGER else item.evaluation.value
            found = {"path": item.path, "expr": item.expr, "evaluation": lazy, "description": item.description}
        case MetaDerivation():
            found = {"path": item.path, "property": item.property.value, "expr": item.expr}
            found["description"] = item.description
        case DefaultValue():
            found = {"path": item.path, "expr": item.expr, "description": item.description}
        case Constraint():
            found = _constraint(item)
        case Effect():
            found = _effect(item)
        case EffectPolicy():
            found = _effect_policy(item)
        case TestCase():
            found = {"description": item.description or None, "given": item.given, "expect": item.expect}
        case LibraryLayer():
            found = _layer(item)
        case _:
            assert_never(item)
    return _present(found)


def _constraint(item: Constraint) -> dict[str, Json]:
    return {
        "id": item.id,
        "path": list(item.paths) if item.several_paths else next(iter(item.paths), None),
        "expr": item.expr,
        "message": item.message,
        "policy": item.policy.value if item.policy else None,
    }


def _effect(item: Effect) -> dict[str, Json]:
    return {
        "id": item.id,
        "executor": item.executor,
        "trigger": item.trigger,
        "dedupeKey": item.dedupe_key,
        "statusPath": item.status_path,
        "policy": dump_item(item.policy) if item.policy else None,
        "emit": item.emit,
        "payload": item.payload or None,
        "request": item.request,
        "requests": None if item.requests is None else list(item.requests),
        "target": item.target,
        "body": item.body,
        "prompt": item.prompt,
        "responseSchema": item.response_schema,
        "response": {"set": item.response_set} if item.response_set else None,
        "at": item.at,
        "afterMs": item.after_ms,
        "description": item.description,
    }


def _effect_policy(item: EffectPolicy) -> dict[str, Json]:
    return {
        "timeoutMs": item.timeout_ms,
        "retries": item.retries,
        "backoff": item.backoff,
        "egressProfile": item.egress_profile,
        "model": item.model,
        "temperature": item.temperature,
    }


def _layer(item: LibraryLayer) -> dict[str, Json]:
    return {
        "define": item.define,
        "signatures": item.signatures or None,
        "description": item.description,
        "extends": item.extends,
        "constants": list(item.constants) or None,
    }


def _present(found: dict[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in found.items() if value is not None}
