"""The validator: everything that is wrong with a spec, at once, each finding with its place and what would be right.

Sections are checked in a fixed order. Whether the derivations form a cycle is asked only of a spec that has no error so
far. Embedded tests are not run here (``engines.valem.testing``): what fails there is no error of the spec.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engines.valem.findings import Finding
from engines.valem.jsonata.evaluation import Evaluator, evaluate_here
from engines.valem.spec.checks.effects import check_effects
from engines.valem.spec.checks.items import (
    Expressions,
    check_constants,
    check_constraints,
    check_defaults,
    check_derivations,
    check_identity,
    check_lineage,
    check_metas,
)
from engines.valem.spec.checks.library import check_library
from engines.valem.spec.checks.names import check_names
from engines.valem.spec.checks.places import Places
from engines.valem.spec.checks.report import Report
from engines.valem.spec.checks.schema import check_schema
from engines.valem.spec.checks.views import check_view, lint_view
from engines.valem.spec.graph import Cycle, dependencies, evaluation_order
from engines.valem.spec.records import ModelSpec
from engines.valem.view_catalogue import view_catalogue


def validate_spec(
    spec: ModelSpec,
    *,
    executors: Collection[str] = (),
    types: Sequence[str] | None = None,
    evaluator: Evaluator = evaluate_here,
) -> list[Finding]:
    """Errors and warnings of ``spec``, in the order of its sections; never raises for what is in it.

    executors: those the installation has beyond the standard ones.
    types: the component types of views, the catalogue's by default.
    evaluator: runs the library's definitions, to learn what they export.
    """
    report = Report()
    check_identity(report, spec)
    check_schema(report, spec.schema)
    check_view(report, spec.view_definition, tuple(view_catalogue().types) if types is None else types)
    found: Expressions = {}
    check_derivations(report, spec, found)
    check_defaults(report, spec, found)
    check_metas(report, spec, found)
    check_constraints(report, spec, found)
    check_effects(report, spec, found, executors)
    check_constants(report, spec.constants)
    library = check_library(report, spec, evaluator)
    if library is not None:
        for location, expression in found.items():
            check_names(report, location, expression, library.exports)
    check_lineage(report, spec)
    if library is not None and not report.has_errors:
        order = evaluation_order(dependencies(spec, library.preludes))
        if isinstance(order, Cycle):
            report.error("derivations", f"wait for each other: {order}", "break the circle: one must read inputs only")
    if not report.has_errors:
        lint_view(report, spec, Places(spec))
    return report.findings()


def lint_findings(spec: ModelSpec) -> list[Finding]:
    """What the lint of the view alone says: the soft issues that a generation asks the model to mend."""
    report = Report()
    lint_view(report, spec, Places(spec))
    return report.findings()
