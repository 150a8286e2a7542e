"""Processes, nodes and what their turns write.

Revises:
Created: 2026-11-30 12:58:50.530509
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "20261130_turns"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("dead_letters_pkey")),
    )
    op.create_table(
        "processes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("root_id", sa.Uuid(), nullable=False),
        sa.Column("parent_node_id", sa.BigInteger(), nullable=True),
        sa.Column("parent_key", sa.Text(), nullable=True),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("recipe_name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="INIT", nullable=False),
        sa.Column("close_reason", sa.Text(), nullable=True),
        sa.Column("priority", sa.SmallInteger(), server_default=sa.text("3"), nullable=False),
        sa.Column("max_calls", sa.Integer(), nullable=True),
        sa.Column("max_tokens", sa.BigInteger(), nullable=True),
        sa.Column("max_cost_usd", sa.Numeric(precision=14, scale=6), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("used_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("used_cost_usd", sa.Numeric(precision=14, scale=6), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_cost_usd", sa.Numeric(precision=14, scale=6), server_default=sa.text("0"), nullable=False),
        sa.Column("callback", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column(
            "trace_context", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("delivery_attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("deliver_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status = 'CLOSED') = (closed_at IS NOT NULL) AND (status = 'CLOSED') = (close_reason IS NOT NULL)",
            name=op.f("processes_closed_check"),
        ),
        sa.CheckConstraint("close_reason IN ('DONE', 'FAILED', 'STOPPED')", name=op.f("processes_close_reason_check")),
        sa.CheckConstraint(
            "status IN ('INIT', 'RUNNING', 'BLOCKED', 'SUSPENDED', 'CLOSED')", name=op.f("processes_status_check")
        ),
        sa.CheckConstraint("(parent_node_id IS NULL) = (root_id = id)", name=op.f("processes_root_check")),
        sa.CheckConstraint("priority BETWEEN 0 AND 9", name=op.f("processes_priority_check")),
        sa.CheckConstraint(
            "reserved_calls >= 0 AND reserved_tokens >= 0 AND reserved_cost_usd >= 0",
            name=op.f("processes_reserved_check"),
        ),
        sa.ForeignKeyConstraint(["root_id"], ["processes.id"], name=op.f("processes_root_id_fkey"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("processes_pkey")),
        postgresql_with={"fillfactor": "75", "autovacuum_vacuum_scale_factor": "0.02"},
    )
    op.create_index("processes_created_at_idx", "processes", ["created_at"], unique=False)
    op.create_index(
        "processes_deadline_idx",
        "processes",
        ["deadline_at"],
        unique=False,
        postgresql_where=sa.text("deadline_at IS NOT NULL AND status <> 'CLOSED'"),
    )
    op.create_index(
        "processes_parent_node_id_idx",
        "processes",
        ["parent_node_id"],
        unique=False,
        postgresql_where=sa.text("parent_node_id IS NOT NULL"),
    )
    op.create_index("processes_root_id_idx", "processes", ["root_id"], unique=False)
    op.create_index(
        "processes_undelivered_idx",
        "processes",
        ["closed_at"],
        unique=False,
        postgresql_where=sa.text("status = 'CLOSED' AND delivered_at IS NULL"),
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("process_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("role IN ('system', 'user', 'assistant', 'tool')", name=op.f("messages_role_check")),
        sa.ForeignKeyConstraint(
            ["process_id"], ["processes.id"], name=op.f("messages_process_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("messages_pkey")),
    )
    op.create_index("messages_process_id_id_idx", "messages", ["process_id", "id"], unique=False)
    op.create_index(
        "messages_result_idx", "messages", ["process_id"], unique=True, postgresql_where=sa.text("kind = 'result'")
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("process_id", sa.Uuid(), nullable=False),
        sa.Column("parent_id", sa.BigInteger(), nullable=True),
        sa.Column("order_key", sa.ARRAY(sa.BigInteger()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("goal", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.Text(), server_default="PENDING", nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("cursor", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("transport", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("child_mode", sa.Text(), nullable=True),
        sa.Column("awaiting_post_children", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("open_children", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("open_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("spawned_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("turn", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_hint_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("hints", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_cost_usd", sa.Numeric(precision=14, scale=6), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(settled_at IS NOT NULL) = (status IN ('DONE', 'FAILED', 'SKIPPED') AND NOT awaiting_post_children)",
            name=op.f("nodes_settled_check"),
        ),
        sa.CheckConstraint("child_mode IN ('SEQUENTIAL', 'PARALLEL')", name=op.f("nodes_child_mode_check")),
        sa.CheckConstraint(
            "status IN ('PENDING', 'RUNNING', 'WAITING', 'DONE', 'FAILED', 'SKIPPED')", name=op.f("nodes_status_check")
        ),
        sa.CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name=op.f("nodes_lease_check")),
        sa.CheckConstraint("open_children >= 0 AND open_calls >= 0", name=op.f("nodes_counters_check")),
        sa.CheckConstraint(
            "settled_at IS NULL OR (due_at IS NULL AND next_hint_at IS NULL AND lease_expires_at IS NULL)",
            name=op.f("nodes_settled_is_quiet_check"),
        ),
        sa.ForeignKeyConstraint(["parent_id"], ["nodes.id"], name=op.f("nodes_parent_id_fkey"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["process_id"], ["processes.id"], name=op.f("nodes_process_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("nodes_pkey")),
        postgresql_with={"fillfactor": "75", "autovacuum_vacuum_scale_factor": "0.02"},
    )
    op.create_index(
        "nodes_awaiting_idx",
        "nodes",
        ["id"],
        unique=False,
        postgresql_where=sa.text("awaiting_post_children AND due_at IS NULL"),
    )
    op.create_index(
        "nodes_calling_idx",
        "nodes",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status = 'WAITING' AND open_calls > 0"),
    )
    op.create_index(
        "nodes_due_idx",
        "nodes",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("due_at IS NOT NULL AND lease_expires_at IS NULL"),
    )
    op.create_index(
        "nodes_hint_idx",
        "nodes",
        ["next_hint_at"],
        unique=False,
        postgresql_where=sa.text("next_hint_at IS NOT NULL AND lease_expires_at IS NULL"),
    )
    op.create_index(
        "nodes_leased_idx",
        "nodes",
        ["lease_expires_at"],
        unique=False,
        postgresql_where=sa.text("lease_expires_at IS NOT NULL"),
    )
    op.create_index(
        "nodes_next_sibling_idx",
        "nodes",
        ["parent_id", "order_key"],
        unique=False,
        postgresql_where=sa.text("parent_id IS NOT NULL AND status = 'PENDING' AND due_at IS NULL"),
    )
    op.create_index("nodes_poisoned_idx", "nodes", ["id"], unique=False, postgresql_where=sa.text("losses >= 5"))
    op.create_index("nodes_process_id_idx", "nodes", ["process_id", "id"], unique=False)
    op.create_index(
        "nodes_siblings_idx",
        "nodes",
        ["parent_id", "order_key"],
        unique=True,
        postgresql_where=sa.text("parent_id IS NOT NULL"),
    )
    op.create_table(
        "process_inputs",
        sa.Column("process_id", sa.Uuid(), nullable=False),
        sa.Column("goal", sa.Text(), nullable=False),
        sa.Column("params", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("recipe", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["process_id"], ["processes.id"], name=op.f("process_inputs_process_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("process_id", name=op.f("process_inputs_pkey")),
    )
    op.create_table(
        "results",
        sa.Column("process_id", sa.Uuid(), nullable=False),
        sa.Column("wrapper", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["process_id"], ["processes.id"], name=op.f("results_process_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("process_id", name=op.f("results_pkey")),
    )
    op.create_table(
        "artifacts",
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("artifacts_node_id_fkey"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node_id", "key", name=op.f("artifacts_pkey")),
    )
    op.create_table(
        "llm_calls",
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("process_id", sa.Uuid(), nullable=False),
        sa.Column("root_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("error_kind", sa.Text(), nullable=True),
        sa.Column("stop_reason", sa.Text(), nullable=False),
        sa.Column("structured_path", sa.Text(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Numeric(precision=14, scale=6), nullable=True),
        sa.Column("latency_ms", sa.Integer(), nullable=False),
        sa.Column("reached_inference", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("llm_calls_node_id_fkey"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node_id", "turn", name=op.f("llm_calls_pkey")),
    )
    op.create_index("llm_calls_root_id_idx", "llm_calls", ["root_id"], unique=False)
    op.create_table(
        "phase_records",
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("forced", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("output", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_usd", sa.Numeric(precision=14, scale=6), nullable=True),
        sa.Column("replaced_characters", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("phase_records_node_id_fkey"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node_id", "turn", name=op.f("phase_records_pkey")),
    )
    # Processes belong to nodes and nodes to processes; the second half of the circle comes last.
    op.create_foreign_key(
        "processes_parent_node_id_fkey", "processes", "nodes", ["parent_node_id"], ["id"], ondelete="CASCADE"
    )


def downgrade() -> None:
    op.drop_constraint("processes_parent_node_id_fkey", "processes", type_="foreignkey")
    op.drop_table("phase_records")
    op.drop_index("llm_calls_root_id_idx", table_name="llm_calls")
    op.drop_table("llm_calls")
    op.drop_table("artifacts")
    op.drop_table("results")
    op.drop_table("process_inputs")
    op.drop_index("nodes_siblings_idx", table_name="nodes", postgresql_where=sa.text("parent_id IS NOT NULL"))
    op.drop_index("nodes_process_id_idx", table_name="nodes")
    op.drop_index("nodes_poisoned_idx", table_name="nodes", postgresql_where=sa.text("losses >= 5"))
    op.drop_index(
        "nodes_next_sibling_idx",
        table_name="nodes",
        postgresql_where=sa.text("parent_id IS NOT NULL AND status = 'PENDING' AND due_at IS NULL"),
    )
    op.drop_index("nodes_leased_idx", table_name="nodes", postgresql_where=sa.text("lease_expires_at IS NOT NULL"))
    op.drop_index(
        "nodes_hint_idx",
        table_name="nodes",
        postgresql_where=sa.text("next_hint_at IS NOT NULL AND lease_expires_at IS NULL"),
    )
    op.drop_index(
        "nodes_due_idx", table_name="nodes", postgresql_where=sa.text("due_at IS NOT NULL AND lease_expires_at IS NULL")
    )
    op.drop_index(
        "nodes_calling_idx", table_name="nodes", postgresql_where=sa.text("status = 'WAITING' AND open_calls > 0")
    )
    op.drop_index(
        "nodes_awaiting_idx", table_name="nodes", postgresql_where=sa.text("awaiting_post_children AND due_at IS NULL")
    )
    op.drop_table("nodes")
    op.drop_index("messages_result_idx", table_name="messages", postgresql_where=sa.text("kind = 'result'"))
    op.drop_index("messages_process_id_id_idx", table_name="messages")
    op.drop_table("messages")
    op.drop_index(
        "processes_undelivered_idx",
        table_name="processes",
        postgresql_where=sa.text("status = 'CLOSED' AND delivered_at IS NULL"),
    )
    op.drop_index("processes_root_id_idx", table_name="processes")
    op.drop_index(
        "processes_parent_node_id_idx", table_name="processes", postgresql_where=sa.text("parent_node_id IS NOT NULL")
    )
    op.drop_index(
        "processes_deadline_idx",
        table_name="processes",
        postgresql_where=sa.text("deadline_at IS NOT NULL AND status <> 'CLOSED'"),
    )
    op.drop_index("processes_created_at_idx", table_name="processes")
    op.drop_table("processes")
    op.drop_table("dead_letters")
