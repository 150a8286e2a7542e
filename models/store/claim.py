"""Claiming a turn, keeping its lease, and reserving budget for its call. One statement each, database clock only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from models.records import CallResult, CloseReason, Lease, NodeStatus, NodeView, ProcessView, StoredMessage, View
from models.store.database import Database

MAX_LOSSES = 3
"""Worker losses in one turn after which the engine is told to give the node up instead of trying again."""
HARD_LOSSES = 5
"""Losses after which even telling the engine has failed, and the store closes the process itself."""

# The claim is the one write whose loss does no harm: the turn is still due, and the fence has a random part, so that a
# claim undone by a crash of the server and the one that follows it never hold the same proof. So it does not wait for
# the disk, unlike the commit.
_CLAIM = """
WITH relaxed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
claimed AS (
  UPDATE nodes n
     SET lease_owner = %(owner)s, lease_expires_at = now() + make_interval(secs => %(lease)s),
         fence = n.fence + 1 + (random() * 1000000000)::bigint,
         losses = n.losses + (n.lease_expires_at IS NOT NULL)::int,
         status = 'RUNNING', awaiting_post_children = false, started_at = coalesce(n.started_at, now())
    FROM processes p, relaxed
   WHERE n.id = %(node)s AND n.turn = %(turn)s AND n.due_at <= now()
     AND (n.lease_expires_at IS NULL OR n.lease_expires_at < now()) AND n.losses < %(hard)s
     AND p.id = n.process_id AND p.status IN ('INIT', 'RUNNING', 'BLOCKED')
  RETURNING n.*, p.status AS process_status
), started AS (
  -- A stop locks the process before its nodes; never waiting here keeps the two orders from meeting in a deadlock.
  UPDATE processes SET status = 'RUNNING', started_at = coalesce(processes.started_at, now())
  -- The status is looked at again under the lock: a suspension that came in between must not be undone.
   WHERE id IN (SELECT p.id FROM processes p, claimed c
                 WHERE p.id = c.process_id AND c.process_status <> 'RUNNING' AND p.status IN ('INIT', 'BLOCKED')
                 FOR NO KEY UPDATE OF p SKIP LOCKED)
)
SELECT c.id, c.parent_id, c.depth, c.order_key, c.kind, c.goal, c.status, c.phase, c.cursor, c.transport, c.turn,
       c.losses, c.spawned_calls, c.fence, c.reserved_calls, c.reserved_tokens, c.reserved_cost_usd,
       p.id, p.root_id, p.parent_node_id, p.tenant, p.project, p.owner, p.engine, p.recipe_name, i.goal,
       i.params, i.recipe,
       root.max_calls IS NOT NULL OR root.max_tokens IS NOT NULL OR root.max_cost_usd IS NOT NULL,
       root.deadline_at, coalesce(root.deadline_at <= now(), false), p.priority, p.trace_context, p.callback,
       CASE WHEN %(history)s > 0 THEN (
         SELECT jsonb_agg(jsonb_build_array(m.role, m.kind, m.content) ORDER BY m.id)
           FROM (SELECT * FROM messages WHERE process_id = c.process_id ORDER BY id DESC LIMIT %(history)s) m) END,
       root.batch_until, pg_current_xact_id()::text::bigint
  FROM claimed c
  JOIN processes p ON p.id = c.process_id
  JOIN processes root ON root.id = p.root_id
  JOIN process_inputs i ON i.process_id = c.process_id
"""

_CALLS = """
SELECT p.id, p.recipe_name, p.engine, p.status = 'CLOSED', p.close_reason, r.wrapper, p.parent_key
  FROM processes p LEFT JOIN results r ON r.process_id = p.id
 WHERE p.parent_node_id = %(node)s ORDER BY p.created_at, p.id
"""

_HEARTBEAT = """
WITH relaxed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
mine AS MATERIALIZED (
  SELECT * FROM unnest(%(nodes)s::bigint[], %(turns)s::int[], %(fences)s::bigint[]) AS m(node_id, turn, fence)
), alive AS MATERIALIZED (
  -- A row locked by a stop or a commit is skipped, never waited for: the next beat, well within the lease, sees it.
  SELECT n.id FROM nodes n JOIN mine m ON m.node_id = n.id AND m.turn = n.turn AND m.fence = n.fence, relaxed
   WHERE n.settled_at IS NULL ORDER BY n.id FOR NO KEY UPDATE OF n SKIP LOCKED
), extended AS (
  UPDATE nodes SET lease_owner = %(owner)s, lease_expires_at = now() + make_interval(secs => %(lease)s)
   WHERE id IN (SELECT id FROM alive)
)
SELECT m.node_id, m.turn, m.fence,
       CASE WHEN n.turn IS DISTINCT FROM m.turn OR n.fence IS DISTINCT FROM m.fence
              OR n.settled_at IS NOT NULL THEN 'lost'
            WHEN root.deadline_at <= now() THEN 'overdue'
            ELSE 'held' END
  FROM mine m
  LEFT JOIN nodes n ON n.id = m.node_id
  LEFT JOIN processes p ON p.id = n.process_id
  LEFT JOIN processes root ON root.id = p.root_id
