"""The open processes have an index of their own: they are counted without walking over the closed ones.

Revises: 20261203_api_tokens
Created: 2026-11-30 17:15:00
"""

import sqlalchemy as sa
from alembic import op

revision = "20261204_open_processes"
down_revision = "20261203_api_tokens"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "processes_open_idx",
        "processes",
        ["engine", "status"],
        unique=False,
        postgresql_where=sa.text("status <> 'CLOSED'"),
    )


def downgrade() -> None:
    op.drop_index("processes_open_idx", table_name="processes", postgresql_where=sa.text("status <> 'CLOSED'"))
