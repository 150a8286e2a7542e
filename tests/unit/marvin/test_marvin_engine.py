"""The engine's mapping: what a turn asks for, and which transition follows from each outcome. No database, no model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from engines.base import Abandoned, AskModel, BudgetSpent, Decided, ModelFailed, ModelReplied, PlanningEngine
from engines.jeltz.engine import Jeltz
from engines.llm.base import ErrorKind, LlmError, LlmReply, StopKind
from engines.marvin.cursor import Asked, NodeCursor
from engines.marvin.engine import Marvin
from engines.marvin.state import MarvinState
from engines.marvin.words import Phase
from engines.recipes.cascade import BundledRecipes, resolve
from engines.recipes.snapshots import Callee, read_stored, stored_recipe
from models.records import (
    CallResult,
    ChildMode,
    ChildRow,
    CloseReason,
    NodeStatus,
    NodeView,
    PlanRow,
    PlanView,
    ProcessView,
    Reason,
    View,
)
from models.transition import (
    AppendMessage,
    CloseProcess,
    SpawnChildren,
    SpawnProcess,
    Transition,
    WriteArtifact,
    WriteDocument,
)

PROCESS = UUID("01a22c9d-8d9b-724b-8f5c-e2fcc6244023")
GOAL = "Find out"
SOURCES = [BundledRecipes()]
CALLEES = {
    "marvin-worker": Callee(recipe=resolve("marvin-worker", SOURCES), first_phase="SCOPE", root_kind="WORKER"),
    "classify-ticket": Callee(recipe=resolve("classify-ticket", SOURCES), first_phase="ANSWER"),
}
ENGINE = Marvin()


def view(
    phase: Phase = Phase.SCOPE,
    *,
    kind: str = "WORKER",
    child: bool = False,
    goal: str = GOAL,
    cursor: NodeCursor | None = None,
    children: tuple[ChildRow, ...] = (),
    calls: tuple[CallResult, ...] = (),
    turn: int = 2,
    node_count: int = 1,
    **params: Any,
) -> View:
    state = replace(cursor.state if cursor else MarvinState(), phase=phase)
    cursor = replace(cursor or NodeCursor(), state=state)
    recipe = resolve("marvin", SOURCES)
    rows = [_row(1, None, GOAL)]
    if child:
        rows.append(_row(2, 1, goal))
    rows += [_row(each.id, 2 if child else 1, each.goal, each.status) for each in children]
    node_id = 2 if child else 1
    return View(
        node=NodeView(
            id=node_id, parent_id=1 if child else None, depth=int(child), order_key=(0,) if child else (), kind=kind,
            goal=goal if child else "", status=NodeStatus.RUNNING, phase=phase.value, cursor=cursor.to_json(),
            transport={}, turn=turn, losses=0, spawned_calls=len(calls),
        ),
        process=ProcessView(
            id=PROCESS, root_id=PROCESS, parent_node_id=None, tenant="t", project="p", owner=None, engine="marvin",
            recipe_name="marvin", goal=GOAL if child else goal,
            params={**recipe.params, "availableRecipes": ["classify-ticket"], **params},
            recipe=json.loads(json.dumps(stored_recipe(recipe, CALLEES))), limits_counted=False, deadline_at=None,
            overdue=False, priority=3, trace_context={}, callback=None,
        ),
        calls=calls,
        nonce="abcd1234",
        plan=PlanView(
            node_count=node_count, rows=tuple(rows), path=(1, 2) if child else (1,), children=children,
        ),
    )  # fmt: skip


def _row(row_id: int, parent: int | None, goal: str, status: NodeStatus = NodeStatus.RUNNING) -> PlanRow:
    return PlanRow(
        id=row_id, parent_id=parent, order_key=() if parent is None else (0,), kind="WORKER", goal=goal, status=status,
        awaiting=False, phase="SCOPE", summary="", failure="",
    )  # fmt: skip


def finished(number: int, status: NodeStatus, text: str) -> ChildRow:
    done = status is NodeStatus.DONE
    return ChildRow(
        id=10 + number, order_key=(number,), kind="WORKER", goal=f"part {number}", status=status,
        failure="" if done else text, result=text if done else "",
    )  # fmt: skip


def said(answer: Any, **reply: Any) -> ModelReplied:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return ModelReplied(reply=LlmReply(text=text, **reply))


def only(kind: type, transition: Transition) -> Any:
    (found,) = (effect for effect in transition.effects if isinstance(effect, kind))
    return found


def after(transition: Transition) -> NodeCursor:
    """The cursor as the next turn reads it."""
    return NodeCursor.from_json(json.loads(json.dumps(transition.cursor)))


def test_it_is_a_planning_engine_and_jeltz_is_none() -> None:
    assert isinstance(ENGINE, PlanningEngine)
    assert not isinstance(Jeltz(), PlanningEngine)
    assert ENGINE.called_recipes({"availableRecipes": ["A b", "a-b", 3]}) == ("a-b",)


def test_recipes_stored_with_a_process_come_back_as_they_were() -> None:
    recipe, callees = read_stored(json.loads(json.dumps(stored_recipe(resolve("marvin", SOURCES), CALLEES))))
    assert recipe == resolve("marvin", SOURCES)
    assert callees == CALLEES


def test_a_cursor_survives_storage() -> None:
    cursor = NodeCursor(
        state=MarvinState(phase=Phase.REFLECT, asked=1), task_spec={"a": [1]}, position="0-3", planned=({"kind": "W"},),
        asked=(Asked(recipe="x"), Asked(recipe="y", marker="[no]")), mirrored=1, spawned=4,
    )  # fmt: skip
    assert NodeCursor.from_json(json.loads(json.dumps(cursor.to_json()))) == cursor
    assert NodeCursor.from_json({}) == NodeCursor()


def test_a_turn_asks_for_one_call_of_its_phase() -> None:
    need = ENGINE.prepare(view(Phase.SCOPE, model="default:fast"))
    assert isinstance(need, AskModel)
    assert (need.request.model, need.request.schema_name, need.attempt) == ("default:fast", "scope", 1)
    system, user = (message.content for message in need.request.messages)
    assert "You are one worker in a tree of workers" in system
    assert f"<<< Goal [abcd1234]\n{GOAL}\n[abcd1234] end >>>" in user
    assert "- classify-ticket:" in user


def test_the_same_view_gives_the_same_request() -> None:
    assert ENGINE.prepare(view(Phase.CONCLUDE)) == ENGINE.prepare(view(Phase.CONCLUDE))


def test_a_node_without_a_goal_fails_without_a_call() -> None:
    need = ENGINE.prepare(view(kind="WORKER", goal="  ", child=True))
    assert isinstance(need, Decided)
    assert need.transition.status is NodeStatus.FAILED
    assert "goal: is blank" in (need.transition.failure or "")
    assert need.transition.effects == ()


def test_a_call_parks_the_node_on_a_process_of_its_own() -> None:
    answer = {"action": "CALL_RECIPE", "recipeCall": {"recipe": " Classify-Ticket", "steerContent": "this one"}}
    transition = ENGINE.decide(view(), said(answer))
    assert (transition.status, transition.reason, transition.delay_seconds) == (NodeStatus.WAITING, Reason.CALLED, 900)
    sub = only(SpawnProcess, transition)
    assert (sub.engine, sub.recipe_name, sub.first_phase, sub.key) == ("jeltz", "classify-ticket", "ANSWER", "0")
    assert (sub.goal, sub.params["prompt"]) == ("this one", "this one")
    assert sub.params["schema"] == CALLEES["classify-ticket"].recipe.json_schema
    assert sub.id == only(SpawnProcess, ENGINE.decide(view(), said(answer))).id, "decided twice it is one process"
    assert sub.id != only(SpawnProcess, ENGINE.decide(view(turn=3), said(answer))).id
    assert after(transition).asked == (Asked(recipe="classify-ticket"),)
    assert after(transition).state.phase is Phase.REFLECT


def test_a_refused_call_goes_on_at_once_and_uses_its_slot_up() -> None:
    answer = {"action": "CALL_RECIPE", "recipeCall": {"recipe": "jeltz", "steerContent": "x"}}
    transition = ENGINE.decide(view(), said(answer))
    assert (transition.status, transition.delay_seconds) == (NodeStatus.RUNNING, 0)
    assert only(AppendMessage, transition) == AppendMessage(role="user", kind="prompt", content=GOAL)
    assert len(transition.effects) == 1
    cursor = after(transition)
    assert cursor.state.reflect_iter == 1
    assert "refused: it is not among the recipes" in (cursor.asked[0].marker or "")


def result_of(wrapper: dict[str, Any] | None, reason: CloseReason = CloseReason.DONE, key: str = "0") -> CallResult:
    return CallResult(
        process_id=PROCESS, recipe_name="classify-ticket", engine="jeltz", closed=wrapper is not None,
        close_reason=reason if wrapper is not None else None, result=wrapper, cursor_key=key,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (result_of({"success": True, "data": {"a": 1}}), '{\n  "a": 1\n}'),
        (result_of({"success": True, "result": "words"}), "words"),
        (result_of({"success": True, "result": " "}), "gave an empty reply"),
        (result_of({"success": False, "error": "e", "message": "no key"}), "ended as FAILED: no key"),
        (result_of({"success": False, "error": "stopped"}, CloseReason.STOPPED), "ended as STOPPED: stopped"),
        (result_of(None), "gave no reply within 900 seconds"),
        (result_of({"success": True, "data": {"a": 1}}, key="7"), "gave no reply within"),
    ],
)
def test_what_a_node_reads_of_a_call(call: CallResult, text: str) -> None:
    need = ENGINE.prepare(view(Phase.REFLECT, cursor=NodeCursor(asked=(Asked(recipe="x"),)), calls=(call,)))
    assert isinstance(need, AskModel)
    assert "Result of CALL_RECIPE('x'):" in need.request.messages[1].content
    assert text in need.request.messages[1].content


def test_a_reply_enters_the_history_once() -> None:
    cursor = NodeCursor(asked=(Asked(recipe="x"),))
    calls = (result_of({"success": True, "result": "words"}),)
    first = ENGINE.decide(view(Phase.REFLECT, cursor=cursor, calls=calls), said("no json"))
    assert first.reason is Reason.CORRECTED
    assert "words" in only(AppendMessage, first).content
    again = view(Phase.REFLECT, cursor=after(first), calls=calls)
    assert ENGINE.decide(again, said("no json")).effects == ()
    need = ENGINE.prepare(again)
    assert isinstance(need, AskModel)
    assert need.attempt == 2
    assert need.request.messages[-1].content == after(first).state.rejected.correction  # type: ignore[union-attr]


def test_subtasks_become_children_behind_those_there_are() -> None:
    tasks = [{"goal": "a"}, {"goal": "b", "taskKind": "EXPAND_FROM_DOC", "taskSpec": {"documentRef": "x", "_own": 1}}]
    cursor = NodeCursor(spawned=3, position="0-2", task_spec={"executionMode": "parallel"})
    answer = {"action": "NEEDS_SUBTASKS", "newTasks": tasks}
    transition = ENGINE.decide(view(child=True, goal="mine", cursor=cursor), said(answer))
    assert (transition.status, transition.awaiting_post_children) == (NodeStatus.DONE, True)
    spawn = only(SpawnChildren, transition)
    assert (spawn.mode, spawn.width, spawn.max_nodes) == (ChildMode.PARALLEL, 8, 200)
    assert [(child.order_key, child.kind, child.phase) for child in spawn.children] == [
        ((3,), "WORKER", "SCOPE"), ((4,), "EXPAND_FROM_DOC", "EXPAND"),
    ]  # fmt: skip
    second = NodeCursor.from_json(spawn.children[1].cursor)
    assert (second.position, second.task_spec) == ("0-2-4", {"documentRef": "x"})
    assert after(transition).spawned == 5


def test_the_depth_limit_forces_a_conclusion() -> None:  # 64
    answer = {"action": "NEEDS_SUBTASKS", "newTasks": [{"goal": "a"}]}
    transition = ENGINE.decide(view(child=True, goal="mine", maxTreeDepth=1), said(answer))
    assert (transition.phase, transition.reason, transition.note.forced) == ("CONCLUDE", Reason.FORCED, True)


CANDIDATE = NodeCursor(state=MarvinState(candidate="the result", validate_iter=1), position="0-4")
PASS = {"verdict": "PASS", "issues": [], "reason": "good"}


def test_a_child_that_passes_leaves_its_result_and_a_draft() -> None:
    transition = ENGINE.decide(view(Phase.VALIDATE, child=True, goal="My part", cursor=CANDIDATE), said(PASS))
    assert (transition.status, transition.settled) == (NodeStatus.DONE, True)
    assert only(WriteArtifact, transition) == WriteArtifact(key="result", content="the result")
    draft = only(WriteDocument, transition)
    assert draft.path == f"_marvin-drafts/{PROCESS}/0-4__my-part.md"
    assert "validateIter: 1" in draft.content  # 150: the counters as the node keeps them
    assert not any(isinstance(effect, CloseProcess) for effect in transition.effects)


def test_a_root_that_passes_closes_its_process_and_names_what_failed() -> None:
    children = (finished(0, NodeStatus.DONE, "fine"), finished(1, NodeStatus.FAILED, "no luck"))
    found = view(Phase.VALIDATE, cursor=CANDIDATE, children=children, node_count=3)
    close = only(CloseProcess, ENGINE.decide(found, said(PASS)))
    assert close.reason is CloseReason.DONE
    assert close.result["result"].startswith("the result\n\n## Subtasks that failed\n\n- #")
    assert close.message == close.result["result"]
    assert (close.result["nodeCount"], close.result["failedChildren"]) == (3, 1)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (said({"verdict": "HARD_FAIL", "reason": "wrong"}), "rejected"),
        (ModelFailed(error=LlmError(ErrorKind.AUTH, "no key")), "llm_error"),
    ],
)
def test_a_root_that_fails_says_why(outcome: Any, error: str) -> None:
    transition = ENGINE.decide(view(Phase.VALIDATE, cursor=CANDIDATE), outcome)
    close = only(CloseProcess, transition)
    assert (close.reason, close.result["success"], close.result["error"]) == (CloseReason.FAILED, False, error)
    assert close.result["message"] == transition.failure


@pytest.mark.parametrize("outcome", [BudgetSpent(limit="the budget is spent"), Abandoned(why="lost")])
def test_a_node_that_may_not_call_ends_with_what_it_has(outcome: Any) -> None:
    with_candidate = ENGINE.decide(view(Phase.VALIDATE, cursor=CANDIDATE), outcome)
    assert (with_candidate.status, with_candidate.reason) == (NodeStatus.DONE, Reason.FORCED)
    assert only(CloseProcess, with_candidate).result["forced"] is True
    children = (finished(0, NodeStatus.DONE, "fine"), finished(1, NodeStatus.FAILED, "no luck"))
    gathered = ENGINE.decide(view(Phase.POST_CHILDREN, children=children), outcome)
    assert "fine" in only(CloseProcess, gathered).result["result"]
    nothing = ENGINE.decide(view(), outcome)
    assert nothing.status is NodeStatus.FAILED
    given_up = ENGINE.decide(view(kind="EXPAND_FROM_DOC", child=True), outcome)
    assert (given_up.status, given_up.failure) == (NodeStatus.FAILED, outcome.limit if error_of(outcome) else "lost")


@pytest.mark.parametrize(
    ("call", "ends"),
    [
        (result_of({"success": True, "result": "found"}), NodeStatus.DONE),
        (result_of({"success": False, "error": "e"}), NodeStatus.FAILED),
        (result_of(None), NodeStatus.FAILED),
    ],
)
def test_a_marker_is_nothing_a_node_could_end_with(call: CallResult, ends: NodeStatus) -> None:
    cursor = NodeCursor(asked=(Asked(recipe="y", marker="[refused]"), Asked(recipe="x")))
    call = replace(call, cursor_key="1")
    transition = ENGINE.decide(view(Phase.REFLECT, cursor=cursor, calls=(call,)), BudgetSpent(limit="spent"))
    assert transition.status is ends
    if ends is NodeStatus.DONE:
        artifacts = {each.key: each.content for each in transition.effects if isinstance(each, WriteArtifact)}
        assert "found" in artifacts["result"]
        assert "refused" not in artifacts["result"]


def error_of(outcome: Any) -> bool:
    return isinstance(outcome, BudgetSpent)


def test_a_cut_answer_gets_more_room_and_is_not_quoted() -> None:
    reply = said('{"action": "PROCE', stop=StopKind.LENGTH, output_limit=1_000, output_ceiling=1_500)
    transition = ENGINE.decide(view(), reply)
    need = ENGINE.prepare(view(cursor=after(transition)))
    assert isinstance(need, AskModel)
    assert need.request.max_output_tokens == 1_500
    assert [message.role for message in need.request.messages] == ["system", "user", "user"]
