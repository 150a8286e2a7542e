"""What people look at in the web console and programs do not ask for: read only, bounded however large a tree is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from models.records import NodeStatus
from models.store.commit_sql import WORKING
from models.store.database import Database, Row

ABOUT_CHARS = 200
GOAL_CHARS = 400
FAILURE_CHARS = 400
CHILDREN_SHOWN = 100
ALL_CHILDREN_SHOWN = 1_000
CHILDREN_COUNTED = 5_000
BUSY_SHOWN = 60
MATCHES_SHOWN = 100
CALLED_SHOWN = 5
BELOW_COUNTED = 5_000
"""Sub-processes of one statement whose cost is summed, at most."""

# ``below``: every sub-process under the nodes of ``shown``, however deep, with the node it is under.
_BELOW = """
below AS (
  SELECT s.id AS node, p.id AS called, p.id FROM shown s JOIN nodes n ON n.id = s.id AND n.spawned_calls > 0
    JOIN processes p ON p.parent_node_id = n.id
  UNION ALL
  SELECT b.node, b.called, p.id FROM below b JOIN nodes n ON n.process_id = b.id AND n.spawned_calls > 0
    JOIN processes p ON p.parent_node_id = n.id
)"""
# What the calls of a sub-process's nodes have cost: by node, as the ledger's own key goes.
_BELOW_COSTS = f"""
  SELECT b.node, b.called, sum(l.cost_usd) AS cost FROM (SELECT * FROM below LIMIT {BELOW_COUNTED}) b
    JOIN nodes n ON n.process_id = b.id JOIN llm_calls l ON l.node_id = n.id GROUP BY b.node, b.called"""

_GLIMPSES = f"""
SELECT p.id, left(coalesce(nullif(i.goal, ''), i.params ->> 'prompt', ''), {ABOUT_CHARS}), p.node_count, l.calls, l.cost
  FROM processes p JOIN process_inputs i ON i.process_id = p.id
 CROSS JOIN LATERAL (SELECT count(*) AS calls, coalesce(sum(cost_usd), 0) AS cost
                       FROM llm_calls WHERE root_id = p.root_id AND (p.id = p.root_id OR process_id = p.id)) l
 WHERE p.id = ANY(%(ids)s)
