"""Webhooks: who is told of what, and the outbox, a row for each event and each endpoint that is told of it."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSON

from models.metadata import created_at, metadata

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("tenant", Text, nullable=False),
    # NULL: of all projects of the tenant.
    Column("project", Text),
    Column("url", Text, nullable=False),
    Column("events", ARRAY(Text), nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    # As it is and not hashed: signatures are made with it. After a rotation the one before signs, too, for a while.
    Column("secret", Text, nullable=False),
    Column("previous_secret", Text),
    Column("previous_expires_at", DateTime(timezone=True)),
    Column("enabled", Boolean, nullable=False, server_default=text("true")),
    Column("disabled_reason", Text),
    # Since when no attempt has succeeded; NULL while all is well.
    Column("failing_since", DateTime(timezone=True)),
    # The endpoint has asked for a rest (Retry-After).
    Column("paused_until", DateTime(timezone=True)),
    created_at(),
    CheckConstraint(
        "events <@ ARRAY['process.closed', 'inbox.opened', 'inbox.closed'] AND cardinality(events) > 0", name="events"
    ),
    CheckConstraint("(previous_secret IS NULL) = (previous_expires_at IS NULL)", name="previous"),
    CheckConstraint("NOT enabled OR disabled_reason IS NULL", name="disabled"),
    Index("webhook_endpoints_tenant_id_idx", "tenant", "id"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    # No foreign key: it would lock the endpoint in every commit that closes a process, and let such a commit fail when
    # the endpoint is deleted at the same moment. What is left of a deleted endpoint is never sent, and pruned.
    Column("endpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    # A process takes what was told of it along when it is deleted. NULL: a test.
    Column("process_id", Uuid, ForeignKey("processes.id", ondelete="CASCADE")),
    # The same for all endpoints and all attempts.
    Column("event_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    # JSON and not JSONB: the very bytes that are signed and sent, the same each time.
    Column("payload", JSON, nullable=False),
    Column("state", Text, nullable=False, server_default="PENDING"),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("due_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("lease_expires_at", DateTime(timezone=True)),
    Column("attempted_at", DateTime(timezone=True)),
    Column("status_code", Integer),
    Column("error", Text),
    created_at(),
    Column("finished_at", DateTime(timezone=True)),
    CheckConstraint("state IN ('PENDING', 'DELIVERED', 'FAILED')", name="state"),
    CheckConstraint("(state = 'PENDING') = (finished_at IS NULL)", name="finished"),
    CheckConstraint("state = 'PENDING' OR lease_expires_at IS NULL", name="lease"),
    # Few indexes: every commit that closes a process opens them all, whether somebody is told or not.
    Index("webhook_deliveries_process_id_idx", "process_id", postgresql_where=text("process_id IS NOT NULL")),
    Index("webhook_deliveries_pending_idx", "endpoint_id", "due_at", postgresql_where=text("state = 'PENDING'")),
)
