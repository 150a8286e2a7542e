"""Questions people and other programs ask: status, result, history, ledger, lists. Read only."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from models.store.database import Database, Row

_STATUS = """
SELECT p.id, p.status, p.close_reason, p.engine, p.recipe_name, p.tenant, p.project, p.priority, p.created_at,
       p.started_at, p.closed_at, p.delivered_at, p.deadline_at, p.root_id, p.parent_node_id,
       p.max_calls, p.max_tokens, p.max_cost_usd, p.owner, p.artifacts_removed_at,
       CASE WHEN root.batch_until IS NULL THEN 'normal' ELSE 'batch' END, root.batch_until,
       (SELECT jsonb_object_agg(status, number)
          FROM (SELECT status, count(*) AS number FROM nodes WHERE process_id = p.id GROUP BY status) s),
       (SELECT jsonb_build_object('phase', phase, 'turn', turn, 'due_at', due_at, 'lease_owner', lease_owner,
                                  'losses', losses, 'transport', transport)
          FROM nodes WHERE process_id = p.id AND parent_id IS NULL),
       (SELECT jsonb_build_object('calls', count(*), 'failed_calls', count(error_kind),
               'input_tokens', coalesce(sum(input_tokens), 0), 'output_tokens', coalesce(sum(output_tokens), 0),
               'cache_read_tokens', coalesce(sum(cache_read_tokens), 0),
               'cache_write_tokens', coalesce(sum(cache_write_tokens), 0),
               'cost_usd', coalesce(sum(cost_usd), 0))
          FROM llm_calls WHERE root_id = p.root_id AND (p.id = p.root_id OR process_id = p.id))
  FROM processes p JOIN processes root ON root.id = p.root_id WHERE p.id = %(id)s
