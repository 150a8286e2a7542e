"""Jeltz on the turn protocol: from a view to one model call, and from its outcome to a transition."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, assert_never

from engines.base import Abandoned, AskModel, BudgetSpent, Decided, ModelFailed, ModelReplied, Need, Outcome, ToolsRan
from engines.conversation import raised_limit
from engines.errors import InvalidParams, InvalidSchema, TemplateError
from engines.jeltz.machine import (
    Accepted,
    Again,
    Closed,
    CutOff,
    Ended,
    ErrorCode,
    Event,
    Grown,
    JeltzState,
    Rejected,
    Step,
    Violated,
    clamp_attempts,
    decide,
    error_wrapper,
)
from engines.llm.base import ErrorKind, LlmError, LlmReply, LlmRequest, Message, StopKind
from engines.recipes.model import Recipe
from engines.recipes.prompt import example_messages, prompt_variables, system_prompt
from engines.structured.correction import correction_text, excerpt
from engines.structured.reading import Reading, read_reply
from engines.structured.schema import CompiledSchema, compile_schema
from models.records import CloseReason, Reason, View
from models.transition import AppendMessage, CloseProcess, PhaseNote, Transition, advance, finish

ANSWER = "ANSWER"
DEFAULT_MODEL = "default:fast"
# Where nobody said how long an answer may be, the first attempt after a cut asks for this much.
_FIRST_RAISED_LIMIT = 4096
_BASE_PROMPT = "You answer one question with exactly one JSON object."


@dataclass(frozen=True, slots=True)
class _Question:
    """The caller's parameters, checked."""

    prompt: str
    schema: CompiledSchema
    max_attempts: int
    model: str
    temperature: float | None
    output_limit: int | None


def read_params(params: dict[str, Any]) -> _Question:
    """Check what the caller gave. Raises :class:`InvalidParams` or :class:`InvalidSchema`."""
    prompt = params.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        found = "is missing" if prompt is None else "is blank" if isinstance(prompt, str) else "is no text"
        raise InvalidParams("prompt", f"{found}; it must be the question as a non-blank string")
    if "schema" not in params or params["schema"] is None:
        raise InvalidParams("schema", "is missing; it must be a JSON Schema whose top level has type object")
    schema = params["schema"]
    if isinstance(schema, str | int | float) and not isinstance(schema, bool):
        kind = "text" if isinstance(schema, str) else "a number"
        raise InvalidParams("schema", f"is {kind}; it must be a JSON Schema object, not its text")
    return _Question(
        prompt=prompt,
        schema=compile_schema(schema),
        max_attempts=clamp_attempts(params.get("maxAttempts", 3)),
        model=_text(params, "model") or DEFAULT_MODEL,
        temperature=_number(params, "temperature"),
        output_limit=_limit(params),
    )


def _text(params: dict[str, Any], name: str) -> str | None:
    value = params.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidParams(name, f"must be a string, not {type(value).__name__}")
    return value.strip() or None if value is not None else None


def _number(params: dict[str, Any], name: str) -> float | None:
    value = params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
        raise InvalidParams(name, "must be a number from 0 to 2")
    return float(value)


def _limit(params: dict[str, Any]) -> int | None:
    value = params.get("maxOutputTokens")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidParams("maxOutputTokens", "must be a whole number of tokens, at least 1")
    return value