"""

# The root, the children of what is open, and with the way up from each: what is at work or asks, or what is sought.
_OUTLINE = f"""
WITH RECURSIVE wanted AS (
  (SELECT id, parent_id FROM nodes
    WHERE %(sought)s::text IS NULL AND process_id = %(process)s AND {WORKING} LIMIT {BUSY_SHOWN})
  UNION
  (SELECT n.id, n.parent_id FROM inbox_items i JOIN nodes n ON n.id = i.node_id
    WHERE %(sought)s::text IS NULL AND i.process_id = %(process)s AND i.status = 'PENDING'
    ORDER BY i.id LIMIT {BUSY_SHOWN})
  UNION
  (SELECT id, parent_id FROM nodes
    WHERE %(sought)s::text IS NOT NULL AND process_id = %(process)s AND (position(lower(%(sought)s) IN lower(goal)) > 0
       OR upper(%(sought)s) IN (status, kind, phase) OR id::text = %(sought)s) ORDER BY id LIMIT {MATCHES_SHOWN})
), path AS (
  SELECT id, parent_id FROM wanted
  UNION
  SELECT n.id, n.parent_id FROM path JOIN nodes n ON n.id = path.parent_id
), parents AS (
  SELECT id FROM nodes WHERE %(sought)s::text IS NULL AND process_id = %(process)s AND depth = 0
  UNION
  SELECT id FROM nodes WHERE id = ANY(%(opened)s::bigint[]) AND process_id = %(process)s
), listed AS (
  SELECT c.id FROM parents p CROSS JOIN LATERAL (
    SELECT id FROM nodes WHERE parent_id = p.id ORDER BY order_key
     LIMIT CASE WHEN p.id = ANY(%(whole)s::bigint[]) THEN {ALL_CHILDREN_SHOWN} ELSE {CHILDREN_SHOWN} END) c
), shown AS (
  SELECT id FROM nodes WHERE process_id = %(process)s AND depth = 0
  UNION SELECT id FROM path UNION SELECT id FROM listed
), {_BELOW.strip()}, below_costs AS MATERIALIZED (
  SELECT node, sum(cost) AS cost FROM ({_BELOW_COSTS}) c GROUP BY node
)
SELECT n.id, n.parent_id, n.kind, left(CASE WHEN n.parent_id IS NULL THEN i.goal ELSE n.goal END, {GOAL_CHARS}),
       n.status, n.awaiting_post_children, n.phase, left(n.failure, {FAILURE_CHARS}), counted.numbers, asked.id,
       asked.owner, n.lease_owner, spent.cost, called.processes, n.id IN (SELECT id FROM wanted), under.cost
  FROM shown s CROSS JOIN LATERAL (SELECT * FROM nodes WHERE id = s.id OFFSET 0) n
  LEFT JOIN process_inputs i ON i.process_id = n.process_id AND n.parent_id IS NULL
  LEFT JOIN LATERAL (SELECT id, owner FROM inbox_items WHERE node_id = n.id AND status = 'PENDING' OFFSET 0) asked
         ON true
  LEFT JOIN below_costs under ON under.node = n.id
  CROSS JOIN LATERAL (SELECT sum(cost_usd) AS cost FROM llm_calls WHERE node_id = n.id) spent
  CROSS JOIN LATERAL (
    SELECT json_agg(json_build_array(p.id, p.recipe_name, coalesce(p.close_reason, p.status)) ORDER BY p.created_at)
        AS processes
      FROM (SELECT * FROM processes WHERE n.spawned_calls > 0 AND parent_node_id = n.id
             ORDER BY created_at DESC LIMIT {CALLED_SHOWN}) p) called
  CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(c.shown, c.number) AS numbers FROM (
      SELECT f.shown, count(*) AS number FROM (
        SELECT CASE WHEN k.awaiting_post_children THEN 'RUNNING' ELSE k.status END AS shown
          FROM nodes k WHERE n.child_mode IS NOT NULL AND k.parent_id = n.id LIMIT {CHILDREN_COUNTED}) f
       GROUP BY f.shown) c) counted
 ORDER BY n.depth, n.order_key, n.id
