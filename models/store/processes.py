"""Whole processes: submit, stop, suspend, resume, close by the store itself, and deliver results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from models.records import CloseReason, Lease, NewProcess, Turn
from models.store.clean import Cleaner
from models.store.commit import HINT_GRACE_SECONDS
from models.store.database import Database
from models.store.outbox_sql import ITEM, told_of_closing, told_of_items

_SUBMIT = """
WITH incoming AS MATERIALIZED (
  -- Once each and in one order: two batches with the same ids must not wait for each other crosswise.
  SELECT DISTINCT ON (id) * FROM json_to_recordset(%(processes)s::json) AS s (
    id uuid, tenant text, project text, owner text, engine text, recipe_name text, recipe json, params json, goal text,
    priority smallint, max_calls int, max_tokens bigint, max_cost_usd numeric, deadline_seconds float8,
    batch_seconds float8, callback jsonb, trace_context jsonb, node_kind text, phase text, cursor jsonb)
   ORDER BY id
), stored AS (
  INSERT INTO processes (id, root_id, tenant, project, owner, engine, recipe_name, priority, max_calls, max_tokens,
                         max_cost_usd, deadline_at, batch_until, callback, trace_context)
  SELECT id, id, tenant, project, owner, engine, recipe_name, priority, max_calls, max_tokens, max_cost_usd,
         now() + make_interval(secs => deadline_seconds), now() + make_interval(secs => batch_seconds), callback,
         trace_context FROM incoming
  ON CONFLICT (id) DO NOTHING
  RETURNING id
), inputs AS (
  INSERT INTO process_inputs (process_id, goal, params, recipe)
  SELECT i.id, i.goal, i.params, i.recipe FROM incoming i JOIN stored USING (id)
), placed AS (
  INSERT INTO nodes (process_id, kind, goal, phase, cursor, due_at, next_hint_at)
  SELECT i.id, i.node_kind, '', i.phase, i.cursor, now(), now() + make_interval(secs => %(grace)s)
    FROM incoming i JOIN stored USING (id)
  RETURNING id, turn, process_id
)
SELECT n.id, n.turn, i.engine, i.priority FROM placed n JOIN incoming i ON i.id = n.process_id
"""

# Ancestors first, so that this and every commit lock processes in the same order.
_TREE = text("""
WITH RECURSIVE tree AS (
  SELECT id, 0 AS level FROM processes WHERE id = :process
  UNION ALL
  SELECT p.id, t.level + 1 FROM tree t
    JOIN nodes n ON n.process_id = t.id AND n.spawned_calls > 0
    JOIN processes p ON p.parent_node_id = n.id
)
SELECT id, level FROM tree ORDER BY level, id
""")
_LOCK_ROOT = text("""
SELECT id FROM processes WHERE id = (SELECT root_id FROM processes WHERE id = :process) FOR NO KEY UPDATE
""")
_RELEASE_BUDGET = text("""
UPDATE processes root
   SET reserved_calls = greatest(root.reserved_calls - held.calls, 0),
       reserved_tokens = greatest(root.reserved_tokens - held.tokens, 0),
       reserved_cost_usd = greatest(root.reserved_cost_usd - held.cost, 0)
  FROM (SELECT coalesce(sum(reserved_calls), 0) AS calls, coalesce(sum(reserved_tokens), 0) AS tokens,
               coalesce(sum(reserved_cost_usd), 0) AS cost
          FROM nodes WHERE process_id = ANY(:ids) AND settled_at IS NULL) held
 WHERE root.id = :root AND held.calls > 0
""")
_LOCK = text("SELECT id FROM processes WHERE id = :id FOR NO KEY UPDATE")
_OPEN = text("""
SELECT p.id, p.engine, p.status, p.parent_node_id, i.params,
       (SELECT n.cursor FROM nodes n WHERE n.process_id = p.id AND n.parent_id IS NULL)
  FROM processes p JOIN process_inputs i ON i.process_id = p.id
 WHERE p.id = :id AND p.status <> 'CLOSED'
""")
_CLOSE = text("""
UPDATE processes SET status = 'CLOSED', close_reason = :reason, closed_at = now(),
       delivered_at = CASE WHEN parent_node_id IS NULL THEN NULL ELSE now() END
 WHERE id = :id
""")
_SETTLE_NODES = text("""
UPDATE nodes SET status = CASE WHEN status IN ('DONE', 'FAILED') AND NOT awaiting_post_children THEN status
                               ELSE :status END,
       failure = coalesce(failure, :failure), awaiting_post_children = false, open_children = 0, open_calls = 0,
       waits_for_place = false, due_at = NULL, next_hint_at = NULL, lease_owner = NULL, lease_expires_at = NULL,
       turn = turn + 1, fence = fence + 1,
       reserved_calls = 0, reserved_tokens = 0, reserved_cost_usd = 0, settled_at = now()
 WHERE process_id = :id AND settled_at IS NULL
