"""The commit of a turn: one statement that moves the cursor and writes every effect, or writes nothing at all.

Its text is put together in ``models.store.commit_sql``. All parts hang off one guarded update, which is empty when the
guard (turn and fence) misses, so nothing is written then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

import psycopg

from models.records import CallRecord, ChildMode, NodeStatus, Reason, Turn, View
from models.store.claim import Claim, Keep, claim_kept
from models.store.clean import Cleaner
from models.store.commit_sql import Shape, statement
from models.store.database import Database
from models.transition import (
    AppendMessage,
    AskUser,
    CloseProcess,
    NewChild,
    SpawnChildren,
    SpawnProcess,
    SpawnSibling,
    Transition,
    WithdrawQuestion,
    WriteArtifact,
    WriteDocument,
    WriteModelSpec,
)

HINT_GRACE_SECONDS = 5.0
"""How long a published turn may stay unclaimed before the sweeper publishes it again (doubled each time)."""


_IS_FULL = """
SELECT 1 FROM processes p JOIN nodes n ON n.process_id = p.id
 WHERE n.id = %(node)s AND n.turn = %(turn)s AND n.fence = %(fence)s AND p.status <> 'CLOSED'
   AND p.node_count + %(new_children)s + %(new_siblings)s > %(max_nodes)s
"""

# What PostgreSQL answers when the values themselves are wrong: trying again would be refused again.
_REFUSALS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
)


class BadTransition(ValueError):
    """The engine's transition cannot be written: it would strand its process, or PostgreSQL refuses its values."""


class TreeFull(Exception):
    """The process has grown meanwhile and has no room for these nodes. Nothing was written; the lease still holds.

    Control flow: the engine decides again, seeing the tree as it is now.
    """


class StaleTurn(Exception):
    """The lease was lost: another worker has the turn, or the process was stopped. Control flow, not an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What a landed commit made due, ready to publish, and whether it closed the process."""

    due: tuple[Turn, ...]
    next_turn: Turn | None
    """The node's own next turn when it is due at once (also in ``due``)."""
    closed: bool
    kept: Claim | None = None
    """That turn, leased by the same commit; it is not in ``due`` then."""


@dataclass(slots=True)
class _Effects:
    messages: list[dict[str, Any]]
    artifacts: list[dict[str, Any]]
    children: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    documents: dict[str, dict[str, Any]]
    child_mode: ChildMode | None = None
    width: int | None = None
    max_nodes: int | None = None
    sibling: NewChild | None = None
    model: WriteModelSpec | None = None
    question: AskUser | None = None
    withdraws: bool = False
    close: CloseProcess | None = None


def _sort_effects(transition: Transition) -> _Effects:
    found = _Effects([], [], [], [], {})
    for effect in transition.effects:
        match effect:
            case AppendMessage():
                found.messages.append({"role": effect.role, "kind": effect.kind, "content": effect.content})
            case WriteArtifact():
                found.artifacts.append({"key": effect.key, "content": effect.content})
            case WriteDocument():
                # One row per path: a statement cannot move the same row twice.
                found.documents[effect.path] = {
                    "path": effect.path,
                    "kind": effect.kind,
                    "title": effect.title,
                    "mime": effect.mime,
                    "content": effect.content,
                    "time_at": effect.time_at,
                }
            case WriteModelSpec():
                found.model = effect
            case SpawnChildren():
                found.child_mode = effect.mode
                found.max_nodes = effect.max_nodes
                found.width = effect.width
                ordered = sorted(effect.children, key=lambda child: child.order_key)
                for place, child in enumerate(ordered):
                    found.children.append(_child_row(child) | {"place": place})
            case SpawnSibling():
                found.sibling = effect.child
                found.max_nodes = effect.max_nodes
            case AskUser():
                found.question = effect
            case WithdrawQuestion():
                found.withdraws = True
            case SpawnProcess():
                found.processes.append(
                    {
                        "id": str(effect.id),
                        "key": effect.key,
                        "engine": effect.engine,
                        "recipe_name": effect.recipe_name,
                        "recipe": effect.recipe,
                        "params": effect.params,
                        "goal": effect.goal,
                        "phase": effect.first_phase,
                        "cursor": effect.cursor,
                        "node_kind": effect.node_kind,
                    }
                )
            case CloseProcess():
                found.close = effect
                found.messages.append({"role": "assistant", "kind": "result", "content": effect.message})
            case _:
                assert_never(effect)
    return found


def _child_row(child: NewChild) -> dict[str, Any]:
    return {
        "order_key": list(child.order_key),
        "kind": child.kind,
        "goal": child.goal,
        "phase": child.phase,
        "cursor": child.cursor,
    }


