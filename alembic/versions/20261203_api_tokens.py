"""Tokens of the HTTP API.

Revises: 20261202_model_specs
Created: 2026-11-30 16:15:00
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "20261203_api_tokens"
down_revision = "20261202_model_specs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "scopes <@ ARRAY['read', 'submit', 'answer', 'admin'] AND cardinality(scopes) > 0",
            name=op.f("api_tokens_scopes_check"),
        ),
        sa.CheckConstraint("octet_length(secret_sha256) = 32", name=op.f("api_tokens_secret_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("api_tokens_pkey")),
        sa.UniqueConstraint("secret_sha256", name=op.f("api_tokens_secret_sha256_key")),
    )
    op.create_index(
        "api_tokens_tenant_name_idx",
        "api_tokens",
        ["tenant", "name"],
        unique=True,
        postgresql_where=sa.text("revoked_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_table("api_tokens")
