"""From a step of the machine to the transition that is committed: cursor, effects, audit note, process result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, assert_never
from uuid import uuid5

from engines.documents.actions import ActionContext, Rendered, run_actions
from engines.documents.drafts import DraftNode, PhaseLine, child_position, draft_of
from engines.marvin.calls import refusal
from engines.marvin.cursor import Asked, NodeCursor
from engines.marvin.material import gathered, reply_blocks
from engines.marvin.modes import execution_mode
from engines.marvin.outputs import NewTask
from engines.marvin.report import failure_wrapper, success_wrapper
from engines.marvin.state import MarvinState
from engines.marvin.steps import Accept, AskUser, CallRecipe, Correct, Fail, GoTo, Spawn, Step
from engines.marvin.surroundings import Surroundings
from engines.marvin.words import Phase, TaskKind
from engines.recipes.cascade import effective_params
from engines.recipes.model import recipe_key
from engines.recipes.snapshots import Callee, dumped, why_unusable
from models.records import CloseReason, NodeStatus, Reason
from models.transition import (
    AppendMessage,
    CloseProcess,
    Effect,
    NewChild,
    PhaseNote,
    SpawnChildren,
    SpawnProcess,
    SpawnSibling,
    Transition,
    WriteArtifact,
    WriteDocument,
    advance,
    fail,
    fan_out,
    finish,
    park,
)

RESULT: Final = "result"
"""The artifact that parents, plans and people read."""
EXPAND: Final = "EXPAND"
ASK: Final = "ASK"
FIRST_PHASES: Final = {
    TaskKind.WORKER: Phase.SCOPE.value,
    TaskKind.EXPAND_FROM_DOC: EXPAND,
    TaskKind.USER_INPUT: ASK,
}
COUNTERS: Final = ("reflect_iter", "validate_iter", "conclude_retries", "need_more_data_iter", "post_children_rounds")


def transition_of(at: Surroundings, step: Step, output: Any, *, error: str) -> Transition:
    """What the turn changes. output: for the audit trail. error: the code of the process's result if the root fails."""
    messages = _messages(at)
    cursor = replace(at.cursor, state=step.state, mirrored=len(at.replies))
    match step:
        case GoTo():
            reason = Reason.FORCED if step.forced else Reason.ADVANCED
            note = _note(at, output, forced=step.forced)
            return advance(step.phase.value, cursor.to_json(), note=note, reason=reason, effects=messages)
        case Correct():
            note = _note(at, {"rejected": step.message})
            phase = step.state.phase.value
            return advance(phase, cursor.to_json(), note=note, reason=Reason.CORRECTED, effects=messages)
        case CallRecipe():
            return _call(at, step, cursor, output, messages)
        case Spawn():
            children = spawned(at, cursor, step.tasks, at.cursor.task_spec, TaskKind.WORKER)
            cursor = replace(cursor, spawned=cursor.spawned + len(step.tasks))
            phase = step.state.phase.value
            return fan_out(phase, cursor.to_json(), note=_note(at, output), children=children, effects=messages)
        case AskUser():
            return _ask(at, step, cursor, output, messages)
        case Accept():
            return _accepted(at, step, cursor, output, messages)
        case Fail():
            return failed(at, cursor, step.reason, output, error, messages)
        case _:
            assert_never(step)


def failed(
    at: Surroundings, cursor: NodeCursor, why: str, output: Any, error: str, effects: tuple[Effect, ...] = ()
) -> Transition:
    """The node is FAILED; with the root its process closes as FAILED and reports why."""
    if at.is_root:
        plan = at.view.plan
        counts = at.child_counts if plan else Counter[NodeStatus]()
        children = at.children if plan else ()
        wrapper = failure_wrapper(
            error,
            why,
            children,
            left_out=max(0, counts.total() - len(children)),
            failed=counts[NodeStatus.FAILED],
            root_node=at.view.node.id,
            node_count=plan.node_count if plan else 1,
        )
        message = f"Failed: {why}"
        effects = (*effects, CloseProcess(reason=CloseReason.FAILED, result=wrapper, message=message))
    note = _note(at, output)
    return fail(at.view.node.phase, cursor.to_json(), note=note, failure=why, effects=effects)


