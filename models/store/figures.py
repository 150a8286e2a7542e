"""Figures for whoever watches the installation: a few bounded statements over partial indexes, no walk over tables."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from models.store.database import Database
from models.store.sweep import OPEN

MOST = 100_000
"""No statement counts more rows than this of one kind: a larger backlog reads as this many."""
TIMEOUT_MS = 5_000

# The share of a budget from which on it counts as nearly spent. What is reserved by calls under way is counted in.
_NEARLY = """
parent_node_id IS NULL AND (coalesce(used_calls + reserved_calls >= 0.9 * max_calls, false)
  OR coalesce(used_tokens + reserved_tokens >= 0.9 * max_tokens, false)
  OR coalesce(used_cost_usd + reserved_cost_usd >= 0.9 * max_cost_usd, false))"""

_PROCESSES = text(f"""
SELECT engine, status, count(*), count(*) FILTER (WHERE nearly_spent)
  FROM (SELECT engine, status, {_NEARLY} AS nearly_spent FROM processes WHERE status <> 'CLOSED' LIMIT {MOST}) p
 GROUP BY 1, 2 ORDER BY 1, 2
""")

# Each condition repeats the predicate of a partial index (models.tables), so that settled nodes are never looked at.
_NODE_STATES = {
    "due": "due_at IS NOT NULL AND lease_expires_at IS NULL AND due_at <= now()",
    "delayed": "due_at IS NOT NULL AND lease_expires_at IS NULL AND due_at > now() AND status <> 'WAITING'",
    "leased": "lease_expires_at IS NOT NULL",
    "waits_for_place": "waits_for_place",
    "waits_for_sibling": "parent_id IS NOT NULL AND status = 'PENDING' AND due_at IS NULL AND NOT waits_for_place",
    "waits_for_children": "awaiting_post_children AND due_at IS NULL",
    "waits_for_process": "status = 'WAITING' AND open_calls > 0",
}
NODE_STATES = tuple(_NODE_STATES)
_NODES = text(
    " UNION ALL ".join(
        f"SELECT '{state}', count(*) FROM (SELECT 1 FROM nodes WHERE {condition} LIMIT {MOST}) {state}"
        for state, condition in _NODE_STATES.items()
    )
)

_TURNS = text(f"""
SELECT p.engine, count(*) FILTER (WHERE NOT n.leased), count(*) FILTER (WHERE n.leased),
       coalesce(extract(epoch FROM now() - min(n.due_at) FILTER (WHERE NOT n.leased)), 0)::float8
  FROM ((SELECT process_id, due_at, false AS leased FROM nodes
          WHERE due_at IS NOT NULL AND lease_expires_at IS NULL AND due_at <= now() ORDER BY due_at LIMIT {MOST})
        UNION ALL
        (SELECT process_id, due_at, true FROM nodes WHERE lease_expires_at IS NOT NULL LIMIT {MOST})) n
  JOIN processes p ON p.id = n.process_id
 WHERE p.status IN {OPEN} GROUP BY p.engine ORDER BY p.engine
""")

_WAITING = text(f"""
SELECT undelivered.number, undelivered.oldest, questions.number, questions.oldest, letters.number,
       requests.number, requests.oldest
  FROM (SELECT count(*) AS number, coalesce(extract(epoch FROM now() - min(closed_at)), 0)::float8 AS oldest
          FROM (SELECT closed_at FROM processes WHERE status = 'CLOSED' AND delivered_at IS NULL
                 ORDER BY closed_at LIMIT {MOST}) p) undelivered,
       (SELECT count(*) AS number, coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 AS oldest
          FROM (SELECT created_at FROM inbox_items WHERE status = 'PENDING' LIMIT {MOST}) i) questions,
       (SELECT count(*) AS number FROM (SELECT 1 FROM dead_letters LIMIT {MOST}) d) letters,
       (SELECT count(*) AS number, coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 AS oldest
          FROM (SELECT created_at FROM batch_requests WHERE state IN ('WAITING', 'SENT')
                 ORDER BY created_at LIMIT {MOST}) r) requests
