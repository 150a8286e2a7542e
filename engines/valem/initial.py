"""The gate before a new model: whether the state that its own seeds make is one that its constraints allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engines.valem.compiled import CompileError, compile_spec
from engines.valem.cycle import Violation
from engines.valem.findings import Finding
from engines.valem.jsonata.evaluation import Evaluator, evaluate_here
from engines.valem.model import Model
from engines.valem.spec.records import ModelSpec

LOCATION = "defaultValues"
ADVICE = "seed values with which it holds"


@dataclass(frozen=True, slots=True)
class InitialState:
    """A model at its creation. ``document``: seeded and derived values together, empty when it cannot be created.

    findings: the reasons why it cannot be created, errors all of them.
    flags: constraints that do not hold and are only reported.
    remarks: seeds and meta values whose expressions failed.
    """

    document: dict[str, Any]
    findings: tuple[Finding, ...] = ()
    flags: tuple[Violation, ...] = ()
    remarks: tuple[Finding, ...] = ()


def initial_state(spec: ModelSpec, *, now: int, evaluator: Evaluator = evaluate_here) -> InitialState:
    """Create a model of ``spec`` and look at it. ``now`` in milliseconds since the epoch. Never raises for a spec."""
    try:
        model = Model(compile_spec(spec, now=now, evaluator=evaluator), now=now, evaluator=evaluator)
    except CompileError as error:
        return InitialState({}, (Finding(error.location, error.detail),))
    outcome = model.initialise()
    findings = tuple(Finding(LOCATION, f"the initial state breaks {each}", hint=ADVICE) for each in outcome.rollbacks)
    return InitialState(
        document={} if findings else model.state.merged,
        findings=findings,
        flags=outcome.flags,
        remarks=tuple(model.state.remarks),
    )
