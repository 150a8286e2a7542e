"""How many nodes a process has, and documents with their versions.

Revises: 20261130_turns
Created: 2026-11-30 14:30:00
"""

import sqlalchemy as sa
from alembic import op

revision = "20261201_trees_and_documents"
down_revision = "20261130_turns"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("processes", sa.Column("node_count", sa.Integer(), server_default=sa.text("1"), nullable=False))
    # Processes that are there already may have grown trees.
    op.execute(
        "UPDATE processes p SET node_count = counted.nodes"
        " FROM (SELECT process_id, count(*) AS nodes FROM nodes GROUP BY process_id HAVING count(*) > 1) counted"
        " WHERE p.id = counted.process_id"
    )
    op.create_index(
        "processes_called_idx",
        "processes",
        ["parent_node_id"],
        unique=False,
        postgresql_where=sa.text("parent_node_id IS NOT NULL AND status <> 'CLOSED'"),
    )
    op.create_table(
        "documents",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("mime", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("version >= 1", name=op.f("documents_version_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("documents_pkey")),
        sa.UniqueConstraint("tenant", "project", "path", name=op.f("documents_tenant_project_path_key")),
    )
    op.create_table(
        "document_versions",
        sa.Column("document_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name=op.f("document_versions_document_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("document_id", "version", name=op.f("document_versions_pkey")),
    )


def downgrade() -> None:
    op.drop_table("document_versions")
    op.drop_table("documents")
    op.drop_index(
        "processes_called_idx",
        table_name="processes",
        postgresql_where=sa.text("parent_node_id IS NOT NULL AND status <> 'CLOSED'"),
    )
    op.drop_column("processes", "node_count")
