"""Which nodes of a tree are at work, and its upper levels, each by an index.

Revises: 20261130_inbox
Created: 2026-11-30 16:10:00
"""

import sqlalchemy as sa
from alembic import op

revision = "20261201_owners"
down_revision = "20261130_inbox"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("nodes_process_id_idx", table_name="nodes")
    op.create_index("nodes_process_id_idx", "nodes", ["process_id", "depth", "id"])
    op.create_index(
        "nodes_working_idx",
        "nodes",
        ["process_id"],
        postgresql_where=sa.text(
            "parent_id IS NOT NULL AND due_at IS NOT NULL AND (status <> 'WAITING' OR open_calls = 0)"
        ),
    )


def downgrade() -> None:
    op.drop_index("nodes_working_idx", table_name="nodes")
    op.drop_index("nodes_process_id_idx", table_name="nodes")
    op.create_index("nodes_process_id_idx", "nodes", ["process_id", "id"])
