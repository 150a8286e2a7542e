"""Tables beside the processes: what belongs to a project or the installation, and outlives the process it is from."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSON

from models.metadata import created_at, metadata

documents = Table(
    "documents",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("kind", Text, nullable=False),
    Column("title", Text),
    Column("mime", Text, nullable=False),
    Column("content", Text, nullable=False),
    # Who wrote it, without a foreign key: a document outlives the process it came from.
    Column("node_id", BigInteger),
    created_at(),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    CheckConstraint("version >= 1", name="version"),
    UniqueConstraint("tenant", "project", "path"),
)

document_versions = Table(
    "document_versions",
    metadata,
    Column("document_id", BigInteger, ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("title", Text),
    Column("content", Text, nullable=False),
    Column("node_id", BigInteger),
    created_at(),
)

model_specs = Table(
    "model_specs",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("project", Text, primary_key=True),
    Column("model_id", Text, primary_key=True),
    # Counted from 1; a version is written once and never changed. The spec's own version is its author's business.
    Column("version", Integer, primary_key=True),
    Column("spec_version", Text, nullable=False),
    # JSON and not JSONB: a spec's fields stay in the order in which they were written.
    Column("spec", JSON, nullable=False),
    Column("evolution", JSON),
    # Who wrote it, without foreign keys: a model outlives the process it came from.
    Column("process_id", Uuid),
    Column("node_id", BigInteger),
    created_at(),
    CheckConstraint("version >= 1", name="version"),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    # SHA-256 of the secret. The secret has 256 random bits, so nothing slower is needed to keep it from being guessed.
    Column("secret_sha256", LargeBinary, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    created_at(),
    Column("expires_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
    Column("last_used_at", DateTime(timezone=True)),
    CheckConstraint("scopes <@ ARRAY['read', 'submit', 'answer', 'admin'] AND cardinality(scopes) > 0", name="scopes"),
    CheckConstraint("octet_length(secret_sha256) = 32", name="secret"),
    UniqueConstraint("secret_sha256"),
    Index("api_tokens_tenant_name_idx", "tenant", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
)

retention_policies = Table(
    "retention_policies",
    metadata,
    Column("tenant", Text, primary_key=True),
    # In days since a process was closed; NULL: for ever.
    Column("keep_days", Float),
    Column("artifacts_days", Float),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    CheckConstraint("keep_days > 0 AND artifacts_days > 0", name="positive"),
    CheckConstraint("artifacts_days <= keep_days", name="order"),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("task", Text, nullable=False),
    Column("problem", Text, nullable=False),
    Column("payload", Text, nullable=False),
    created_at(),
)