class Jeltz:
    """The engine ``jeltz``. See its README for the contract; stateless."""

    name = "jeltz"
    first_phase = ANSWER
    history = 0
    """The cursor holds what the next attempt needs; the history is for people."""
    param_names = frozenset({"prompt", "schema", "maxAttempts", "model", "temperature", "maxOutputTokens", "lang"})

    def prepare(self, view: View) -> Need:
        state = JeltzState.from_cursor(view.node.cursor)
        try:
            question = read_params(view.process.params)
            request = self._request(view, question, state)
        except (InvalidParams, InvalidSchema, TemplateError) as error:
            code = ErrorCode.INVALID_SCHEMA if isinstance(error, InvalidSchema) else ErrorCode.INVALID_PARAMS
            step = decide(state, Ended(error=code, message=error.message, counts=False), 1)
            return Decided(transition=self._transition(view, state, step, reply=None))
        return AskModel(request=request, attempt=state.attempts + 1)

    def _request(self, view: View, question: _Question, state: JeltzState) -> LlmRequest:
        recipe = Recipe.model_validate(view.process.recipe)
        messages = [
            Message(role="system", content=self._system(view, recipe)),
            *example_messages(recipe, view.process.params),
            Message(role="user", content=question.prompt),
        ]
        if state.rejected is not None:
            if state.rejected.excerpt:
                messages.append(Message(role="assistant", content=state.rejected.excerpt))
            # Not every provider takes a system message in the middle of a conversation; the history keeps it as one.
            messages.append(Message(role="user", content=state.rejected.correction))
        return LlmRequest(
            model=question.model,
            messages=tuple(messages),
            schema=question.schema.schema,
            temperature=question.temperature,
            max_output_tokens=state.output_limit or question.output_limit,
        )

    def _system(self, view: View, recipe: Recipe) -> str:
        process = view.process
        model = str(process.params.get("model") or DEFAULT_MODEL)
        prefix, _, rest = model.partition(":")
        lang = process.params.get("lang")
        variables = prompt_variables(
            recipe,
            params=process.params,
            goal=process.goal,
            model=model,
            # An alias names a size class, anything else its provider; which model an alias means is settled later.
            tier=rest if prefix == "default" else "",
            provider=prefix if rest and prefix != "default" else "",
            mode="structured",
            lang=lang if isinstance(lang, str) else "",
            process_id=str(process.id),
        )
        return system_prompt(recipe, _BASE_PROMPT, variables)

    def decide(self, view: View, outcome: Outcome) -> Transition:
        state = JeltzState.from_cursor(view.node.cursor)
        if isinstance(outcome, BudgetSpent | Abandoned):
            # Nothing of the caller's is looked at: it may be what the workers were lost over.
            return self._transition(view, state, decide(state, _given_up(outcome), 1), reply=None)
        if isinstance(outcome, ToolsRan):
            raise TypeError("jeltz asks for no tools")
        question = read_params(view.process.params)
        event = self._event(state, question, outcome)
        step = decide(state, event, question.max_attempts)
        reply = outcome.reply if isinstance(outcome, ModelReplied) else None
        return self._transition(view, state, step, reply=reply)

    def _event(self, state: JeltzState, question: _Question, outcome: ModelReplied | ModelFailed) -> Event:
        match outcome:
            case ModelReplied():
                return _judge(outcome.reply, question, state)
            case ModelFailed():
                return _failure(outcome.error, state)
            case _:
                assert_never(outcome)

    def _transition(self, view: View, before: JeltzState, step: Step, *, reply: LlmReply | None) -> Transition:
        effects: list[AppendMessage | CloseProcess] = []
        prompt = view.process.params.get("prompt")
        # The question enters the history with the first turn that leaves a trace, whatever that turn's outcome.
        if not before.attempts and before.rejected is None and isinstance(prompt, str):
            effects.append(AppendMessage(role="user", kind="prompt", content=prompt))
        iteration = before.attempts + 1
        match step:
            case Again():
                if reply is not None:
                    effects.append(AppendMessage(role="assistant", kind="reply", content=reply.text))
                if step.state.rejected is not None:
                    effects.append(
                        AppendMessage(role="system", kind="correction", content=step.state.rejected.correction)
                    )
                note = PhaseNote(phase=ANSWER, iteration=iteration, output={"rejected": step.state.message})
                return advance(
                    ANSWER, step.state.to_cursor(), note=note, reason=Reason.CORRECTED, effects=tuple(effects)
                )
            case Closed():
                note = PhaseNote(phase=ANSWER, iteration=iteration, output=_summary(step.wrapper), forced=step.forced)
                message = json.dumps(step.wrapper, ensure_ascii=False, indent=2)
                close = CloseProcess(reason=CloseReason.DONE, result=step.wrapper, message=message)
                reason = Reason.FORCED if step.forced else Reason.CONCLUDED
                return finish(ANSWER, step.state.to_cursor(), note=note, effects=(*effects, close), reason=reason)
            case _:
                assert_never(step)

    def wrapper(self, cursor: dict[str, Any], *, error: str, message: str) -> dict[str, Any]:
        return error_wrapper(JeltzState.from_cursor(cursor), error, message)


def _given_up(outcome: BudgetSpent | Abandoned) -> Ended:
    if isinstance(outcome, BudgetSpent):
        message = f"no further call is allowed: {outcome.limit}"
        return Ended(error=ErrorCode.BUDGET_EXCEEDED, message=message, counts=False, forced=True)
    return Ended(error=ErrorCode.INTERNAL_ERROR, message=outcome.why, counts=False, forced=True)


def _summary(wrapper: dict[str, Any]) -> dict[str, Any]:
    """What the audit trail keeps of a wrapper: the result itself has its own table."""
    return {key: wrapper[key] for key in ("success", "attempts", "error", "message", "repaired") if key in wrapper}


def _judge(reply: LlmReply, question: _Question, state: JeltzState) -> Event:
    cut = reply.stop is StopKind.LENGTH
    reading = read_reply(reply.text, question.schema, truncated=cut)
    if reading.data is not None:
        return Accepted(data=reading.data, repaired=reading.repaired, hints=reading.hints, model=reply.model)
    message = _in_words(reading)
    if not cut:
        rejected = Rejected(excerpt=excerpt(reply.text), correction=correction_text(reading.violations))
        return Violated(message=message, rejected=rejected, last_invalid=reading.last_invalid)
    limit = reply.output_limit or state.output_limit
    # A cut answer is not quoted: it would only eat the room that the next one needs.
    rejected = Rejected(excerpt="", correction=correction_text(reading.violations, truncated=True))
    return CutOff(
        message=f"the answer was truncated at its limit{f' of {limit} tokens' if limit else ''}",
        rejected=rejected,
        last_invalid=reading.last_invalid,
        next_limit=raised_limit(reply, _FIRST_RAISED_LIMIT, asked=state.output_limit),
    )


def _in_words(reading: Reading) -> str:
    shown = "; ".join(str(violation) for violation in reading.violations[:5])
    more = len(reading.violations) - 5
    return f"{shown}; and {more} more" if more > 0 else shown


def _failure(error: LlmError, state: JeltzState) -> Event:
    if error.kind is ErrorKind.CONTEXT_TOO_LONG and state.rejected is not None and state.rejected.excerpt:
        return Grown(rejected=Rejected(excerpt="", correction=state.rejected.correction))
    codes = {ErrorKind.REFUSAL: ErrorCode.REFUSAL, ErrorKind.CONTENT_FILTER: ErrorCode.CONTENT_FILTER}
    return Ended(
        error=codes.get(error.kind, ErrorCode.LLM_ERROR),
        message=f"{error.kind.value}: {error.message}" if error.kind not in codes else error.message,
        # With nothing configured no call was made at all.
        counts=error.kind is not ErrorKind.NOT_CONFIGURED,
    )