""")

# Of endpoints that are enabled: what waits for the others waits for a person. Late is what nobody works on: one that
# fails is served one at a time, and one that is being sent to may just be slow.
_WEBHOOKS = text(f"""
SELECT count(*), coalesce(extract(epoch FROM now() - min(d.created_at)), 0)::float8,
       greatest(coalesce(extract(epoch FROM now() - min(d.due_at) FILTER (WHERE d.idle)), 0), 0)::float8,
       (SELECT count(*) FROM webhook_endpoints WHERE enabled AND failing_since IS NOT NULL),
       (SELECT count(*) FROM webhook_endpoints WHERE disabled_reason IS NOT NULL)
  FROM (SELECT p.created_at, p.due_at,
               w.failing_since IS NULL AND count(*) FILTER (WHERE p.lease_expires_at > now())
                 OVER (PARTITION BY p.endpoint_id) = 0 AS idle
          FROM (SELECT endpoint_id, created_at, due_at, lease_expires_at FROM webhook_deliveries
                 WHERE state = 'PENDING' LIMIT {MOST}) p
          JOIN (SELECT id, failing_since FROM webhook_endpoints WHERE enabled) w ON w.id = p.endpoint_id) d
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The turns of one engine in processes that may run. ``oldest_seconds``: how long the oldest due one has waited."""

    engine: str
    due: int
    leased: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """What is pending for enabled endpoints, how long ago the oldest of it happened, and how long that has been due
    which nobody sends (endpoints that fail or are being sent to left out)."""

    pending: int
    oldest_seconds: float
    late_seconds: float
    failing: int
    """Enabled endpoints to which nothing gets through."""
    given_up: int
    """Endpoints that were disabled for that, or because they answered 410."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the tables say now. Counts end at :data:`MOST`, ages are seconds and 0 when there is nothing to be old."""

    processes: tuple[tuple[str, str, int], ...]
    """``(engine, status, number)`` of the open processes."""
    budgets_nearly_spent: int
    """Open root processes that have used or reserved 90 % of a limit."""
    nodes: tuple[tuple[str, int], ...]
    """``(one of NODE_STATES, number)``; nodes of suspended processes are among them."""
    backlogs: tuple[Backlog, ...]
    undelivered: int
    undelivered_oldest_seconds: float
    questions: int
    questions_oldest_seconds: float
    dead_letters: int
    webhooks: Webhooks
    batch_requests: int
    """Model calls that wait for a batch to answer."""
    batch_requests_oldest_seconds: float


def figures(database: Database) -> Figures:
    """Read them all. Raises ``DatabaseUnavailable``, also when PostgreSQL takes too long over one of them."""
    with database.begin() as connection:
        connection.execute(text(f"SET LOCAL statement_timeout = {TIMEOUT_MS}"))
        processes = connection.execute(_PROCESSES).all()
        nodes = connection.execute(_NODES).all()
        turns = connection.execute(_TURNS).all()
        waiting = connection.execute(_WAITING).one()
        webhooks = connection.execute(_WEBHOOKS).one()
    return Figures(
        processes=tuple((engine, status, number) for engine, status, number, _ in processes),
        budgets_nearly_spent=sum(row[3] for row in processes),
        nodes=tuple((state, number) for state, number in nodes),
        backlogs=tuple(
            Backlog(engine=engine, due=due, leased=leased, oldest_seconds=oldest)
            for engine, due, leased, oldest in turns
        ),
        undelivered=waiting[0],
        undelivered_oldest_seconds=waiting[1],
        questions=waiting[2],
        questions_oldest_seconds=waiting[3],
        dead_letters=waiting[4],
        webhooks=Webhooks(
            pending=webhooks[0],
            oldest_seconds=webhooks[1],
            late_seconds=webhooks[2],
            failing=webhooks[3],
            given_up=webhooks[4],
        ),
        batch_requests=waiting[5],
        batch_requests_oldest_seconds=waiting[6],
    )
