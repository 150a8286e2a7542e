"""Versions of declarative model specs.

Revises: 20261201_owners
Created: 2026-11-30 16:05:00
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "20261202_model_specs"
down_revision = "20261201_owners"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_specs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("spec_version", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSON(), nullable=False),
        sa.Column("evolution", postgresql.JSON(), nullable=True),
        sa.Column("process_id", sa.Uuid(), nullable=True),
        sa.Column("node_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("version >= 1", name=op.f("model_specs_version_check")),
        sa.PrimaryKeyConstraint("tenant", "project", "model_id", "version", name=op.f("model_specs_pkey")),
    )


def downgrade() -> None:
    op.drop_table("model_specs")