def commit_turn(
    database: Database,
    claim: Claim,
    step: Transition,
    *,
    call: CallRecord | None,
    elapsed_seconds: float,
    keep: Keep | None = None,
    recorded: bytes | None = None,
) -> Committed:
    """Write what the turn decided, to the disk. Raises :class:`StaleTurn` when the guard misses: nothing is written.

    recorded: what the turn got from outside, kept with its phase record for a replay (``tasks.recording``).

    keep: lease the next turn at once, for an engine that reads no history. Done when the node goes on without delay,
    has called nothing, and its process is RUNNING (not suspended meanwhile); otherwise the turn is due as ever.

    Raises :class:`TreeFull` when there is no room for its new nodes any more; nothing is written then either.
    Raises :class:`BadTransition` or ``NotStorable`` when the engine's decision cannot be written, whenever it is tried.
    Raises ``DatabaseUnavailable`` when the outcome is unknown: trying again is safe, and a second try of a commit that
    had landed raises :class:`StaleTurn`.
    """
    view = claim.view
    effects = _sort_effects(step)
    _check(view, step, effects)
    cleaner = Cleaner()
    spent = call if call is not None and (call.reached_inference or call.error_kind is None) else None
    params: dict[str, Any] = {
        "process": view.process.id,
        "root": view.process.root_id,
        "node": view.node.id,
        "parent": view.node.parent_id,
        "caller": view.process.parent_node_id,
        "turn": claim.lease.turn,
        "fence": claim.lease.fence,
        "status": step.status.value,
        "phase": step.phase,
        "cursor": cleaner.json(step.cursor),
        "transport": cleaner.json(step.transport),
        "failure": None if step.failure is None else cleaner.text(step.failure),
        "awaiting": step.awaiting_post_children,
        "child_mode": effects.child_mode,
        "new_children": len(effects.children),
        "width": effects.width,
        "max_nodes": effects.max_nodes,
        "new_siblings": 0 if effects.sibling is None else 1,
        "new_calls": len(effects.processes),
        "parked_on_calls": step.status is NodeStatus.WAITING and step.reason is Reason.CALLED,
        "delay": None if step.settled or step.delay_seconds is None else float(step.delay_seconds),
        "hint_grace": HINT_GRACE_SECONDS,
        "settled": step.settled,
        "note_phase": step.note.phase,
        "iteration": step.note.iteration,
        "reason": step.reason.value,
        "forced": step.note.forced,
        "output": None if step.note.output is None else cleaner.json(step.note.output),
        "recorded": recorded,
        "elapsed": elapsed_seconds,
        "model": call.model if call else None,
        "lane_note": call.lane_note if call else None,
        "tokens": call.tokens if call else None,
        "cost": call.cost_usd if call else None,
        "spent_calls": 1 if spent else 0,
        "spent_tokens": call.tokens if call else 0,
        "spent_cost": (call.cost_usd or 0.0) if call else 0.0,
        "reserved_calls": claim.reserved.calls,
        "reserved_tokens": claim.reserved.tokens,
        "reserved_cost": claim.reserved.cost_usd,
    }
    # Most turns have few kinds of effects, and their shape names no others.
    lists = {
        "messages": effects.messages,
        "artifacts": effects.artifacts,
        "children": effects.children,
        "processes": effects.processes,
        "documents": list(effects.documents.values()),
    }
    params |= {name: cleaner.json(found) for name, found in lists.items() if found}
    if effects.sibling:
        params["sibling"] = cleaner.json([_child_row(effects.sibling)])
    if effects.question:
        params |= _question_params(effects.question, cleaner)
    if effects.model:
        params |= _model_params(effects.model, cleaner)
    if effects.close:
        params |= {"close_reason": effects.close.reason.value, "result": cleaner.json(effects.close.result)}
    if call:
        params |= _call_params(call)
    params["replaced"] = cleaner.replaced
    shape = Shape(
        settles=step.settled,
        has_parent=view.node.parent_id is not None,
        closes=effects.close is not None,
        has_caller=view.process.parent_node_id is not None,
        counted=view.process.limits_counted,
        is_root=view.process.id == view.process.root_id,
        messages=bool(effects.messages),
        artifacts=bool(effects.artifacts),
        children=bool(effects.children),
        processes=bool(effects.processes),
        documents=bool(effects.documents),
        model=effects.model is not None,
        sibling=effects.sibling is not None,
        parks=step.status is NodeStatus.WAITING and (step.delay_seconds is None or bool(effects.processes)),
        asks=effects.question is not None,
        withdraws=effects.withdraws,
        ledger=call is not None,
        keeps=keep is not None and _goes_on(view, step),
    )
    if keep:
        params |= {"keep_owner": keep.owner, "keep_seconds": keep.lease_seconds}
    try:
        rows = database.statement(statement(shape), params)
    except _REFUSALS as error:
        # Without the detail lines, which quote values.
        raise BadTransition(f"PostgreSQL refuses the transition: {error.diag.message_primary}") from None
    if not rows:
        if effects.max_nodes is not None and database.statement(_IS_FULL, params):
            wanted = len(effects.children) or 1
            raise TreeFull(f"process {view.process.id} has no room for {wanted} more nodes")
        raise StaleTurn(f"node {view.node.id} turn {claim.lease.turn}: the lease was lost, nothing was written")
    if shape.shares_rows:
        database.flush()
    if keep and shape.keeps:
        return _went_on(claim, step, rows[0], keep)
    return _committed(view, step, rows, closed=effects.close is not None)


