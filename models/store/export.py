"""One process with everything it owns, as one JSON text. Read only, from one snapshot, row by row.

The text is an object: ``format`` (:data:`FORMAT`), ``version`` (:data:`VERSION`), ``root`` (the id of the top-level
process), ``schemaRevision``, ``exportedAt``, and a list of rows for each table of :data:`COLUMNS`, whose keys are the
table's columns. Times are ISO 8601, numerics are texts. Some things differ from the tables:

* ``recorded`` of a phase record is the object of ``tasks.recording``, not its compressed form;
* ``document_versions`` carry the ``tenant``, ``project``, ``path`` and ``mime`` of their documents. They are those that
  the tree wrote and those that its turns had in their views;
* ``model_specs`` are likewise the versions written and those seen;
* phase records and inbox items tell the transaction that wrote them last (``transaction``, the row's ``xmin``).

What is in no list belongs to nobody's process, or is left out by name (:data:`LEFT_OUT`, :data:`OF_THE_MOMENT`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from models.store.database import Database
from models.store.recordings import json_text, unpacked

FORMAT = "vancetope-export"
VERSION = 1
ROWS_AT_ONCE = 200

COLUMNS: dict[str, tuple[str, ...]] = {
    "processes": (
        "id", "root_id", "parent_node_id", "parent_key", "tenant", "project", "owner", "engine", "recipe_name",
        "status", "close_reason", "priority", "max_calls", "max_tokens", "max_cost_usd", "deadline_at", "used_calls",
        "used_tokens", "used_cost_usd", "node_count", "max_parallel", "trace_context", "created_at", "started_at",
        "closed_at", "delivered_at", "artifacts_removed_at", "batch_until",
    ),
    "process_inputs": ("process_id", "goal", "params", "recipe"),
    "results": ("process_id", "wrapper", "created_at"),
    "nodes": (
        "id", "process_id", "parent_id", "order_key", "depth", "kind", "goal", "status", "phase", "cursor",
        "transport", "failure", "child_mode", "awaiting_post_children", "open_children", "open_calls",
        "spawned_calls", "turn", "waits_for_place", "due_at", "created_at", "started_at", "settled_at",
    ),
    "artifacts": ("node_id", "key", "content", "created_at"),
    "phase_records": (
        "node_id", "turn", "phase", "iteration", "reason", "forced", "output", "model", "tokens", "cost_usd",
        "replaced_characters", "lane_note", "recorded", "started_at", "created_at",
    ),
    "llm_calls": (
        "node_id", "turn", "lane", "process_id", "root_id", "attempt", "provider", "model", "error_kind", "stop_reason",
        "structured_path", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd",
        "latency_ms", "reached_inference", "created_at",
    ),
    "messages": ("id", "process_id", "node_id", "role", "kind", "content", "created_at"),
    "inbox_items": (
        "id", "tenant", "project", "process_id", "node_id", "originator", "tags", "type", "criticality", "title",
        "body", "payload", "status", "owner", "answer", "answered_by", "resolved_by", "created_at", "expires_at",
        "answered_at",
    ),
    "document_versions": ("document_id", "version", "kind", "title", "content", "node_id", "created_at"),
    "model_specs": (
        "tenant", "project", "model_id", "version", "spec_version", "spec", "evolution", "process_id", "node_id",
        "created_at",
    ),
}  # fmt: skip
"""What is exported, table by table, in the order of the text."""

LEFT_OUT: dict[str, tuple[str, ...]] = {
    # Counters of calls and places under way, and where results went: of the moment, or of this installation.
    "processes": (
        "reserved_calls", "reserved_tokens", "reserved_cost_usd", "fan_outs", "callback", "delivery_attempts",
        "deliver_at",
    ),
    # Leases, hints and reservations: of the moment.
    "nodes": (
        "next_hint_at", "hints", "fence", "lease_owner", "lease_expires_at", "losses", "reserved_calls",
        "reserved_tokens", "reserved_cost_usd",
    ),
}  # fmt: skip
NOT_OWNED = frozenset({"documents", "api_tokens", "dead_letters", "retention_policies", "webhook_endpoints", "batches"})
"""Tables without a row that belongs to a process. Of ``documents`` each version is told with its place."""
OF_THE_MOMENT = frozenset({"batch_requests", "webhook_deliveries"})
"""Tables of what is on its way to or from others on behalf of a process."""

_HEAD = text("SELECT now(), (SELECT version_num FROM alembic_version) FROM processes WHERE id = :root AND id = root_id")
_PROCESSES = "(SELECT id FROM processes WHERE root_id = :root)"
_NODES = f"(SELECT n.id FROM nodes n WHERE n.process_id IN {_PROCESSES})"
_ROWS = {
    "processes": "FROM processes t WHERE t.root_id = :root ORDER BY t.created_at, t.id",
    "process_inputs": f"FROM process_inputs t WHERE t.process_id IN {_PROCESSES} ORDER BY t.process_id",
    "results": f"FROM results t WHERE t.process_id IN {_PROCESSES} ORDER BY t.process_id",
    "nodes": f"FROM nodes t WHERE t.process_id IN {_PROCESSES} ORDER BY t.id",
    "artifacts": f"FROM artifacts t WHERE t.node_id IN {_NODES} ORDER BY t.node_id, t.key",
    "phase_records": f"FROM phase_records t WHERE t.node_id IN {_NODES} ORDER BY t.created_at, t.node_id, t.turn",
    "llm_calls": "FROM llm_calls t WHERE t.root_id = :root ORDER BY t.created_at, t.node_id, t.turn, t.lane",
    "messages": f"FROM messages t WHERE t.process_id IN {_PROCESSES} ORDER BY t.id",
    "inbox_items": f"FROM inbox_items t WHERE t.process_id IN {_PROCESSES} ORDER BY t.id",
    # Within the tenant and project, whose documents have an index. A tree is all of one.
    "document_versions": f"""FROM processes root
  JOIN documents d ON d.tenant = root.tenant AND d.project = root.project
  JOIN document_versions t ON t.document_id = d.id
 WHERE root.id = :root AND (t.node_id IN {_NODES}
    OR (t.document_id, t.version) IN (SELECT * FROM unnest(CAST(:documents AS bigint[]), CAST(:versions AS int[]))))
 ORDER BY d.path, t.version""",
    "model_specs": f"""FROM processes root JOIN model_specs t ON t.tenant = root.tenant AND t.project = root.project
 WHERE root.id = :root AND (t.process_id IN {_PROCESSES}
    OR (t.model_id, t.version) IN (SELECT * FROM unnest(CAST(:models AS text[]), CAST(:model_versions AS int[]))))
 ORDER BY t.model_id, t.version""",
}
_MORE = {
    "phase_records": {"transaction": "t.xmin::text::bigint"},
    "inbox_items": {"transaction": "t.xmin::text::bigint"},
    "document_versions": {name: f"d.{name}" for name in ("tenant", "project", "path", "mime")},
}
"""What a row tells besides its columns."""


class Unknown(Exception):
    """There is no such process."""


def root_of(database: Database, process_id: UUID) -> UUID | None:
    """The top-level process of a process, itself in most cases; ``None`` when it is unknown."""
    rows = database.statement("SELECT root_id FROM processes WHERE id = %(id)s", {"id": process_id})
    return rows[0][0] if rows else None


def exported(database: Database, root_id: UUID) -> Iterator[str]:
    """The text in pieces, a row at a time; a few hundred rows are held at once.

    root_id: a top-level process. Raises :class:`Unknown` before the first piece when there is none.
    """
    with database.snapshot() as connection:
        # Whoever reads may be slow; what is read stays as it was at the beginning.
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '30min'"))
        found = connection.execute(_HEAD, {"root": root_id}).first()
        if found is None:
            raise Unknown(str(root_id))
        head = {
            "format": FORMAT,
            "version": VERSION,
            "root": root_id,
            "schemaRevision": found[1],
            "exportedAt": found[0],
        }
        yield _dump(head)[:-1]
        seen = _Seen()
        for table in COLUMNS:
            yield f',\n"{table}":['
            for place, row in enumerate(_rows(connection, table, root_id, seen)):
                yield ("," if place else "") + "\n" + _dump(row)
            yield "]"
        yield "}\n"


class _Seen:
    """Documents and model specs that turns had in their views, as their recordings say."""

    def __init__(self) -> None:
        self.documents: set[tuple[int, int]] = set()
        self.models: set[tuple[str, int]] = set()

    def add(self, recording: dict[str, Any]) -> None:
        if (document := recording.get("document")) is not None:
            self.documents.add((document["id"], document["version"]))
        if (model := recording.get("model")) is not None:
            self.models.add((model["modelId"], model["version"]))

    def params(self) -> dict[str, list[Any]]:
        documents, models = sorted(self.documents), sorted(self.models)
        return {
            "documents": [each[0] for each in documents],
            "versions": [each[1] for each in documents],
            "models": [each[0] for each in models],
            "model_versions": [each[1] for each in models],
        }


def _rows(connection: Connection, table: str, root_id: UUID, seen: _Seen) -> Iterator[dict[str, Any]]:
    columns = {name: f"t.{name}" for name in COLUMNS[table]} | _MORE.get(table, {})
    params: dict[str, Any] = {"root": root_id}
    if table in ("document_versions", "model_specs"):
        wanted = seen.params()
        params |= {name: values for name, values in wanted.items() if f":{name}" in _ROWS[table]}
    streaming = connection.execution_options(yield_per=ROWS_AT_ONCE)
    for row in streaming.execute(text(_select(table, columns.values())), params):
        found = dict(zip(columns, row, strict=True))
        if table == "phase_records" and found["recorded"] is not None:
            found["recorded"] = unpacked(found["recorded"])
            seen.add(found["recorded"])
        yield found


def _select(table: str, columns: Iterable[str]) -> str:
    # Casts are no bind parameters of SQLAlchemy's.
    return f"SELECT {', '.join(columns)} {_ROWS[table]}".replace("::", r"\:\:")


def _dump(value: dict[str, Any]) -> str:
    return json_text(value, default=_plain)


def _plain(value: object) -> str:
    match value:
        case UUID() | Decimal():
            return str(value)
        case datetime():
            return value.isoformat()
        case _:
            raise TypeError(f"{type(value).__name__} has no form in an export")
