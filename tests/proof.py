"""What must be true of jobs that are over, read from the tables: the promises of the README as queries.

Each check finds the rows that break it, so an empty answer is the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg

# The checks speak of processes in ``ids`` and everything below them.
_SCOPE = """
WITH mine AS (SELECT * FROM processes WHERE root_id = ANY(%(ids)s)),
     mine_nodes AS (SELECT n.* FROM nodes n JOIN mine p ON p.id = n.process_id)
"""

CHECKS: dict[str, str] = {
    "every process is CLOSED": "SELECT id, status FROM mine WHERE status <> 'CLOSED'",
    "every process has exactly one result row": """
        SELECT p.id, count(r.process_id) FROM mine p LEFT JOIN results r ON r.process_id = p.id
         GROUP BY p.id HAVING count(r.process_id) <> 1""",
    "every process has exactly one result message": """
        SELECT p.id, count(m.id) FROM mine p LEFT JOIN messages m ON m.process_id = p.id AND m.kind = 'result'
         GROUP BY p.id HAVING count(m.id) <> 1""",
    "every result was handed over": "SELECT id, closed_at FROM mine WHERE delivered_at IS NULL",
    "every turn has exactly one phase record, without gaps": """
        SELECT n.id, n.turn, count(r.turn), min(r.turn), max(r.turn)
          FROM mine_nodes n JOIN mine p ON p.id = n.process_id LEFT JOIN phase_records r ON r.node_id = n.id
         WHERE p.close_reason = 'DONE' AND n.started_at IS NOT NULL
         GROUP BY n.id, n.turn HAVING count(r.turn) <> n.turn - 1 OR coalesce(max(r.turn), 0) <> n.turn - 1""",
    "every ledger row belongs to a phase record": """
        SELECT c.node_id, c.turn FROM llm_calls c JOIN mine_nodes n ON n.id = c.node_id
          LEFT JOIN phase_records r ON r.node_id = c.node_id AND r.turn = c.turn WHERE r.turn IS NULL""",
    "no message twice": """
        SELECT m.process_id, m.kind, count(*) FROM messages m JOIN mine p ON p.id = m.process_id
         WHERE m.kind IN ('prompt', 'result') GROUP BY 1, 2 HAVING count(*) > 1""",
    "one reply message per corrected answer": """
        SELECT p.id FROM mine p
         WHERE p.engine = 'jeltz'
           AND (SELECT count(*) FROM messages m WHERE m.process_id = p.id AND m.kind = 'reply')
            <> (SELECT count(*) FROM phase_records r JOIN nodes n ON n.id = r.node_id
                 WHERE n.process_id = p.id AND r.reason = 'CORRECTED')""",
    "no lease is left": """
        SELECT id, lease_owner FROM mine_nodes WHERE lease_owner IS NOT NULL OR lease_expires_at IS NOT NULL""",
    "nothing is due any more": "SELECT id, due_at FROM mine_nodes WHERE due_at IS NOT NULL OR next_hint_at IS NOT NULL",
    "every node is settled": "SELECT id, status FROM mine_nodes WHERE settled_at IS NULL",
    "all counters are zero": """
        SELECT id FROM mine_nodes WHERE open_children <> 0 OR open_calls <> 0 OR reserved_calls <> 0
            OR reserved_tokens <> 0 OR reserved_cost_usd <> 0""",
    "every endpoint was told of every job that closed, once": """
        SELECT p.id, w.id, count(d.id) FROM mine p
          JOIN webhook_endpoints w ON w.tenant = p.tenant AND w.project IS NULL AND 'process.closed' = ANY (w.events)
          LEFT JOIN webhook_deliveries d ON d.endpoint_id = w.id AND d.process_id = p.id AND d.type = 'process.closed'
         WHERE p.parent_node_id IS NULL GROUP BY p.id, w.id HAVING count(d.id) <> 1""",
    "no budget is still reserved": """
        SELECT id FROM mine WHERE reserved_calls <> 0 OR reserved_tokens <> 0 OR reserved_cost_usd <> 0""",
}  # fmt: skip

_CONNECTIONS = """
SELECT pid, state, now() - xact_start, left(query, 60) FROM pg_stat_activity
 WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND state_change < now() - interval '1 second'
"""


def broken(database_url: str, ids: Sequence[UUID]) -> dict[str, list[tuple[Any, ...]]]:
    """The checks that do not hold, each with some of the rows that break it."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    with psycopg.connect(database_url, autocommit=True) as connection:
        for claim, query in CHECKS.items():
            rows = connection.execute(_SCOPE + query, {"ids": list(ids)}).fetchmany(5)  # type: ignore[arg-type]
            if rows:
                found[claim] = rows
        stored = connection.execute("SELECT count(*) FROM processes WHERE id = ANY(%s)", (list(ids),)).fetchone()
        if stored is None or stored[0] != len(set(ids)):
            found["every accepted job is stored"] = [stored or ()]
        idle = connection.execute(_CONNECTIONS).fetchall()
        if idle:
            found["nothing is idle in transaction"] = idle
    return found


def assert_proven(database_url: str, ids: Sequence[UUID]) -> None:
    problems = broken(database_url, ids)
    assert not problems, "\n".join(f"{claim}: {rows}" for claim, rows in problems.items())
