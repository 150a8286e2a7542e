"""Ford on the turn protocol: from a view to a model call or a batch of tools, and from its outcome to a transition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from engines.base import (
    Abandoned,
    AskModel,
    BudgetSpent,
    Decided,
    ModelFailed,
    ModelReplied,
    Need,
    Outcome,
    RunTools,
    ToolResult,
    ToolsRan,
)
from engines.conversation import MAX_CALLS_AT_ONCE, TOO_MANY_AT_ONCE, Called, called, raised_limit
from engines.errors import InvalidParams, TemplateError
from engines.ford import queries
from engines.ford.machine import (
    MAX_ROUND_TRIPS,
    Closed,
    Event,
    FordPhase,
    FordState,
    Limits,
    NoMore,
    Onward,
    Replied,
    Returned,
    Step,
    TooLong,
    decide,
    error_wrapper,
)
from engines.ford.prompts import conversation, final_conversation, system_text
from engines.llm.base import ErrorKind, LlmReply, LlmRequest, StopKind, ToolCall, ToolSpec
from engines.recipes.fence import fence
from engines.recipes.model import Recipe
from engines.structured.text import quote, shorten
from models.records import CloseReason, Reason, View
from models.transition import (
    AppendMessage,
    CloseProcess,
    Effect,
    PhaseNote,
    Transition,
    advance,
    finish,
    park,
)

DEFAULT_MODEL: Final = "default:analyze"
MAX_QUESTION_CHARS: Final = 100_000
_FIRST_RAISED_LIMIT: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class _Params:
    """The caller's parameters, checked."""

    question: str
    model: str
    limits: Limits
    result_chars: int
    tool_seconds: float
    output_limit: int | None


def read_params(view: View) -> _Params:
    """Check what the caller gave. Raises :class:`InvalidParams`."""
    params = view.process.params
    question = _question(view)
    if not question:
        raise InvalidParams("goal", "is blank; it must be the question in words (or give it as the parameter 'prompt')")
    if len(question) > MAX_QUESTION_CHARS:
        raise InvalidParams("goal", f"has {len(question):,} characters; at most {MAX_QUESTION_CHARS:,} are accepted")
    model = params.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidParams("model", f"must be a string, not {type(model).__name__}")
    limit = params.get("maxOutputTokens")
    return _Params(
        question=question,
        model=(model or "").strip() or DEFAULT_MODEL,
        limits=Limits(
            round_trips=_clamped(params.get("maxRoundTrips"), MAX_ROUND_TRIPS, 0, MAX_ROUND_TRIPS),
            conversation_chars=_clamped(params.get("conversationChars"), 120_000, 8_000, 600_000),
        ),
        result_chars=_clamped(params.get("toolResultChars"), 12_000, 500, 60_000),
        tool_seconds=float(_clamped(params.get("toolSeconds"), 60, 1, 600)),
        output_limit=limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None,
    )


def _question(view: View) -> str:
    prompt = view.process.params.get("prompt")
    return view.process.goal.strip() or (prompt.strip() if isinstance(prompt, str) else "")


def _clamped(value: Any, default: int, low: int, high: int) -> int:
    """A whole number within its range; what is none means the default."""
    return default if isinstance(value, bool) or not isinstance(value, int) else min(max(value, low), high)


