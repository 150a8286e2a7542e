"""How long closed processes and their texts are kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_DAYS = 36_500


class BadPolicy(ValueError):
    """The ages cannot be: the message says what is wrong and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """In days since a process was closed. No ``keep``: for ever. No ``artifacts``: as long as the process."""

    keep: float | None = None
    artifacts: float | None = None

    def check(self) -> None:
        """Raises :class:`BadPolicy`."""
        for name, days in (("keepDays", self.keep), ("artifactsDays", self.artifacts)):
            if days is not None and not 0 < days <= LONGEST_DAYS:
                raise BadPolicy(f"{name}: {days:g} is no age; more than 0 days and at most {LONGEST_DAYS:,}, or none")
        if self.keep is not None and self.artifacts is not None and self.artifacts > self.keep:
            raise BadPolicy(
                f"artifactsDays: {self.artifacts:g} is more than keepDays, {self.keep:g}: texts cannot outlive their"
                f" process; at most {self.keep:g}, or none"
            )
