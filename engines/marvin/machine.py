"""The state machine of one worker node: ``decide`` is a table from (phase, what the model chose) to a rule. Pure.

``README.md`` beside this file draws it; a test compares the two. Every rule returns a new :class:`Step`; a limit never
fails a node, it forces the next best step and says so in the hints (for the model) or the warning (for people).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engines.marvin.caps import Caps
from engines.marvin.outputs import (
    ConcludeOutput,
    NewTask,
    PhaseOutput,
    PostChildrenOutput,
    ReflectOutput,
    ScopeOutput,
    ValidateOutput,
)
from engines.marvin.state import MarvinState, Rejected
from engines.marvin.steps import (
    Accept,
    AskUser,
    CallFailed,
    CallRecipe,
    Correct,
    Event,
    Fail,
    GoTo,
    NoCallAllowed,
    Place,
    Spawn,
    Step,
    Unreadable,
)
from engines.marvin.words import Phase, PostChildrenAction, ScopeAction, TaskKind, Verdict

MAX_HINTS = 20
HINT_CHARS = 1_000
FAILURE_CHARS = 2_000
NOTHING_CREATED: Final = "No subtask was created: do the work yourself, as far as it goes."
_TASK_CHARS = 80


@dataclass(frozen=True, slots=True)
class _Situation:
    """Everything a rule may look at. ``state`` is already rid of earlier corrections."""

    state: MarvinState
    output: PhaseOutput
    caps: Caps
    place: Place

    @property
    def decision(self) -> ScopeOutput | ReflectOutput | PostChildrenOutput:
        assert isinstance(self.output, ScopeOutput | ReflectOutput | PostChildrenOutput)
        return self.output

    @property
    def opening(self) -> ScopeOutput | ReflectOutput:
        assert isinstance(self.output, ScopeOutput | ReflectOutput)
        return self.output

    @property
    def review(self) -> ValidateOutput:
        assert isinstance(self.output, ValidateOutput)
        return self.output


def decide(state: MarvinState, output: PhaseOutput | Event, caps: Caps, place: Place) -> Step:
    """What follows ``output`` (or another event) in ``state``. ``ValueError`` for the output of another phase."""
    match output:
        case Unreadable():
            return _correct(state, output, caps)
        case CallFailed() if output.too_long and not state.short:
            # What is left of an unreadable answer goes first: quoting it may be what made the prompt too long.
            rejected = state.rejected and replace(state.rejected, excerpt="")
            return Correct(message=output.message, state=replace(state, short=True, rejected=rejected))
        case CallFailed():
            shortened = ", with the shortened prompt too" if output.too_long else ""
            return _fail(state, f"{state.phase} call failed{shortened}: {output.message}")
        case NoCallAllowed():
            return _end_early(state, output, place)
    if output.phase is not state.phase:
        raise ValueError(f"an answer of {output.phase} for a node in {state.phase}")
    readable = replace(state, corrections=0, rejected=None, output_limit=None)
    return RULES[state.phase, token_of(output)](_Situation(readable, output, caps, place))


def token_of(output: PhaseOutput) -> str:
    """What the model chose: the action or the verdict; ``RESULT`` for a conclusion."""
    match output:
        case ConcludeOutput():
            return "RESULT"
        case ValidateOutput():
            return output.verdict.value
        case _:
            return output.action.value


# --- rules: work ----------------------------------------------------------------------------------------------------


def _call(at: _Situation) -> Step:
    call = at.opening.recipe_call
    assert call is not None
    if at.state.reflect_iter >= at.caps.reflect:
        return _force_conclusion(at, f"No further recipe call is possible (limit {at.caps.reflect}).")
    return CallRecipe(call=call, state=replace(at.state, phase=Phase.REFLECT, reflect_iter=at.state.reflect_iter + 1))


def _conclude(at: _Situation) -> Step:
    return GoTo(phase=Phase.CONCLUDE, state=replace(at.state, phase=Phase.CONCLUDE))


def _blocked(at: _Situation) -> Step:
    return _fail(at.state, at.decision.problem or "blocked")


def _spawn(at: _Situation) -> Step:
    if at.state.level(at.place.depth) >= at.caps.max_tree_depth:
        return _force_conclusion(at, "No subtasks are possible at this depth: do the work yourself, as far as it goes.")
    fresh, repeated = _without_repeats(at.decision.new_tasks, at.place.goals)
    room = max(0, at.caps.max_tree_nodes - at.place.node_count)
    tasks, homeless = fresh[:room], fresh[room:]
    hints = [
        f'The subtask "{_short(task.goal)}" was not created: it repeats another subtask or the goal above it.'
        for task in repeated
    ]
    if homeless:
        hints.append(no_room([task.goal for task in homeless]))
    if not tasks:
        return _force_conclusion(at, *hints, NOTHING_CREATED)
    after = replace(at.state, phase=Phase.POST_CHILDREN, post_children_rounds=at.state.post_children_rounds + 1)
    return Spawn(tasks=tasks, refused=len(repeated) + len(homeless), state=with_hints(after, hints))


def _ask(at: _Situation) -> Step:
    question = at.opening.user_input
    assert question is not None
    if at.place.node_count >= at.caps.max_tree_nodes:
        return _force_conclusion(at, "The question was not asked, because the tree is full: name it as open.")
    if not at.place.is_root:
        return AskUser(question=question, as_child=False, state=at.state)
    # The answer has to come back into a conclusion, and above the root there is nobody to draw one.
    after = replace(
        at.state,
        phase=Phase.POST_CHILDREN,
        post_children_rounds=at.state.post_children_rounds + 1,
        asked=at.state.asked + 1,
    )
    return AskUser(question=question, as_child=True, state=after)


# --- rules: conclusion and review -----------------------------------------------------------------------------------


def _review(at: _Situation) -> Step:
    assert isinstance(at.output, ConcludeOutput)
    concluded = replace(at.state, candidate=at.output.result, post_actions=at.output.post_actions)
    if at.state.validate_iter >= at.caps.validate:
        return _accept(concluded, at.place, f"accepted without a further review (limit {at.caps.validate})")
    after = replace(concluded, phase=Phase.VALIDATE, validate_iter=at.state.validate_iter + 1, hints=())
    return GoTo(phase=Phase.VALIDATE, state=after)


def _pass(at: _Situation) -> Step:
    return _accept(at.state, at.place)


def _hard_fail(at: _Situation) -> Step:
    said = [at.review.reason, *at.review.issues, at.review.hint]
    return _fail(at.state, "; ".join(text for text in said if text) or "the review rejected the result")


def _retry(at: _Situation) -> Step:
    criticised = with_hints(at.state, _critique(at.review))
    if at.state.conclude_retries >= at.caps.conclude_retries:
        return _accept(criticised, at.place, f"accepted after {at.caps.conclude_retries} retries of the conclusion")
    after = replace(criticised, phase=Phase.CONCLUDE, conclude_retries=at.state.conclude_retries + 1)
    return GoTo(phase=Phase.CONCLUDE, state=after)


def _more_data(at: _Situation) -> Step:
    state = at.state
    if state.reflect_iter >= at.caps.reflect or state.need_more_data_iter >= at.caps.need_more_data:
        # Nothing more can be gathered; what is left is to conclude again, in knowledge of what is missing.
        note = "No further data can be gathered: work with what there is, and say what is missing."
        step = _retry(replace(at, state=with_hints(state, [note])))
        return replace(step, forced=True) if isinstance(step, GoTo) else step
    after = replace(
        with_hints(state, _critique(at.review)),
        phase=Phase.REFLECT,
        reflect_iter=state.reflect_iter + 1,
        need_more_data_iter=state.need_more_data_iter + 1,
    )
    return GoTo(phase=Phase.REFLECT, state=after)


RULES: Final[dict[tuple[Phase, str], Callable[[_Situation], Step]]] = {
    (Phase.SCOPE, ScopeAction.CALL_RECIPE): _call,
    (Phase.SCOPE, ScopeAction.PROCEED_TO_CONCLUDE): _conclude,
    (Phase.SCOPE, ScopeAction.NEEDS_SUBTASKS): _spawn,
    (Phase.SCOPE, ScopeAction.NEEDS_USER_INPUT): _ask,
    (Phase.SCOPE, ScopeAction.BLOCKED_BY_PROBLEM): _blocked,
    (Phase.REFLECT, ScopeAction.CALL_RECIPE): _call,
    (Phase.REFLECT, ScopeAction.PROCEED_TO_CONCLUDE): _conclude,
    (Phase.REFLECT, ScopeAction.NEEDS_SUBTASKS): _spawn,
    (Phase.REFLECT, ScopeAction.NEEDS_USER_INPUT): _ask,
    (Phase.REFLECT, ScopeAction.BLOCKED_BY_PROBLEM): _blocked,
    (Phase.POST_CHILDREN, PostChildrenAction.PROCEED_TO_CONCLUDE): _conclude,
    (Phase.POST_CHILDREN, PostChildrenAction.NEEDS_SUBTASKS): _spawn,
    (Phase.POST_CHILDREN, PostChildrenAction.BLOCKED_BY_PROBLEM): _blocked,
    (Phase.CONCLUDE, "RESULT"): _review,
    (Phase.VALIDATE, Verdict.PASS): _pass,
    (Phase.VALIDATE, Verdict.RETRY_CONCLUDE): _retry,
    (Phase.VALIDATE, Verdict.NEED_MORE_DATA): _more_data,
    (Phase.VALIDATE, Verdict.HARD_FAIL): _hard_fail,
}


# --- without a readable answer --------------------------------------------------------------------------------------


def _correct(state: MarvinState, unreadable: Unreadable, caps: Caps) -> Step:
    if state.corrections >= caps.parse_corrections:
        return _fail(state, f"{state.phase} parse failed: {unreadable.message}")
    after = replace(
        state,
        corrections=state.corrections + 1,
        rejected=Rejected(excerpt=unreadable.excerpt, correction=unreadable.correction),
        output_limit=unreadable.next_limit or state.output_limit,
    )
    return Correct(message=unreadable.message, state=after)


def _end_early(state: MarvinState, event: NoCallAllowed, place: Place) -> Step:
    """The candidate, or else what the node has gathered, is its result; a node with nothing fails."""
    warning = f"ended without a further model call: {event.why}"
    if state.candidate is not None:
        return _accept(state, place, warning)
    if event.material.strip():
        return Accept(
            result=event.material, post_actions=(), state=replace(state, audit_warning=warning), forced=True,
            warning=warning,
        )  # fmt: skip
    return _fail(state, f"{state.phase} was not run: {event.why}")


# --- parts of rules -------------------------------------------------------------------------------------------------


def _accept(state: MarvinState, place: Place, limit: str | None = None) -> Step:
    """The candidate as the result. ``limit``: what decided it, when no reviewer did; open objections are added."""
    if state.candidate is None:
        return _fail(state, f"{state.phase} found no candidate")
    own = state.post_actions
    actions = (*own, *(action for action in place.spec_actions if action not in own))
    if limit is None:
        return Accept(result=state.candidate, post_actions=actions, state=state)
    objections = "; ".join(state.hints)[:HINT_CHARS]
    warning = f"{limit}; open: {objections}" if objections else limit
    after = replace(state, audit_warning=warning)
    return Accept(result=state.candidate, post_actions=actions, state=after, forced=True, warning=warning)


def _fail(state: MarvinState, reason: str) -> Fail:
    return Fail(reason=_cut(reason, FAILURE_CHARS), state=state)


def _force_conclusion(at: _Situation, *hints: str) -> GoTo:
    after = replace(with_hints(at.state, hints), phase=Phase.CONCLUDE)
    return GoTo(phase=Phase.CONCLUDE, state=after, forced=True)


def _critique(review: ValidateOutput) -> list[str]:
    """What a reviewer said, one hint each: the issues first, since they are what must change."""
    hints = [f"Issue found in review: {issue}" for issue in review.issues]
    if review.hint:
        hints.append(f"The reviewer's advice: {review.hint}")
    if not hints and review.reason:
        hints.append(f"The reviewer's reason: {review.reason}")
    return hints


def no_room(goals: Sequence[str]) -> str:
    """The hint that names the subtasks for which the tree had no room."""
    names = "; ".join(_short(goal) for goal in goals[:10])
    return f"{len(goals)} subtasks were not created, because the tree is full: {names}"


def with_hints(state: MarvinState, hints: Iterable[str]) -> MarvinState:
    """``state`` with ``hints`` added: each once, each bounded, the newest kept."""
    bounded = (_cut(hint, HINT_CHARS) for hint in hints)
    return replace(state, hints=tuple(dict.fromkeys((*state.hints, *bounded)))[-MAX_HINTS:])


def _without_repeats(
    tasks: tuple[NewTask, ...], goals: tuple[str, ...]
) -> tuple[tuple[NewTask, ...], tuple[NewTask, ...]]:
    """Tasks worth creating, and those that repeat an earlier one of them or (workers only) a goal above."""
    above = {_sense(goal) for goal in goals}
    seen: set[tuple[str, str, str]] = set()
    fresh: list[NewTask] = []
    repeated: list[NewTask] = []
    for task in tasks:
        key = task.task_kind.value, _sense(task.goal), json.dumps(task.task_spec, sort_keys=True)
        is_repeat = key in seen or (task.task_kind is TaskKind.WORKER and _sense(task.goal) in above)
        seen.add(key)
        (repeated if is_repeat else fresh).append(task)
    return tuple(fresh), tuple(repeated)


def _sense(goal: str) -> str:
    return " ".join(goal.split()).casefold()


def _short(goal: str) -> str:
    return _cut(" ".join(goal.split()), _TASK_CHARS)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
