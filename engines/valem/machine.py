"""Valem's decisions: what follows a reply, a verdict, a failure or a look at the store. Pure; drawn in the README."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from engines.conversation import Called, Exchange, answered, bounded, halved
from engines.structured.text import shorten
from engines.valem.cursor import (
    CALLING,
    MAX_REPLY_CHARS,
    Asked,
    Candidate,
    Chosen,
    Problem,
    Spending,
    Task,
    ValemPhase,
    ValemState,
)

MAX_RETRIES: Final = 3
MAX_RETRIES_HARD: Final = 6
MAX_ROUND_TRIPS: Final = 40
MAX_SUFFIX: Final = 50
"""How many ids a spec whose id is taken is given in turn (``name-2``, ``name-3``, …)."""
_ECHO_CHARS: Final = 60_000
"""What a repair prompt shows of an answer that is no JSON."""
_LAST_RAW_CHARS: Final = 20_000


class Verdict(StrEnum):
    """What checking an answer found."""

    UNREADABLE = "unreadable"
    """No JSON object, or none of a spec's form."""
    INVALID = "invalid"
    """Errors of validation; of an evolution also that it does not fit its spec."""
    UNSTABLE = "unstable"
    """A model made of it would break its own constraints at once."""
    FLAWED = "flawed"
    """Valid, with tests that fail or findings in its view."""
    GOOD = "good"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Checked parameters.

    retries: attempts that are always made; retries_hard: with those that are granted while problems become fewer.
    model_id: the id asked for, or of the stored model that is evolved. stores: whether the result is stored.
    """

    task: Task = Task.GENERATE
    retries: int = MAX_RETRIES
    retries_hard: int = MAX_RETRIES_HARD
    round_trips: int = MAX_ROUND_TRIPS
    conversation_chars: int = 120_000
    model_id: str | None = None
    stores: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """A reply. cut: it was cut off at its limit; next_limit: a larger one to try, ``None`` when there is none."""

    text: str
    calls: tuple[Called, ...] = ()
    cut: bool = False
    next_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The pending calls have run: what the model reads of each, in order, and what the session has spent since."""

    results: tuple[str, ...]
    spending: Spending = field(default_factory=Spending)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The answer was checked.

    count: how many problems; ``None`` when it could not be read. problems: in words, with hints. previous: the answer
    as it was understood, for the next prompt. candidate: of FLAWED and GOOD. truncated: of UNREADABLE: it was cut off.
    """

    verdict: Verdict
    count: int | None = None
    problems: tuple[Problem, ...] = ()
    previous: str = ""
    candidate: Candidate | None = None
    truncated: bool = False


def unreadable(message: str, *, previous: str = "", truncated: bool = False) -> Judged:
    """The verdict on an answer that holds no spec and no evolution."""
    problem = Problem(where="answer", message=message)
    return Judged(verdict=Verdict.UNREADABLE, problems=(problem,), previous=previous, truncated=truncated)


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLong:
    """The model refused the conversation for its length, before it began to work."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMore:
    """There will be no reply: the call failed, or none is allowed any more. counts: the model had begun to work."""

    error: str
    message: str
    counts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The process cannot be what was asked for, seen before its first call."""

    error: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What the store holds at the place chosen. taken: the newest version there, ``None`` when the place is free."""

    taken: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Who wrote the version chosen: ``ours``, or somebody else who was first."""

    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperatures:
    """How much chance the attempts are given: a model that is stuck is not asked the same way again."""

    generation: float = 0.0
    repair: float = 0.2
    step: float = 0.15
    most: float = 0.8


Event = Replied | Returned | Judged | TooLong | NoMore | Refused | Looked | Confirmed


@dataclass(frozen=True, slots=True, kw_only=True)
class Onward:
    """The process goes on with ``state.phase``. corrected: it does something again, with what was learned."""

    state: ValemState
    corrected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """The version chosen is written; ``state.phase`` is CONFIRM."""

    state: ValemState
    chosen: Chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The process closes: with what was chosen, or with ``error``."""

    state: ValemState
    error: str | None = None
    message: str = ""
    counts: bool = False


Step = Onward | Write | Closed


