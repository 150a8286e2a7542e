"""Documents of a project, for people and programs. A turn writes them with its commit (``models.store.commit_sql``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from models.records import StoredDocument
from models.store.clean import Cleaner
from models.store.database import Database, Row

# Every path is the normal form of engines.documents.paths: it is compared as it is.
_COLUMNS = "id, path, version, kind, title, mime, content"

_PUT = """
WITH written AS (
  INSERT INTO documents (tenant, project, path, kind, title, mime, content)
  VALUES (%(tenant)s, %(project)s, %(path)s, %(kind)s, %(title)s, %(mime)s, %(content)s)
  ON CONFLICT (tenant, project, path) DO UPDATE
     SET version = documents.version + 1, kind = excluded.kind, title = coalesce(excluded.title, documents.title),
         mime = excluded.mime, content = excluded.content, node_id = NULL, updated_at = now()
  RETURNING id, version, kind, title, content
), versioned AS (
  INSERT INTO document_versions (document_id, version, kind, title, content)
  SELECT id, version, kind, title, content FROM written
)
SELECT version FROM written
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of a list of documents."""

    path: str
    version: int
    kind: str
    title: str | None
    characters: int
    updated_at: datetime


def get(
    database: Database, tenant: str, project: str, path: str, *, version: int | None = None
) -> StoredDocument | None:
    """The document at ``path``, in its newest or the given version; ``None`` when there is none."""
    where = {"tenant": tenant, "project": project, "path": path}
    if version is None:
        return _one(
            database.statement(
                f"SELECT {_COLUMNS} FROM documents"
                " WHERE tenant = %(tenant)s AND project = %(project)s AND path = %(path)s",
                where,
            )
        )
    return _one(
        database.statement(
            "SELECT d.id, d.path, v.version, v.kind, v.title, d.mime, v.content"
            " FROM documents d JOIN document_versions v ON v.document_id = d.id"
            " WHERE d.tenant = %(tenant)s AND d.project = %(project)s AND d.path = %(path)s"
            " AND v.version = %(version)s",
            {**where, "version": version},
        )
    )


def find(database: Database, tenant: str, project: str, *, by: str, value: str) -> StoredDocument | None:
    """A document as a task refers to it: ``by`` id, path, or name (tried as a path, then as the last part of one).

    Never one of another tenant or project. Of several with one name it is the first by path.
    """
    where = {"tenant": tenant, "project": project, "value": value}
    own = f"SELECT {_COLUMNS} FROM documents WHERE tenant = %(tenant)s AND project = %(project)s"
    if by == "id":
        return _one(database.statement(f"{own} AND id::text = %(value)s", where))
    found = _one(database.statement(f"{own} AND path = %(value)s", where))
    if found is not None or by == "path":
        return found
    ending = "right(path, length(%(value)s::text) + 1) = '/' || %(value)s::text"
    return _one(database.statement(f"{own} AND {ending} ORDER BY path LIMIT 1", where))


def list_documents(
    database: Database, tenant: str, project: str, *, prefix: str = "", limit: int = 1_000
) -> list[Listed]:
    """The project's documents whose path begins with ``prefix``, by path."""
    rows = database.statement(
        "SELECT path, version, kind, title, length(content), updated_at FROM documents"
        " WHERE tenant = %(tenant)s AND project = %(project)s AND starts_with(path, %(prefix)s)"
        " ORDER BY path LIMIT %(limit)s",
        {"tenant": tenant, "project": project, "prefix": prefix, "limit": limit},
    )
    return [_listed(row) for row in rows]


def versions(database: Database, tenant: str, project: str, path: str, *, limit: int = 100) -> list[Listed]:
    """The document's versions, the newest first; ``updated_at`` is when each was written."""
    rows = database.statement(
        "SELECT d.path, v.version, v.kind, v.title, length(v.content), v.created_at"
        " FROM documents d JOIN document_versions v ON v.document_id = d.id"
        " WHERE d.tenant = %(tenant)s AND d.project = %(project)s AND d.path = %(path)s"
        " ORDER BY v.version DESC LIMIT %(limit)s",
        {"tenant": tenant, "project": project, "path": path, "limit": limit},
    )
    return [_listed(row) for row in rows]


def texts(database: Database, tenant: str, projects: Sequence[str], paths: Sequence[str]) -> dict[tuple[str, str], str]:
    """The contents of the documents at ``paths`` in any of ``projects``, by project and path, in one statement."""
    rows = database.statement(
        "SELECT project, path, content FROM documents"
        " WHERE tenant = %(tenant)s AND project = ANY(%(projects)s) AND path = ANY(%(paths)s)",
        {"tenant": tenant, "projects": list(projects), "paths": list(paths)},
    )
    return {(row[0], row[1]): row[2] for row in rows}


def put(
    database: Database,
    tenant: str,
    project: str,
    path: str,
    content: str,
    *,
    kind: str = "text",
    title: str | None = None,
    mime: str = "text/markdown",
) -> int:
    """Create the document, or give it its next version. Returns the version."""
    cleaner = Cleaner()
    rows = database.statement(
        _PUT,
        {
            "tenant": tenant,
            "project": project,
            "path": cleaner.text(path),
            "kind": kind,
            "title": None if title is None else cleaner.text(title),
            "mime": mime,
            "content": cleaner.text(content),
        },
    )
    version: int = rows[0][0]
    return version


def remove(database: Database, tenant: str, project: str, path: str) -> bool:
    """Delete the document with all its versions. ``False``: there is none."""
    return bool(
        database.statement(
            "DELETE FROM documents WHERE tenant = %(tenant)s AND project = %(project)s AND path = %(path)s"
            " RETURNING id",
            {"tenant": tenant, "project": project, "path": path},
        )
    )


def _listed(row: Row) -> Listed:
    return Listed(path=row[0], version=row[1], kind=row[2], title=row[3], characters=row[4], updated_at=row[5])


def _one(rows: list[tuple[object, ...]]) -> StoredDocument | None:
    if not rows:
        return None
    names = ("id", "path", "version", "kind", "title", "mime", "content")
    return StoredDocument(**dict(zip(names, rows[0], strict=True)))  # type: ignore[arg-type]