"""

_NODE_KEYS = (
    "id", "process_id", "parent_id", "kind", "goal", "status", "awaiting", "phase", "turn", "failure", "lease_owner",
    "losses", "due_at", "created_at", "started_at", "settled_at", "tenant", "artifacts_removed_at", "children",
    "item_id", "path", "batch",
)  # fmt: skip
_NODE = f"""
WITH RECURSIVE path AS (
  SELECT id, parent_id, goal, 0 AS up FROM nodes WHERE id = %(id)s
  UNION ALL
  SELECT n.id, n.parent_id, n.goal, path.up + 1 FROM path JOIN nodes n ON n.id = path.parent_id WHERE path.up < 64
)
SELECT n.id, n.process_id, n.parent_id, n.kind, CASE WHEN n.parent_id IS NULL THEN i.goal ELSE n.goal END, n.status,
       n.awaiting_post_children, n.phase, n.turn, n.failure, n.lease_owner, n.losses, n.due_at, n.created_at,
       n.started_at, n.settled_at, p.tenant, p.artifacts_removed_at,
       (SELECT count(*) FROM (SELECT 1 FROM nodes WHERE parent_id = n.id LIMIT {CHILDREN_COUNTED}) c),
       (SELECT id FROM inbox_items WHERE node_id = n.id),
       (SELECT json_agg(json_build_array(id, left(goal, 80)) ORDER BY up DESC) FROM path WHERE up > 0),
       (SELECT array[batch_id::text, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')] FROM batch_requests
         WHERE node_id = n.id AND turn = n.turn AND state IN ('WAITING', 'SENT'))
  FROM nodes n JOIN processes p ON p.id = n.process_id JOIN process_inputs i ON i.process_id = p.id
 WHERE n.id = %(id)s
"""

_NODE_COST = f"""
WITH RECURSIVE shown AS (SELECT %(id)s::bigint AS id), {_BELOW.strip()}
SELECT (SELECT sum(cost_usd) FROM llm_calls WHERE node_id = %(id)s), (SELECT sum(cost) FROM ({_BELOW_COSTS}) c)
"""

_CALLED = f"""
WITH RECURSIVE shown AS (SELECT %(id)s::bigint AS id), {_BELOW.strip()}
SELECT p.id, p.recipe_name, p.status, p.close_reason, p.created_at, p.closed_at, c.cost
  FROM (SELECT * FROM processes WHERE parent_node_id = %(id)s ORDER BY created_at DESC LIMIT %(limit)s) p
  LEFT JOIN ({_BELOW_COSTS}) c ON c.called = p.id
 ORDER BY p.created_at DESC
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlined:
    """A node of a tree for people. Texts are beginnings, money is US dollars."""

    id: int
    parent_id: int | None
    kind: str
    goal: str
    status: NodeStatus
    awaiting: bool
    phase: str
    failure: str
    children: tuple[tuple[NodeStatus, int], ...]
    """All of its direct children by status; one that awaits its own counts as RUNNING."""
    item_id: int | None
    asked_of: str | None
    """Whose the open question is; ``None`` also for everybody's."""
    lease_owner: str | None
    cost_usd: Decimal | None
    """Of its own calls."""
    below_usd: Decimal | None
    """Of all calls in the sub-processes it has called, and in theirs."""
    called: tuple[tuple[str, str, str], ...]
    """The last sub-processes: id, recipe, status."""
    wanted: bool
    """At work, asking, or found by the search."""


def glimpses(database: Database, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """Of each process: ``about`` (the beginning of its goal or prompt), ``nodes``, ``calls`` and ``cost_usd``."""
    rows = database.statement(_GLIMPSES, {"ids": list(ids)})
    return {row[0]: dict(zip(("about", "nodes", "calls", "cost_usd"), row[1:], strict=True)) for row in rows}


def outline(
    database: Database,
    process_id: UUID,
    *,
    opened: Sequence[int] = (),
    whole: Sequence[int] = (),
    sought: str | None = None,
) -> list[Outlined]:
    """The part of a tree that is looked at, parents before children, siblings in order.

    opened: nodes whose first children are shown, as the root's always are; whole: those of them with all children.
    sought: only nodes with this in their goal, or of this status, kind, phase or id, and the way up from each.
    """
    params = {"process": process_id, "opened": list(opened), "whole": list(whole), "sought": sought}
    return [_outlined(row) for row in database.statement(_OUTLINE, params)]


def node(database: Database, node_id: int) -> dict[str, Any] | None:
    """One node with its whole goal; ``path``: ``[id, goal]`` of each node above, the root first.

    batch: ``[batch id or None, since when]`` (UTC) of the model call that waits for one, if one does.
    """
    rows = database.statement(_NODE, {"id": node_id})
    return dict(zip(_NODE_KEYS, rows[0], strict=True)) if rows else None


def node_phases(database: Database, node_id: int, *, limit: int) -> list[dict[str, Any]]:
    """The node's last turns, the newest first."""
    return _rows(
        database,
        ("turn", "phase", "iteration", "reason", "forced", "output", "model", "tokens", "cost_usd", "lane_note",
         "started_at", "created_at"),
        "FROM phase_records WHERE node_id = %(id)s ORDER BY turn DESC LIMIT %(limit)s",
        {"id": node_id, "limit": limit},
    )  # fmt: skip


def node_calls(database: Database, node_id: int, *, limit: int) -> list[dict[str, Any]]:
    """The node's last provider calls, the newest first."""
    return _rows(
        database,
        ("turn", "lane", "attempt", "provider", "model", "error_kind", "stop_reason", "structured_path", "input_tokens",
         "output_tokens", "cost_usd", "latency_ms", "created_at"),
        "FROM llm_calls WHERE node_id = %(id)s ORDER BY turn DESC LIMIT %(limit)s",
        {"id": node_id, "limit": limit},
    )  # fmt: skip


def node_artifacts(database: Database, node_id: int, *, chars: int) -> list[dict[str, Any]]:
    """What the node has written, by key: the first ``chars`` characters of each, and how many there are."""
    rows = database.statement(
        "SELECT key, left(content, %(chars)s), length(content), created_at FROM artifacts WHERE node_id = %(id)s"
        " ORDER BY key LIMIT 50",
        {"id": node_id, "chars": chars},
    )
    return [dict(zip(("key", "content", "characters", "created_at"), row, strict=True)) for row in rows]


def node_messages(database: Database, process_id: UUID, node_id: int, *, limit: int) -> list[dict[str, Any]]:
    """The node's last messages, oldest first."""
    found = _rows(
        database,
        ("id", "role", "kind", "content", "created_at"),
        "FROM messages WHERE process_id = %(process)s AND node_id = %(id)s ORDER BY id DESC LIMIT %(limit)s",
        {"process": process_id, "id": node_id, "limit": limit},
    )
    return found[::-1]


def called(database: Database, node_id: int, *, limit: int) -> list[dict[str, Any]]:
    """The sub-processes the node has called, the newest first; ``cost_usd`` with what theirs have cost."""
    keys = ("id", "recipe_name", "status", "close_reason", "created_at", "closed_at", "cost_usd")
    rows = database.statement(_CALLED, {"id": node_id, "limit": limit})
    return [dict(zip(keys, row, strict=True)) for row in rows]


def node_cost(database: Database, node_id: int) -> tuple[Decimal | None, Decimal | None]:
    """US dollars of the node's own calls, and of those in all sub-processes below it; ``None``: none has a price."""
    rows = database.statement(_NODE_COST, {"id": node_id})
    return rows[0][0], rows[0][1]


def process_of(database: Database, node_id: int) -> UUID | None:
    """The process that a node belongs to."""
    rows = database.statement("SELECT process_id FROM nodes WHERE id = %(id)s", {"id": node_id})
    return rows[0][0] if rows else None


def at_work(database: Database, *, limit: int = 200) -> list[dict[str, Any]]:
    """Who holds turns now: ``owner``, ``turns``, and since when the oldest of their nodes is at work."""
    rows = database.statement(
        "SELECT lease_owner, count(*), min(started_at) FROM nodes WHERE lease_expires_at > now()"
        " GROUP BY lease_owner ORDER BY lease_owner LIMIT %(limit)s",
        {"limit": limit},
    )
    return [dict(zip(("owner", "turns", "since"), row, strict=True)) for row in rows]


def _rows(database: Database, keys: Sequence[str], rest: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(keys, row, strict=True)) for row in database.statement(f"SELECT {', '.join(keys)} {rest}", params)]


def _outlined(row: Row) -> Outlined:
    return Outlined(
        id=row[0],
        parent_id=row[1],
        kind=row[2],
        goal=row[3] or "",
        status=NodeStatus(row[4]),
        awaiting=row[5],
        phase=row[6],
        failure=row[7] or "",
        children=tuple((NodeStatus(status), number) for status, number in sorted((row[8] or {}).items())),
        item_id=row[9],
        asked_of=row[10],
        lease_owner=row[11],
        cost_usd=row[12],
        below_usd=row[15],
        called=tuple((each[0], each[1], each[2]) for each in row[13] or ()),
        wanted=row[14],
    )
