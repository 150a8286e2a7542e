"""Questions that wait for people.

Revises: 20261201_trees_and_documents
Created: 2026-11-30 14:45:00
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "20261130_inbox"
down_revision = "20261201_trees_and_documents"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "inbox_items",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("process_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("criticality", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("payload", postgresql.JSON(), nullable=False),
        sa.Column("status", sa.Text(), server_default="PENDING", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("answer", postgresql.JSONB(), nullable=True),
        sa.Column("answered_by", sa.Text(), nullable=True),
        sa.Column("resolved_by", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "type IN ('APPROVAL', 'DECISION', 'FEEDBACK', 'ORDERING', 'STRUCTURE_EDIT', 'OUTPUT_TEXT', 'OUTPUT_IMAGE',"
            " 'OUTPUT_DOCUMENT')",
            name=op.f("inbox_items_type_check"),
        ),
        sa.CheckConstraint("criticality IN ('LOW', 'NORMAL', 'CRITICAL')", name=op.f("inbox_items_criticality_check")),
        sa.CheckConstraint(
            "status IN ('PENDING', 'ANSWERED', 'DISMISSED', 'EXPIRED')", name=op.f("inbox_items_status_check")
        ),
        sa.CheckConstraint(
            "resolved_by IN ('USER', 'AUTO_DEFAULT', 'EXPIRY', 'PROCESS')", name=op.f("inbox_items_resolved_by_check")
        ),
        sa.CheckConstraint(
            "(status = 'PENDING') = (resolved_by IS NULL) AND (status = 'PENDING') = (answered_at IS NULL)"
            " AND (status = 'ANSWERED') = (answer IS NOT NULL)",
            name=op.f("inbox_items_resolved_check"),
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("inbox_items_node_id_fkey"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["process_id"], ["processes.id"], name=op.f("inbox_items_process_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("inbox_items_pkey")),
        sa.UniqueConstraint("node_id", name=op.f("inbox_items_node_id_key")),
    )
    op.create_index("inbox_items_process_id_idx", "inbox_items", ["process_id", "id"])
    op.create_index(
        "inbox_items_pending_idx",
        "inbox_items",
        ["tenant", "project", "id"],
        postgresql_where=sa.text("status = 'PENDING'"),
    )
    op.create_index(
        "inbox_items_expiry_idx", "inbox_items", ["expires_at"], postgresql_where=sa.text("status = 'PENDING'")
    )


def downgrade() -> None:
    op.drop_table("inbox_items")
