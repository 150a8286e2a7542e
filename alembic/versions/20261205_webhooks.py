"""Webhooks: endpoints of tenants, and the outbox of what they are told.

Revises: 20261204_open_processes
Created: 2026-11-30 19:20:00
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "20261205_webhooks"
down_revision = "20261204_open_processes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("previous_secret", sa.Text(), nullable=True),
        sa.Column("previous_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "events <@ ARRAY['process.closed', 'inbox.opened', 'inbox.closed'] AND cardinality(events) > 0",
            name=op.f("webhook_endpoints_events_check"),
        ),
        sa.CheckConstraint(
            "(previous_secret IS NULL) = (previous_expires_at IS NULL)", name=op.f("webhook_endpoints_previous_check")
        ),
        sa.CheckConstraint("NOT enabled OR disabled_reason IS NULL", name=op.f("webhook_endpoints_disabled_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("webhook_endpoints_pkey")),
    )
    op.create_index("webhook_endpoints_tenant_id_idx", "webhook_endpoints", ["tenant", "id"], unique=False)
    op.create_table(
        "webhook_deliveries",
        sa.Column("endpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("process_id", sa.Uuid(), nullable=True),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("payload", postgresql.JSON(), nullable=False),
        sa.Column("state", sa.Text(), server_default="PENDING", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('PENDING', 'DELIVERED', 'FAILED')", name=op.f("webhook_deliveries_state_check")),
        sa.CheckConstraint(
            "(state = 'PENDING') = (finished_at IS NULL)", name=op.f("webhook_deliveries_finished_check")
        ),
        sa.CheckConstraint(
            "state = 'PENDING' OR lease_expires_at IS NULL", name=op.f("webhook_deliveries_lease_check")
        ),
        sa.ForeignKeyConstraint(
            ["process_id"],
            ["processes.id"],
            name=op.f("webhook_deliveries_process_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("endpoint_id", "id", name=op.f("webhook_deliveries_pkey")),
    )
    op.create_index(
        "webhook_deliveries_process_id_idx",
        "webhook_deliveries",
        ["process_id"],
        unique=False,
        postgresql_where=sa.text("process_id IS NOT NULL"),
    )
    op.create_index(
        "webhook_deliveries_pending_idx",
        "webhook_deliveries",
        ["endpoint_id", "due_at"],
        unique=False,
        postgresql_where=sa.text("state = 'PENDING'"),
    )


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_endpoints")
