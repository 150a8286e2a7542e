"""Who submitted a process, who asks a question; which nodes are at work, and which wait for a place.

Revises: 20261130_inbox
Created: 2026-11-30 16:10:00
"""

import sqlalchemy as sa
from alembic import op

revision = "20261201_owners"
down_revision = "20261130_inbox"
branch_labels = None
depends_on = None

_UNSTARTED = "parent_id IS NOT NULL AND status = 'PENDING' AND due_at IS NULL"
_CALLING = "status = 'WAITING' AND open_calls > 0"


def upgrade() -> None:
    op.add_column("processes", sa.Column("owner", sa.Text(), nullable=True))
    op.create_index(
        "processes_owner_idx", "processes", ["owner", "created_at"], postgresql_where=sa.text("owner IS NOT NULL")
    )
    op.add_column("inbox_items", sa.Column("originator", sa.Text(), nullable=True))
    op.add_column("inbox_items", sa.Column("tags", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False))
    op.execute("UPDATE inbox_items SET originator = 'marvin:' || process_id, tags = '{marvin}'")
    op.alter_column("inbox_items", "originator", nullable=False)
    op.add_column("processes", sa.Column("max_parallel", sa.Integer(), nullable=True))
    op.add_column("processes", sa.Column("fan_outs", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("nodes", sa.Column("waits_for_place", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    # Trees that are under way: their unstarted parallel children wait for a place, of which there are 8 by default.
    op.execute(
        "UPDATE nodes n SET waits_for_place = true FROM nodes parent WHERE parent.id = n.parent_id"
        f" AND parent.child_mode = 'PARALLEL' AND n.{_UNSTARTED.replace(' AND ', ' AND n.')}"
    )
    op.execute("UPDATE processes SET max_parallel = 8 WHERE id IN (SELECT process_id FROM nodes WHERE waits_for_place)")
    op.create_check_constraint(
        op.f("nodes_waits_for_place_check"), "nodes", "NOT waits_for_place OR (status = 'PENDING' AND due_at IS NULL)"
    )
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
    op.drop_index("nodes_next_sibling_idx", table_name="nodes")
    op.create_index(
        "nodes_next_sibling_idx",
        "nodes",
        ["parent_id", "order_key"],
        postgresql_where=sa.text(f"{_UNSTARTED} AND NOT waits_for_place"),
    )
    op.create_index(
        "nodes_waiting_idx",
        "nodes",
        ["process_id", sa.text("depth DESC"), "parent_id", "order_key"],
        postgresql_where=sa.text("waits_for_place"),
    )
    op.drop_index("nodes_calling_idx", table_name="nodes")
    op.create_index("nodes_calling_idx", "nodes", ["process_id", "id"], postgresql_where=sa.text(_CALLING))


def downgrade() -> None:
    op.drop_index("nodes_calling_idx", table_name="nodes")
    op.create_index("nodes_calling_idx", "nodes", ["id"], postgresql_where=sa.text(_CALLING))
    op.drop_index("nodes_waiting_idx", table_name="nodes")
    op.drop_index("nodes_next_sibling_idx", table_name="nodes")
    op.create_index("nodes_next_sibling_idx", "nodes", ["parent_id", "order_key"], postgresql_where=sa.text(_UNSTARTED))
    op.drop_index("nodes_working_idx", table_name="nodes")
    op.drop_index("nodes_process_id_idx", table_name="nodes")
    op.create_index("nodes_process_id_idx", "nodes", ["process_id", "id"])
    op.drop_constraint(op.f("nodes_waits_for_place_check"), "nodes", type_="check")
    op.drop_column("nodes", "waits_for_place")
    op.drop_column("processes", "fan_outs")
    op.drop_column("processes", "max_parallel")
    op.drop_column("inbox_items", "tags")
    op.drop_column("inbox_items", "originator")
    op.drop_index("processes_owner_idx", table_name="processes")
    op.drop_column("processes", "owner")
