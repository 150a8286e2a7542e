"""Webhook endpoints: who of a tenant is told of what. Their secrets are shown when they are made and never again."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from models.store.clean import Cleaner
from models.store.database import Database

PREFIX: Final = "whsec_"
"""Begins every signing secret; the rest is the key in base64."""
MAX_ENDPOINTS: Final = 100
"""Endpoints of one tenant."""

_COLUMNS = (
    "id", "tenant", "project", "url", "events", "description", "enabled", "disabled_reason", "failing_since",
    "paused_until", "previous_expires_at", "created_at",
)  # fmt: skip
_SELECTED = ", ".join(_COLUMNS)


class Event(StrEnum):
    """What endpoints can be told of."""

    PROCESS_CLOSED = "process.closed"
    """A job has its result. Of root processes only: what they call is their own business."""
    INBOX_OPENED = "inbox.opened"
    """A question waits for a person."""
    INBOX_CLOSED = "inbox.closed"
    """A question was answered, dismissed or has expired."""


class TooManyEndpoints(Exception):
    """The tenant has as many endpoints as it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint without its secret. ``project`` ``None``: all of the tenant's."""

    id: int
    tenant: str
    project: str | None
    url: str
    events: frozenset[Event]
    description: str
    enabled: bool
    disabled_reason: str | None
    """Why it is disabled, when nobody has asked for that."""
    failing_since: datetime | None
    """Since when no attempt has succeeded."""
    paused_until: datetime | None
    """It has asked for a rest until then."""
    previous_expires_at: datetime | None
    """The secret before the last rotation signs until then, too."""
    created_at: datetime


def create(
    database: Database,
    tenant: str,
    url: str,
    events: Collection[Event],
    *,
    project: str | None = None,
    description: str = "",
) -> tuple[Endpoint, str]:
    """A new endpoint and its secret, which is shown this once. Raises :class:`TooManyEndpoints`."""
    cleaner = Cleaner()
    secret = new_secret()
    rows = database.statement(
        "INSERT INTO webhook_endpoints (tenant, project, url, events, description, secret)"
        " SELECT %(tenant)s, %(project)s, %(url)s, %(events)s::text[], %(description)s, %(secret)s"
        " WHERE (SELECT count(*) FROM webhook_endpoints WHERE tenant = %(tenant)s) < %(most)s"
        f" RETURNING {_SELECTED}",
        {
            "tenant": cleaner.text(tenant),
            "project": None if project is None else cleaner.text(project),
            "url": cleaner.text(url),
            "events": _listed(events),
            "description": cleaner.text(description),
            "secret": secret,
            "most": MAX_ENDPOINTS,
        },
    )
    if not rows:
        raise TooManyEndpoints(f"{tenant} has {MAX_ENDPOINTS} endpoints already: delete one that is no longer used")
    return _endpoint(rows[0]), secret


def new_secret() -> str:
    """A signing secret: 256 random bits."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def endpoints(database: Database, *, tenant: str | None = None) -> list[Endpoint]:
    """All endpoints, those of a tenant in the order in which they were made."""
    rows = database.statement(
        f"SELECT {_SELECTED} FROM webhook_endpoints"
        " WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s) ORDER BY tenant, id",
        {"tenant": tenant},
    )
    return [_endpoint(row) for row in rows]


def get(database: Database, tenant: str, endpoint_id: int) -> Endpoint | None:
    """One of the tenant's endpoints."""
    rows = database.statement(
        f"SELECT {_SELECTED} FROM webhook_endpoints WHERE id = %(id)s AND tenant = %(tenant)s",
        {"id": endpoint_id, "tenant": tenant},
    )
    return _endpoint(rows[0]) if rows else None


def change(
    database: Database,
    tenant: str,
    endpoint_id: int,
    *,
    url: str | None = None,
    events: Collection[Event] | None = None,
    description: str | None = None,
    enabled: bool | None = None,
) -> Endpoint | None:
    """Change what is given; ``None`` when there is no such endpoint. Another address, and being enabled, is a new
    beginning: it counts as failing no longer, and what is pending goes out as soon as it is due."""
    cleaner = Cleaner()
    anew = "(coalesce(%(url)s::text <> url, false) OR coalesce(%(enabled)s::boolean, false))"
    rows = database.statement(
        "UPDATE webhook_endpoints SET url = coalesce(%(url)s, url), events = coalesce(%(events)s::text[], events),"
        " description = coalesce(%(description)s, description), enabled = coalesce(%(enabled)s, enabled),"
        " disabled_reason = CASE WHEN %(enabled)s IS NULL THEN disabled_reason END,"
        f" failing_since = CASE WHEN NOT {anew} THEN failing_since END,"
        f" paused_until = CASE WHEN NOT {anew} THEN paused_until END"
        f" WHERE id = %(id)s AND tenant = %(tenant)s RETURNING {_SELECTED}",
        {
            "id": endpoint_id,
            "tenant": tenant,
            "url": None if url is None else cleaner.text(url),
            "events": None if events is None else _listed(events),
            "description": None if description is None else cleaner.text(description),
            "enabled": enabled,
        },
    )
    return _endpoint(rows[0]) if rows else None


def delete(database: Database, tenant: str, endpoint_id: int) -> bool:
    """Forget the endpoint and everything it was or would have been told. ``False``: there is none."""
    # Deliveries before their endpoint, as whoever marks them locks the two.
    rows = database.statement(
        "WITH told AS (DELETE FROM webhook_deliveries d USING webhook_endpoints w"
        "   WHERE w.id = %(id)s AND w.tenant = %(tenant)s AND d.endpoint_id = w.id RETURNING d.id)"
        " DELETE FROM webhook_endpoints WHERE id = %(id)s AND tenant = %(tenant)s"
        "   AND (SELECT count(*) FROM told) >= 0 RETURNING id",
        {"id": endpoint_id, "tenant": tenant},
    )
    return bool(rows)


def rotate(database: Database, tenant: str, endpoint_id: int, *, keep_seconds: float) -> tuple[Endpoint, str] | None:
    """A new secret, shown this once. For ``keep_seconds`` the one before signs as well, so that receivers can change
    over; of an earlier one nothing is left. ``None`` when there is no such endpoint."""
    secret = new_secret()
    rows = database.statement(
        "UPDATE webhook_endpoints SET secret = %(secret)s,"
        " previous_secret = CASE WHEN %(keep)s::float8 > 0 THEN secret END,"
        " previous_expires_at = CASE WHEN %(keep)s::float8 > 0 THEN now() + make_interval(secs => %(keep)s) END"
        f" WHERE id = %(id)s AND tenant = %(tenant)s RETURNING {_SELECTED}",
        {"id": endpoint_id, "tenant": tenant, "secret": secret, "keep": keep_seconds},
    )
    return (_endpoint(rows[0]), secret) if rows else None


def _listed(events: Collection[Event]) -> list[str]:
    return sorted({event.value for event in events})


def _endpoint(row: tuple[Any, ...]) -> Endpoint:
    found = dict(zip(_COLUMNS, row, strict=True))
    return Endpoint(**found | {"events": frozenset(Event(event) for event in found["events"])})