"""

_STATUS_KEYS = (
    "id", "status", "close_reason", "engine", "recipe", "tenant", "project", "priority", "created_at", "started_at",
    "closed_at", "delivered_at", "deadline_at", "root_id", "parent_node_id", "max_calls", "max_tokens",
    "max_cost_usd", "owner", "artifacts_removed_at", "lane", "batch_until", "nodes", "root_node", "usage",
)  # fmt: skip


def status(database: Database, process_id: UUID) -> dict[str, Any] | None:
    """Everything ``vancetope status`` shows of one process, or ``None``. Times are aware, money US dollars."""
    rows = database.statement(_STATUS, {"id": process_id})
    return dict(zip(_STATUS_KEYS, rows[0], strict=True)) if rows else None


def state(database: Database, process_id: UUID) -> dict[str, Any] | None:
    """Whose a process is and how far, for those who ask again and again: one row, however large its tree."""
    keys = ("tenant", "root_id", "status", "close_reason")
    rows = database.statement(f"SELECT {', '.join(keys)} FROM processes WHERE id = %(id)s", {"id": process_id})
    return dict(zip(keys, rows[0], strict=True)) if rows else None


def result(database: Database, process_id: UUID) -> dict[str, Any] | None:
    """The result wrapper of a closed process; ``None`` while it is open or when it is unknown."""
    rows = database.statement("SELECT wrapper FROM results WHERE process_id = %(id)s", {"id": process_id})
    return rows[0][0] if rows else None


def messages(database: Database, process_id: UUID, *, limit: int = 200) -> list[dict[str, Any]]:
    """The chat history, oldest first, at most the last ``limit`` messages."""
    rows = database.statement(
        "SELECT * FROM (SELECT id, role, kind, content, created_at FROM messages WHERE process_id = %(id)s"
        " ORDER BY id DESC LIMIT %(limit)s) m ORDER BY id",
        {"id": process_id, "limit": limit},
    )
    return [dict(zip(("id", "role", "kind", "content", "created_at"), row, strict=True)) for row in rows]


def calls(database: Database, process_id: UUID) -> list[dict[str, Any]]:
    """The usage ledger of the process and its sub-processes, in the order the calls were committed."""
    keys = (
        "node_id", "turn", "lane", "attempt", "provider", "model", "error_kind", "stop_reason", "structured_path",
        "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "latency_ms",
        "reached_inference", "created_at",
    )  # fmt: skip
    rows = database.statement(
        f"SELECT {', '.join('c.' + key for key in keys)} FROM llm_calls c JOIN processes p ON p.id = %(id)s"
        " WHERE c.root_id = p.root_id AND (p.id = p.root_id OR c.process_id = p.id)"
        " ORDER BY c.created_at, c.node_id, c.turn, c.lane",
        {"id": process_id},
    )
    return [dict(zip(keys, row, strict=True)) for row in rows]


def phase_history(database: Database, process_id: UUID) -> list[dict[str, Any]]:
    """The audit trail of every node of the process, in the order of its turns."""
    keys = (
        "node_id", "turn", "phase", "iteration", "reason", "forced", "output", "model", "tokens", "cost_usd",
        "replaced_characters", "lane_note", "started_at", "created_at",
    )  # fmt: skip
    rows = database.statement(
        f"SELECT {', '.join('r.' + key for key in keys)} FROM phase_records r JOIN nodes n ON n.id = r.node_id"
        " WHERE n.process_id = %(id)s ORDER BY r.created_at, r.node_id, r.turn",
        {"id": process_id},
    )
    return [dict(zip(keys, row, strict=True)) for row in rows]


def recent(
    database: Database, *, limit: int, tenant: str | None = None, owner: str | None = None
) -> list[dict[str, Any]]:
    """The newest top-level processes. owner: only those this person has submitted."""
    keys = ("id", "status", "close_reason", "engine", "recipe", "owner", "created_at", "closed_at")
    rows = database.statement(
        "SELECT id, status, close_reason, engine, recipe_name, owner, created_at, closed_at FROM processes"
        " WHERE parent_node_id IS NULL AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)"
        " AND (%(owner)s::text IS NULL OR owner = %(owner)s) ORDER BY created_at DESC LIMIT %(limit)s",
        {"limit": limit, "tenant": tenant, "owner": owner},
    )
    return [dict(zip(keys, row, strict=True)) for row in rows]


@dataclass(frozen=True, slots=True)
class Place:
    """A row of a list that is ordered by time of creation, newest first: the next page begins behind it."""

    created_at: datetime
    id: UUID

    def encode(self) -> str:
        """A text for addresses, which only :meth:`parse` needs to read."""
        return base64.urlsafe_b64encode(f"{self.created_at.isoformat()} {self.id}".encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises ``ValueError`` for a text that :meth:`encode` did not make."""
        at, _, identity = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(" ")
        return cls(datetime.fromisoformat(at), UUID(identity))


_SUMMARY_KEYS = (
    "id", "status", "close_reason", "engine", "recipe", "project", "owner", "created_at", "started_at", "closed_at",
)  # fmt: skip
_SUMMARY = "SELECT id, status, close_reason, engine, recipe_name, project, owner, created_at, started_at, closed_at"


def page(
    database: Database,
    *,
    tenant: str,
    limit: int,
    project: str | None = None,
    status: str | None = None,
    recipe: str | None = None,
    before: Place | None = None,
    after: Place | None = None,
) -> list[dict[str, Any]]:
    """Top-level processes of a tenant, the newest first, behind ``before`` and newer than ``after``."""
    rows = database.statement(
        f"{_SUMMARY} FROM processes WHERE parent_node_id IS NULL AND tenant = %(tenant)s"
        " AND (%(project)s::text IS NULL OR project = %(project)s)"
        " AND (%(status)s::text IS NULL OR status = %(status)s)"
        " AND (%(recipe)s::text IS NULL OR recipe_name = %(recipe)s)"
        " AND (%(id)s::uuid IS NULL OR (created_at, id) < (%(at)s::timestamptz, %(id)s))"
        " AND (%(after)s::uuid IS NULL OR (created_at, id) > (%(after_at)s::timestamptz, %(after)s))"
        " ORDER BY created_at DESC, id DESC LIMIT %(limit)s",
        {
            "tenant": tenant,
            "project": project,
            "status": status,
            "recipe": recipe,
            "at": None if before is None else before.created_at,
            "id": None if before is None else before.id,
            "after_at": None if after is None else after.created_at,
            "after": None if after is None else after.id,
            "limit": limit,
        },
    )
    return [dict(zip(_SUMMARY_KEYS, row, strict=True)) for row in rows]