"""

# Not waiting for the disk either: all nodes of a tree queue for this row, and each would hold it for the wait. What a
# crash of the server can undo is the count of a call under way, no more than the claim before it.
_RESERVE = """
WITH relaxed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
root AS MATERIALIZED (
  SELECT processes.id FROM processes, relaxed
   WHERE processes.id = %(root)s AND status <> 'CLOSED'
     AND (max_calls IS NULL OR used_calls + reserved_calls - %(had_calls)s + 1 <= max_calls)
     AND (max_tokens IS NULL OR used_tokens + reserved_tokens - %(had_tokens)s + %(tokens)s <= max_tokens)
     AND (max_cost_usd IS NULL OR %(priced)s
          AND used_cost_usd + reserved_cost_usd - %(had_cost)s::numeric + %(cost)s::numeric <= max_cost_usd)
     FOR NO KEY UPDATE OF processes
), holder AS (
  -- The node decides under its own lock whether the lease still holds; only then do the root's counters move.
  UPDATE nodes n SET reserved_calls = 1, reserved_tokens = %(tokens)s, reserved_cost_usd = %(cost)s::numeric
    FROM root WHERE n.id = %(node)s AND n.turn = %(turn)s AND n.fence = %(fence)s AND n.settled_at IS NULL
  RETURNING n.id
)
UPDATE processes
   SET reserved_calls = reserved_calls + 1 - %(had_calls)s,
       reserved_tokens = reserved_tokens + %(tokens)s - %(had_tokens)s,
       reserved_cost_usd = reserved_cost_usd + %(cost)s::numeric - %(had_cost)s::numeric
  FROM holder WHERE processes.id = %(root)s
RETURNING processes.id
"""


# A new fence, or a heartbeat already under way would lease the turn again, for a worker that has let go of it.
_POSTPONE = """
UPDATE nodes SET lease_owner = NULL, lease_expires_at = NULL, fence = fence + 1, hints = 0,
       -- Others have seen it at work since: a replay wants to know from when on.
       transport = jsonb_build_object('claimedIn', %(claimed)s::bigint) || transport,
       due_at = now() + make_interval(secs => %(delay)s), next_hint_at = now() + make_interval(secs => %(delay)s)
 WHERE id = %(node)s AND turn = %(turn)s AND fence = %(fence)s AND settled_at IS NULL
