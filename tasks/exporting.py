"""Exports as people get them: of the whole tree, and without the installation's secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import UUID

from models.store import export
from models.store.database import Database
from tasks.logs import MASK
from tasks.settings import Settings


def exported(database: Database, settings: Settings, root_id: UUID) -> Iterator[str]:
    """The text of :func:`models.store.export.exported` without any secret of ``settings``, wherever it may have got to.

    Raises ``models.store.export.Unknown``.
    """
    secrets = _secrets(settings)
    for piece in export.exported(database, root_id):
        for secret in secrets:
            piece = piece.replace(secret, MASK)
        yield piece


def file_name(root_id: UUID) -> str:
    """What the file of an export is called unless somebody says otherwise."""
    return f"vancetope-{root_id}.json"


def _secrets(settings: Settings) -> tuple[str, ...]:
    """Keys, and addresses with their passwords, as they stand in JSON; the longest first."""
    found = set(settings.secrets())
    found |= {password for each in settings.secrets() if "://" in each and (password := urlsplit(each).password)}
    return tuple(sorted((json.dumps(each, ensure_ascii=False)[1:-1] for each in found), key=len, reverse=True))
