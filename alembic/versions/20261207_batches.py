"""The batch lane: model calls that wait for a batch, the batches, and the ledger's lane.

The ledger's key gains the lane: its index is built anew, which locks a large ledger for a while.

Revises: 20261206_retention
Created: 2026-11-30 19:30:00
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "20261207_batches"
down_revision = "20261206_retention"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("processes", sa.Column("batch_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("phase_records", sa.Column("lane_note", sa.Text(), nullable=True))
    op.add_column("llm_calls", sa.Column("lane", sa.Text(), server_default="normal", nullable=False))
    op.drop_constraint("llm_calls_pkey", "llm_calls", type_="primary")
    op.create_primary_key("llm_calls_pkey", "llm_calls", ["node_id", "turn", "lane"])
    op.create_check_constraint(op.f("llm_calls_lane_check"), "llm_calls", "lane IN ('normal', 'batch')")
    op.create_table(
        "batches",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("key", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="SUBMITTING", nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("provider_batch_id", sa.Text(), nullable=True),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("visits", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_visit_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancelled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('SUBMITTING', 'SUBMITTED', 'ENDED')", name=op.f("batches_state_check")),
        sa.CheckConstraint(
            "(state = 'ENDED') = (ended_at IS NOT NULL) AND (state = 'ENDED') = (outcome IS NOT NULL)",
            name=op.f("batches_ended_check"),
        ),
        sa.CheckConstraint(
            "state <> 'SUBMITTED' OR provider_batch_id IS NOT NULL", name=op.f("batches_submitted_check")
        ),
        sa.CheckConstraint(
            "outcome IN ('completed', 'expired', 'cancelled', 'failed', 'refused', 'withdrawn')",
            name=op.f("batches_outcome_check"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("batches_pkey")),
        sa.UniqueConstraint("key", name=op.f("batches_key_key")),
    )
    op.create_index(
        "batches_open_idx", "batches", ["next_visit_at"], unique=False, postgresql_where=sa.text("state <> 'ENDED'")
    )
    op.create_table(
        "batch_requests",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("process_id", sa.Uuid(), nullable=False),
        sa.Column("root_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="WAITING", nullable=False),
        sa.Column("sent", postgresql.JSON(), nullable=False),
        sa.Column("body", postgresql.JSON(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("answer", postgresql.JSON(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('WAITING', 'SENT', 'ANSWERED', 'REFUSED', 'WITHDRAWN')",
            name=op.f("batch_requests_state_check"),
        ),
        sa.CheckConstraint("(answer IS NULL) = (answered_at IS NULL)", name=op.f("batch_requests_answered_check")),
        sa.CheckConstraint("state <> 'SENT' OR batch_id IS NOT NULL", name=op.f("batch_requests_sent_check")),
        sa.CheckConstraint("state <> 'WAITING' OR batch_id IS NULL", name=op.f("batch_requests_waiting_check")),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name=op.f("batch_requests_batch_id_fkey")),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("batch_requests_node_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("batch_requests_pkey")),
        sa.UniqueConstraint("node_id", "turn", name=op.f("batch_requests_node_id_turn_key")),
    )
    op.create_index(
        "batch_requests_waiting_idx",
        "batch_requests",
        ["provider", "model", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'WAITING'"),
    )
    op.create_index("batch_requests_batch_id_idx", "batch_requests", ["batch_id"], unique=False)
    op.create_index(
        "batch_requests_ready_idx",
        "batch_requests",
        ["node_id"],
        unique=False,
        postgresql_where=sa.text("state IN ('ANSWERED', 'REFUSED')"),
    )
    op.create_index(
        "batch_requests_open_idx",
        "batch_requests",
        ["created_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('WAITING', 'SENT')"),
    )


def downgrade() -> None:
    op.drop_table("batch_requests")
    op.drop_table("batches")
    op.execute(
        "DELETE FROM llm_calls late USING llm_calls live WHERE late.lane = 'batch' AND live.lane = 'normal'"
        " AND live.node_id = late.node_id AND live.turn = late.turn"
    )
    op.drop_constraint(op.f("llm_calls_lane_check"), "llm_calls", type_="check")
    op.drop_constraint("llm_calls_pkey", "llm_calls", type_="primary")
    op.create_primary_key("llm_calls_pkey", "llm_calls", ["node_id", "turn"])
    op.drop_column("llm_calls", "lane")
    op.drop_column("phase_records", "lane_note")
    op.drop_column("processes", "batch_until")
