"""The webhook outbox: what is due is leased, sent by ``tasks.webhooks`` and marked. Any number of senders at once.

At least once: who dies between sending and marking has sent, and whoever takes the row over when the lease has run out
sends it again, under the same event id. The database's clock decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from models.store.clean import Cleaner
from models.store.database import Database
from models.store.outbox_sql import NEW_EVENT_ID, payload

TEST_EVENT: Final = "webhook.test"
"""The type of a delivery that was asked for to try an endpoint."""
DISABLE_SECONDS: Final = 5 * 86_400.0
"""An endpoint to which nothing got through for so long is disabled."""
MAX_ERROR_CHARS: Final = 500

# From one endpoint that something is pending for to the next by the index; then a few of each, the first of every
# endpoint before the second of any. Who fails gets one attempt at a time: it would only keep threads waiting. What is
# being sent is due again when its lease runs out: neither it nor a long backlog is walked over by the index on due_at.
_CLAIM = """
WITH RECURSIVE waiting AS (
  (SELECT endpoint_id FROM webhook_deliveries WHERE state = 'PENDING' ORDER BY endpoint_id LIMIT 1)
  UNION ALL
  SELECT (SELECT d.endpoint_id FROM webhook_deliveries d
           WHERE d.state = 'PENDING' AND d.endpoint_id > waiting.endpoint_id ORDER BY d.endpoint_id LIMIT 1)
    FROM waiting WHERE waiting.endpoint_id IS NOT NULL
), room AS MATERIALIZED (
  SELECT w.id, CASE WHEN w.failing_since IS NULL THEN %(each)s::int ELSE 1 END - sent.number AS places
    FROM waiting JOIN webhook_endpoints w ON w.id = waiting.endpoint_id
    CROSS JOIN LATERAL (SELECT count(*) AS number FROM webhook_deliveries f
                         WHERE f.endpoint_id = w.id AND f.state = 'PENDING' AND f.due_at > now()
                           AND f.due_at <= now() + make_interval(secs => %(lease)s) AND f.lease_expires_at > now()) sent
   WHERE w.enabled AND coalesce(w.paused_until <= now(), true)
     AND (w.failing_since IS NOT NULL) = %(failing)s::boolean
), due AS (
  SELECT room.id AS endpoint_id, d.id, row_number() OVER (PARTITION BY room.id ORDER BY d.due_at, d.id) AS place
    FROM room CROSS JOIN LATERAL (
      SELECT p.id, p.due_at FROM webhook_deliveries p
       WHERE p.endpoint_id = room.id AND p.state = 'PENDING' AND p.due_at <= now()
         AND coalesce(p.lease_expires_at <= now(), true)
       ORDER BY p.due_at, p.id LIMIT greatest(room.places, 0) FOR NO KEY UPDATE SKIP LOCKED) d
), chosen AS (
  SELECT endpoint_id, id FROM due ORDER BY place, random() LIMIT %(limit)s
)
UPDATE webhook_deliveries d
   SET attempts = d.attempts + 1, attempted_at = now(), lease_expires_at = now() + make_interval(secs => %(lease)s),
       due_at = now() + make_interval(secs => %(lease)s)
  FROM chosen, webhook_endpoints w
 WHERE d.endpoint_id = chosen.endpoint_id AND d.id = chosen.id AND w.id = d.endpoint_id
RETURNING d.id, d.endpoint_id, d.event_id, d.payload::text, d.attempts, w.url, w.secret,
          CASE WHEN w.previous_expires_at > now() THEN w.previous_secret END
