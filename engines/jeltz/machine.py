"""The state machine of Jeltz: one question, one JSON object, a bounded number of attempts. Pure and table-small.

``README.md`` beside this file draws it; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, assert_never

MIN_ATTEMPTS = 1
MAX_ATTEMPTS = 10
DEFAULT_ATTEMPTS = 3


class ErrorCode(StrEnum):
    """The values of ``error`` in a result wrapper."""

    INVALID_PARAMS = "invalid_params"
    INVALID_SCHEMA = "invalid_schema"
    SCHEMA_VIOLATION = "schema_violation"
    MAX_ATTEMPTS_EXCEEDED = "max_attempts_exceeded"
    LLM_ERROR = "llm_error"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    TRUNCATED = "truncated"
    BUDGET_EXCEEDED = "budget_exceeded"
    STOPPED = "stopped"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An answer that was not accepted, as far as the next attempt needs it."""

    excerpt: str
    """The answer, trimmed, for the model to see; empty when quoting it would do harm (it was cut off, or too long)."""
    correction: str
    """What was wrong, in words for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JeltzState:
    """The cursor between turns. ``attempts`` counts answers judged so far, never transport retries."""

    attempts: int = 0
    rejected: Rejected | None = None
    last_invalid: Any = None
    message: str = ""
    """What was wrong with the last answer, for people."""
    truncated: bool = False
    """The last answer was cut off at its token limit."""
    output_limit: int | None = None
    """Output tokens to ask for next; ``None`` leaves it to the recipe or the catalogue."""

    def to_cursor(self) -> dict[str, Any]:
        """As stored on the node."""
        cursor: dict[str, Any] = {"attempts": self.attempts}
        if self.rejected is not None:
            cursor["rejected"] = {"excerpt": self.rejected.excerpt, "correction": self.rejected.correction}
        if self.last_invalid is not None:
            cursor["lastInvalid"] = self.last_invalid
        if self.message:
            cursor["message"] = self.message
        if self.truncated:
            cursor["truncated"] = True
        if self.output_limit is not None:
            cursor["outputLimit"] = self.output_limit
        return cursor

    @classmethod
    def from_cursor(cls, cursor: dict[str, Any]) -> JeltzState:
        """The state a node was left in."""
        rejected = cursor.get("rejected")
        return cls(
            attempts=cursor.get("attempts", 0),
            rejected=Rejected(**rejected) if rejected else None,
            last_invalid=cursor.get("lastInvalid"),
            message=cursor.get("message", ""),
            truncated=cursor.get("truncated", False),
            output_limit=cursor.get("outputLimit"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The answer fits the schema."""

    data: dict[str, Any]
    repaired: bool = False
    hints: tuple[str, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violated:
    """The answer was read to its end and does not fit."""

    message: str
    rejected: Rejected
    last_invalid: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """The answer ran into its token limit. ``next_limit`` is ``None`` when the limit cannot be raised."""

    message: str
    rejected: Rejected
    last_invalid: Any
    next_limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """The conversation, grown by our own correction, no longer fits the model: ask once more without the quotation."""

    rejected: Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """No answer, and none to be expected. ``counts``: a call was made for it."""

    error: ErrorCode
    message: str
    counts: bool
    forced: bool = False


Event = Accepted | Violated | CutOff | Grown | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Another attempt follows, from ``state``."""

    state: JeltzState


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The process is finished with ``wrapper``."""

    state: JeltzState
    wrapper: dict[str, Any]
    forced: bool = False


Step = Again | Closed


def clamp_attempts(value: object) -> int:
    """``maxAttempts`` as given by a caller: numbers and numeric strings within 1..10, anything else the default."""
    if isinstance(value, bool):
        return DEFAULT_ATTEMPTS
    if isinstance(value, str):
        try:
            value = int(value.strip())
        except ValueError:
            return DEFAULT_ATTEMPTS
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        return DEFAULT_ATTEMPTS
    return max(MIN_ATTEMPTS, min(MAX_ATTEMPTS, value))


def decide(state: JeltzState, event: Event, max_attempts: int) -> Step:
    """What follows an event. ``max_attempts`` is clamped already."""
    match event:
        case Accepted():
            return _succeed(state, event)
        case Violated():
            after = replace(
                state,
                attempts=state.attempts + 1,
                rejected=event.rejected,
                last_invalid=event.last_invalid,
                message=event.message,
                truncated=False,
            )
            if after.attempts < max_attempts:
                return Again(state=after)
            only = max_attempts == 1
            return _fail(after, ErrorCode.SCHEMA_VIOLATION if only else ErrorCode.MAX_ATTEMPTS_EXCEEDED, event.message)
        case CutOff():
            after = replace(
                state,
                attempts=state.attempts + 1,
                rejected=event.rejected,
                last_invalid=event.last_invalid,
                message=event.message,
                truncated=True,
                output_limit=event.next_limit or state.output_limit,
            )
            if after.attempts < max_attempts and event.next_limit is not None:
                return Again(state=after)
            return _fail(after, ErrorCode.TRUNCATED, event.message)
        case Grown():
            return Again(state=replace(state, rejected=event.rejected))
        case Ended():
            after = replace(state, attempts=state.attempts + (1 if event.counts else 0))
            return _fail(after, event.error, event.message, forced=event.forced)
        case _:
            assert_never(event)


def _succeed(state: JeltzState, event: Accepted) -> Closed:
    after = replace(state, attempts=state.attempts + 1, rejected=None)
    wrapper: dict[str, Any] = {"success": True, "attempts": after.attempts, "data": event.data}
    if event.repaired:
        wrapper["repaired"] = True
    if event.hints:
        wrapper["hints"] = list(event.hints)
    if event.model:
        wrapper["model"] = event.model
    return Closed(state=after, wrapper=wrapper)


def _fail(state: JeltzState, error: ErrorCode, message: str, *, forced: bool = False) -> Closed:
    return Closed(state=state, wrapper=error_wrapper(state, error, message), forced=forced)


def error_wrapper(state: JeltzState, error: ErrorCode | str, message: str) -> dict[str, Any]:
    """The wrapper of a failure. ``lastInvalid`` is there when an answer was rejected earlier."""
    wrapper: dict[str, Any] = {
        "success": False,
        "attempts": state.attempts,
        "error": str(error),
        "message": message,
    }
    if state.last_invalid is not None:
        wrapper["lastInvalid"] = state.last_invalid
    return wrapper
