"""Nodes that call no model: EXPAND_FROM_DOC fans a document out, and a branch of a tree document creates its children.

An EXPAND_FROM_DOC node comes back once its children are settled, and its result is theirs, one after the other: so the
node above reads the expanded results although it sees its direct children only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engines.documents.drafts import MAX_LEVELS
from engines.documents.expand import ChildPlan, ExpandContext, expand
from engines.documents.parse import parse_document
from engines.documents.spec import read_expand_spec
from engines.errors import EngineError
from engines.marvin.machine import NOTHING_CREATED, no_room, with_hints
from engines.marvin.outputs import NewTask
from engines.marvin.report import collected
from engines.marvin.surroundings import Surroundings
from engines.marvin.transitions import EXPAND, RESULT, failed, spawned
from engines.marvin.words import Phase, TaskKind
from models.records import DocumentWish, Reason
from models.transition import PhaseNote, Transition, WriteArtifact, advance, fan_out, finish


def wished_document(at: Surroundings) -> DocumentWish | None:
    """The document an EXPAND_FROM_DOC node refers to, on the turn that reads it."""
    if at.view.node.kind != TaskKind.EXPAND_FROM_DOC or at.cursor.spawned:
        return None
    try:
        reference = read_expand_spec(at.cursor.task_spec).document
    except EngineError:
        return None  # reported by expanded()
    by, value = next((key, value) for key in ("id", "path", "name") if (value := getattr(reference, key)) is not None)
    return DocumentWish(by=by, value=value)


def expanded(at: Surroundings) -> Transition:
    """The turn of an EXPAND_FROM_DOC node: its children, or once they are settled their results."""
    if at.cursor.spawned:
        return _collected(at)
    try:
        plans = _plans(at)
    except EngineError as error:
        return failed(at, at.cursor, error.message, {"error": error.message}, "expand_failed")
    if not plans:
        return _done(at, "The document has no entries.", 0)
    return _fan_out(at, plans, TaskKind.EXPAND_FROM_DOC, EXPAND)


def planned(at: Surroundings) -> Transition:
    """The first turn of a WORKER that stands for a branch of a document: first its branches, then POST_CHILDREN.

    When the document was read there was room for all of them; what other nodes have taken since is missing here.
    """
    room = max(0, at.caps.max_tree_nodes - at.plan.node_count)
    plans = [_plan(raw) for raw in at.cursor.planned]
    left_out = [plan.goal for plan in plans[room:]]
    state = with_hints(at.cursor.state, [no_room(left_out)] if left_out else [])
    if room == 0:
        state = replace(with_hints(state, [NOTHING_CREATED]), phase=Phase.CONCLUDE)
        cursor = replace(at.cursor, state=state, planned=())
        note = PhaseNote(phase=at.view.node.phase, iteration=1, output={"childCount": 0}, forced=True)
        return advance(Phase.CONCLUDE.value, cursor.to_json(), note=note, reason=Reason.FORCED)
    state = replace(state, phase=Phase.POST_CHILDREN, post_children_rounds=1)
    branch = replace(at, cursor=replace(at.cursor, state=state, planned=()))
    return _fan_out(branch, plans[:room], TaskKind.WORKER, Phase.POST_CHILDREN.value)


def _plans(at: Surroundings) -> tuple[ChildPlan, ...]:
    spec = read_expand_spec(at.cursor.task_spec)
    document = at.view.document
    if document is None:
        raise EngineError(f"the document ({spec.document}) was not found in this project")
    parsed = parse_document(document.content, document.mime)
    context = ExpandContext(
        parent_goal=at.goal,
        max_children=max(0, at.caps.max_tree_nodes - at.plan.node_count),
        root_name=document.path.rpartition("/")[2],
        root_title=document.title or "",
        root_path=document.path,
    )
    plans = expand(parsed, spec, context)
    nested = any(plan.children for plan in plans)
    if nested and spec.child.kind != TaskKind.WORKER:
        raise EngineError(f"a nested tree can only become WORKER tasks, not {spec.child.kind}: use treeMode FLAT")
    if at.view.node.depth + _levels(plans) >= MAX_LEVELS:
        raise EngineError(
            f"the document ({spec.document}) is nested too deeply: a plan has at most {MAX_LEVELS} levels"
        )
    return plans


def _levels(plans: Sequence[ChildPlan]) -> int:
    level, below = 0, list(plans)
    while below:
        level, below = level + 1, [child for plan in below for child in plan.children]
    return level


def _fan_out(at: Surroundings, plans: Sequence[ChildPlan], kind: TaskKind, phase: str) -> Transition:
    tasks = [NewTask(goal=plan.goal, task_kind=TaskKind(plan.kind), task_spec=plan.task_spec) for plan in plans]
    nested = [[_raw(child) for child in plan.children] for plan in plans]
    children = spawned(at, at.cursor, tasks, at.cursor.task_spec, kind, nested)
    cursor = replace(at.cursor, spawned=len(tasks))
    note = PhaseNote(phase=at.view.node.phase, iteration=1, output={"childCount": len(tasks)})
    return fan_out(phase, cursor.to_json(), note=note, children=children)


def _collected(at: Surroundings) -> Transition:
    left_out = max(0, at.cursor.spawned - len(at.children))
    return _done(at, collected(at.children, left_out), at.cursor.spawned)


def _done(at: Surroundings, result: str, child_count: int) -> Transition:
    note = PhaseNote(phase=EXPAND, iteration=2 if child_count else 1, output={"childCount": child_count})
    effects = (WriteArtifact(key=RESULT, content=result),)
    return finish(EXPAND, at.cursor.to_json(), note=note, effects=effects)


def _raw(plan: ChildPlan) -> dict[str, Any]:
    return {
        "kind": plan.kind,
        "goal": plan.goal,
        "taskSpec": plan.task_spec,
        "children": [_raw(child) for child in plan.children],
    }


def _plan(raw: Mapping[str, Any]) -> ChildPlan:
    return ChildPlan(
        kind=raw["kind"],
        goal=raw["goal"],
        task_spec=raw["taskSpec"],
        children=tuple(_plan(child) for child in raw["children"]),
    )
