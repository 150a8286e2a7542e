"""The database of a replay, which is thrown away afterwards: rows get the ids they had, and time passes at will.

Never for a database that anything else uses: :func:`prepare` adds triggers to its tables.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from sqlalchemy import make_url, text

from models.records import Turn
from models.store.clean import Cleaner
from models.store.database import Database, DatabaseUnavailable, Row
from models.store.plan import PLAN
from models.store.sweep import OPEN


class Step(Enum):
    """Where a turn may be held."""

    VIEW = "view"
    COMMIT = "commit"


_COMMITS = "INSERT INTO phase_records"

ROOM = 1_000_000
"""Ids of rows that the recording does not know begin so far above those it knows."""

# A node is known by its process and its place in it, everything else by its node or its path.
_PREPARE = """
CREATE TABLE replay_nodes (id bigint PRIMARY KEY, process_id uuid, parent_id bigint, order_key bigint[]);
CREATE INDEX ON replay_nodes (process_id, parent_id, order_key);
CREATE TABLE replay_items (id bigint, node_id bigint PRIMARY KEY);
CREATE TABLE replay_documents (id bigint, path text PRIMARY KEY);
CREATE FUNCTION replay_node() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  NEW.id := coalesce((SELECT id FROM replay_nodes k WHERE k.process_id = NEW.process_id
                         AND k.parent_id IS NOT DISTINCT FROM NEW.parent_id
                         AND (k.parent_id IS NULL OR k.order_key = NEW.order_key) LIMIT 1), NEW.id);
  RETURN NEW; END $$;
CREATE FUNCTION replay_item() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  NEW.id := coalesce((SELECT id FROM replay_items k WHERE k.node_id = NEW.node_id), NEW.id);
  RETURN NEW; END $$;
CREATE FUNCTION replay_document() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  NEW.id := coalesce((SELECT id FROM replay_documents k WHERE k.path = NEW.path), NEW.id);
  RETURN NEW; END $$;
CREATE TRIGGER replay_node BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION replay_node();
CREATE TRIGGER replay_item BEFORE INSERT ON inbox_items FOR EACH ROW EXECUTE FUNCTION replay_item();
CREATE TRIGGER replay_document BEFORE INSERT ON documents FOR EACH ROW EXECUTE FUNCTION replay_document();
"""
_FILL = (
    """INSERT INTO replay_nodes (id, process_id, parent_id, order_key)
       SELECT id, process_id, parent_id, order_key FROM json_to_recordset(CAST(:nodes AS json))
         AS n (id bigint, process_id uuid, parent_id bigint, order_key bigint[])""",
    """INSERT INTO replay_items (id, node_id)
       SELECT id, node_id FROM json_to_recordset(CAST(:items AS json)) AS i (id bigint, node_id bigint)""",
    """INSERT INTO replay_documents (id, path)
       SELECT DISTINCT ON (path) document_id, path FROM json_to_recordset(CAST(:documents AS json))
         AS d (document_id bigint, path text)""",
    *(
        f"SELECT setval(pg_get_serial_sequence('{table}', 'id'),"
        f" (SELECT coalesce(max(id), 0) + {ROOM} FROM replay_{known}))"
        for table, known in (("nodes", "nodes"), ("inbox_items", "items"), ("documents", "documents"))
    ),
)

_STATE = """
SELECT n.turn, p.engine, p.root_id, n.due_at IS NOT NULL AND n.due_at <= now() AND n.lease_expires_at IS NULL
  FROM nodes n JOIN processes p ON p.id = n.process_id
 WHERE n.id = %(node)s AND n.settled_at IS NULL AND p.status <> 'CLOSED'
"""
_MAKE_DUE = """
UPDATE nodes SET due_at = now(), waits_for_place = false, losses = %(losses)s
 WHERE id = %(node)s AND lease_expires_at IS NULL AND settled_at IS NULL
   AND (due_at IS NOT NULL OR waits_for_place OR %(parked)s)
RETURNING id
"""
_SET_OVERDUE = """
UPDATE processes SET deadline_at = CASE WHEN %(overdue)s THEN now() - interval '1 second' END
 WHERE id = %(root)s AND (deadline_at IS NOT NULL) <> %(overdue)s RETURNING id
"""
# What waits a while in a turn of its own (a retry) is due; who is parked with a time limit goes on waiting.
_LEFT = f"""
SELECT n.id, n.turn, p.engine, p.priority FROM nodes n JOIN processes p ON p.id = n.process_id
 WHERE n.due_at IS NOT NULL AND (n.due_at <= now() OR n.status <> 'WAITING') AND n.lease_expires_at IS NULL
   AND p.status IN {OPEN} AND n.id <> ALL(%(but)s::bigint[]) ORDER BY n.due_at, n.id LIMIT 1