def spawned(
    at: Surroundings, cursor: NodeCursor, tasks: Sequence[NewTask], task_spec: Any, kind: TaskKind,
    planned: Sequence[Sequence[dict[str, Any]]] = (),
) -> SpawnChildren:  # fmt: skip
    """Children for ``tasks`` behind those the node has already. planned: what each of them creates first."""
    children = []
    for place, task in enumerate(tasks):
        order_key = (cursor.spawned + place,)
        below = NodeCursor(
            task_spec=task.task_spec,
            position=child_position(cursor.position, order_key),
            planned=tuple(planned[place]) if planned else (),
        )
        children.append(
            NewChild(
                order_key=order_key,
                kind=task.task_kind.value,
                goal=task.goal,
                phase=FIRST_PHASES[task.task_kind],
                cursor=below.to_json(),
            )
        )
    return SpawnChildren(
        children=tuple(children),
        mode=execution_mode(kind, task_spec, at.view.process.params),
        width=at.caps.max_parallel_nodes,
        max_nodes=at.caps.max_tree_nodes,
    )


# --- questions --------------------------------------------------------------------------------------------------------


def _ask(at: Surroundings, step: AskUser, cursor: NodeCursor, output: Any, messages: tuple[Effect, ...]) -> Transition:
    """The root waits for the answer as for a child; any other node is done, and its next sibling asks."""
    phase, note = step.state.phase.value, _note(at, output)
    if step.as_child:
        children = spawned(at, cursor, (step.task,), at.cursor.task_spec, TaskKind.WORKER)
        cursor = replace(cursor, spawned=cursor.spawned + 1)
        return fan_out(phase, cursor.to_json(), note=note, children=children, effects=messages)
    behind = (*at.view.node.order_key, 1)
    above = cursor.position.rpartition("-")[0]
    below = NodeCursor(task_spec=step.task.task_spec, position=child_position(above, behind))
    question = NewChild(order_key=behind, kind=TaskKind.USER_INPUT.value, goal=step.task.goal, phase=ASK,
                        cursor=below.to_json())  # fmt: skip
    kept = gathered(at.own_material, "a person was asked instead")
    result: tuple[Effect, ...] = (WriteArtifact(key=RESULT, content=kept),) if kept else ()
    effects = (*messages, *result, SpawnSibling(child=question, max_nodes=at.caps.max_tree_nodes))
    return finish(phase, cursor.to_json(), note=note, effects=effects, reason=Reason.ASKED)


# --- recipe calls -----------------------------------------------------------------------------------------------------


def _call(
    at: Surroundings, step: CallRecipe, cursor: NodeCursor, output: Any, messages: tuple[Effect, ...]
) -> Transition:
    name = recipe_key(step.call.recipe)
    callee = at.callee(name)
    marker = refusal(
        step.call,
        available=at.available,
        engine=callee.recipe.engine if callee else None,
        own_recipe=at.view.process.recipe_name,
        problem=why_unusable(at.view.process.recipe, name),
    )
    cursor = replace(cursor, asked=(*cursor.asked, Asked(recipe=name, marker=marker)))
    phase, note = step.state.phase.value, _note(at, output)
    if marker is not None or callee is None:
        return advance(phase, cursor.to_json(), note=note, effects=messages)
    process = at.view.process
    sub = SpawnProcess(
        id=uuid5(process.id, f"{at.view.node.id}:{at.view.node.turn}"),
        key=str(len(cursor.asked) - 1),
        engine=callee.recipe.engine,
        recipe_name=name,
        recipe=dumped(callee),
        params=_call_params(callee, step.call.steer_content),
        goal=step.call.steer_content,
        first_phase=callee.first_phase,
        node_kind=callee.root_kind,
    )
    return park(
        phase,
        cursor.to_json(),
        note=note,
        reason=Reason.CALLED,
        effects=(*messages, sub),
        timeout_seconds=float(at.caps.recipe_call_timeout_seconds),
    )


def _call_params(callee: Callee, steer: str) -> dict[str, Any]:
    """The callee's own parameters. For an engine that answers a prompt the assignment is that prompt."""
    return effective_params(callee.recipe, {"prompt": steer} if callee.recipe.engine == "jeltz" else {}).params


# --- acceptance -------------------------------------------------------------------------------------------------------


