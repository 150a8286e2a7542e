"""Model specs of a project, for people and programs. Turns write theirs when they commit (``store.commit_sql``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from models.spec_records import StoredModel
from models.store.clean import Cleaner
from models.store.database import Database

_COLUMNS = "model_id, version, spec_version, spec, evolution, process_id, node_id, created_at"
_OF = " FROM model_specs WHERE tenant = %(tenant)s AND project = %(project)s"


class VersionConflict(Exception):
    """The version is written already: somebody else was first. ``latest`` is the newest version there is."""

    def __init__(self, model_id: str, version: int, latest: int) -> None:
        super().__init__(f"model {model_id!r} is at version {latest}: version {version} is written already")
        self.model_id, self.version, self.latest = model_id, version, latest


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """One line of a list of models: its newest version."""

    model_id: str
    version: int
    spec_version: str
    process_id: UUID | None
    created_at: datetime


def get(
    database: Database, tenant: str, project: str, model_id: str, *, version: int | None = None
) -> StoredModel | None:
    """The model spec in its newest or the given version; ``None`` when there is none."""
    which = "ORDER BY version DESC LIMIT 1" if version is None else "AND version = %(version)s"
    rows = database.statement(
        f"SELECT {_COLUMNS}{_OF} AND model_id = %(model_id)s {which}",
        {"tenant": tenant, "project": project, "model_id": model_id}
        | ({} if version is None else {"version": version}),
    )
    return _stored(rows[0]) if rows else None


def history(database: Database, tenant: str, project: str, model_id: str) -> list[StoredModel]:
    """Every version of the model spec, newest first."""
    rows = database.statement(
        f"SELECT {_COLUMNS}{_OF} AND model_id = %(model_id)s ORDER BY version DESC",
        {"tenant": tenant, "project": project, "model_id": model_id},
    )
    return [_stored(row) for row in rows]


def list_models(database: Database, tenant: str, project: str, *, limit: int = 1_000) -> list[ListedModel]:
    """The project's models, each in its newest version, by id."""
    rows = database.statement(
        "SELECT DISTINCT ON (model_id) model_id, version, spec_version, process_id, created_at"
        f"{_OF} ORDER BY model_id, version DESC LIMIT %(limit)s",
        {"tenant": tenant, "project": project, "limit": limit},
    )
    return [
        ListedModel(model_id=row[0], version=row[1], spec_version=row[2], process_id=row[3], created_at=row[4])
        for row in rows
    ]


def put(
    database: Database,
    tenant: str,
    project: str,
    model_id: str,
    spec: dict[str, Any],
    *,
    version: int,
    spec_version: str,
) -> None:
    """Write a version by hand. Raises :class:`VersionConflict` when there is one of that number already."""
    cleaner = Cleaner()
    where = {"tenant": tenant, "project": project, "model_id": cleaner.text(model_id)}
    rows = database.statement(
        "INSERT INTO model_specs (tenant, project, model_id, version, spec, spec_version)"
        " VALUES (%(tenant)s, %(project)s, %(model_id)s, %(version)s, %(spec)s::json, %(spec_version)s)"
        " ON CONFLICT (tenant, project, model_id, version) DO NOTHING RETURNING version",
        {**where, "version": version, "spec": cleaner.json(spec), "spec_version": cleaner.text(spec_version)},
    )
    if not rows:
        latest = database.statement(f"SELECT max(version){_OF} AND model_id = %(model_id)s", where)
        raise VersionConflict(model_id, version, latest[0][0])


def _stored(row: tuple[Any, ...]) -> StoredModel:
    names = ("model_id", "version", "spec_version", "spec", "evolution", "process_id", "node_id", "created_at")
    return StoredModel(**dict(zip(names, row, strict=True)))