""")
_CLOSE_ITEMS = text(f"""
WITH dismissed AS (
  UPDATE inbox_items i SET status = 'DISMISSED', resolved_by = 'PROCESS', answered_at = now()
   WHERE process_id = :id AND status = 'PENDING'
  RETURNING {ITEM}
), {told_of_items("dismissed")}
SELECT count(*) FROM dismissed
""")
_HOLDS = text("SELECT 1 FROM nodes WHERE id = :node AND turn = :turn AND fence = :fence FOR NO KEY UPDATE")
# After the process is CLOSED.
_INSERT_RESULT = text(f"""
WITH result AS (
  INSERT INTO results (process_id, wrapper) VALUES (:id, CAST(:wrapper AS json)) RETURNING process_id, wrapper
), {told_of_closing("result", close_reason="c.close_reason", closed_at="c.closed_at")}
SELECT count(*) FROM result
""")
_RESULT_MESSAGE = text("""
INSERT INTO messages (process_id, node_id, role, kind, content)
SELECT :id, coalesce((SELECT min(id) FROM nodes WHERE process_id = :id), 0), 'assistant', 'result', :content
""")
_WAKE_CALLER = text("""
UPDATE nodes caller SET open_calls = open_calls - 1,
       due_at = CASE WHEN open_calls = 1 AND caller.status = 'WAITING' THEN now() ELSE due_at END,
       next_hint_at = CASE WHEN open_calls = 1 AND caller.status = 'WAITING' THEN now() ELSE next_hint_at END
 WHERE id = :caller AND open_calls > 0 AND settled_at IS NULL
""")
_SUSPEND = text("""
UPDATE processes SET status = 'SUSPENDED' WHERE id = ANY(:ids) AND status IN ('INIT', 'RUNNING', 'BLOCKED')
""")
_RELEASE = text("""
UPDATE nodes SET fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL
 WHERE process_id = ANY(:ids) AND lease_expires_at IS NOT NULL
""")
_RESUME = text("""
UPDATE processes SET status = CASE WHEN started_at IS NULL THEN 'INIT' ELSE 'RUNNING' END
 WHERE id = ANY(:ids) AND status = 'SUSPENDED'
""")
# Who is called has rested too: a time limit that ran out meanwhile begins anew (the turn that parked had set it).
_CALLS_AGAIN = text("""
UPDATE nodes n SET due_at = now() + (n.due_at - parked.created_at),
       next_hint_at = now() + (n.due_at - parked.created_at), hints = 0
  FROM phase_records parked
 WHERE n.process_id = ANY(:ids) AND n.status = 'WAITING' AND n.open_calls > 0 AND n.due_at <= now()
   AND n.lease_expires_at IS NULL AND parked.node_id = n.id AND parked.turn = n.turn - 1
""")
_DUE_OF = text("""
UPDATE nodes n SET next_hint_at = now() + make_interval(secs => :grace), hints = 0
  FROM processes p
 WHERE n.process_id = ANY(:ids) AND p.id = n.process_id AND n.due_at <= now() AND n.lease_expires_at IS NULL
   AND n.settled_at IS NULL
