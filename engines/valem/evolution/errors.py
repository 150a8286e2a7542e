"""Why an evolution is refused.

::

    EngineError
    ├── EvolutionError     it does not fit the spec, or what it makes is no valid spec: the findings say where and why
    └── VersionConflict    it was made for another version of the spec
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.errors import EngineError
from engines.valem.findings import Finding


class EvolutionError(EngineError):
    """findings: what is wrong, each an error with a hint where one helps. One for a change that does not fit the spec;
    all there are when the evolved spec is not valid. misfit: which of the two it is."""

    def __init__(self, findings: Sequence[Finding], *, misfit: bool = True) -> None:
        super().__init__("; ".join(f"{finding.location}: {finding.message}" for finding in findings))
        self.findings = tuple(findings)
        self.misfit = misfit


class VersionConflict(EngineError):
    """expected, actual: the version that an evolution was made for, and the one that is there."""

    def __init__(self, expected: str | int, actual: str | int) -> None:
        super().__init__(
            f"expectedVersion: the model is at version {actual}, not {expected}; read it again and evolve that"
        )
        self.expected = expected
        self.actual = actual


def misfit(location: str, message: str, hint: str | None = None) -> EvolutionError:
    """The refusal of one change, at its place in the evolution."""
    return EvolutionError((Finding(location, message, hint=hint),))
