"""Marvin on the turn protocol: from a view to one phase call, and from its outcome to a transition. Stateless."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, assert_never

from engines.base import Abandoned, AskModel, BudgetSpent, Decided, ModelFailed, ModelReplied, Need, Outcome, ToolsRan
from engines.conversation import raised_limit
from engines.errors import TemplateError
from engines.llm.base import ErrorKind, LlmReply, LlmRequest, StopKind
from engines.marvin.calls import ENGINE_NAME, WORKER_RECIPE, available_recipes
from engines.marvin.caps import RANGES
from engines.marvin.expansion import expanded, planned, wished_document
from engines.marvin.machine import decide
from engines.marvin.material import gathered
from engines.marvin.outputs import PhaseOutput, PhaseParseError, ValidateOutput, parse_output
from engines.marvin.prompts import phase_messages, worker_system
from engines.marvin.questions import questioned, withdrawal
from engines.marvin.schemas import schema_for
from engines.marvin.steps import CallFailed, Event, NoCallAllowed, Unreadable
from engines.marvin.surroundings import Surroundings
from engines.marvin.transitions import failed, transition_of
from engines.marvin.words import Phase, TaskKind
from models.records import DocumentWish, View
from models.transition import Transition

# Where nobody said how long an answer may be, the first attempt after a cut asks for this much.
_FIRST_RAISED_LIMIT: Final = 8_192
_TOO_LONG: Final = (ErrorKind.CONTEXT_TOO_LONG, ErrorKind.REQUEST_TOO_LARGE)
_NO_GOAL: Final = "goal: is blank; it must say in words what the plan is for"


class Marvin:
    """The engine ``marvin``. See its README for the contract; stateless."""

    name = ENGINE_NAME
    first_phase = Phase.SCOPE.value
    history = 0
    """Every call is put together anew; what a node has gathered is in its cursor, its calls and its children."""
    root_kind = TaskKind.WORKER.value
    own_recipes = (WORKER_RECIPE,)
    param_names = frozenset(limit.name for limit in RANGES.values()) | {
        "availableRecipes",
        "defaultExecutionMode",
        "defaultExecutionModePerKind",
        "lang",
        "maxOutputTokens",
        "model",
        "owner",
    }

    def called_recipes(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        return available_recipes(params)

    def objection(self, goal: str, params: Mapping[str, Any]) -> str | None:
        return None if goal.strip() else _NO_GOAL

    def wished_document(self, view: View) -> DocumentWish | None:
        return wished_document(Surroundings.of(view))

    def prepare(self, view: View) -> Need:
        at = Surroundings.of(view)
        match view.node.kind:
            case TaskKind.EXPAND_FROM_DOC:
                return Decided(transition=expanded(at))
            case TaskKind.USER_INPUT:
                return Decided(transition=questioned(at))
        if not at.goal.strip():
            return Decided(transition=failed(at, at.cursor, _NO_GOAL, None, "invalid_params"))
        if at.cursor.planned:
            return Decided(transition=planned(at))
        try:
            return AskModel(request=_request(at), attempt=at.cursor.state.corrections + 1)
        except TemplateError as error:
            why = f"the recipe's prompt cannot be used: {error.message}"
            return Decided(transition=failed(at, at.cursor, why, {"error": error.message}, "invalid_recipe"))

    def decide(self, view: View, outcome: Outcome) -> Transition:
        at = Surroundings.of(view)
        event = _event(at, outcome)
        if view.node.kind in (TaskKind.EXPAND_FROM_DOC, TaskKind.USER_INPUT):
            # Only a turn that was given up comes here: nodes of these kinds call no model.
            why = event.why if isinstance(event, NoCallAllowed) else "this node calls no model"
            code = _error_code(outcome, event)
            return failed(at, at.cursor, why, {"error": why}, code, withdrawal(at))
        step = decide(at.cursor.state, event, at.caps, at.place)
        return transition_of(at, step, _for_audit(event), error=_error_code(outcome, event))

    def wrapper(self, cursor: dict[str, Any], *, error: str, message: str) -> dict[str, Any]:
        return {"success": False, "error": error, "message": message}


def _request(at: Surroundings) -> LlmRequest:
    state = at.cursor.state
    limit = at.view.process.params.get("maxOutputTokens")
    own_limit = limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None
    return LlmRequest(
        model=at.model,
        messages=phase_messages(worker_system(at.worker, at.variables), at.phase_view(), state.rejected),
        schema=schema_for(state.phase),
        schema_name=state.phase.value.lower(),
        max_output_tokens=state.output_limit or own_limit,
        schema_in_prompt=True,
    )


def _event(at: Surroundings, outcome: Outcome) -> PhaseOutput | Event:
    match outcome:
        case ModelReplied():
            return _read(at, outcome.reply)
        case ModelFailed():
            error = outcome.error
            return CallFailed(message=f"{error.kind.value}: {error.message}", too_long=error.kind in _TOO_LONG)
        case BudgetSpent():
            return NoCallAllowed(why=outcome.limit, material=gathered(at.findings, outcome.limit))
        case ToolsRan():
            raise TypeError("marvin asks for no tools")
        case Abandoned():
            return NoCallAllowed(why=outcome.why, material=gathered(at.findings, outcome.why))
        case _:
            assert_never(outcome)


def _read(at: Surroundings, reply: LlmReply) -> PhaseOutput | Event:
    cut = reply.stop is StopKind.LENGTH
    try:
        return parse_output(at.cursor.state.phase, reply.text, truncated=cut)
    except PhaseParseError as error:
        asked = at.cursor.state.output_limit
        limit = raised_limit(reply, _FIRST_RAISED_LIMIT, asked=asked) if cut else None
        return Unreadable.of(error, reply.text, truncated=cut, next_limit=limit)


def _for_audit(event: PhaseOutput | Event) -> dict[str, Any]:
    match event:
        case Unreadable() | CallFailed():
            return {"error": event.message}
        case NoCallAllowed():
            return {"error": event.why}
        case _:
            return event.model_dump(mode="json", by_alias=True, exclude_none=True)


def _error_code(outcome: Outcome, event: PhaseOutput | Event) -> str:
    """What the result's ``error`` is when this turn fails the root."""
    match outcome:
        case ModelFailed():
            return "llm_error"
        case BudgetSpent():
            return "budget_exceeded"
        case Abandoned() | ToolsRan():
            return "internal_error"
        case ModelReplied():
            if isinstance(event, Unreadable):
                return "parse_failed"
            return "rejected" if isinstance(event, ValidateOutput) else "blocked"
        case _:
            assert_never(outcome)
