"""Valem on the turn protocol: from a view to a call, tools or a check, and from its outcome to a transition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
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
from engines.conversation import called, raised_limit
from engines.errors import EngineError, InvalidParams, TemplateError
from engines.llm.base import ErrorKind, LlmError, LlmReply, StopKind, ToolSpec
from engines.recipes.fence import fence
from engines.recipes.model import Recipe
from engines.structured.text import shorten
from engines.valem import budgets, verdicts
from engines.valem.base_spec import Impossible, base_spec
from engines.valem.cursor import Task, ValemPhase, ValemState
from engines.valem.machine import (
    Confirmed,
    Event,
    Judged,
    Limits,
    Looked,
    NoMore,
    Refused,
    Replied,
    Returned,
    TooLong,
    decide,
)
from engines.valem.offer import Offer, guidance_tool, offer_of
from engines.valem.params import PARAM_NAMES, Params, read_params
from engines.valem.requests import prompt_of, request_of
from engines.valem.results import error_wrapper
from engines.valem.schemas import SUBMIT_SPEC
from engines.valem.transitions import said, transition_of
from models.records import View
from models.spec_records import ModelWish
from models.transition import Transition

_GRACE_SECONDS: Final = 20.0
"""What a check may take beyond its own limit before it counts as broken."""
_STORING: Final = frozenset({ValemPhase.STORE, ValemPhase.CONFIRM})


class Valem:
    """The engine ``valem``. See its README for the contract; stateless."""

    name = "valem"
    first_phase = ValemPhase.ASK.value
    history = 0
    """The cursor holds what the next turn needs; the history is for people."""
    param_names = PARAM_NAMES

    def __init__(self, tools: Iterable[ToolSpec] = ()) -> None:
        """tools: those of the installation; a recipe chooses among them with ``allowedTools``."""
        self._tools = (guidance_tool(), *tools)

    def objection(self, goal: str, params: Mapping[str, Any]) -> str | None:
        """Why no process is made of this goal and these parameters; ``None`` when one can be."""
        try:
            read_params(params, goal)
        except InvalidParams as error:
            return error.message
        return None

    def wished_model(self, view: View) -> ModelWish | None:
        """The model to evolve, the place a new one is to have, or the version that was just written."""
        state = ValemState.from_cursor(view.node.cursor)
        if (chosen := state.chosen) is not None:
            # A new model's place is free where there is no version at all.
            anywhere = state.phase is ValemPhase.STORE and state.base_version is None
            return ModelWish(model_id=chosen.model_id, version=None if anywhere else chosen.version)
        try:
            params = _params(view)
        except InvalidParams:
            return None
        if params.model_id is None or state.phase is ValemPhase.TOOLS:
            return None
        if params.task is Task.GENERATE and view.node.cursor:
            return None
        return ModelWish(model_id=params.model_id, version=state.base_version)

    def prepare(self, view: View) -> Need:
        state = ValemState.from_cursor(view.node.cursor)
        try:
            params = _params(view)
            if state.phase in _STORING:
                return Decided(transition=_step(view, state, _found(view, state), params.limits))
            offer = offer_of(self._tools, Recipe.model_validate(view.process.recipe), params)
            if state.phase is ValemPhase.TOOLS:
                return self._tools_needed(view, state, params, offer)
            base = base_spec(view, params)
            if state.phase is ValemPhase.CHECK:
                return RunTools(
                    calls=(verdicts.check_call(state, params, base),),
                    allowed=frozenset({verdicts.CHECK}),
                    seconds=params.check_seconds + _GRACE_SECONDS,
                    max_chars=verdicts.MAX_REPORT_CHARS,
                )
            return AskModel(request=request_of(view, params, base, offer, state), attempt=state.attempt)
        except Impossible as impossible:
            refused = Refused(error=impossible.code, message=impossible.message)
        except InvalidParams as error:
            refused = Refused(error="invalid_params", message=error.message)
        except TemplateError as error:
            refused = Refused(error="invalid_recipe", message=error.message)
        return Decided(transition=_step(view, state, refused, Limits()))

    def _tools_needed(self, view: View, state: ValemState, params: Params, offer: Offer) -> Need:
        plans = budgets.plan(state.pending, state.spending, params.calls)
        calls = tuple(offer.adapted(plan.call) for plan in plans if isinstance(plan, budgets.Run))
        if not calls:
            return Decided(transition=_after_tools(view, state, params, ()))
        return RunTools(calls=calls, allowed=offer.names, seconds=params.tool_seconds, max_chars=params.fetch_chars)

    def decide(self, view: View, outcome: Outcome) -> Transition:
        state = ValemState.from_cursor(view.node.cursor)
        match outcome:
            case BudgetSpent():
                message = f"no further call is allowed: {outcome.limit}"
                return _step(view, state, NoMore(error="budget_exceeded", message=message), _limits(view))
            case Abandoned():
                # Nothing of the caller's is looked at closely: it may be what the workers were lost over.
                return _step(view, state, NoMore(error="internal_error", message=outcome.why), _limits(view))
            case ModelReplied():
                params = _params(view)
                tiers = prompt_of(view, params, base_spec(view, params), state).hashes()
                state = _based(view, state, params)
                details = {**said(outcome.reply), "tiers": {tier: digest[:16] for tier, digest in tiers.items()}}
                return _step(view, state, _read(outcome.reply, state, params), params.limits, details=details)
            case ModelFailed():
                return _step(view, _based(view, state, _params(view)), _failure(outcome.error), _limits(view))
            case ToolsRan():
                params = _params(view)
                if state.phase is ValemPhase.CHECK:
                    return _step(view, state, _verdict(outcome.results[0], state), params.limits)
                return _after_tools(view, state, params, outcome.results)
            case _:
                assert_never(outcome)

    def wrapper(self, cursor: dict[str, Any], *, error: str, message: str) -> dict[str, Any]:
        return error_wrapper(ValemState.from_cursor(cursor), error, message)


def _params(view: View) -> Params:
    return read_params(view.process.params, view.process.goal)


def _limits(view: View) -> Limits:
    try:
        return _params(view).limits
    except EngineError:
        return Limits(stores=False)


def _based(view: View, state: ValemState, params: Params) -> ValemState:
    """The state with the version that is evolved: the newest one at the first turn, and no other from then on."""
    if params.task is Task.EVOLVE and state.base_version is None and view.model is not None:
        return replace(state, base_version=view.model.version)
    return state


def _found(view: View, state: ValemState) -> Event:
    """What the store holds at the place that was chosen."""
    if state.phase is ValemPhase.STORE:
        return Looked(taken=view.model.version if view.model is not None else None)
    return Confirmed(ours=view.model is not None and view.model.node_id == view.node.id)


def _after_tools(view: View, state: ValemState, params: Params, results: tuple[ToolResult, ...]) -> Transition:
    plans = budgets.plan(state.pending, state.spending, params.calls)
    texts, spending = budgets.settle(plans, results, state.spending, params.calls)
    shown = tuple(
        fence(shorten(text, params.fetch_chars + 200), f"Result of {call.name}", view.nonce)
        for call, text in zip(state.pending, texts, strict=True)
    )
    return _step(view, state, Returned(results=shown, spending=spending), params.limits)


def _read(reply: LlmReply, state: ValemState, params: Params) -> Replied:
    # Some models call it although it was not offered: the rules speak of it.
    handed_in = next((call for call in reply.tool_calls if call.name == SUBMIT_SPEC), None)
    text = reply.text
    if handed_in is not None:
        text = json.dumps(handed_in.arguments, ensure_ascii=False) if handed_in.raw is None else handed_in.raw
    return Replied(
        text=text,
        calls=called(reply.tool_calls, state.round_trips) if handed_in is None else (),
        cut=reply.stop is StopKind.LENGTH,
        next_limit=raised_limit(reply, 2 * params.max_tokens, most=params.max_tokens_hard),
    )


def _verdict(result: ToolResult, state: ValemState) -> Judged:
    if not result.ok:
        raise verdicts.CheckBroken(result.text)
    judged = verdicts.read(result.text)
    if judged.candidate is None:
        return judged
    return replace(judged, candidate=replace(judged.candidate, attempt=state.attempt))


def _failure(error: LlmError) -> Event:
    if error.kind in (ErrorKind.CONTEXT_TOO_LONG, ErrorKind.REQUEST_TOO_LARGE):
        return TooLong(message=f"{error.kind.value}: {error.message}")
    declined = error.kind in (ErrorKind.REFUSAL, ErrorKind.CONTENT_FILTER)
    code = error.kind.value if declined else "llm_error"
    return NoMore(error=code, message=f"{error.kind.value}: {error.message}", counts=error.reached_inference)


def _step(
    view: View, state: ValemState, event: Event, limits: Limits, *, details: Mapping[str, Any] | None = None
) -> Transition:
    step = decide(state, event, limits)
    return transition_of(state, event, step, question=_question(view), details=details or {})


def _question(view: View) -> str:
    params = view.process.params
    given = (params.get(name) for name in ("domainDescription", "evolutionRequest"))
    return next((text for text in given if isinstance(text, str) and text.strip()), view.process.goal)