"""

_DELIVERED = """
WITH done AS (
  UPDATE webhook_deliveries
     SET state = 'DELIVERED', finished_at = now(), lease_expires_at = NULL, status_code = %(code)s, error = NULL
   WHERE endpoint_id = %(endpoint)s AND id = %(id)s AND attempts = %(attempt)s AND state = 'PENDING'
  RETURNING endpoint_id
), well AS (
  UPDATE webhook_endpoints w SET failing_since = NULL, paused_until = NULL
    FROM done WHERE w.id = done.endpoint_id AND w.failing_since IS NOT NULL
)
SELECT 1 FROM done
"""

_HOPELESS = "(%(gone)s::boolean OR w.failing_since < now() - make_interval(secs => %(patience)s))"
_FAILED = f"""
WITH done AS (
  UPDATE webhook_deliveries
     SET state = CASE WHEN %(delay)s::float8 IS NULL THEN 'FAILED' ELSE 'PENDING' END,
         finished_at = CASE WHEN %(delay)s::float8 IS NULL THEN now() END,
         due_at = coalesce(now() + make_interval(secs => %(delay)s::float8), due_at),
         lease_expires_at = NULL, status_code = %(code)s::int, error = %(error)s
   WHERE endpoint_id = %(endpoint)s AND id = %(id)s AND attempts = %(attempt)s AND state = 'PENDING'
  RETURNING endpoint_id
), ill AS (
  UPDATE webhook_endpoints w
     SET failing_since = coalesce(w.failing_since, now()),
         paused_until = greatest(w.paused_until, now() + make_interval(secs => %(rest)s::float8)),
         enabled = w.enabled AND NOT coalesce({_HOPELESS}, false),
         disabled_reason = CASE WHEN w.enabled AND {_HOPELESS} THEN %(reason)s ELSE w.disabled_reason END
    FROM done
   WHERE w.id = done.endpoint_id AND (w.failing_since IS NULL OR %(rest)s::float8 IS NOT NULL OR {_HOPELESS})
  RETURNING w.enabled
)
SELECT coalesce((SELECT NOT enabled FROM ill), false) FROM done
"""

_TEST = f"""
WITH e AS MATERIALIZED (
  SELECT {NEW_EVENT_ID} AS event_id, w.id AS endpoint_id, '{TEST_EVENT}'::text AS type, w.tenant, w.project
    FROM webhook_endpoints w WHERE w.id = %(id)s AND w.tenant = %(tenant)s
)
INSERT INTO webhook_deliveries (endpoint_id, event_id, type, payload)
SELECT e.endpoint_id, e.event_id, e.type, {payload("e", "json_build_object('endpointId', e.endpoint_id)")} FROM e
RETURNING id
"""

_COLUMNS = (
    "id", "endpoint_id", "process_id", "event_id", "type", "state", "attempts", "due_at", "attempted_at",
    "status_code", "error", "created_at", "finished_at",
)  # fmt: skip
_SELECTED = ", ".join(f"d.{name}" for name in _COLUMNS)

# From one endpoint to the next by the primary key, and of each the oldest only: young ones are not walked over. One
# that is being sent stays.
_PRUNE = """
WITH RECURSIVE known AS (
  (SELECT endpoint_id FROM webhook_deliveries ORDER BY endpoint_id LIMIT 1)
  UNION ALL
  SELECT (SELECT d.endpoint_id FROM webhook_deliveries d WHERE d.endpoint_id > known.endpoint_id
           ORDER BY d.endpoint_id LIMIT 1)
    FROM known WHERE known.endpoint_id IS NOT NULL
), oldest AS (
  SELECT known.endpoint_id, d.* FROM known CROSS JOIN LATERAL (
    SELECT p.id, p.created_at, p.lease_expires_at FROM webhook_deliveries p WHERE p.endpoint_id = known.endpoint_id
     ORDER BY p.id LIMIT %(each)s FOR UPDATE SKIP LOCKED) d
)
DELETE FROM webhook_deliveries d USING oldest o
 WHERE d.endpoint_id = o.endpoint_id AND d.id = o.id AND o.created_at < now() - make_interval(secs => %(age)s)
   AND coalesce(o.lease_expires_at <= now(), true)
RETURNING d.id
"""


class DeliveryState(StrEnum):
    """What has become of a delivery."""

    PENDING = "PENDING"
    """It will be tried, again or for the first time."""
    DELIVERED = "DELIVERED"
    """The receiver has said so (a 2xx)."""
    FAILED = "FAILED"
    """It is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One leased delivery: what to send where. ``number`` counts from 1."""

    id: int
    endpoint_id: int
    event_id: str
    body: str = field(repr=False)
    number: int
    url: str
    secrets: tuple[str, ...] = field(repr=False)
    """All that sign, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """A row of the outbox, without its payload. ``due_at``: when it is tried next, of one that is PENDING."""

    id: int
    endpoint_id: int
    process_id: UUID | None
    event_id: str
    type: str
    state: DeliveryState
    attempts: int
    due_at: datetime
    attempted_at: datetime | None
    status_code: int | None
    error: str | None
    created_at: datetime
    finished_at: datetime | None


def claim(database: Database, *, limit: int, each: int, lease_seconds: float, failing: bool = False) -> list[Attempt]:
    """Lease deliveries that are due, fairly over the endpoints and at most ``each`` at once of one of them.

    failing: of the endpoints that fail (one at a time), or of those that do not.
    """
    rows = database.statement(_CLAIM, {"limit": limit, "each": each, "lease": lease_seconds, "failing": failing})
    return [
        Attempt(
            id=row[0],
            endpoint_id=row[1],
            event_id=row[2],
            body=row[3],
            number=row[4],
            url=row[5],
            secrets=tuple(secret for secret in row[6:] if secret is not None),
        )
        for row in rows
    ]


def mark_delivered(database: Database, attempt: Attempt, *, status_code: int) -> bool:
    """The receiver has it. ``False``: the lease was lost and somebody else sends it now."""
    params = {"endpoint": attempt.endpoint_id, "id": attempt.id, "attempt": attempt.number, "code": status_code}
    return bool(database.statement(_DELIVERED, params))


def mark_failed(
    database: Database,
    attempt: Attempt,
    *,
    error: str,
    status_code: int | None = None,
    delay_seconds: float | None,
    rest_seconds: float | None = None,
    gone: bool = False,
) -> bool | None:
    """The attempt has failed; the next is due after ``delay_seconds``, ``None``: there is none.

    rest_seconds: nothing else is sent to the endpoint until then. gone: it wants nothing any more and is disabled, as
    is one to which nothing gets through for :data:`DISABLE_SECONDS`. Returns whether it is disabled now; ``None``: the
    lease was lost, and nothing was written.
    """
    reason = (
        "the receiver answered 410 Gone" if gone else f"every attempt failed for {DISABLE_SECONDS / 86_400:.0f} days"
    )
    rows = database.statement(
        _FAILED,
        {
            "endpoint": attempt.endpoint_id,
            "id": attempt.id,
            "attempt": attempt.number,
            "code": status_code,
            "error": Cleaner().text(error)[:MAX_ERROR_CHARS],
            "delay": delay_seconds,
            "rest": rest_seconds,
            "gone": gone,
            "patience": DISABLE_SECONDS,
            "reason": reason,
        },
    )
    return bool(rows[0][0]) if rows else None


def send_test(database: Database, tenant: str, endpoint_id: int) -> int | None:
    """Put an event of the type :data:`TEST_EVENT` into the outbox, for this endpoint alone. Returns its id."""
    rows = database.statement(_TEST, {"tenant": tenant, "id": endpoint_id})
    return rows[0][0] if rows else None


def deliveries(
    database: Database,
    endpoint_id: int,
    *,
    state: DeliveryState | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[WebhookDelivery]:
    """An endpoint's deliveries, the newest first. before: those with a smaller id."""
    rows = database.statement(
        f"SELECT {_SELECTED} FROM webhook_deliveries d WHERE d.endpoint_id = %(endpoint)s"
        " AND (%(state)s::text IS NULL OR d.state = %(state)s) AND (%(before)s::bigint IS NULL OR d.id < %(before)s)"
        " ORDER BY d.id DESC LIMIT %(limit)s",
        {"endpoint": endpoint_id, "state": state, "before": before, "limit": limit},
    )
    return [_delivery(row) for row in rows]


def delivery(database: Database, endpoint_id: int, delivery_id: int) -> tuple[WebhookDelivery, dict[str, Any]] | None:
    """One delivery of an endpoint, and its payload."""
    rows = database.statement(
        f"SELECT {_SELECTED}, d.payload FROM webhook_deliveries d WHERE d.id = %(id)s AND d.endpoint_id = %(endpoint)s",
        {"id": delivery_id, "endpoint": endpoint_id},
    )
    return (_delivery(rows[0][:-1]), rows[0][-1]) if rows else None


def retry(database: Database, endpoint_id: int, delivery_id: int) -> bool:
    """Send it again now, whatever has become of it; one that was given up gets one more attempt.

    ``False``: there is none, or it is being sent at this moment.
    """
    return bool(
        database.statement(
            "UPDATE webhook_deliveries"
            " SET state = 'PENDING', finished_at = NULL, due_at = now(), lease_expires_at = NULL,"
            "     status_code = NULL, error = NULL"
            " WHERE id = %(id)s AND endpoint_id = %(endpoint)s AND coalesce(lease_expires_at <= now(), true)"
            " RETURNING id",
            {"id": delivery_id, "endpoint": endpoint_id},
        )
    )


def prune(database: Database, *, older_seconds: float, each: int) -> int:
    """Delete deliveries that are older, at most ``each`` of an endpoint, also of one that is disabled or deleted.

    Returns how many: with none, there are no more.
    """
    return len(database.statement(_PRUNE, {"age": older_seconds, "each": each}))


def _delivery(row: tuple[Any, ...]) -> WebhookDelivery:
    found = dict(zip(_COLUMNS, row, strict=True))
    return WebhookDelivery(**found | {"state": DeliveryState(found["state"])})
