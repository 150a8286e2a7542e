"""The tables of the batch lane: model calls that wait for a batch, and the batches they were sent in."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSON

from models.metadata import created_at, metadata

batches = Table(
    "batches",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    # What the provider is told, so that a batch whose id was never stored is found again there.
    Column("key", Uuid, nullable=False, server_default=func.gen_random_uuid()),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="SUBMITTING"),
    Column("outcome", Text),
    Column("provider_batch_id", Text),
    Column("requests", Integer, nullable=False),
    Column("detail", Text),
    # How often somebody has taken the batch to send it or to ask for it: the fence of what is written about it.
    Column("visits", BigInteger, nullable=False, server_default=text("0")),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("next_visit_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    created_at(),
    Column("submitted_at", DateTime(timezone=True)),
    Column("cancelled_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    CheckConstraint("state IN ('SUBMITTING', 'SUBMITTED', 'ENDED')", name="state"),
    CheckConstraint(
        "(state = 'ENDED') = (ended_at IS NOT NULL) AND (state = 'ENDED') = (outcome IS NOT NULL)", name="ended"
    ),
    CheckConstraint("state <> 'SUBMITTED' OR provider_batch_id IS NOT NULL", name="submitted"),
    CheckConstraint(
        "outcome IN ('completed', 'expired', 'cancelled', 'failed', 'refused', 'withdrawn')", name="outcome"
    ),
    UniqueConstraint("key"),
    Index("batches_open_idx", "next_visit_at", postgresql_where=text("state <> 'ENDED'")),
)

batch_requests = Table(
    "batch_requests",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("node_id", BigInteger, ForeignKey("nodes.id", ondelete="CASCADE"), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("process_id", Uuid, nullable=False),
    Column("root_id", Uuid, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("batch_id", BigInteger, ForeignKey("batches.id")),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="WAITING"),
    # What reading the answer needs to know of the request: path, refused parameters, output limit.
    Column("sent", JSON, nullable=False),
    Column("body", JSON, nullable=False),
    Column("bytes", Integer, nullable=False),
    # As the provider gave it.
    Column("answer", JSON),
    Column("detail", Text),
    created_at(),
    Column("answered_at", DateTime(timezone=True)),
    CheckConstraint("state IN ('WAITING', 'SENT', 'ANSWERED', 'REFUSED', 'WITHDRAWN')", name="state"),
    CheckConstraint("(answer IS NULL) = (answered_at IS NULL)", name="answered"),
    CheckConstraint("state <> 'SENT' OR batch_id IS NOT NULL", name="sent"),
    CheckConstraint("state <> 'WAITING' OR batch_id IS NULL", name="waiting"),
    UniqueConstraint("node_id", "turn"),
    Index("batch_requests_waiting_idx", "provider", "model", "id", postgresql_where=text("state = 'WAITING'")),
    Index("batch_requests_batch_id_idx", "batch_id"),
    Index("batch_requests_ready_idx", "node_id", postgresql_where=text("state IN ('ANSWERED', 'REFUSED')")),
    Index("batch_requests_open_idx", "created_at", postgresql_where=text("state IN ('WAITING', 'SENT')")),
)
