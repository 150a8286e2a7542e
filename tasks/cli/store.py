"""PostgreSQL for one command, and the ways a person may name a process."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click

from models.store import read
from models.store.database import Database
from tasks.cli.failures import USAGE, CommandError
from tasks.cli.here import backend_settings
from tasks.settings import Settings

LAST = "last"


def open_database(settings: Settings | None = None) -> Database:
    """A small pool on the database in force here, closed when the command ends."""
    url = (settings or backend_settings()).database
    database = Database(url, pool_size=2, pool_timeout=10, name="vancetope-cli")
    click.get_current_context().call_on_close(database.dispose)
    return database


def process_id(database: Database, given: str) -> UUID:
    """The process meant by a command's ID argument: a UUID, or ``last`` for the newest one."""
    if given == LAST:
        newest = read.recent(database, limit=1)
        if not newest:
            raise CommandError("there is no job yet: `vancetope run` submits one", USAGE)
        found: UUID = newest[0]["id"]
        return found
    return parse_id(given)


def parse_id(given: str) -> UUID:
    """A UUID as typed. Raises a usage error."""
    try:
        return UUID(given)
    except ValueError:
        message = f"{given!r} is no process id: a UUID as printed by `vancetope submit`, or `{LAST}`"
        raise CommandError(message, USAGE) from None


def known_status(database: Database, process: UUID) -> dict[str, Any]:
    """``read.status`` of a process that must exist."""
    found = read.status(database, process)
    if found is None:
        raise CommandError(f"there is no job {process} in this database: `vancetope list` shows the newest", USAGE)
    return found
