"""What a check has to say about a spec: where, what, how bad, and what would be right."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error keeps a spec from being used; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark. ``location`` is a place in the spec (``derivations[2].expr``), ``hint`` says how to put it right."""

    location: str
    message: str
    severity: Severity = Severity.ERROR
    hint: str | None = None

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR
