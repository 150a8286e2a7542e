"""Retention per tenant, and what a turn got from outside: its reply, its tools' results, so that it can be replayed.

Revises: 20261205_webhooks
Created: 2026-11-30 19:25:00
"""

import sqlalchemy as sa
from alembic import op

revision = "20261206_retention"
down_revision = "20261205_webhooks"
branch_labels = None
depends_on = None

HANDED_OVER = "status = 'CLOSED' AND parent_node_id IS NULL AND delivered_at IS NOT NULL"


def upgrade() -> None:
    op.create_table(
        "retention_policies",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("keep_days", sa.Float(), nullable=True),
        sa.Column("artifacts_days", sa.Float(), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("keep_days > 0 AND artifacts_days > 0", name=op.f("retention_policies_positive_check")),
        sa.CheckConstraint("artifacts_days <= keep_days", name=op.f("retention_policies_order_check")),
        sa.PrimaryKeyConstraint("tenant", name=op.f("retention_policies_pkey")),
    )
    op.add_column("processes", sa.Column("artifacts_removed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("phase_records", sa.Column("recorded", sa.LargeBinary(), nullable=True))
    op.create_index(
        "processes_retention_idx", "processes", ["tenant", "closed_at"], postgresql_where=sa.text(HANDED_OVER)
    )
    op.create_index(
        "processes_artifacts_idx",
        "processes",
        ["tenant", "closed_at"],
        postgresql_where=sa.text(f"{HANDED_OVER} AND artifacts_removed_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("processes_artifacts_idx", table_name="processes")
    op.drop_index("processes_retention_idx", table_name="processes")
    op.drop_column("phase_records", "recorded")
    op.drop_column("processes", "artifacts_removed_at")
    op.drop_table("retention_policies")