class Ford:
    """The engine ``ford``. See its README for the contract; stateless."""

    name = "ford"
    first_phase = FordPhase.ASK.value
    history = 0
    """The conversation is in the cursor, bounded; the history is for people."""
    param_names = frozenset(
        {
            "conversationChars",
            "lang",
            "maxOutputTokens",
            "maxRoundTrips",
            "model",
            "prompt",
            "toolResultChars",
            "toolSeconds",
        }
    )

    def __init__(self, tools: Iterable[ToolSpec] = ()) -> None:
        """tools: those of the installation; a recipe may narrow them with ``allowedTools``."""
        self._tools = (queries.SPEC, *tools)

    def offered(self, recipe: Recipe) -> tuple[ToolSpec, ...]:
        """The tools a process of ``recipe`` may use, in the installation's order."""
        free = {spec.name for spec in self._tools if not spec.by_name_only}
        wanted = free if recipe.allowed_tools is None else set(recipe.allowed_tools)
        wanted = (wanted | set(recipe.allowed_tools_add)) - set(recipe.allowed_tools_remove)
        return tuple(spec for spec in self._tools if spec.name in wanted)

    def prepare(self, view: View) -> Need:
        state = FordState.from_cursor(view.node.cursor)
        try:
            params = read_params(view)
            recipe = Recipe.model_validate(view.process.recipe)
            tools = self.offered(recipe)
            if state.phase is FordPhase.QUERY:
                return Decided(transition=self._gathered(view, state, params))
            if state.phase is FordPhase.TOOLS:
                allowed = frozenset(spec.name for spec in tools)
                calls = tuple(call.tool_call for call in _at_once(state) if not _is_query(call, allowed))
                if not calls:
                    return Decided(transition=self._after_tools(view, state, params, ()))
                return RunTools(
                    calls=calls,
                    allowed=allowed,
                    seconds=params.tool_seconds,
                    max_chars=params.result_chars,
                )
            return AskModel(request=_request(view, params, recipe, tools, state), attempt=state.round_trips + 1)
        except (InvalidParams, TemplateError) as error:
            code = "invalid_params" if isinstance(error, InvalidParams) else "invalid_recipe"
            step = decide(state, NoMore(error=code, message=error.message), Limits())
            return Decided(transition=_transition(view, state, step, ()))

    def decide(self, view: View, outcome: Outcome) -> Transition:
        state = FordState.from_cursor(view.node.cursor)
        params = read_params(view)
        effects: tuple[Effect, ...] = ()
        event: Event
        match outcome:
            case ModelReplied():
                event = _read(outcome.reply, state)
                effects = _said(outcome.reply)
            case ToolsRan():
                return self._after_tools(view, state, params, outcome.results)
            case ModelFailed():
                event = _failure(outcome.error.kind, outcome.error.message, state)
            case BudgetSpent():
                message = f"no further call is allowed: {outcome.limit}"
                event = NoMore(error="budget_exceeded", message=message, forced=True)
            case Abandoned():
                event = NoMore(error="internal_error", message=outcome.why, forced=True)
            case _:
                assert_never(outcome)
        step = decide(state, event, params.limits)
        return _transition(view, state, step, effects, output=_for_audit(outcome))

    def _after_tools(
        self, view: View, state: FordState, params: _Params, results: tuple[ToolResult, ...]
    ) -> Transition:
        """The registry's tools have answered; structured queries of the batch become processes to wait for."""
        allowed = frozenset(spec.name for spec in self.offered(Recipe.model_validate(view.process.recipe)))
        ran = iter(results)
        texts: list[str | None] = []
        spawned: list[Effect] = []
        for index, call in enumerate(state.pending):
            if index >= MAX_CALLS_AT_ONCE:
                texts.append(TOO_MANY_AT_ONCE)
            elif not _is_query(call, allowed):
                texts.append(shorten(next(ran).text, params.result_chars + 200))
            else:
                texts.append(queries.objection(call))
                if texts[-1] is None:
                    spawned.append(queries.spawned(view, index, call, params.model))
        written = tuple(document for result in results for document in result.documents)
        event = Returned(results=_fenced(view, state, texts), documents=tuple(document.path for document in written))
        step = decide(state, event, params.limits)
        output = {"results": [{"ok": result.ok, "characters": len(result.text)} for result in results]}
        effects = (*_history(state, texts), *written, *spawned)
        return _transition(view, state, step, effects, output=output)

    def _gathered(self, view: View, state: FordState, params: _Params) -> Transition:
        """Every query is answered, or its time is up."""
        by_key = {call.cursor_key: call for call in view.calls}
        texts = [
            shorten(queries.reply(by_key.get(queries.key(state.round_trips, index))), params.result_chars)
            if call.result is None
            else None
            for index, call in enumerate(state.pending)
        ]
        fenced = _fenced(view, state, texts)
        results = tuple(call.result if text is None else text for call, text in zip(state.pending, fenced, strict=True))
        step = decide(state, Returned(results=results), params.limits)
        output = {"queries": [len(text) for text in texts if text is not None]}
        return _transition(view, state, step, _history(state, texts), output=output)

    def wrapper(self, cursor: dict[str, Any], *, error: str, message: str) -> dict[str, Any]:
        return error_wrapper(FordState.from_cursor(cursor), error, message)


def _request(view: View, params: _Params, recipe: Recipe, tools: tuple[ToolSpec, ...], state: FordState) -> LlmRequest:
    # Without tools at all, and with no round trip allowed, the first call is the last one.
    final = state.phase is FordPhase.ANSWER or not params.limits.round_trips
    system = system_text(view, recipe, params.model, () if final else tools)
    build = final_conversation if final else conversation
    return LlmRequest(
        model=params.model,
        messages=build(system, recipe, params.question, state),
        tools=() if final else tools,
        max_output_tokens=state.output_limit or params.output_limit,
    )


