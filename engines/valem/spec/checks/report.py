"""Collecting findings: every check reports into one list, so that an author sees all there is at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engines.structured.text import one_line, quote
from engines.valem.findings import Finding, Severity
from engines.valem.hints import hint_for_error
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.expression import Expression, compile_expression
from engines.valem.jsonata.tokens import called_names
from engines.valem.spec.addresses import BadAddress, parse_address

MAX_FINDINGS: Final = 200
"""A spec with more is not read to its end by anybody; the errors among them come first."""
_DISCOURAGED: Final = {
    "lookup": "write the field's path, or [key = …] on a list",
    "eval": "write the expression itself: what $eval reads cannot be seen, so its value is never computed again",
}


class Report:
    """The findings so far. ``error`` and ``warn`` are all there is to it."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []

    def error(self, location: str, message: str, hint: str | None = None) -> None:
        self._findings.append(Finding(location, message, Severity.ERROR, hint))

    def warn(self, location: str, message: str, hint: str | None = None) -> None:
        self._findings.append(Finding(location, message, Severity.WARNING, hint))

    def add(self, findings: Iterable[Finding]) -> None:
        self._findings.extend(findings)

    @property
    def has_errors(self) -> bool:
        return any(finding.is_error for finding in self._findings)

    def findings(self) -> list[Finding]:
        """In the order they were found, without repetitions. Past ``MAX_FINDINGS`` errors stay before warnings."""
        found = list(dict.fromkeys(self._findings))
        if len(found) <= MAX_FINDINGS:
            return found
        found.sort(key=lambda finding: not finding.is_error)
        rest = len(found) - MAX_FINDINGS + 1
        return [*found[: MAX_FINDINGS - 1], Finding("spec", f"{rest} more findings are not shown", Severity.WARNING)]


def check_address(report: Report, location: str, text: str) -> bool:
    """Whether ``text`` is canonical. A blank one is an error of its own."""
    if not text.strip():
        report.error(location, "is blank: it must be an address such as $.order.total")
        return False
    try:
        parse_address(text)
    except BadAddress as error:
        report.error(location, error.message)
        return False
    return True


def check_expression(report: Report, location: str, text: str) -> Expression | None:
    """The compiled expression; ``None`` after an error was reported. Warns of functions that hide what is read."""
    if not text.strip():
        report.error(location, "is blank: it must be a JSONata expression")
        return None
    try:
        expression = compile_expression(text)
    except ExpressionError as error:
        report.error(location, f"does not compile: {described(error)}", hint_for_error(error))
        return None
    called = called_names(text)
    for name, instead in _DISCOURAGED.items():
        if name in called:
            report.warn(location, f"${name}( is discouraged", instead)
    return expression


def described(error: ExpressionError) -> str:
    """The engine's message with its code and place, for people and models."""
    place = "" if error.position is None else f" at character {error.position + 1}"
    token = f" near {quote(error.token, 40)}" if error.token and error.token not in error.message else ""
    return f"{one_line(error.message)} ({error.code}{place}{token})"


def check_unique(report: Report, location: str, key: str, seen: dict[str, str], what: str) -> None:
    """An error when ``key`` was seen before. ``seen`` maps keys to where they were."""
    if key in seen:
        report.error(location, f"{what} {quote(key)} is there twice: also at {seen[key]}")
    else:
        seen[key] = location