def decide(state: ValemState, event: Event, limits: Limits) -> Step:
    """What follows ``event`` in ``state``.

    Ends after at most ``limits.retries_hard`` attempts of at most ``limits.round_trips`` batches of tools and one call
    more each.
    """
    match event:
        case Replied():
            return _replied(state, event, limits)
        case Returned():
            return _returned(state, event, limits)
        case Judged():
            return _judged(state, event, limits)
        case TooLong():
            return _too_long(state, event, limits)
        case NoMore():
            return _no_more(state, event, limits)
        case Refused():
            return Closed(state=state, error=event.error, message=event.message)
        case Looked():
            return _looked(state, event, limits)
        case Confirmed():
            return _confirmed(state, event, limits)
        case _:
            assert_never(event)


# --- an attempt -------------------------------------------------------------------------------------------------------


def _replied(state: ValemState, reply: Replied, limits: Limits) -> Step:
    if reply.calls and state.phase is ValemPhase.ASK and limits.round_trips > 0:
        exchange = Exchange(text=reply.text.strip(), calls=reply.calls)
        return Onward(state=replace(state, phase=ValemPhase.TOOLS, exchanges=(*state.exchanges, exchange)))
    checked = replace(
        state,
        phase=ValemPhase.CHECK,
        exchanges=(),
        reply=reply.text.strip(),
        cut=reply.cut,
        next_limit=reply.next_limit,
    )
    if not checked.reply:
        words = "The answer was cut off before its first word." if reply.cut else "There was no answer."
        return _judged(checked, unreadable(words, truncated=reply.cut), limits)
    if len(checked.reply) > MAX_REPLY_CHARS:
        words = f"The answer has {len(checked.reply):,} characters; at most {MAX_REPLY_CHARS:,} are read."
        kept = replace(checked, reply=checked.reply[:_ECHO_CHARS])
        return _judged(kept, unreadable(words), limits)
    return Onward(state=checked)


def _returned(state: ValemState, event: Returned, limits: Limits) -> Step:
    round_trips = state.round_trips + 1
    return Onward(
        state=replace(
            state,
            phase=ValemPhase.ASK if round_trips < limits.round_trips else ValemPhase.ANSWER,
            exchanges=bounded(answered(state.exchanges, event.results), limits.conversation_chars),
            round_trips=round_trips,
            spending=event.spending,
        )
    )


def _too_long(state: ValemState, event: TooLong, limits: Limits) -> Step:
    """Again with half the conversation, then without quoting what was written before, as long as that helps."""
    shorter = halved(state.exchanges)
    if shorter is not None:
        return Onward(state=replace(state, exchanges=shorter), corrected=True)
    if not state.previous:
        return _no_more(state, NoMore(error="llm_error", message=event.message), limits)
    asked = state.asked if limits.task is Task.EVOLVE else Asked.SHORTER
    return Onward(state=replace(state, asked=asked, previous=""), corrected=True)


def _judged(state: ValemState, event: Judged, limits: Limits) -> Step:
    if event.verdict is Verdict.GOOD and event.candidate is not None:
        return _choose(state, event.candidate, limits)
    found = event.candidate
    better = found is not None and (state.best is None or found.flaws < state.best.flaws)
    state = replace(
        state,
        best=found if better else state.best,
        last_raw=shorten(state.reply, _LAST_RAW_CHARS),
        truncated=event.truncated,
    )
    converges = event.count is not None and (state.counted is None or event.count < state.counted)
    if state.attempt >= limits.retries_hard or (state.attempt >= limits.retries and not converges):
        return _exhausted(replace(state, problems=event.problems), limits)
    return Onward(state=_next_attempt(state, event, limits), corrected=True)


def _next_attempt(state: ValemState, event: Judged, limits: Limits) -> ValemState:
    larger = state.next_limit
    state = replace(
        state,
        phase=ValemPhase.ASK,
        attempt=state.attempt + 1,
        counted=event.count,
        round_trips=0,
        reply="",
        cut=False,
        next_limit=None,
    )
    if not event.truncated:
        previous = event.previous or shorten(state.last_raw, _ECHO_CHARS)
        return replace(state, asked=_asked(event, limits), problems=event.problems, previous=previous)
    if not state.raised and larger is not None:
        # The room was too small, not the answer wrong: the same prompt once more.
        return replace(state, raised=True, output_limit=larger)
    # A cut answer is never quoted: it would only eat the room that the next one needs.
    if limits.task is Task.EVOLVE:
        return replace(state, asked=Asked.REPAIR, problems=event.problems, previous="")
    return replace(state, asked=Asked.SHORTER, problems=(), previous="", output_limit=None)