RETURNING n.id, n.turn, p.engine, p.priority
""")

_UNDELIVERED = """
WITH late AS (
  SELECT id FROM processes
   WHERE status = 'CLOSED' AND delivered_at IS NULL
     AND coalesce(deliver_at, closed_at + interval '5 seconds') <= now()
   ORDER BY closed_at LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE processes p
   SET delivery_attempts = delivery_attempts + 1,
       deliver_at = now() + make_interval(secs => least(2 ^ least(delivery_attempts + 1, 10), 300))
  FROM late, results r
 WHERE p.id = late.id AND r.process_id = p.id
RETURNING p.id, r.wrapper, p.callback
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The result of a closed top-level process, to be handed to whoever waits for it."""

    process_id: UUID
    wrapper: dict[str, Any]
    callback: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What a process looked like when it was closed from outside; the engine words the wrapper from it."""

    process_id: UUID
    engine: str
    params: dict[str, Any]
    cursor: dict[str, Any]


WrapperFor = Callable[[Closing], dict[str, Any]]


def submit(database: Database, processes: Sequence[NewProcess]) -> list[Turn]:
    """Store processes with their first turns due. Ids already stored are left as they are: submitting twice is once.

    Returns the turns of the new ones, to publish. Raises ``NotStorable`` or ``DatabaseUnavailable``.
    """
    rows = database.statement(
        _SUBMIT, {"processes": Cleaner().json([_row(process) for process in processes]), "grace": HINT_GRACE_SECONDS}
    )
    return [Turn(node_id=row[0], turn=row[1], engine=row[2], priority=row[3]) for row in rows]


def _row(process: NewProcess) -> dict[str, Any]:
    return {
        "id": str(process.id),
        "tenant": process.tenant,
        "project": process.project,
        "owner": process.owner,
        "engine": process.engine,
        "recipe_name": process.recipe_name,
        "recipe": process.recipe,
        "params": process.params,
        "goal": process.goal,
        "priority": process.priority,
        "max_calls": process.limits.max_calls,
        "max_tokens": process.limits.max_tokens,
        "max_cost_usd": process.limits.max_cost_usd,
        "deadline_seconds": process.limits.deadline_seconds,
        "batch_seconds": process.batch_seconds,
        "callback": process.callback,
        "trace_context": process.trace_context,
        "node_kind": process.node_kind,
        "phase": process.first_phase,
        "cursor": process.cursor,
    }


def submit_rejected(database: Database, process: NewProcess, wrapper: dict[str, Any], message: str) -> bool:
    """Store a process that cannot run as CLOSED with its error wrapper: whoever waits for the id gets an answer.

    ``False`` when the id is already stored (nothing changes then).
    """
    cleaner = Cleaner()
    with database.begin() as connection:
        stored = connection.execute(
            text("""
            INSERT INTO processes (id, root_id, tenant, project, owner, engine, recipe_name, status, close_reason,
                                   closed_at, callback)
            VALUES (:id, :id, :tenant, :project, :owner, :engine, :recipe, 'CLOSED', 'FAILED', now(),
                    CAST(:callback AS jsonb))
            ON CONFLICT (id) DO NOTHING"""),
            {
                "id": process.id,
                "tenant": cleaner.text(process.tenant),
                "project": cleaner.text(process.project),
                "owner": None if process.owner is None else cleaner.text(process.owner),
                "engine": cleaner.text(process.engine),
                "recipe": cleaner.text(process.recipe_name),
                "callback": cleaner.json(process.callback) if process.callback else None,
            },
        )
        if stored.rowcount == 0:
            return False
        connection.execute(
            text(
                "INSERT INTO process_inputs (process_id, goal, params, recipe)"
                " VALUES (:id, :goal, CAST(:params AS json), '{}')"
            ),
            {"id": process.id, "goal": cleaner.text(process.goal), "params": cleaner.json(process.params)},
        )
        connection.execute(_INSERT_RESULT, {"id": process.id, "wrapper": cleaner.json(wrapper)})
        connection.execute(_RESULT_MESSAGE, {"id": process.id, "content": cleaner.text(message)})
    return True


def stop(
    database: Database, process_id: UUID, wrapper_for: WrapperFor, *, failure: str = "stopped"
) -> tuple[UUID, ...]:
    """Close the process and every open sub-process below it as STOPPED. Running calls are aborted by their heartbeat.

    Returns the ids closed now; empty when the process was closed already (no second wrapper) or does not exist.
    """
    return _close_tree(database, process_id, CloseReason.STOPPED, wrapper_for, "SKIPPED", failure)


def fail_process(
    database: Database, process_id: UUID, wrapper_for: WrapperFor, *, failure: str, lease: Lease | None = None
) -> tuple[UUID, ...]:
    """Close the process and what is below it as FAILED without asking its engine: the last resort.

    lease: close only while this lease still holds; a worker that lost its turn has no say any more.
    """
    return _close_tree(database, process_id, CloseReason.FAILED, wrapper_for, "FAILED", failure, lease)


def _lock_tree(connection: Connection, process_id: UUID) -> tuple[UUID | None, list[UUID]]:
    """Lock the root, then the process and everything below it, before any node is touched (the store's lock order).

    A commit that was under way may have called one more sub-process before its own process was locked, so the tree is
    read again until it holds nothing new; from a locked process nothing grows.
    """
    root_id = connection.execute(_LOCK_ROOT, {"process": process_id}).scalar()
    locked: list[UUID] = []
    while True:
        found = [row[0] for row in connection.execute(_TREE, {"process": process_id}) if row[0] not in locked]
        if not found:
            return root_id, locked
        for each in found:
            connection.execute(_LOCK, {"id": each})
        locked += found


def _close_tree(
    database: Database,
    process_id: UUID,
    reason: CloseReason,
    wrapper_for: WrapperFor,
    status: str,
    failure: str,
    lease: Lease | None = None,
) -> tuple[UUID, ...]:
    cleaner = Cleaner()
    closed: list[UUID] = []
    with database.begin() as connection:
        root_id, ids = _lock_tree(connection, process_id)
        if (
            lease
            and not connection.execute(
                _HOLDS, {"node": lease.node_id, "turn": lease.turn, "fence": lease.fence}
            ).first()
        ):
            return ()
        found = (connection.execute(_OPEN, {"id": each}).first() for each in ids)
        rows = [row for row in found if row is not None]
        connection.execute(_RELEASE_BUDGET, {"root": root_id, "ids": [row[0] for row in rows]})
        for each_id, engine, _, parent_node_id, params, cursor in rows:
            wrapper = wrapper_for(Closing(process_id=each_id, engine=engine, params=params or {}, cursor=cursor or {}))
            dumped = cleaner.json(wrapper)
            connection.execute(_CLOSE, {"id": each_id, "reason": reason.value})
            connection.execute(_SETTLE_NODES, {"id": each_id, "status": status, "failure": cleaner.text(failure)})
            connection.execute(_CLOSE_ITEMS, {"id": each_id})
            connection.execute(_INSERT_RESULT, {"id": each_id, "wrapper": dumped})
            connection.execute(_RESULT_MESSAGE, {"id": each_id, "content": dumped})
            if parent_node_id is not None:
                connection.execute(_WAKE_CALLER, {"caller": parent_node_id})
            closed.append(each_id)
    return tuple(closed)


def suspend(database: Database, process_id: UUID, *, abort_running: bool = False) -> bool:
    """No new turn of the process or its sub-processes is claimed until :func:`resume`.

    A call that is running may finish and its result is kept; ``abort_running`` takes its lease away, so the call is
    aborted and made again after the resume. ``False``: closed, already suspended, or unknown.
    """
    with database.begin() as connection:
        _, ids = _lock_tree(connection, process_id)
        changed = connection.execute(_SUSPEND, {"ids": ids}).rowcount
        if abort_running and changed:
            connection.execute(_RELEASE, {"ids": ids})
    return bool(changed)


def resume(database: Database, process_id: UUID) -> list[Turn] | None:
    """Let a suspended process go on. Returns its due turns to publish; ``None`` when it was not suspended.

    Callers whose time ran out during the suspension wait for their sub-processes once more, as long as at first.
    """
    with database.begin() as connection:
        _, ids = _lock_tree(connection, process_id)
        if not connection.execute(_RESUME, {"ids": ids}).rowcount:
            return None
        connection.execute(_CALLS_AGAIN, {"ids": ids})
        rows = connection.execute(_DUE_OF, {"ids": ids, "grace": HINT_GRACE_SECONDS})
        return [Turn(node_id=row[0], turn=row[1], engine=row[2], priority=row[3]) for row in rows]


def undelivered(database: Database, *, batch: int) -> list[Delivery]:
    """Results nobody has confirmed as delivered, each tried again after twice as long."""
    return [
        Delivery(process_id=row[0], wrapper=row[1], callback=row[2])
        for row in database.statement(_UNDELIVERED, {"batch": batch})
    ]


def delivery_of(database: Database, process_id: UUID) -> Delivery | None:
    """The undelivered result of one closed process."""
    rows = database.statement(
        "SELECT p.id, r.wrapper, p.callback FROM processes p JOIN results r ON r.process_id = p.id"
        " WHERE p.id = %(id)s AND p.delivered_at IS NULL",
        {"id": process_id},
    )
    return Delivery(process_id=rows[0][0], wrapper=rows[0][1], callback=rows[0][2]) if rows else None


def mark_delivered(database: Database, process_ids: Sequence[UUID]) -> None:
    """Remember that the results were handed over."""
    database.statement(
        "UPDATE processes SET delivered_at = now() FROM (SELECT id FROM processes WHERE id = ANY(%(ids)s)"
        " AND delivered_at IS NULL ORDER BY id FOR NO KEY UPDATE) d WHERE processes.id = d.id",
        {"ids": list(process_ids)},
    )


def set_aside(database: Database, *, task: str, problem: str, payload: str) -> None:
    """Keep a message nobody can act on, for a person to look at."""
    cleaner = Cleaner()
    database.statement(
        "INSERT INTO dead_letters (task, problem, payload) VALUES (%(task)s, %(problem)s, %(payload)s)",
        {"task": cleaner.text(task), "problem": cleaner.text(problem), "payload": cleaner.text(payload)},
    )