def _read(reply: LlmReply, state: FordState) -> Replied:
    cut = reply.stop is StopKind.LENGTH
    return Replied(
        text=reply.text,
        calls=called(reply.tool_calls, state.round_trips),
        cut=cut,
        next_limit=raised_limit(reply, _FIRST_RAISED_LIMIT) if cut else None,
    )


def _at_once(state: FordState) -> tuple[Called, ...]:
    return state.pending[:MAX_CALLS_AT_ONCE]


def _is_query(call: Called, allowed: frozenset[str]) -> bool:
    return call.name == queries.NAME and call.name in allowed


def _fenced(view: View, state: FordState, texts: Sequence[str | None]) -> tuple[str | None, ...]:
    return tuple(
        None if text is None else fence(text, f"Result of {call.name}", view.nonce)
        for call, text in zip(state.pending, texts, strict=True)
    )


def _history(state: FordState, texts: Sequence[str | None]) -> tuple[Effect, ...]:
    return tuple(
        AppendMessage(role="tool", kind="tool_result", content=f"{call.name}: {text}")
        for call, text in zip(state.pending, texts, strict=True)
        if text is not None
    )


def _failure(kind: ErrorKind, message: str, state: FordState) -> Event:
    if kind in (ErrorKind.CONTEXT_TOO_LONG, ErrorKind.REQUEST_TOO_LARGE) and state.phase in (
        FordPhase.ASK,
        FordPhase.ANSWER,
    ):
        return TooLong(message=f"{kind.value}: {message}")
    error = kind.value if kind in (ErrorKind.REFUSAL, ErrorKind.CONTENT_FILTER) else "llm_error"
    return NoMore(error=error, message=f"{kind.value}: {message}")


def _said(reply: LlmReply) -> tuple[Effect, ...]:
    calls = [f"{call.name}({shorten(json.dumps(call.arguments, default=str), 500)})" for call in reply.tool_calls]
    content = "\n".join(part for part in (reply.text.strip(), *calls) if part)
    # The closing commit writes the answer itself into the history.
    return (AppendMessage(role="assistant", kind="tool_calls", content=content),) if calls else ()


def _for_audit(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case ModelReplied():
            called = [{"name": call.name, "arguments": _shown(call)} for call in outcome.reply.tool_calls]
            return {"tools": called} if called else {"characters": len(outcome.reply.text)}
        case ToolsRan():
            return {"results": len(outcome.results)}
        case ModelFailed():
            return {"error": outcome.error.kind.value, "message": outcome.error.message}
        case BudgetSpent():
            return {"error": "budget_exceeded", "message": outcome.limit}
        case Abandoned():
            return {"error": "internal_error", "message": outcome.why}
        case _:
            assert_never(outcome)


def _shown(call: ToolCall) -> str:
    return quote(call.raw, 300) if call.raw is not None else shorten(json.dumps(call.arguments, default=str), 300)


def _transition(
    view: View, before: FordState, step: Step, effects: tuple[Effect, ...], *, output: dict[str, Any] | None = None
) -> Transition:
    # The question enters the history with the first turn that leaves a trace, whatever that turn's outcome.
    if before == FordState() and (question := _question(view)):
        effects = (AppendMessage(role="user", kind="prompt", content=question), *effects)
    phase, cursor = step.state.phase.value, step.state.to_cursor()
    note = PhaseNote(phase=before.phase.value, iteration=before.round_trips + 1, output=output)
    match step:
        case Onward():
            if step.state.phase is FordPhase.QUERY:
                return park(
                    phase,
                    cursor,
                    note=note,
                    reason=Reason.CALLED,
                    effects=effects,
                    timeout_seconds=float(queries.SECONDS),
                )
            reason = Reason.CORRECTED if step.corrected else Reason.ADVANCED
            return advance(phase, cursor, note=note, reason=reason, effects=effects)
        case Closed():
            wrapper = step.wrapper
            summary = {key: wrapper[key] for key in ("success", "roundTrips", "error", "message") if key in wrapper}
            note = replace(note, output={**(output or {}), **summary}, forced=step.forced)
            message = wrapper["result"] if wrapper["success"] else json.dumps(wrapper, ensure_ascii=False, indent=2)
            close = CloseProcess(reason=CloseReason.DONE, result=wrapper, message=message)
            reason = Reason.FORCED if step.forced else Reason.CONCLUDED
            return finish(phase, cursor, note=note, effects=(*effects, close), reason=reason)
        case _:
            assert_never(step)
