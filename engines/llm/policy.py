"""What to do after a failed call: try again later, try differently, or give up. Pure and table-driven.

The runner stores the :class:`FailureCounts` on the node row between turns, asks :func:`next_step` after each failure,
and makes a due time, a changed request or a failed phase of the answer.

==================  =======================================================================================
kind                what happens
==================  =======================================================================================
rate_limited        again after the provider's ``retry_after`` or with backoff, up to 8 times
overloaded          again with backoff, up to 8 times
timeout, transport  again with backoff (3 and 6 times); twice on one native rung: one rung down
empty               again, at most twice
schema_rejected     one rung down, at once; nothing below the prompt
sampling_rejected   without that parameter, at once; a parameter refused twice ends it
everything else     give up: the same request would fail again, or must not be sent again
==================  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.llm.base import ErrorKind, LlmError, StructuredPath

MAX_TOTAL_RETRIES = 16
"""Retries of one call altogether, whatever the mixture of kinds."""
NATIVE_FAULTS_BEFORE_STEP_DOWN = 2


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Send the same request again, no sooner than in ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StepDown:
    """Send a changed request at once: no rung above ``path``, without ``parameter``. To be remembered for the model."""

    path: StructuredPath | None = None
    parameter: str | None = None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further call. ``reason`` says why in words for a failure record."""

    reason: str


Step = RetryIn | StepDown | GiveUp


@dataclass(frozen=True, slots=True)
class Rule:
    """Retries of one kind: how many, and how the waits grow (seconds)."""

    retries: int
    base: float
    cap: float


RULES: Mapping[ErrorKind, Rule] = {
    ErrorKind.RATE_LIMITED: Rule(retries=8, base=2.0, cap=300.0),
    ErrorKind.OVERLOADED: Rule(retries=8, base=2.0, cap=120.0),
    ErrorKind.TIMEOUT: Rule(retries=3, base=1.0, cap=30.0),
    ErrorKind.TRANSPORT: Rule(retries=6, base=1.0, cap=60.0),
    ErrorKind.EMPTY: Rule(retries=2, base=1.0, cap=10.0),
}

FINAL: Mapping[ErrorKind, str] = {
    ErrorKind.REFUSAL: "the model refused",
    ErrorKind.CONTENT_FILTER: "the provider's content filter stopped the answer",
    ErrorKind.CONTEXT_TOO_LONG: "the conversation does not fit the model's context window",
    ErrorKind.REQUEST_TOO_LARGE: "the request is larger than the provider takes",
    ErrorKind.BAD_REQUEST: "the provider does not understand the request",
    ErrorKind.AUTH: "the provider refuses the key or the account",
    ErrorKind.NOT_CONFIGURED: "no usable model is configured",
    ErrorKind.CANCELLED: "the call was cancelled on purpose",
}

_NEXT_RUNG = {StructuredPath.STRICT: StructuredPath.LOOSE, StructuredPath.LOOSE: StructuredPath.PROMPT}


@dataclass(frozen=True, slots=True)
class FailureCounts:
    """The failures of one call so far, small enough to lie on the node row. Begins anew with each new call."""

    by_kind: Mapping[str, int] = field(default_factory=dict)
    native_path: str | None = None
    native_faults: int = 0
    """Timeouts and server faults on ``native_path`` so far."""
    refused: tuple[str, ...] = ()
    """Parameters the provider refused so far."""

    def after(self, error: LlmError) -> FailureCounts:
        """These counts with ``error`` added: what to store once :func:`next_step` has decided about it."""
        by_kind = dict(self.by_kind)
        by_kind[error.kind.value] = by_kind.get(error.kind.value, 0) + 1
        refused = self.refused
        if error.kind is ErrorKind.SAMPLING_REJECTED and error.parameter and error.parameter not in refused:
            refused = (*refused, error.parameter)
        return FailureCounts(by_kind, *self._native(error), refused)

    def count(self, kind: ErrorKind) -> int:
        return self.by_kind.get(kind.value, 0)

    def _native(self, error: LlmError) -> tuple[str | None, int]:
        if not _is_native_fault(error) or error.path is None:
            return self.native_path, self.native_faults
        return error.path.value, (self.native_faults if self.native_path == error.path.value else 0) + 1

    def to_json(self) -> dict[str, Any]:
        return {
            "by_kind": dict(self.by_kind),
            "native_path": self.native_path,
            "native_faults": self.native_faults,
            "refused": list(self.refused),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> FailureCounts:
        if not data:
            return cls()
        return cls(
            by_kind={str(kind): int(count) for kind, count in dict(data.get("by_kind") or {}).items()},
            native_path=data.get("native_path"),
            native_faults=int(data.get("native_faults") or 0),
            refused=tuple(data.get("refused") or ()),
        )


def next_step(error: LlmError, failures: FailureCounts, *, jitter: float) -> Step:
    """What follows ``error``, given the ``failures`` before it. ``jitter`` is the caller's random number in [0, 1)."""
    if error.kind in FINAL:
        return GiveUp(FINAL[error.kind])
    if error.kind is ErrorKind.SCHEMA_REJECTED:
        return _down(error, "the provider refuses the schema on every rung")
    if error.kind is ErrorKind.SAMPLING_REJECTED:
        if error.parameter is None or error.parameter in failures.refused:
            return GiveUp(f"the provider refuses a parameter that was left out already: {error.parameter}")
        return StepDown(parameter=error.parameter)
    if _is_native_fault(error) and failures.after(error).native_faults >= NATIVE_FAULTS_BEFORE_STEP_DOWN:
        return _down(error, "the provider keeps failing")
    return _retry(error, failures, jitter)


def _retry(error: LlmError, failures: FailureCounts, jitter: float) -> Step:
    rule = RULES[error.kind]
    earlier = failures.count(error.kind)
    total = sum(failures.count(kind) for kind in RULES)
    if earlier >= rule.retries or total >= MAX_TOTAL_RETRIES:
        return GiveUp(f"{error.kind.value} {total + 1} times in a row")
    if error.retry_after is not None:
        # Never sooner than asked, and spread: whoever was turned away together comes back apart.
        return RetryIn(error.retry_after + jitter * rule.base)
    wait = min(rule.cap, rule.base * 2.0**earlier)
    return RetryIn(wait * (0.5 + jitter))


def _is_native_fault(error: LlmError) -> bool:
    """A timeout or a server fault that the native path may have caused; being turned away is no such thing."""
    native = error.path in _NEXT_RUNG
    return native and error.kind in (ErrorKind.TIMEOUT, ErrorKind.TRANSPORT)


def _down(error: LlmError, otherwise: str) -> Step:
    rung = _NEXT_RUNG.get(error.path) if error.path is not None else None
    return StepDown(path=rung) if rung is not None else GiveUp(otherwise)
