"""What the sweeper repairs: each function is one batched statement, safe with any number of sweepers at once.

``FOR UPDATE SKIP LOCKED`` keeps sweepers from waiting on each other or on a turn; the database's clock decides. Each
returns the turns to publish. Losing what they return loses only a hint: the next sweep finds the rows again.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import psycopg

from models.records import Turn
from models.store.claim import HARD_LOSSES
from models.store.commit import HINT_GRACE_SECONDS
from models.store.commit_sql import WORKING
from models.store.database import Database, Row

log = logging.getLogger(__name__)

OPEN = "('INIT', 'RUNNING', 'BLOCKED')"

_TAKE_BACK = f"""
WITH expired AS (
  SELECT id FROM nodes WHERE lease_expires_at < now()
   ORDER BY lease_expires_at LIMIT %(batch)s OFFSET %(skip)s FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
  UPDATE nodes n
     SET lease_owner = NULL, lease_expires_at = NULL, losses = n.losses + 1, hints = 0,
         due_at = coalesce(n.due_at, now()), next_hint_at = now() + make_interval(secs => %(grace)s)
    FROM expired WHERE n.id = expired.id
  RETURNING n.id, n.turn, n.process_id
)
SELECT t.id, t.turn, p.engine, p.priority, p.status IN {OPEN} FROM taken t JOIN processes p ON p.id = t.process_id
"""

_REPUBLISH = f"""
WITH overdue AS (
  SELECT n.id FROM nodes n JOIN processes p ON p.id = n.process_id
   WHERE n.next_hint_at <= now() AND n.lease_expires_at IS NULL AND n.due_at <= now() AND p.status IN {OPEN}
   ORDER BY n.next_hint_at LIMIT %(batch)s OFFSET %(skip)s FOR NO KEY UPDATE OF n SKIP LOCKED
), hinted AS (
  UPDATE nodes n
     SET hints = n.hints + 1,
         next_hint_at = now() + make_interval(secs => least(%(grace)s * 2 ^ least(n.hints, 10), %(longest)s))
    FROM overdue WHERE n.id = overdue.id
  RETURNING n.id, n.turn, n.process_id
)
SELECT h.id, h.turn, p.engine, p.priority, true FROM hinted h JOIN processes p ON p.id = h.process_id
"""

# The queues named are empty, so whatever has been due there for more than a moment has lost its message (a flush, a
# fail-over, an eviction): no need to wait for the back-off, which exists for long honest backlogs. It limits itself:
# once hints lie in the queue it is no longer empty.
_REPUBLISH_LOST = f"""
WITH lost AS (
  SELECT n.id FROM nodes n JOIN processes p ON p.id = n.process_id
   WHERE n.due_at <= now() - make_interval(secs => %(age)s) AND n.lease_expires_at IS NULL
     AND p.engine = ANY(%(engines)s::text[]) AND p.status IN {OPEN}
     -- Hinted here a moment ago (by this sweep or another one): the message may be on its way to a worker.
     AND (n.hints <> 0 OR n.next_hint_at IS NULL
          OR n.next_hint_at <= now() + make_interval(secs => %(grace)s - %(age)s))
   ORDER BY n.due_at LIMIT %(batch)s OFFSET %(skip)s FOR NO KEY UPDATE OF n SKIP LOCKED
), hinted AS (
  UPDATE nodes n SET hints = 0, next_hint_at = now() + make_interval(secs => %(grace)s)
    FROM lost WHERE n.id = lost.id
  RETURNING n.id, n.turn, n.process_id
)
SELECT h.id, h.turn, p.engine, p.priority, true FROM hinted h JOIN processes p ON p.id = h.process_id
"""

_REACTIVATE_PARENTS = f"""
WITH ready AS (
  SELECT n.id FROM nodes n
   WHERE n.awaiting_post_children AND n.due_at IS NULL AND n.lease_expires_at IS NULL
     AND NOT EXISTS (SELECT 1 FROM nodes c WHERE c.parent_id = n.id AND c.settled_at IS NULL)
   ORDER BY n.id LIMIT %(batch)s OFFSET %(skip)s FOR NO KEY UPDATE SKIP LOCKED
), woken AS (
  UPDATE nodes n SET open_children = 0, due_at = now(), hints = 0,
         next_hint_at = now() + make_interval(secs => %(grace)s)
    FROM ready WHERE n.id = ready.id
  RETURNING n.id, n.turn, n.process_id
)
SELECT w.id, w.turn, p.engine, p.priority, p.status IN {OPEN} FROM woken w JOIN processes p ON p.id = w.process_id
"""

_WAKE_CALLERS = f"""
WITH ready AS (
  SELECT n.id FROM nodes n
   WHERE n.status = 'WAITING' AND n.open_calls > 0 AND n.lease_expires_at IS NULL
     AND NOT EXISTS (SELECT 1 FROM processes s WHERE s.parent_node_id = n.id AND s.status <> 'CLOSED')
   ORDER BY n.id LIMIT %(batch)s OFFSET %(skip)s FOR NO KEY UPDATE SKIP LOCKED
), woken AS (
  UPDATE nodes n SET open_calls = 0, due_at = now(), next_hint_at = now() + make_interval(secs => %(grace)s), hints = 0
    FROM ready WHERE n.id = ready.id
  RETURNING n.id, n.turn, n.process_id
)
SELECT w.id, w.turn, p.engine, p.priority, p.status IN {OPEN} FROM woken w JOIN processes p ON p.id = w.process_id
"""

# Processes with nodes that wait for a place and fewer at work than may be: two commits at the same moment, or one that
# found too many at work, have left one free. From one such process to the next by the index, not over all the nodes.
_START_WAITING = f"""
WITH RECURSIVE wanting AS (
  (SELECT process_id FROM nodes WHERE waits_for_place ORDER BY process_id LIMIT 1)
  UNION ALL
  SELECT (SELECT n.process_id FROM nodes n WHERE n.waits_for_place AND n.process_id > wanting.process_id
           ORDER BY n.process_id LIMIT 1)
    FROM wanting WHERE wanting.process_id IS NOT NULL
), short AS (
  SELECT p.id, coalesce(p.max_parallel, 2147483647) - working.number AS places
    FROM wanting JOIN processes p ON p.id = wanting.process_id
    CROSS JOIN LATERAL (SELECT count(*) AS number FROM nodes WHERE process_id = p.id AND {WORKING}) working
   WHERE p.status IN {OPEN} AND working.number < coalesce(p.max_parallel, 2147483647)
     -- Somebody has started nodes since this statement looked: the next sweep counts them.
     AND p.fan_outs = (SELECT seen.fan_outs FROM processes seen WHERE seen.id = p.id)
   ORDER BY p.id LIMIT %(batch)s OFFSET %(skip)s FOR NO KEY UPDATE OF p SKIP LOCKED
), noted AS (
  UPDATE processes SET fan_outs = processes.fan_outs + 1 FROM short WHERE processes.id = short.id
), chosen AS (
  SELECT w.id FROM short CROSS JOIN LATERAL (
    SELECT n.id FROM nodes n WHERE n.process_id = short.id AND n.waits_for_place
     ORDER BY n.depth DESC, n.parent_id, n.order_key LIMIT least(short.places, %(batch)s)
       FOR NO KEY UPDATE SKIP LOCKED) w
), woken AS (
  UPDATE nodes n SET waits_for_place = false, due_at = now(), hints = 0,
         next_hint_at = now() + make_interval(secs => %(grace)s)
    FROM chosen WHERE n.id = chosen.id
  RETURNING n.id, n.turn, n.process_id
)
SELECT w.id, w.turn, p.engine, p.priority, p.status IN {OPEN} FROM woken w JOIN processes p ON p.id = w.process_id
"""

# Past the deadline nothing waits any longer: parked and delayed nodes become due, and their engine concludes. The clock
# itself and not now(): another sweep that began later may have woken the row already, with a due time after our now().
_WAKE_OVERDUE = f"""
WITH overdue AS MATERIALIZED (
  SELECT p.id FROM processes root JOIN processes p ON p.root_id = root.id AND p.status IN {OPEN}
   WHERE root.deadline_at <= now() AND root.status <> 'CLOSED'
), late AS (
  SELECT n.id FROM nodes n
   -- Asked once, before any node is looked at: in most sweeps nothing is overdue, and no tree is walked.
   WHERE (SELECT count(*) > 0 FROM overdue) AND n.process_id = ANY(ARRAY(SELECT id FROM overdue))
     AND n.settled_at IS NULL AND n.lease_expires_at IS NULL
     AND (n.due_at IS NULL OR n.due_at > clock_timestamp()) AND NOT n.awaiting_post_children AND n.status <> 'PENDING'
   ORDER BY n.id LIMIT %(batch)s OFFSET %(skip)s FOR NO KEY UPDATE OF n SKIP LOCKED
), woken AS (
  UPDATE nodes n SET due_at = now(), next_hint_at = now() + make_interval(secs => %(grace)s), hints = 0
    FROM late WHERE n.id = late.id
  RETURNING n.id, n.turn, n.process_id
)
SELECT w.id, w.turn, p.engine, p.priority, p.status IN {OPEN} FROM woken w JOIN processes p ON p.id = w.process_id
"""

_POISONED = f"""
SELECT DISTINCT n.process_id FROM nodes n JOIN processes p ON p.id = n.process_id
 WHERE n.losses >= {HARD_LOSSES} AND n.lease_expires_at IS NULL AND n.settled_at IS NULL AND p.status IN {OPEN}
 LIMIT %(batch)s
