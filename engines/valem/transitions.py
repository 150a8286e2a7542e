"""From a step of the machine to what the turn changes: cursor, history, audit trail, version written, result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

from engines.conversation import Called
from engines.llm.base import LlmReply
from engines.structured.text import shorten
from engines.valem.cursor import ValemPhase, ValemState
from engines.valem.machine import (
    Closed,
    Confirmed,
    Event,
    Judged,
    Looked,
    NoMore,
    Onward,
    Refused,
    Replied,
    Returned,
    Step,
    TooLong,
    Verdict,
    Write,
)
from engines.valem.results import spec_of, wrapper_of
from models.records import CloseReason, Reason
from models.transition import (
    AppendMessage,
    CloseProcess,
    Effect,
    PhaseNote,
    Transition,
    WriteModelSpec,
    advance,
    finish,
)

_SHOWN_PROBLEMS: Final = 5
_MESSAGE_CHARS: Final = 20_000
_DID: Final = {
    Verdict.UNREADABLE: "the answer could not be read",
    Verdict.INVALID: "validation failed",
    Verdict.UNSTABLE: "the initial state breaks a constraint",
    Verdict.FLAWED: "tests or view fell short",
    Verdict.GOOD: "all is well",
}


def transition_of(
    before: ValemState, event: Event, step: Step, *, question: str, details: Mapping[str, Any]
) -> Transition:
    """What the turn changes. question: what the caller asked for; details: what else the audit trail keeps of the turn.

    The question enters the history with the first turn that leaves a trace, whatever that turn's outcome.
    """
    effects: tuple[Effect, ...] = _history(before, event)
    if before == ValemState(base_version=before.base_version):
        effects = (AppendMessage(role="user", kind="prompt", content=question), *effects)
    phase, cursor = step.state.phase.value, step.state.to_cursor()
    output = {**_did(event), **details, **_next(before, step)}
    note = PhaseNote(phase=before.phase.value, iteration=before.attempt, output=output)
    match step:
        case Onward():
            reason = Reason.CORRECTED if step.corrected else Reason.ADVANCED
            return advance(phase, cursor, note=note, reason=reason, effects=effects)
        case Write():
            chosen = step.chosen
            if chosen.version is None:
                raise ValueError("nothing is to be written")
            evolution = chosen.candidate.evolution
            written = WriteModelSpec(
                model_id=chosen.model_id,
                version=chosen.version,
                spec=spec_of(chosen.candidate, chosen.model_id),
                spec_version=chosen.candidate.spec_version,
                evolution=None if evolution is None else json.loads(evolution),
            )
            return advance(phase, cursor, note=note, effects=(*effects, written))
        case Closed():
            wrapper = wrapper_of(step)
            forced = "forced" in wrapper or isinstance(event, NoMore)
            close = CloseProcess(reason=CloseReason.DONE, result=wrapper, message=_in_words(wrapper))
            reason = Reason.FORCED if forced else Reason.CONCLUDED
            note = replace(note, forced=forced)
            return finish(phase, cursor, note=note, effects=(*effects, close), reason=reason)
        case _:
            assert_never(step)


def _did(event: Event) -> dict[str, Any]:
    match event:
        case Replied():
            if event.calls:
                return {"did": "requesting", "tools": [f"{call.name} {_arguments(call, 200)}" for call in event.calls]}
            return {"did": "requesting", "characters": len(event.text)} | ({"cut": True} if event.cut else {})
        case Returned():
            return {"did": "tools", "characters": [len(text) for text in event.results]}
        case Judged():
            said: dict[str, Any] = {"did": f"checking: {_DID[event.verdict]}"}
            if event.verdict is not Verdict.GOOD:
                said["problems"] = [shorten(str(each), 300) for each in event.problems[:_SHOWN_PROBLEMS]]
                said["count"] = event.count if event.count is not None else len(event.problems)
            return said
        case TooLong():
            return {"did": "the conversation was too long", "message": shorten(event.message, 300)}
        case NoMore() | Refused():
            return {"did": "ending", "error": event.error, "message": shorten(event.message, 1_000)}
        case Looked():
            return {"did": "storing", "taken": event.taken} if event.taken is not None else {"did": "storing"}
        case Confirmed():
            return {"did": "stored" if event.ours else "somebody else was first"}
        case _:
            assert_never(event)


def _next(before: ValemState, step: Step) -> dict[str, Any]:
    state = step.state
    match step:
        case Onward():
            if state.phase is ValemPhase.ASK and state.attempt > before.attempt:
                return {"next": f"retrying: attempt {state.attempt} ({state.asked.value})"}
            if state.phase is ValemPhase.STORE and state.chosen is not None:
                effort = " (best effort)" if state.chosen.best_effort else ""
                return {"next": f"storing {state.chosen.model_id}{effort}"}
            return {}
        case Write():
            return {"model": step.chosen.model_id, "version": step.chosen.version}
        case Closed():
            if step.error is not None:
                return {"success": False, "error": step.error, "message": shorten(step.message, 1_000)}
            return {"success": True}
        case _:
            assert_never(step)


def _history(before: ValemState, event: Event) -> tuple[Effect, ...]:
    match event:
        case Replied():
            calls = [f"{call.name}({_arguments(call, 500)})" for call in event.calls]
            content = "\n".join(part for part in (event.text.strip(), *calls) if part)
            kind = "tool_calls" if calls else "reply"
            return (AppendMessage(role="assistant", kind=kind, content=shorten(content, _MESSAGE_CHARS)),)
        case Returned():
            return tuple(
                AppendMessage(role="tool", kind="tool_result", content=f"{call.name}: {text}")
                for call, text in zip(before.pending, event.results, strict=True)
            )
        case Judged() if event.verdict is not Verdict.GOOD:
            content = shorten("\n".join((_DID[event.verdict], *map(str, event.problems))), _MESSAGE_CHARS)
            return (AppendMessage(role="system", kind="correction", content=content),)
        case _:
            return ()


def said(reply: LlmReply) -> dict[str, Any]:
    """What the audit trail keeps of a reply's way."""
    return {"path": reply.path.value} if reply.path is not None else {}


def _arguments(call: Called, limit: int) -> str:
    return shorten(call.raw if call.raw is not None else json.dumps(call.arguments, ensure_ascii=False), limit)


def _in_words(wrapper: Mapping[str, Any]) -> str:
    """The last message of the history: people read it. The spec itself is in the result."""
    if wrapper["success"] is not True:
        return f"{wrapper['error']}: {wrapper['message']}"
    version = wrapper["version"]
    stored = f"stored as version {version}" if version is not None else "not stored"
    lines = [f"Model {wrapper['modelId']} ({wrapper['specVersion']}), {stored}, after {wrapper['attempts']} attempts."]
    failing: Sequence[str] = wrapper["failingTests"]
    if failing:
        lines.append(f"{len(failing)} of its tests fail:")
        lines += [f"- {each}" for each in failing]
    return "\n".join(lines)