"""
_PUT_DOCUMENT = """
WITH put AS (
  INSERT INTO documents (tenant, project, path, version, kind, title, mime, content, node_id)
  VALUES (%(tenant)s, %(project)s, %(path)s, %(version)s, %(kind)s, %(title)s, %(mime)s, %(content)s, %(node)s)
  ON CONFLICT (tenant, project, path) DO UPDATE
     SET version = excluded.version, kind = excluded.kind, title = excluded.title, mime = excluded.mime,
         content = excluded.content, node_id = excluded.node_id
  RETURNING id
)
INSERT INTO document_versions (document_id, version, kind, title, content, node_id)
SELECT id, %(version)s, %(kind)s, %(title)s, %(content)s, %(node)s FROM put ON CONFLICT DO NOTHING
"""
_PUT_MODEL = """
INSERT INTO model_specs (tenant, project, model_id, version, spec_version, spec, evolution, process_id, node_id)
VALUES (%(tenant)s, %(project)s, %(model_id)s, %(version)s, %(spec_version)s, %(spec)s::json, %(evolution)s::json,
        %(process)s, %(node)s)
ON CONFLICT DO NOTHING
"""
_EXPIRE = "UPDATE inbox_items SET expires_at = now() WHERE id = %(item)s AND status = 'PENDING' RETURNING id"


class SteppedDatabase(Database):
    """A database that asks before a turn looks at its plan, and before it commits: whoever is asked may let it wait."""

    def __init__(self, url: str, before: Callable[[Step], None], **options: Any) -> None:
        super().__init__(url, **options)
        self._before = before

    def statement(self, sql: str, params: dict[str, Any]) -> list[Row]:
        if sql is PLAN:
            self._before(Step.VIEW)
        elif _COMMITS in sql:
            self._before(Step.COMMIT)
        return super().statement(sql, params)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node of an open process that is not settled."""

    turn: int
    engine: str
    root_id: UUID
    due: bool


@contextmanager
def new_database(server_url: str) -> Iterator[str]:
    """The address of an empty database on the server, for the length of the block. What ``server_url`` names is not
    touched. Raises ``DatabaseUnavailable``, also when the user may not create databases."""
    name = f"vancetope_replay_{secrets.token_hex(6)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    try:
        with psycopg.connect(server_url, autocommit=True, connect_timeout=5) as connection:
            connection.execute(create)
    except psycopg.Error as error:
        why = str(error).strip().splitlines()
        raise DatabaseUnavailable(f"no database can be made for the replay: {why[0] if why else 'no answer'}") from None
    try:
        yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(drop)


def prepare(
    database: Database,
    *,
    nodes: Sequence[Mapping[str, Any]],
    items: Sequence[Mapping[str, Any]],
    documents: Sequence[Mapping[str, Any]],
) -> None:
    """From now on rows get the ids that they have in these rows of an export."""
    cleaner = Cleaner()
    params = {
        "nodes": cleaner.json(_only(nodes, "id", "process_id", "parent_id", "order_key")),
        "items": cleaner.json(_only(items, "id", "node_id")),
        "documents": cleaner.json(_only(documents, "document_id", "path")),
    }
    with database.begin() as connection:
        connection.exec_driver_sql(_PREPARE)
        for fill in _FILL:
            connection.execute(text(fill), {name: value for name, value in params.items() if f":{name} " in fill})


def node_state(database: Database, node_id: int) -> NodeState | None:
    """How far a node is; ``None``: there is none, it is settled, or its process is closed."""
    rows = database.statement(_STATE, {"node": node_id})
    return NodeState(turn=rows[0][0], engine=rows[0][1], root_id=rows[0][2], due=rows[0][3]) if rows else None


def make_due(database: Database, node_id: int, *, parked: bool, losses: int = 0) -> None:
    """A node that waits for a time or a place waits no longer; with ``parked`` also one that waits for something else.

    Places are handed on by commits, and which of two at the same moment came first is not always known.
    """
    database.statement(_MAKE_DUE, {"node": node_id, "parked": parked, "losses": losses})


def set_overdue(database: Database, root_id: UUID, overdue: bool) -> None:
    """Whether the deadline of the top-level process has passed."""
    database.statement(_SET_OVERDUE, {"root": root_id, "overdue": overdue})


def next_left(database: Database, *, but: Sequence[int]) -> Turn | None:
    """A turn that could be run now, of any node but these. What only waits for its time is taken, too."""
    rows = database.statement(_LEFT, {"but": list(but)})
    return Turn(node_id=rows[0][0], turn=rows[0][1], engine=rows[0][2], priority=rows[0][3]) if rows else None


def put_document(database: Database, row: Mapping[str, Any]) -> None:
    """A version of a document as it was, now the newest one."""
    names = ("tenant", "project", "path", "version", "kind", "title", "mime", "content")
    database.statement(_PUT_DOCUMENT, {name: row[name] for name in names} | {"node": row["node_id"]})


def put_model(database: Database, row: Mapping[str, Any]) -> None:
    """A version of a model spec as it was, whoever wrote it."""
    cleaner = Cleaner()
    names = ("tenant", "project", "model_id", "version", "spec_version")
    database.statement(
        _PUT_MODEL,
        {name: row[name] for name in names}
        | {
            "spec": cleaner.json(row["spec"]),
            "evolution": None if row["evolution"] is None else cleaner.json(row["evolution"]),
            "process": row["process_id"],
            "node": row["node_id"],
        },
    )


def run_out(database: Database, item_id: int) -> None:
    """The time of a question is up."""
    database.statement(_EXPIRE, {"item": item_id})


def _only(rows: Sequence[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]
