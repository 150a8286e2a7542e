"""Looking on while turns are run, for metrics and traces. What goes wrong here is logged and never reaches the turn.

A :class:`Watch` notes what happens in one turn; when the turn is over, each observer gets the whole of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from engines.base import RunTools, ToolResult
from engines.llm.base import NORMAL_LANE, ChunkSink, ErrorKind, LlmClient, LlmError, LlmReply, LlmRequest, ToolCall
from engines.llm.catalogue import Candidate
from models.records import CloseReason
from models.store.claim import Claim
from models.store.commit import Committed, StaleTurn
from models.store.database import DatabaseUnavailable
from models.transition import CloseProcess, Transition
from tasks import meter
from tasks.heartbeat import Cancel
from tasks.meter import Meter
from tasks.retry import Postponed
from tasks.toolbox import Toolbox

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When something began and ended, in nanoseconds since the epoch."""

    began: int
    ended: int

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSeen:
    """A provider call: who was asked what, and the reply or the error."""

    provider: str
    model: str
    request: LlmRequest
    end: LlmReply | LlmError
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSeen:
    """A tool call with what the model reads of it."""

    call: ToolCall
    result: ToolResult
    span: Span


@dataclass(slots=True, kw_only=True)
class TurnSeen:
    """A turn that is over. ``outcome``: see ``tasks.meter.TURNS``."""

    claim: Claim
    span: Span
    outcome: str = "crashed"
    transition: Transition | None = None
    closed: CloseReason | None = None
    """Why its process is closed, if this turn has closed it."""
    call: CallSeen | None = None
    tools: list[ToolSeen] = field(default_factory=list)


Sink = Callable[[TurnSeen], None]


class Watch:
    """Notes what happens in one turn."""

    def __init__(self, claim: Claim) -> None:
        self._clock = _Clock()
        now = self._clock.now()
        self.seen = TurnSeen(claim=claim, span=Span(began=now, ended=now))

    def call(
        self, client: LlmClient, request: LlmRequest, candidate: Candidate, *, cancel: Cancel, on_chunk: ChunkSink
    ) -> LlmReply:
        """``client.complete``, noted. candidate: who is asked."""
        began = self._clock.now()
        try:
            reply = client.complete(request, cancel=cancel, on_chunk=on_chunk)
        except LlmError as error:
            # It never was a call: nobody is there to be asked.
            if error.kind is not ErrorKind.NOT_CONFIGURED:
                self._note_call(request, candidate, error, began)
            raise
        self._note_call(request, candidate, reply, began)
        return reply

    def tools(self, toolbox: Toolbox, need: RunTools, cancel: Cancel) -> tuple[ToolResult, ...]:
        """``toolbox.run``, noted."""
        began = self._clock.now()
        ended: dict[int, int] = {}

        def came_back(index: int) -> None:
            ended[index] = self._clock.now()

        process = self.seen.claim.view.process
        results = toolbox.run(need, process, cancel, on_result=came_back)
        late = self._clock.now()
        for index, (call, result) in enumerate(zip(need.calls, results, strict=True)):
            span = Span(began=began, ended=min(ended.get(index, late), late))
            self.seen.tools.append(ToolSeen(call=call, result=result, span=span))
        return results

    def committed(self, transition: Transition, committed: Committed) -> None:
        """The commit has landed."""
        self.seen.outcome, self.seen.transition = "committed", transition
        if committed.closed:
            close = next(effect for effect in transition.effects if isinstance(effect, CloseProcess))
            self.seen.closed = close.reason

    def closed_as_failed(self) -> None:
        """The process was closed over the head of its engine."""
        self.seen.closed = CloseReason.FAILED

    def end(self) -> TurnSeen:
        """The turn is over, now."""
        self.seen.span = Span(began=self.seen.span.began, ended=self._clock.now())
        return self.seen

    def _note_call(self, request: LlmRequest, candidate: Candidate, end: LlmReply | LlmError, began: int) -> None:
        self.seen.call = CallSeen(
            provider=end.provider or candidate.provider_name,
            model=end.model or candidate.model,
            request=request,
            end=end,
            span=Span(began=began, ended=self._clock.now()),
        )


class Observer:
    """Shows every turn to its sinks once the turn is over."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    @contextmanager
    def turn(self, claim: Claim) -> Iterator[Watch]:
        """The turn is run in this block; how it ends is read off the exception that leaves it."""
        watch = Watch(claim)
        try:
            yield watch
        except StaleTurn:
            watch.seen.outcome = "lost"
            raise
        except DatabaseUnavailable:
            watch.seen.outcome = "unavailable"
            raise
        except Postponed:
            watch.seen.outcome = "postponed"
            raise
        finally:
            seen = watch.end()
            for sink in self._sinks:
                try:
                    sink(seen)
                except Exception:
                    log.exception("turn not observed")


NOBODY = Observer()
"""Looks away."""


class TurnCounts:
    """The sink of the metrics."""

    def __init__(self, counts: Meter) -> None:
        self._meter = counts

    def __call__(self, seen: TurnSeen) -> None:
        view = seen.claim.view
        engine = view.process.engine
        self._meter.count(meter.TURNS, engine, seen.outcome)
        if seen.outcome == "committed":
            self._meter.observe(meter.TURN_SECONDS, engine, view.node.phase, value=seen.span.seconds)
        if seen.closed is not None:
            self._meter.count(meter.CLOSED, seen.closed.value)
        if seen.call is not None:
            self._call(seen.call)

    def _call(self, call: CallSeen) -> None:
        end, names = call.end, (call.provider, call.model)
        self._meter.count(meter.CALLS, *names, end.kind.value if isinstance(end, LlmError) else "")
        if end.lane == NORMAL_LANE:  # a batch's answer is read in no time, and was awaited for hours
            self._meter.observe(meter.CALL_SECONDS, *names, value=call.span.seconds)
        for kind, number in (
            ("input", end.usage.input_tokens),
            ("output", end.usage.output_tokens),
            ("cache_read", end.usage.cache_read_tokens),
            ("cache_write", end.usage.cache_write_tokens),
        ):
            if number:
                self._meter.count(meter.TOKENS, *names, kind, by=number)
        if end.cost_usd:
            self._meter.count(meter.COST, *names, by=end.cost_usd)


class _Clock:
    """The time of day, from one reading on by the monotonic clock: what is measured never runs backwards."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        return self._offset + time.monotonic_ns()