def _accepted(
    at: Surroundings, step: Accept, cursor: NodeCursor, output: Any, messages: tuple[Effect, ...]
) -> Transition:
    documents, problems = _documents(at, step)
    writes = (*_draft(at, step), *documents)
    effects: tuple[Effect, ...] = (*messages, WriteArtifact(key=RESULT, content=step.result), *writes)
    if step.warning is not None:
        effects = (*effects, WriteArtifact(key="validatorAuditWarning", content=step.warning))
    if at.is_root:
        wrapper = success_wrapper(
            step.result,
            at.children,
            failed=at.child_counts[NodeStatus.FAILED],
            root_node=at.view.node.id,
            node_count=at.plan.node_count,
            warning=step.warning,
            documents=[document.path for document in documents],
        )
        close = CloseProcess(reason=CloseReason.DONE, result=wrapper, message=wrapper["result"])
        effects = (*effects, close)
    if problems and isinstance(output, dict):
        output = {**output, "postActionProblems": problems}
    reason = Reason.FORCED if step.forced else Reason.CONCLUDED
    note = _note(at, output, forced=step.forced)
    # The result has its artifact: once more in the cursor it would be there for nobody.
    cursor = replace(cursor, state=replace(step.state, candidate=None))
    return finish(step.state.phase.value, cursor.to_json(), note=note, effects=effects, reason=reason)


def _documents(at: Surroundings, step: Accept) -> tuple[tuple[WriteDocument, ...], list[str]]:
    process = at.view.process
    context = ActionContext(
        node_result=step.result,
        node_goal=at.goal,
        process_id=str(process.id),
        process_goal=process.goal,
        process_params=process.params,
    )
    written: list[WriteDocument] = []
    problems: list[str] = []
    for result in run_actions([action.model_dump(mode="json") for action in step.post_actions], context):
        match result.outcome:
            case Rendered() as document:
                written.append(
                    WriteDocument(
                        path=document.path, kind=document.kind, content=document.content, title=document.title,
                        mime=_mime(document.path),
                    )
                )  # fmt: skip
            case refused:
                problems.append(f"post-action {result.position + 1}: {refused.reason}")
    return tuple(written), problems


def _mime(path: str) -> str:
    ending = path.rpartition(".")[2].lower()
    return {"json": "application/json", "yaml": "application/yaml", "yml": "application/yaml"}.get(
        ending, "text/markdown"
    )


def _draft(at: Surroundings, step: Accept) -> tuple[WriteDocument, ...]:
    state = step.state
    draft = draft_of(
        DraftNode(
            process_id=str(at.view.process.id),
            position_path=at.cursor.position,
            node_id=str(at.view.node.id),
            goal=at.goal,
            task_kind=TaskKind.WORKER.value,
            status="DONE",
            current_phase=state.phase.value,
            result=step.result,
            counters={_camel(name): getattr(state, name) for name in COUNTERS},
            history=[PhaseLine(phase=row.phase, iteration=row.iteration, model=row.model) for row in at.plan.history],
            audit_warning=step.warning,
        )
    )
    if draft is None:
        return ()
    return (
        WriteDocument(path=draft.path, kind="text", content=draft.content, title=draft.title, time_at=draft.time_at),
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# --- notes ------------------------------------------------------------------------------------------------------------


def _messages(at: Surroundings) -> tuple[Effect, ...]:
    """The goal and each recipe's reply enter the chat history once, with the first turn that has seen them."""
    effects: list[Effect] = []
    state = at.cursor.state
    # The engine's first decision, whatever the number of the turn: the runner's retries take numbers too.
    if at.is_root and state.phase is Phase.SCOPE and not state.corrections and not state.short:
        effects.append(AppendMessage(role="user", kind="prompt", content=at.goal))
    new = at.replies[at.cursor.mirrored :]
    blocks = reply_blocks(new, at.caps.recipe_reply_chars, at.view.nonce)
    effects += [AppendMessage(role="user", kind="recipe_reply", content=block) for block in blocks]
    return tuple(effects)


def _note(at: Surroundings, output: Any, *, forced: bool = False) -> PhaseNote:
    state: MarvinState = at.cursor.state
    # Nodes of other kinds have no phases of the machine.
    phase = at.view.node.phase
    iteration = state.iteration() if phase == state.phase.value else 1
    return PhaseNote(phase=phase, iteration=iteration, output=output, forced=forced)
