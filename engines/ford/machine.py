"""Ford's decisions: what follows a reply, a batch of results or a failure. Pure; the table is drawn in the README."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from engines import conversation
from engines.conversation import Called, Exchange, bounded, halved

MAX_ROUND_TRIPS: Final = 40


class FordPhase(StrEnum):
    """What a turn does. The phases of a node, as stored."""

    ASK = "ASK"
    """One model call with tools offered."""
    TOOLS = "TOOLS"
    """One batch of tool calls."""
    QUERY = "QUERY"
    """Waiting for the processes that answer structured queries of the batch."""
    ANSWER = "ANSWER"
    """One last model call without tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FordState:
    """The cursor: the conversation so far, bounded by :func:`bounded`.

    round_trips: batches of tools that were run. output_limit: asked for after an answer that was cut off.
    """

    phase: FordPhase = FordPhase.ASK
    exchanges: tuple[Exchange, ...] = ()
    round_trips: int = 0
    output_limit: int | None = None
    documents: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[Called, ...]:
        """The calls of the batch that a TOOLS or QUERY turn is about."""
        waiting = self.phase in (FordPhase.TOOLS, FordPhase.QUERY)
        return self.exchanges[-1].calls if waiting and self.exchanges else ()

    @classmethod
    def from_cursor(cls, cursor: Mapping[str, Any]) -> FordState:
        """The state stored by :meth:`to_cursor`; an empty cursor is the beginning."""
        return cls(
            phase=FordPhase(cursor.get("phase", "ASK")),
            exchanges=conversation.from_json(cursor.get("exchanges", ())),
            round_trips=cursor.get("roundTrips", 0),
            output_limit=cursor.get("outputLimit"),
            documents=tuple(cursor.get("documents", ())),
        )

    def to_cursor(self) -> dict[str, Any]:
        return {
            "phase": self.phase.value,
            "exchanges": conversation.to_json(self.exchanges),
            "roundTrips": self.round_trips,
            "outputLimit": self.output_limit,
            "documents": list(self.documents),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Checked parameters. ``conversation_chars`` bounds the cursor and what a call is sent."""

    round_trips: int = MAX_ROUND_TRIPS
    conversation_chars: int = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """A reply. cut: it was cut off at its limit; next_limit: a larger one to try, ``None`` when there is none."""

    text: str
    calls: tuple[Called, ...] = ()
    cut: bool = False
    next_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The pending calls have run: what the model reads of each, in order, and the paths of documents written.

    A result that is ``None`` comes from a process that has yet to answer.
    """

    results: tuple[str | None, ...]
    documents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMore:
    """There will be no reply: the call failed, or none is allowed any more (``forced``)."""

    error: str
    message: str
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLong:
    """The model refused the conversation for its length, before it began to work."""

    message: str


Event = Replied | Returned | TooLong | NoMore


@dataclass(frozen=True, slots=True, kw_only=True)
class Onward:
    """The process goes on with ``state.phase``. ``corrected``: the call is made again, asking for more or with less."""

    state: FordState
    corrected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The process closes with ``wrapper``."""

    state: FordState
    wrapper: dict[str, Any]
    forced: bool = False


Step = Onward | Closed


def decide(state: FordState, event: Event, limits: Limits) -> Step:
    """What follows ``event`` in ``state``. Ends after at most ``limits.round_trips`` batches and one call more."""
    match event:
        case NoMore():
            return _ended(state, event)
        case Returned():
            return _returned(state, event, limits)
        case TooLong():
            return _too_long(state, event)
        case Replied():
            return _replied(state, event)


def _replied(state: FordState, reply: Replied) -> Step:
    text = reply.text.strip()
    if reply.calls and state.phase is FordPhase.ASK:
        exchange = Exchange(text=text, calls=reply.calls)
        return Onward(state=replace(state, phase=FordPhase.TOOLS, exchanges=(*state.exchanges, exchange)))
    if reply.cut and state.output_limit is None and reply.next_limit is not None:
        return Onward(state=replace(state, output_limit=reply.next_limit), corrected=True)
    final = state.phase is FordPhase.ANSWER
    if not text:
        error, message = (
            ("truncated", "the answer was cut off before its first word") if reply.cut else ("no_answer", _NONE)
        )
        return Closed(state=state, wrapper=error_wrapper(state, error, message), forced=final)
    wrapper: dict[str, Any] = {"success": True, "result": text, **_counts(state)}
    if reply.cut:
        wrapper["truncated"] = True
    if final:
        wrapper["forced"] = True
    return Closed(state=state, wrapper=wrapper, forced=final)


_NONE: Final = "the model gave no answer where one was due"


def _returned(state: FordState, event: Returned, limits: Limits) -> Step:
    exchanges = conversation.answered(state.exchanges, event.results)
    if None in event.results:
        return Onward(state=replace(state, phase=FordPhase.QUERY, exchanges=exchanges, documents=_with(state, event)))
    round_trips = state.round_trips + 1
    return Onward(
        state=replace(
            state,
            phase=FordPhase.ASK if round_trips < limits.round_trips else FordPhase.ANSWER,
            exchanges=bounded(exchanges, limits.conversation_chars),
            round_trips=round_trips,
            documents=_with(state, event),
        )
    )


def _with(state: FordState, event: Returned) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*state.documents, *event.documents)))


def _too_long(state: FordState, event: TooLong) -> Step:
    """Again with half the conversation, as long as that makes it shorter."""
    shorter = halved(state.exchanges)
    if shorter is None:
        return _ended(state, NoMore(error="llm_error", message=event.message))
    return Onward(state=replace(state, exchanges=shorter), corrected=True)


def _ended(state: FordState, event: NoMore) -> Step:
    wrapper = error_wrapper(state, event.error, event.message)
    if event.forced:
        wrapper["forced"] = True
    return Closed(state=state, wrapper=wrapper, forced=event.forced)


def error_wrapper(state: FordState, error: str, message: str) -> dict[str, Any]:
    """A result without an answer. What the model last said beside its tool calls is kept as ``partial``."""
    wrapper: dict[str, Any] = {"success": False, "error": error, "message": message, **_counts(state)}
    said = next((each.text for each in reversed(state.exchanges) if each.text.strip()), None)
    if said is not None:
        wrapper["partial"] = said
    return wrapper


def _counts(state: FordState) -> dict[str, Any]:
    counts: dict[str, Any] = {"roundTrips": state.round_trips}
    if state.documents:
        counts["documents"] = list(state.documents)
    return counts