def summaries(database: Database, ids: Sequence[UUID], *, tenant: str) -> list[dict[str, Any]]:
    """Those of the processes that are there and of the tenant, as :func:`page` shows them."""
    if not ids:
        return []
    rows = database.statement(
        f"{_SUMMARY} FROM processes WHERE id = ANY(%(ids)s) AND tenant = %(tenant)s ORDER BY created_at DESC, id DESC",
        {"ids": list(ids), "tenant": tenant},
    )
    return [dict(zip(_SUMMARY_KEYS, row, strict=True)) for row in rows]


def submitted(database: Database, process_id: UUID) -> dict[str, Any] | None:
    """What a process was submitted as: ``tenant``, ``recipe``, ``goal``, ``params`` (with the recipe's own)."""
    rows = database.statement(
        "SELECT p.tenant, p.recipe_name, i.goal, i.params FROM processes p JOIN process_inputs i ON i.process_id = p.id"
        " WHERE p.id = %(id)s",
        {"id": process_id},
    )
    return dict(zip(("tenant", "recipe", "goal", "params"), rows[0], strict=True)) if rows else None


_GROUPS = {
    "day": "to_char(c.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
    "recipe": "p.recipe_name",
    "model": "c.provider || ':' || c.model",
}


def usage(
    database: Database, *, tenant: str, group: str, since: datetime, until: datetime, project: str | None = None
) -> list[dict[str, Any]]:
    """The ledger of a tenant from ``since`` up to before ``until``, added up by ``day`` (UTC), ``recipe`` or ``model``.

    A call is its top-level process's: calls of sub-processes are with the recipe that was submitted.
    """
    keys = ("group", "calls", "failed_calls", "input_tokens", "output_tokens", "cost_usd")
    rows = database.statement(
        f"SELECT {_GROUPS[group]}, count(*), count(c.error_kind), coalesce(sum(c.input_tokens), 0)::bigint,"
        " coalesce(sum(c.output_tokens), 0)::bigint, coalesce(sum(c.cost_usd), 0)"
        " FROM llm_calls c JOIN processes p ON p.id = c.root_id"
        " WHERE p.tenant = %(tenant)s AND (%(project)s::text IS NULL OR p.project = %(project)s)"
        " AND c.created_at >= %(since)s AND c.created_at < %(until)s GROUP BY 1 ORDER BY 1",
        {"tenant": tenant, "project": project, "since": since, "until": until},
    )
    return [dict(zip(keys, row, strict=True)) for row in rows]


def backlog(database: Database) -> list[Row]:
    """``(engine, due turns, leased turns, seconds the oldest due turn has waited)`` of the open processes."""
    return database.statement(
        "SELECT p.engine, count(*) FILTER (WHERE n.lease_expires_at IS NULL),"
        " count(*) FILTER (WHERE n.lease_expires_at IS NOT NULL),"
        " coalesce(extract(epoch FROM now() - min(n.due_at) FILTER (WHERE n.lease_expires_at IS NULL)), 0)::float8"
        " FROM nodes n JOIN processes p ON p.id = n.process_id"
        " WHERE n.due_at <= now() AND p.status IN ('INIT', 'RUNNING', 'BLOCKED') GROUP BY p.engine ORDER BY p.engine",
        {},
    )


def schema_revision(database: Database) -> str | None:
    """The Alembic revision of the database, ``None`` when it was never migrated."""
    rows = database.statement("SELECT to_regclass('alembic_version')::text", {})
    if rows[0][0] is None:
        return None
    found = database.statement("SELECT version_num FROM alembic_version", {})
    return found[0][0] if found else None


def dead_letters(database: Database, *, limit: int) -> list[dict[str, Any]]:
    """The newest messages that were set aside because nobody can act on them."""
    keys = ("id", "task", "problem", "payload", "created_at")
    rows = database.statement(
        "SELECT id, task, problem, payload, created_at FROM dead_letters ORDER BY id DESC LIMIT %(limit)s",
        {"limit": limit},
    )
    return [dict(zip(keys, row, strict=True)) for row in rows]