def _asked(event: Judged, limits: Limits) -> Asked:
    if limits.task is Task.EVOLVE:
        return Asked.REPAIR
    if event.verdict is Verdict.UNSTABLE:
        return Asked.STATE
    if event.verdict is not Verdict.FLAWED or event.candidate is None:
        return Asked.REPAIR
    return Asked.TESTS if event.candidate.failing else Asked.VIEW


def _exhausted(state: ValemState, limits: Limits) -> Step:
    if state.best is not None:
        return _choose(state, state.best, limits, best_effort=True)
    if state.truncated:
        return Closed(state=state, error="truncated", message="the answer was cut off at its limit, also the last time")
    what = "evolution" if limits.task is Task.EVOLVE else "spec"
    first = f": {state.problems[0].message}" if state.problems else ""
    return Closed(state=state, error="no_valid_spec", message=f"no valid {what} in {state.attempt} attempts{first}")


def _no_more(state: ValemState, event: NoMore, limits: Limits) -> Step:
    """The best there is, if there is one; a version that was chosen already is reported as not stored."""
    if state.chosen is None and state.best is not None:
        return _choose(state, state.best, limits, best_effort=True, why=f"{event.error}: {event.message}")
    counts = event.counts and state.phase in CALLING
    return Closed(state=state, error=event.error, message=event.message, counts=counts)


# --- the store --------------------------------------------------------------------------------------------------------


def _choose(
    state: ValemState, candidate: Candidate, limits: Limits, *, best_effort: bool = False, why: str | None = None
) -> Step:
    model_id = limits.model_id or candidate.model_id
    version = (state.base_version or 0) + 1 if limits.stores else None
    chosen = Chosen(candidate=candidate, model_id=model_id, version=version, best_effort=best_effort, why=why)
    # What led here is not needed any more, and every turn writes the whole cursor. The attempt stays the one reached.
    attempt = state.attempts if why is not None else state.attempt
    state = ValemState(
        phase=ValemPhase.STORE,
        attempt=attempt,
        chosen=chosen,
        base_version=state.base_version,
        spending=replace(state.spending, remembered={}),
    )
    return Onward(state=state) if limits.stores else Closed(state=state)


def _looked(state: ValemState, event: Looked, limits: Limits) -> Step:
    if state.chosen is None:
        raise ValueError("nothing is chosen to be stored")
    if event.taken is None:
        return Write(state=replace(state, phase=ValemPhase.CONFIRM), chosen=state.chosen)
    return _place_is_taken(state, state.chosen, limits)


def _confirmed(state: ValemState, event: Confirmed, limits: Limits) -> Step:
    if state.chosen is None:
        raise ValueError("nothing is chosen to be stored")
    return Closed(state=state) if event.ours else _place_is_taken(state, state.chosen, limits)


def _place_is_taken(state: ValemState, chosen: Chosen, limits: Limits) -> Step:
    """An id that the model chose gives way; an id or a version that was asked for does not."""
    if limits.task is Task.GENERATE and limits.model_id is None and chosen.suffix < MAX_SUFFIX:
        suffix = chosen.suffix + 1
        renamed = replace(chosen, model_id=f"{chosen.candidate.model_id}-{suffix}", suffix=suffix)
        return Onward(state=replace(state, phase=ValemPhase.STORE, chosen=renamed), corrected=True)
    message = f"version {chosen.version} of the model {chosen.model_id!r} was written by somebody else meanwhile"
    return Closed(state=state, error="version_conflict", message=message)


def temperature(attempt: int, settings: Temperatures) -> float:
    """For the first attempt none to speak of; every repair a little more than the last, up to a limit."""
    if attempt <= 1:
        return settings.generation
    return round(min(settings.repair + settings.step * (attempt - 2), settings.most), 6)
