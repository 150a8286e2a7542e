"""The tables, as SQLAlchemy Core metadata. The only reader of this module is ``models.store`` (and Alembic).

Narrow hot tables (``processes``, ``nodes``) carry what a turn moves; texts live beside them (``process_inputs``,
``results``, ``artifacts``). CHECK constraints hold the invariants; each hot status has one partial index.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB

from models import batch_tables, project_tables, webhook_tables
from models.metadata import created_at, metadata

__all__ = ["batch_tables", "metadata", "project_tables", "webhook_tables"]

# Rows of the hot tables are updated several times each; free room in the page keeps the new version beside the old one.
_HOT: dict[str, Any] = {"postgresql_with": {"fillfactor": "75", "autovacuum_vacuum_scale_factor": "0.02"}}

HANDED_OVER = "status = 'CLOSED' AND parent_node_id IS NULL AND delivered_at IS NOT NULL"
"""Which processes retention looks at: the words of its indexes."""

processes = Table(
    "processes",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("root_id", Uuid, ForeignKey("processes.id", ondelete="CASCADE"), nullable=False),
    Column(
        "parent_node_id",
        BigInteger,
        ForeignKey("nodes.id", ondelete="CASCADE", use_alter=True, name="processes_parent_node_id_fkey"),
    ),
    Column("parent_key", Text),
    Column("tenant", Text, nullable=False),
    Column("project", Text, nullable=False),
    # Who submitted it, in the caller's words; sub-processes have their caller's.
    Column("owner", Text),
    Column("engine", Text, nullable=False),
    Column("recipe_name", Text, nullable=False),
    Column("status", Text, nullable=False, server_default="INIT"),
    Column("close_reason", Text),
    Column("priority", SmallInteger, nullable=False, server_default=text("3")),
    Column("max_calls", Integer),
    Column("max_tokens", BigInteger),
    Column("max_cost_usd", Numeric(14, 6)),
    Column("deadline_at", DateTime(timezone=True)),
    # Of a root whose calls go to the batch lane: until then.
    Column("batch_until", DateTime(timezone=True)),
    Column("used_calls", Integer, nullable=False, server_default=text("0")),
    Column("used_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("used_cost_usd", Numeric(14, 6), nullable=False, server_default=text("0")),
    Column("reserved_calls", Integer, nullable=False, server_default=text("0")),
    Column("reserved_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("reserved_cost_usd", Numeric(14, 6), nullable=False, server_default=text("0")),
    Column("node_count", Integer, nullable=False, server_default=text("1")),
    # How many nodes may be at work at once, and how often somebody has started more than one of them.
    Column("max_parallel", Integer),
    Column("fan_outs", Integer, nullable=False, server_default=text("0")),
    Column("callback", JSONB),
    Column("trace_context", JSONB, nullable=False, server_default=text("'{}'")),
    created_at(),
    Column("started_at", DateTime(timezone=True)),
    Column("closed_at", DateTime(timezone=True)),
    Column("delivered_at", DateTime(timezone=True)),
    Column("delivery_attempts", Integer, nullable=False, server_default=text("0")),
    Column("deliver_at", DateTime(timezone=True)),
    # When retention took the texts of its nodes away (models.store.retention).
    Column("artifacts_removed_at", DateTime(timezone=True)),
    CheckConstraint("status IN ('INIT', 'RUNNING', 'BLOCKED', 'SUSPENDED', 'CLOSED')", name="status"),
    CheckConstraint(
        "(status = 'CLOSED') = (closed_at IS NOT NULL) AND (status = 'CLOSED') = (close_reason IS NOT NULL)",
        name="closed",
    ),
    CheckConstraint("close_reason IN ('DONE', 'FAILED', 'STOPPED')", name="close_reason"),
    CheckConstraint("(parent_node_id IS NULL) = (root_id = id)", name="root"),
    CheckConstraint("priority BETWEEN 0 AND 9", name="priority"),
    CheckConstraint("reserved_calls >= 0 AND reserved_tokens >= 0 AND reserved_cost_usd >= 0", name="reserved"),
    Index("processes_parent_node_id_idx", "parent_node_id", postgresql_where=text("parent_node_id IS NOT NULL")),
    Index(
        "processes_called_idx",
        "parent_node_id",
        postgresql_where=text("parent_node_id IS NOT NULL AND status <> 'CLOSED'"),
    ),
    Index("processes_root_id_idx", "root_id"),
    Index("processes_owner_idx", "owner", "created_at", postgresql_where=text("owner IS NOT NULL")),
    Index("processes_created_at_idx", "created_at"),
    Index("processes_open_idx", "engine", "status", postgresql_where=text("status <> 'CLOSED'")),
    Index(
        "processes_undelivered_idx",
        "closed_at",
        postgresql_where=text("status = 'CLOSED' AND delivered_at IS NULL"),
    ),
    Index(
        "processes_deadline_idx",
        "deadline_at",
        postgresql_where=text("deadline_at IS NOT NULL AND status <> 'CLOSED'"),
    ),
    Index("processes_retention_idx", "tenant", "closed_at", postgresql_where=text(HANDED_OVER)),
    Index(
        "processes_artifacts_idx",
        "tenant",
        "closed_at",
        postgresql_where=text(f"{HANDED_OVER} AND artifacts_removed_at IS NULL"),
    ),
    **_HOT,
)

process_inputs = Table(
    "process_inputs",
    metadata,
    Column("process_id", Uuid, ForeignKey("processes.id", ondelete="CASCADE"), primary_key=True),
    Column("goal", Text, nullable=False),
    # JSON and not JSONB: a schema's properties keep their author's order, which models follow when they write.
    Column("params", JSON, nullable=False),
    Column("recipe", JSON, nullable=False),
)

results = Table(
    "results",
    metadata,
    Column("process_id", Uuid, ForeignKey("processes.id", ondelete="CASCADE"), primary_key=True),
    Column("wrapper", JSON, nullable=False),
    created_at(),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("process_id", Uuid, ForeignKey("processes.id", ondelete="CASCADE"), nullable=False),
    Column("parent_id", BigInteger, ForeignKey("nodes.id", ondelete="CASCADE")),
    Column("order_key", ARRAY(BigInteger), nullable=False, server_default=text("'{}'")),
    Column("depth", Integer, nullable=False, server_default=text("0")),
    Column("kind", Text, nullable=False),
    Column("goal", Text, nullable=False, server_default=""),
    Column("status", Text, nullable=False, server_default="PENDING"),
    Column("phase", Text, nullable=False),
    Column("cursor", JSONB, nullable=False, server_default=text("'{}'")),
    Column("transport", JSONB, nullable=False, server_default=text("'{}'")),
    Column("failure", Text),
    Column("child_mode", Text),
    Column("awaiting_post_children", Boolean, nullable=False, server_default=text("false")),
    Column("open_children", Integer, nullable=False, server_default=text("0")),
    Column("open_calls", Integer, nullable=False, server_default=text("0")),
    Column("spawned_calls", Integer, nullable=False, server_default=text("0")),
    Column("turn", Integer, nullable=False, server_default=text("1")),
    Column("waits_for_place", Boolean, nullable=False, server_default=text("false")),
    Column("due_at", DateTime(timezone=True)),
    Column("next_hint_at", DateTime(timezone=True)),
    Column("hints", Integer, nullable=False, server_default=text("0")),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("lease_owner", Text),
    Column("lease_expires_at", DateTime(timezone=True)),
    Column("losses", Integer, nullable=False, server_default=text("0")),
    Column("reserved_calls", Integer, nullable=False, server_default=text("0")),
    Column("reserved_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("reserved_cost_usd", Numeric(14, 6), nullable=False, server_default=text("0")),
    created_at(),
    Column("started_at", DateTime(timezone=True)),
    Column("settled_at", DateTime(timezone=True)),
    CheckConstraint("status IN ('PENDING', 'RUNNING', 'WAITING', 'DONE', 'FAILED', 'SKIPPED')", name="status"),
    CheckConstraint("child_mode IN ('SEQUENTIAL', 'PARALLEL')", name="child_mode"),
    CheckConstraint(
        "(settled_at IS NOT NULL) = (status IN ('DONE', 'FAILED', 'SKIPPED') AND NOT awaiting_post_children)",
        name="settled",
    ),
    CheckConstraint(
        "settled_at IS NULL OR (due_at IS NULL AND next_hint_at IS NULL AND lease_expires_at IS NULL)",
        name="settled_is_quiet",
    ),
    CheckConstraint("NOT waits_for_place OR (status = 'PENDING' AND due_at IS NULL)", name="waits_for_place"),
    CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name="lease"),
    CheckConstraint("open_children >= 0 AND open_calls >= 0", name="counters"),
    Index("nodes_process_id_idx", "process_id", "depth", "id"),
    Index(
        "nodes_working_idx",
        "process_id",
        postgresql_where=text(
            "parent_id IS NOT NULL AND due_at IS NOT NULL AND (status <> 'WAITING' OR open_calls = 0)"
        ),
    ),
    Index("nodes_siblings_idx", "parent_id", "order_key", unique=True, postgresql_where=text("parent_id IS NOT NULL")),
    Index(
        "nodes_next_sibling_idx",
        "parent_id",
        "order_key",
        postgresql_where=text(
            "parent_id IS NOT NULL AND status = 'PENDING' AND due_at IS NULL AND NOT waits_for_place"
        ),
    ),
    # The deepest first: what is begun is finished before more is begun.
    Index(
        "nodes_waiting_idx",
        "process_id",
        text("depth DESC"),
        "parent_id",
        "order_key",
        postgresql_where=text("waits_for_place"),
    ),
    Index(
        "nodes_hint_idx", "next_hint_at", postgresql_where=text("next_hint_at IS NOT NULL AND lease_expires_at IS NULL")
    ),
    Index("nodes_due_idx", "due_at", postgresql_where=text("due_at IS NOT NULL AND lease_expires_at IS NULL")),
    Index("nodes_leased_idx", "lease_expires_at", postgresql_where=text("lease_expires_at IS NOT NULL")),
    Index("nodes_poisoned_idx", "id", postgresql_where=text("losses >= 5")),
    Index("nodes_awaiting_idx", "id", postgresql_where=text("awaiting_post_children AND due_at IS NULL")),
    Index("nodes_calling_idx", "process_id", "id", postgresql_where=text("status = 'WAITING' AND open_calls > 0")),
    **_HOT,
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("node_id", BigInteger, ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("content", Text, nullable=False),
    created_at(),
)

phase_records = Table(
    "phase_records",
    metadata,
    Column("node_id", BigInteger, ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    Column("turn", Integer, primary_key=True),
    Column("phase", Text, nullable=False),
    Column("iteration", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("forced", Boolean, nullable=False, server_default=text("false")),
    Column("output", JSONB),
    Column("model", Text),
    Column("tokens", BigInteger),
    Column("cost_usd", Numeric(14, 6)),
    Column("replaced_characters", Integer, nullable=False, server_default=text("0")),
    # Why a call of a job in the batch lane was made in the normal one.
    Column("lane_note", Text),
    # What the turn got from outside (tasks.recording): JSON, compressed. Read by export and replay only.
    Column("recorded", LargeBinary),
    Column("started_at", DateTime(timezone=True)),
    created_at(),
)

llm_calls = Table(
    "llm_calls",
    metadata,
    Column("node_id", BigInteger, ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    Column("turn", Integer, primary_key=True),
    # A turn that did not wait any longer for its batch has made a call in the normal lane, too.
    Column("lane", Text, primary_key=True, server_default="normal"),
    Column("process_id", Uuid, nullable=False),
    Column("root_id", Uuid, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("error_kind", Text),
    Column("stop_reason", Text, nullable=False),
    Column("structured_path", Text),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cache_read_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("cost_usd", Numeric(14, 6)),
    Column("latency_ms", Integer, nullable=False),
    Column("reached_inference", Boolean, nullable=False),
    created_at(),
    CheckConstraint("lane IN ('normal', 'batch')", name="lane"),
    Index("llm_calls_root_id_idx", "root_id"),
)

messages = Table(
    "messages",
    metadata,
    # The sequence gives the order; timestamps of one transaction are all equal.
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("process_id", Uuid, ForeignKey("processes.id", ondelete="CASCADE"), nullable=False),
    Column("node_id", BigInteger, nullable=False),
    Column("role", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("content", Text, nullable=False),
    created_at(),
    CheckConstraint("role IN ('system', 'user', 'assistant', 'tool')", name="role"),
    Index("messages_process_id_id_idx", "process_id", "id"),
    Index("messages_result_idx", "process_id", unique=True, postgresql_where=text("kind = 'result'")),
)

inbox_items = Table(
    "inbox_items",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("process_id", Uuid, ForeignKey("processes.id", ondelete="CASCADE"), nullable=False),
    # One question per node, asked once.
    Column("node_id", BigInteger, ForeignKey("nodes.id", ondelete="CASCADE"), nullable=False),
    # Who asks: an engine and its process, not a person.
    Column("originator", Text, nullable=False),
    Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("type", Text, nullable=False),
    Column("criticality", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("body", Text, nullable=False),
    # JSON and not JSONB: options stay in the order they were given.
    Column("payload", JSON, nullable=False),
    Column("status", Text, nullable=False, server_default="PENDING"),
    Column("owner", Text),
    Column("answer", JSONB),
    Column("answered_by", Text),
    Column("resolved_by", Text),
    created_at(),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("answered_at", DateTime(timezone=True)),
    CheckConstraint(
        "type IN ('APPROVAL', 'DECISION', 'FEEDBACK', 'ORDERING', 'STRUCTURE_EDIT', 'OUTPUT_TEXT', 'OUTPUT_IMAGE',"
        " 'OUTPUT_DOCUMENT')",
        name="type",
    ),
    CheckConstraint("criticality IN ('LOW', 'NORMAL', 'CRITICAL')", name="criticality"),
    CheckConstraint("status IN ('PENDING', 'ANSWERED', 'DISMISSED', 'EXPIRED')", name="status"),
    CheckConstraint("resolved_by IN ('USER', 'AUTO_DEFAULT', 'EXPIRY', 'PROCESS')", name="resolved_by"),
    CheckConstraint(
        "(status = 'PENDING') = (resolved_by IS NULL) AND (status = 'PENDING') = (answered_at IS NULL)"
        " AND (status = 'ANSWERED') = (answer IS NOT NULL)",
        name="resolved",
    ),
    UniqueConstraint("node_id"),
    Index("inbox_items_process_id_idx", "process_id", "id"),
    Index("inbox_items_pending_idx", "tenant", "project", "id", postgresql_where=text("status = 'PENDING'")),
    Index("inbox_items_expiry_idx", "expires_at", postgresql_where=text("status = 'PENDING'")),
)
