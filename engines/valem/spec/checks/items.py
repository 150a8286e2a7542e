"""Derivations, defaults, meta derivations, constraints, constants, lineage: one check for each kind of item."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engines.structured.text import quote
from engines.valem.jsonata.expression import Expression
from engines.valem.spec.addresses import BadAddress, meta_key, parse_address
from engines.valem.spec.checks.report import Report, check_address, check_expression, check_unique
from engines.valem.spec.identity import is_coordinate, is_id, is_version
from engines.valem.spec.records import ModelSpec

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

Expressions = dict[str, Expression]
"""Location -> compiled expression, of those that compile."""


def check_identity(report: Report, spec: ModelSpec) -> None:
    if not spec.id.strip():
        report.error("id", "is blank: it must be a name such as loan or acme.finance/loan")
    elif not is_id(spec.id):
        report.error(
            "id",
            f"{quote(spec.id)} is no id: [namespace/]name, each part a letter and then letters, digits, _ or -",
            "write it in kebab-case, such as monthly-loan; the version goes into version",
        )
    if not is_version(spec.version):
        report.error("version", f"{quote(spec.version)} is no version: three numbers without leading zeros, as 1.0.0")


def check_derivations(report: Report, spec: ModelSpec, found: Expressions) -> None:
    seen: dict[str, str] = {}
    for index, item in enumerate(spec.derivations):
        at = f"derivations[{index}]"
        if check_address(report, f"{at}.path", item.path) and item.path == "$":
            report.error(f"{at}.path", "the whole document cannot be derived: name one of its fields")
        check_unique(report, f"{at}.path", item.path, seen, "the derivation of")
        _compile(report, f"{at}.expr", item.expr, found)


def check_defaults(report: Report, spec: ModelSpec, found: Expressions) -> None:
    seen: dict[str, str] = {}
    for index, item in enumerate(spec.default_values):
        at = f"defaultValues[{index}]"
        check_address(report, f"{at}.path", item.path)
        check_unique(report, f"{at}.path", item.path, seen, "the default value of")
        _compile(report, f"{at}.expr", item.expr, found)


def check_metas(report: Report, spec: ModelSpec, found: Expressions) -> None:
    seen: dict[str, str] = {}
    for index, item in enumerate(spec.meta_derivations):
        at = f"metaDerivations[{index}]"
        check_address(report, f"{at}.path", item.path)
        check_unique(report, at, meta_key(item.path, item.property.value), seen, "the meta derivation")
        _compile(report, f"{at}.expr", item.expr, found)


def check_constraints(report: Report, spec: ModelSpec, found: Expressions) -> None:
    seen: dict[str, str] = {}
    for index, item in enumerate(spec.constraints):
        at = f"constraints[{index}]"
        if not (item.id or "").strip():
            report.error(f"{at}.id", "is missing: every constraint has an id of its own")
        else:
            check_unique(report, f"{at}.id", item.id or "", seen, "the constraint")
        if item.expr is None:
            report.error(f"{at}.expr", "is missing: an expression that is true when all is well")
        else:
            _compile(report, f"{at}.expr", item.expr, found)
        if item.policy is None:
            report.error(f"{at}.policy", 'is missing: "rollback" (undo the write) or "flag" (let it stand)')
        if not (item.message or "").strip():
            report.warn(f"{at}.message", "is empty: nobody will know what the constraint wants")
        for path in item.paths:
            # Only a warning: the constraint is still checked, but it may look at nothing.
            try:
                parse_address(path)
            except BadAddress as error:
                report.warn(f"{at}.path", error.message)


def check_constants(report: Report, constants: Mapping[str, Any]) -> None:
    for name in constants:
        if not name.strip():
            report.error("constants", "a constant has a blank name")
        elif not _IDENTIFIER.match(name):
            report.warn(
                f"constants.{name}", f"{quote(name)} cannot be written as $const.{name}", "use letters and digits"
            )


def check_lineage(report: Report, spec: ModelSpec) -> None:
    if spec.template is not None:
        _check_coordinate(report, "template.ref", spec.template.get("ref"))
    seen: dict[str, str] = {}
    for index, ancestor in enumerate(spec.lineage):
        at = f"lineage[{index}].ref"
        ref = ancestor.get("ref") if isinstance(ancestor, Mapping) else ancestor
        if _check_coordinate(report, at, ref):
            check_unique(report, at, str(ref), seen, "the ancestor")


def _check_coordinate(report: Report, location: str, ref: object) -> bool:
    if ref is None or (isinstance(ref, str) and not ref.strip()):
        report.error(location, "is missing: id@version of the spec this one comes from")
        return False
    if not isinstance(ref, str) or not is_coordinate(ref):
        report.error(location, f"{quote(str(ref))} is no reference: id@version, as acme.eu/quote@1.2.0")
        return False
    return True


def _compile(report: Report, location: str, text: str, found: Expressions) -> None:
    expression = check_expression(report, location, text)
    if expression is not None:
        found[location] = expression
