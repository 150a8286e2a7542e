"""From JSON to records and back. What cannot be put into a record is a parse failure, with its place in the spec.

Everything else (addresses, expressions, names used twice) is left to the validator, which reports all it finds at once.
Unknown keys are ignored on the way in and therefore gone on the way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engines.structured.text import describe, quote_all
from engines.valem.depth import MAX_LEVELS, is_too_deep
from engines.valem.spec.dump import dump_item, dump_library, dump_spec
from engines.valem.spec.nodes import Node, SpecParseError
from engines.valem.spec.records import (
    DEFAULT_TIMEOUT_MS,
    DEFAULT_VERSION,
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
    MetaProperty,
    ModelSpec,
    Policy,
    TestCase,
    ViewDefinition,
)

__all__ = [
    "SpecParseError",
    "dump_item",
    "dump_library",
    "dump_spec",
    "parse_spec",
    "read_constraint",
    "read_default_value",
    "read_derivation",
    "read_effect",
    "read_library",
    "read_meta_derivation",
    "read_test",
]

REMOVED: Final = {
    "actions": 'write "effects" instead',
    "initialState": 'write a "defaultValues" entry with the path "$" instead',
}


def parse_spec(data: object) -> ModelSpec:
    """The spec that the JSON value ``data`` holds. Raises :class:`SpecParseError` at the first thing it cannot read."""
    if is_too_deep(data):
        raise SpecParseError("", f"has more than {MAX_LEVELS} levels of objects and arrays inside each other")
    node = Node(data, "")
    for key, instead in REMOVED.items():
        if node.get(key):
            node.fail(key, f"is no longer part of a spec: {instead}")
    view = node.mapping("viewDefinition")
    return ModelSpec(
        id=node.text("id") or "",
        version=node.text("version") or DEFAULT_VERSION,
        schema=node.mapping("schema"),
        constants=node.mapping("constants") or {},
        library=read_library(node.get("library"), "library") if node.get("library") is not None else None,
        default_values=node.each("defaultValues", read_default_value),
        derivations=node.each("derivations", read_derivation),
        meta_derivations=node.each("metaDerivations", read_meta_derivation),
        constraints=node.each("constraints", read_constraint),
        effects=node.each("effects", read_effect),
        tests=node.each("tests", read_test),
        view_definition=None if view is None else ViewDefinition(raw=view),
        template=node.mapping("template"),
        lineage=tuple(node.items("lineage") or ()),
    )


def read_derivation(data: object, location: str) -> Derivation:
    node = Node(data, location)
    return Derivation(
        path=node.required_text("path"),
        expr=node.required_text("expr"),
        evaluation=node.choice("evaluation", Evaluation) or Evaluation.EAGER,
        description=node.text("description"),
    )


def read_meta_derivation(data: object, location: str) -> MetaDerivation:
    node = Node(data, location)
    prop = node.choice("property", MetaProperty)
    if prop is None:
        node.fail("property", f"is missing: one of {quote_all(MetaProperty)}")
    return MetaDerivation(
        path=node.required_text("path"),
        property=prop,
        # A bound or a list of choices that needs no computing: as JSON it is an expression of the same value.
        expr=node.required_text("expr", as_json=True),
        description=node.text("description"),
    )


def read_default_value(data: object, location: str) -> DefaultValue:
    node = Node(data, location)
    return DefaultValue(
        path=node.required_text("path"), expr=node.required_text("expr"), description=node.text("description")
    )


def read_constraint(data: object, location: str) -> Constraint:
    node = Node(data, location)
    path = node.get("path")
    if isinstance(path, list):
        paths = tuple(Node({"path": item}, location).required_text("path") for item in path)
    elif path is None or isinstance(path, str):
        paths = () if path is None else (path,)
    else:
        node.fail("path", f"must be a text or a list of texts, not {describe(path)}")
    return Constraint(
        id=node.text("id"),
        expr=node.text("expr"),
        policy=node.choice("policy", Policy),
        message=node.text("message"),
        paths=paths,
        several_paths=isinstance(path, list),
    )


def read_effect(data: object, location: str) -> Effect:
    node = Node(data, location)
    requests = node.items("requests")
    response = Node(node.mapping("response") or {}, node.at("response"))
    return Effect(
        id=node.required_text("id"),
        trigger=node.required_text("trigger"),
        executor=node.text("executor") or "server",
        dedupe_key=node.text("dedupeKey"),
        status_path=node.text("statusPath"),
        policy=_effect_policy(node.mapping("policy"), node.at("policy")),
        emit=node.text("emit"),
        payload=node.texts("payload"),
        request=node.mapping("request"),
        requests=None if requests is None else tuple(requests),
        target=node.mapping("target"),
        body=node.get("body"),
        prompt=node.text("prompt"),
        response_schema=node.mapping("responseSchema"),
        response_set=response.texts("set"),
        at=node.text("at"),
        after_ms=node.text("afterMs", as_json=True),
        description=node.text("description"),
    )


def read_test(data: object, location: str) -> TestCase:
    node = Node(data, location)
    given, expect = node.mapping("given"), node.mapping("expect")
    if given is None:
        node.fail("given", "is missing: an object of addresses and values")
    if expect is None:
        node.fail("expect", "is missing: an object of addresses and values")
    return TestCase(given=given, expect=expect, description=node.text("description") or "")


def read_library(data: object, location: str) -> Library:
    """The library in ``data``: a bare text is its own layer's ``define``."""
    if isinstance(data, str):
        return Library(define=data)
    node = Node(data, location)
    return Library(
        define=node.text("define"),
        signatures=node.texts("signatures"),
        description=node.text("description"),
        extends=node.text("extends"),
        layers=node.each("layers", _library_layer),
    )


def _library_layer(data: object, location: str) -> LibraryLayer:
    if isinstance(data, str):
        return LibraryLayer(define=data)
    node = Node(data, location)
    constants = node.items("constants") or []
    return LibraryLayer(
        define=node.required_text("define"),
        signatures=node.texts("signatures"),
        description=node.text("description"),
        extends=node.text("extends"),
        constants=tuple(Node({"name": name}, node.at("constants")).required_text("name") for name in constants),
    )


def _effect_policy(data: Mapping[str, Json] | None, location: str) -> EffectPolicy | None:
    if data is None:
        return None
    node = Node(data, location)
    timeout, retries = node.number("timeoutMs"), node.number("retries")
    return EffectPolicy(
        timeout_ms=DEFAULT_TIMEOUT_MS if timeout is None else int(timeout),
        retries=0 if retries is None else int(retries),
        backoff=node.text("backoff"),
        egress_profile=node.text("egressProfile"),
        model=node.text("model"),
        temperature=node.number("temperature"),
    )
