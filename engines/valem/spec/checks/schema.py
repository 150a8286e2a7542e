"""The schema of a spec: references, patterns, and sections of the spec that were put into it by mistake."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from engines.structured.patterns import BadPattern, compile_pattern
from engines.structured.text import quote, quote_all
from engines.valem.spec.checks.report import Report

SECTIONS: Final = (
    "derivations",
    "metaDerivations",
    "defaultValues",
    "constraints",
    "effects",
    "tests",
    "viewDefinition",
    "library",
    "constants",
)
_LOCAL_REF: Final = re.compile(r"#/\$defs/([^/]+)\Z")
_ANNOTATIONS: Final = frozenset({"title", "description", "$comment"})
_ONE: Final = ("additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems")
_MANY: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def check_schema(report: Report, schema: Mapping[str, Any] | None) -> None:
    """Everything a schema can have wrong that would otherwise show only when a value is written."""
    if schema is None:
        report.error("schema", "is missing: it must be a JSON Schema object that says which fields the model has")
        return
    defined = schema.get("$defs")
    names = tuple(defined) if isinstance(defined, Mapping) else ()
    used: set[str] = set()
    for location, node in walk(schema, "schema"):
        for section in SECTIONS:
            if section in node and isinstance(node[section], list | dict):
                report.error(
                    f"{location}.{section}",
                    f"{section} is a section of the spec and not a keyword of its schema",
                    "move it to the top level of the spec, beside schema; a field of that name goes under properties",
                )
        _check_reference(report, location, node, names, used)
        pattern = node.get("pattern")
        if isinstance(pattern, str):
            try:
                compile_pattern(pattern)
            except BadPattern as error:
                report.error(f"{location}.pattern", f"the pattern {quote(pattern)} {error}")
    for name in names:
        if name not in used:
            report.warn(f"schema.$defs.{name}", f"the definition {quote(name)} is used nowhere")


def walk(node: object, location: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema object in ``node`` with its place, itself first. Values that are no schemas are passed over."""
    if not isinstance(node, Mapping):
        return
    yield location, node
    for key in _NAMED:
        below = node.get(key)
        if isinstance(below, Mapping):
            for name, item in below.items():
                yield from walk(item, f"{location}.{key}.{name}")
    for key in (*_ONE, "items"):
        yield from walk(node.get(key), f"{location}.{key}")
    for key in (*_MANY, "items"):
        below = node.get(key)
        if isinstance(below, list):
            for index, item in enumerate(below):
                yield from walk(item, f"{location}.{key}[{index}]")


def _check_reference(
    report: Report, location: str, node: Mapping[str, Any], names: tuple[str, ...], used: set[str]
) -> None:
    if "$ref" not in node:
        return
    at, ref = f"{location}.$ref", node["$ref"]
    match = _LOCAL_REF.match(ref) if isinstance(ref, str) else None
    if match is None:
        report.error(at, f"{quote(str(ref))} is not a local reference: only #/$defs/Name can be referred to")
        return
    # As a JSON pointer writes it.
    name = match[1].replace("~1", "/").replace("~0", "~")
    used.add(name)
    if name not in names:
        there = f"there are {quote_all(names)}" if names else "schema.$defs is empty"
        report.error(at, f"there is no definition {quote(name)}: {there}")
    beside = [key for key in node if key != "$ref" and key not in _ANNOTATIONS]
    if beside:
        report.warn(
            at, f"{quote_all(beside)} beside $ref may be ignored", "put it into the definition, or repeat the node"
        )
