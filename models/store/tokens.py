"""Tokens of the HTTP API: only their hashes are stored, so a copy of the database opens nothing."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from models.store.clean import Cleaner
from models.store.database import Database

PREFIX = "vt_"
"""Begins every secret, so that scanners of repositories and logs know one when they see it."""

_COLUMNS = "id, tenant, name, scopes, created_at, expires_at, revoked_at, last_used_at"

# Seldom written, so that a busy token is not one hot row.
_USE = f"""
WITH found AS (
  SELECT {_COLUMNS} FROM api_tokens
   WHERE secret_sha256 = %(sha256)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
), touched AS (
  UPDATE api_tokens t SET last_used_at = now() FROM found
   WHERE t.id = found.id AND (found.last_used_at IS NULL OR found.last_used_at < now() - interval '1 minute')
)
SELECT {_COLUMNS} FROM found
"""


class Scope(StrEnum):
    """What a token allows. ``ADMIN`` includes the others."""

    READ = "read"
    SUBMIT = "submit"
    ANSWER = "answer"
    ADMIN = "admin"


class NameTaken(Exception):
    """The tenant has a token of this name that is not revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret, which nobody can read again."""

    id: int
    tenant: str
    name: str
    scopes: frozenset[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


def create(
    database: Database, tenant: str, name: str, scopes: Collection[Scope], *, expires_at: datetime | None = None
) -> tuple[Token, str]:
    """A new token and its secret, which is shown this once. Raises :class:`NameTaken`."""
    secret = PREFIX + secrets.token_urlsafe(32)
    cleaner = Cleaner()
    rows = database.statement(
        "INSERT INTO api_tokens (tenant, name, secret_sha256, scopes, expires_at)"
        " VALUES (%(tenant)s, %(name)s, %(sha256)s, %(scopes)s, %(expires_at)s)"
        f" ON CONFLICT (tenant, name) WHERE revoked_at IS NULL DO NOTHING RETURNING {_COLUMNS}",
        {
            "tenant": cleaner.text(tenant),
            "name": cleaner.text(name),
            "sha256": _hashed(secret),
            "scopes": sorted(scope.value for scope in scopes),
            "expires_at": expires_at,
        },
    )
    if not rows:
        raise NameTaken(f"{tenant} has a token named {name!r} already")
    return _token(rows[0]), secret


def use(database: Database, secret: str) -> Token | None:
    """The token of ``secret``; ``None`` for one that is unknown, revoked or expired."""
    if not secret.startswith(PREFIX):
        return None
    rows = database.statement(_USE, {"sha256": _hashed(secret)})
    return _token(rows[0]) if rows else None


def list_tokens(database: Database, *, tenant: str | None = None) -> list[Token]:
    """Every token that is not revoked, by tenant and name."""
    rows = database.statement(
        f"SELECT {_COLUMNS} FROM api_tokens WHERE revoked_at IS NULL"
        " AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s) ORDER BY tenant, name",
        {"tenant": tenant},
    )
    return [_token(row) for row in rows]


def revoke(database: Database, tenant: str, name: str) -> bool:
    """The token works no longer, from the next request on. ``False``: there is none of this name."""
    return bool(
        database.statement(
            "UPDATE api_tokens SET revoked_at = now()"
            " WHERE tenant = %(tenant)s AND name = %(name)s AND revoked_at IS NULL RETURNING id",
            {"tenant": tenant, "name": name},
        )
    )


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _token(row: tuple[object, ...]) -> Token:
    names = ("id", "tenant", "name", "scopes", "created_at", "expires_at", "revoked_at", "last_used_at")
    found = dict(zip(names, row, strict=True))
    found["scopes"] = frozenset(Scope(scope) for scope in found["scopes"])  # type: ignore[attr-defined]
    return Token(**found)  # type: ignore[arg-type]