def _question_params(question: AskUser, cleaner: Cleaner) -> dict[str, Any]:
    return {
        "question_originator": question.originator,
        "question_tags": list(question.tags),
        "question_type": question.type,
        "question_criticality": question.criticality,
        "question_title": cleaner.text(question.title),
        "question_body": cleaner.text(question.body),
        "question_payload": cleaner.json(question.payload),
        "question_owner": None if question.owner is None else cleaner.text(question.owner),
        "question_ttl": float(question.ttl_seconds),
        "question_answer": None if question.answer is None else cleaner.json(question.answer),
        "question_answered_by": question.answered_by,
    }


def _model_params(model: WriteModelSpec, cleaner: Cleaner) -> dict[str, Any]:
    return {
        "model_id": cleaner.text(model.model_id),
        "model_version": model.version,
        "model_spec": cleaner.json(model.spec),
        "model_spec_version": cleaner.text(model.spec_version),
        "model_evolution": None if model.evolution is None else cleaner.json(model.evolution),
    }


def _call_params(call: CallRecord) -> dict[str, Any]:
    return {
        "call_lane": call.lane,
        "call_attempt": call.attempt,
        "call_provider": call.provider,
        "call_error": call.error_kind,
        "call_stop": call.stop_reason,
        "call_path": call.structured_path,
        "call_input": call.input_tokens,
        "call_output": call.output_tokens,
        "call_cache_read": call.cache_read_tokens,
        "call_cache_write": call.cache_write_tokens,
        "call_latency": call.latency_ms,
        "call_reached": call.reached_inference,
    }


def _check(view: View, step: Transition, effects: _Effects) -> None:
    """A transition that would strand its process is a bug of the engine, and must not reach the tables."""
    if view.node.parent_id is None and step.settled and effects.close is None:
        raise BadTransition("a settled root node must close its process")
    if effects.close and not (step.settled and view.node.parent_id is None):
        raise BadTransition("a process closes only with its settled root node")
    if step.awaiting_post_children != bool(effects.children):
        raise BadTransition("a node awaits children exactly when it spawns some")
    if effects.processes and step.status is not NodeStatus.WAITING:
        raise BadTransition("a node that called a process must be parked")
    if effects.sibling and not (step.settled and view.node.parent_id is not None):
        raise BadTransition("only a settled node below the root is followed by a new sibling")
    if effects.question and step.status is not NodeStatus.WAITING:
        raise BadTransition("a node that asks a person must be parked")
    if effects.question and (step.delay_seconds is None) != (effects.question.answer is None):
        raise BadTransition("a node that asks is due at once exactly when its question is answered already")
    waits = step.settled or step.awaiting_post_children or step.status is NodeStatus.WAITING
    if step.delay_seconds is None and not waits:
        raise BadTransition("a node that is neither settled nor waiting must have a due time")


def _goes_on(view: View, step: Transition) -> bool:
    """Whether the node's next turn is due at once and sees nothing that others may have written in between."""
    going = step.status is NodeStatus.RUNNING and step.delay_seconds == 0 and not step.awaiting_post_children
    return going and not view.node.spawned_calls


def _went_on(claim: Claim, step: Transition, row: tuple[Any, ...], keep: Keep) -> Committed:
    _, node_id, turn, _, _, leased, fence, cursor, transport, counted, deadline_at, overdue = row
    process = claim.view.process
    own = Turn(node_id=node_id, turn=turn, engine=process.engine, priority=process.priority)
    if not leased:
        return Committed(due=(own,), next_turn=own, closed=False)
    kept = claim_kept(
        claim,
        keep,
        turn=turn,
        fence=fence,
        phase=step.phase,
        cursor=cursor,
        transport=transport,
        limits_counted=counted,
        deadline_at=deadline_at,
        overdue=overdue,
    )
    return Committed(due=(), next_turn=own, closed=False, kept=kept)


def _committed(view: View, step: Transition, rows: list[tuple[Any, ...]], *, closed: bool) -> Committed:
    due = []
    own: Turn | None = None
    for source, node_id, turn, engine, priority in rows:
        item = Turn(
            node_id=node_id,
            turn=turn,
            engine=engine or view.process.engine,
            priority=view.process.priority if priority is None else priority,
        )
        if source != "own":
            due.append(item)
        elif not step.settled and step.delay_seconds == 0:
            own = item
            due.append(item)
    return Committed(due=tuple(due), next_turn=own, closed=closed)