"""

# Nobody reads their results any more: their caller's time was up, and it has settled or made another call since.
# (Calls made by one turn have the same created_at.)
_ORPHANED = """
SELECT s.id FROM processes s JOIN nodes caller ON caller.id = s.parent_node_id
 WHERE s.parent_node_id IS NOT NULL AND s.status <> 'CLOSED'
   AND (caller.settled_at IS NOT NULL
        OR EXISTS (SELECT 1 FROM processes later
                    WHERE later.parent_node_id = s.parent_node_id AND later.created_at > s.created_at))
 LIMIT %(batch)s
"""


def repaired(database: Database, sql: str, *, batch: int, **params: Any) -> list[Turn]:
    """Run one repair and return the turns to publish. ``sql`` takes ``batch``, ``skip`` and ``grace``, and selects node
    id, turn, engine, priority and whether the process is open."""
    params["grace"] = HINT_GRACE_SECONDS
    try:
        rows = database.statement(sql, {**params, "batch": batch, "skip": 0})
    except psycopg.Error:
        log.exception("one row or more cannot be repaired; going on row by row")
        rows = _one_by_one(database, sql, batch, params)
    return [Turn(node_id=row[0], turn=row[1], engine=row[2], priority=row[3]) for row in rows if row[4]]


def _one_by_one(database: Database, sql: str, batch: int, params: dict[str, Any]) -> list[Row]:
    """The same repair in as many statements as rows, stepping over those that PostgreSQL refuses."""
    rows: list[Row] = []
    refused = 0
    while len(rows) + refused < batch:
        try:
            found = database.statement(sql, {**params, "batch": 1, "skip": refused})
        except psycopg.Error:
            refused += 1
            continue
        if not found:
            break
        rows += found
    return rows


def take_back_expired(database: Database, *, batch: int) -> list[Turn]:
    """Free leases whose holder did not extend them in time, counting one worker loss each."""
    return repaired(database, _TAKE_BACK, batch=batch)


def republish_due(database: Database, *, batch: int, longest_seconds: float = 300.0) -> list[Turn]:
    """Due turns whose hint is overdue; each is hinted again after twice as long, up to ``longest_seconds``."""
    return repaired(database, _REPUBLISH, batch=batch, longest=longest_seconds)


def republish_lost(database: Database, engines: list[str], *, batch: int, age_seconds: float) -> list[Turn]:
    """Turns of engines whose queue is empty, due for at least ``age_seconds``: their messages are gone."""
    return repaired(database, _REPUBLISH_LOST, batch=batch, age=age_seconds, engines=engines)


def reactivate_parents(database: Database, *, batch: int) -> list[Turn]:
    """Parents whose whole subtree is settled. The commit's counter is the fast path, this is the guarantee."""
    return repaired(database, _REACTIVATE_PARENTS, batch=batch)


def start_waiting(database: Database, *, batch: int) -> list[Turn]:
    """Nodes that wait for a place where there is one. Each commit hands its own place on; this is the guarantee."""
    return repaired(database, _START_WAITING, batch=batch)


def wake_callers(database: Database, *, batch: int) -> list[Turn]:
    """Nodes parked on sub-processes that are all closed."""
    return repaired(database, _WAKE_CALLERS, batch=batch)


def wake_overdue(database: Database, *, batch: int) -> list[Turn]:
    """Waiting nodes of processes past their deadline."""
    return repaired(database, _WAKE_OVERDUE, batch=batch)


def poisoned_processes(database: Database, *, batch: int) -> list[UUID]:
    """Processes with a turn that killed so many workers that not even its engine may look at it again."""
    return [row[0] for row in database.statement(_POISONED, {"batch": batch})]


def orphaned_processes(database: Database, *, batch: int) -> list[UUID]:
    """Open sub-processes whose caller has gone on without them: they only spend what is left of the budget."""
    return [row[0] for row in database.statement(_ORPHANED, {"batch": batch})]