RETURNING id
"""


_BUDGET = """
SELECT max_calls, used_calls + reserved_calls - %(calls)s, max_tokens, used_tokens + reserved_tokens - %(tokens)s,
       max_cost_usd, used_cost_usd + reserved_cost_usd - %(cost)s::numeric
  FROM processes WHERE id = %(root)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a node holds of its root's budget. ``cost_usd`` is US dollars."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claimed turn: the proof, what the engine sees, and what is already reserved (by a worker that died)."""

    lease: Lease
    view: View
    reserved: Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Who goes on with the node at once, if its next turn is due: the commit leases that turn to ``owner``."""

    owner: str
    lease_seconds: float
    nonce: str


def claim_kept(
    claim: Claim,
    keep: Keep,
    *,
    turn: int,
    fence: int,
    phase: str,
    cursor: dict[str, Any],
    transport: dict[str, Any],
    limits_counted: bool,
    deadline_at: datetime | None,
    overdue: bool,
) -> Claim:
    """The next turn of a node that went on and that the commit left leased: what :func:`claim_turn` would have returned
    for it, the node having called nothing and its engine reading no history."""
    view = claim.view
    node = replace(
        view.node, status=NodeStatus.RUNNING, phase=phase, cursor=cursor, transport=transport, turn=turn, losses=0
    )
    process = replace(view.process, limits_counted=limits_counted, deadline_at=deadline_at, overdue=overdue)
    return Claim(
        lease=replace(claim.lease, turn=turn, fence=fence),
        view=View(node=node, process=process, nonce=keep.nonce),
        reserved=Reservation(),
    )


def claim_turn(
    database: Database, node_id: int, turn: int, *, owner: str, lease_seconds: float, history: int, nonce: str
) -> Claim | None:
    """Take the turn if it is due and nobody holds it, or its holder's lease has expired.

    ``None``: somebody else has it, it is done, not due yet, suspended or stopped; there is nothing to do.
    history: how many of the process's last messages the view carries.
    """
    rows = database.statement(
        _CLAIM,
        {
            "node": node_id,
            "turn": turn,
            "owner": owner,
            "lease": lease_seconds,
            "history": history,
            "hard": HARD_LOSSES,
        },
    )
    if not rows:
        return None
    row = rows[0]
    node = NodeView(
        id=row[0],
        parent_id=row[1],
        depth=row[2],
        order_key=tuple(row[3]),
        kind=row[4],
        goal=row[5],
        status=NodeStatus(row[6]),
        phase=row[7],
        cursor=row[8],
        transport=row[9],
        turn=row[10],
        losses=row[11],
        spawned_calls=row[12],
    )
    process = ProcessView(
        id=row[17],
        root_id=row[18],
        parent_node_id=row[19],
        tenant=row[20],
        project=row[21],
        owner=row[22],
        engine=row[23],
        recipe_name=row[24],
        goal=row[25],
        params=row[26],
        recipe=row[27],
        limits_counted=row[28],
        deadline_at=row[29],
        overdue=row[30],
        priority=row[31],
        trace_context=row[32],
        callback=row[33],
        batch_until=row[35],
    )
    messages = tuple(StoredMessage(role=role, kind=kind, content=content) for role, kind, content in row[34] or ())
    calls = _calls(database, node_id) if node.spawned_calls else ()
    return Claim(
        lease=Lease(node_id=node.id, turn=node.turn, fence=row[13], process_id=process.id, root_id=process.root_id),
        view=View(node=node, process=process, messages=messages, calls=calls, nonce=nonce, claimed_in=row[36]),
        reserved=Reservation(calls=row[14], tokens=row[15], cost_usd=float(row[16])),
    )


def postpone_turn(database: Database, claim: Claim, *, delay_seconds: float) -> bool:
    """Give the turn back unused; it is due again after ``delay_seconds``. No history row, the turn keeps its number.

    For waits that are nobody's failure (no free call slot, a provider left alone). ``False``: the lease was lost.
    """
    params = {
        "node": claim.lease.node_id,
        "turn": claim.lease.turn,
        "fence": claim.lease.fence,
        "delay": float(delay_seconds),
        "claimed": claim.view.claimed_in,
    }
    return bool(database.statement(_POSTPONE, params))


def _calls(database: Database, node_id: int) -> tuple[CallResult, ...]:
    return tuple(
        CallResult(
            process_id=row[0],
            recipe_name=row[1],
            engine=row[2],
            closed=row[3],
            close_reason=CloseReason(row[4]) if row[4] else None,
            result=row[5],
            cursor_key=row[6],
        )
        for row in database.statement(_CALLS, {"node": node_id})
    )


def extend_leases(database: Database, leases: list[Lease], *, owner: str, lease_seconds: float) -> dict[Lease, str]:
    """Extend all the leases of one worker process in one round trip.

    Returns for each ``held``, ``lost`` (taken over, stopped or gone) or ``overdue`` (its root's deadline has passed).
    """
    rows = database.statement(
        _HEARTBEAT,
        {
            "nodes": [lease.node_id for lease in leases],
            "turns": [lease.turn for lease in leases],
            "fences": [lease.fence for lease in leases],
            "owner": owner,
            "lease": lease_seconds,
        },
    )
    states = {(node_id, turn, fence): state for node_id, turn, fence, state in rows}
    return {lease: states.get((lease.node_id, lease.turn, lease.fence), "lost") for lease in leases}


def reserve_budget(database: Database, claim: Claim, *, tokens: int, cost_usd: float | None) -> Reservation | None:
    """Reserve one call on the root's counters before it is made. ``None``: it does not fit, or the lease is lost.

    cost_usd: ``None`` when nobody knows; a limit on money holds only if such a call is not made.
    """
    had = claim.reserved
    # To the precision of the columns, and up: what is given back later must be exactly what was taken.
    cost = math.ceil(round((cost_usd or 0.0) * 1e6, 3)) / 1e6
    params: dict[str, Any] = {
        "root": claim.lease.root_id,
        "node": claim.lease.node_id,
        "turn": claim.lease.turn,
        "fence": claim.lease.fence,
        "tokens": tokens,
        "cost": cost,
        "priced": cost_usd is not None,
        "had_calls": had.calls,
        "had_tokens": had.tokens,
        "had_cost": had.cost_usd,
    }
    return Reservation(calls=1, tokens=tokens, cost_usd=cost) if database.statement(_RESERVE, params) else None


def why_refused(database: Database, claim: Claim, *, model: str, tokens: int, cost_usd: float | None) -> str | None:
    """Which limit a call of this size to ``model`` does not fit, in words; ``None`` when no limit refused it."""
    had = claim.reserved
    params = {"root": claim.lease.root_id, "calls": had.calls, "tokens": had.tokens, "cost": had.cost_usd}
    rows = database.statement(_BUDGET, params)
    if not rows:
        return None
    max_calls, calls, max_tokens, used_tokens, max_cost, used_cost = rows[0]
    if max_calls is not None and calls + 1 > max_calls:
        return f"maxCalls is {max_calls}, and {calls} are made or under way"
    if max_tokens is not None and used_tokens + tokens > max_tokens:
        return f"maxTokens is {max_tokens}, {used_tokens} are used or reserved, and the next call may take {tokens}"
    if max_cost is not None and cost_usd is None:
        return f"maxCostUsd is {float(max_cost):g}, and {model} has no price in the catalogue: it may cost anything"
    if max_cost is not None and cost_usd is not None and float(used_cost) + cost_usd > float(max_cost):
        return (
            f"maxCostUsd is {float(max_cost):g}, {float(used_cost):g} is used or reserved,"
            f" and the next call may cost {cost_usd:g}"
        )
    return None
