"""The inbox: questions to people, and what becomes of them.

Whoever moves a question out of PENDING holds its process and then its node first (the store's lock order), and makes
the node due in the same transaction: an answer that is stored cannot be forgotten. The turn reads it in its view.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, text

from models.records import InboxItem, ItemStatus, Turn
from models.store.clean import Cleaner
from models.store.commit import HINT_GRACE_SECONDS
from models.store.commit_sql import only_people
from models.store.database import Database
from models.store.outbox_sql import ITEM, told_of_items
from models.store.sweep import OPEN, repaired

COLUMNS = (
    "id", "tenant", "project", "process_id", "node_id", "originator", "tags", "type", "criticality", "title", "body",
    "payload", "status", "owner", "answer", "answered_by", "resolved_by", "created_at", "expires_at", "answered_at",
)  # fmt: skip
_SELECT = f"SELECT {', '.join('i.' + name for name in COLUMNS)} FROM inbox_items i"

_LIST = f"""
{_SELECT}
 WHERE i.tenant = %(tenant)s AND (%(project)s::text IS NULL OR i.project = %(project)s)
   AND (%(status)s::text IS NULL OR i.status = %(status)s)
   AND (%(owner)s::text IS NULL OR i.owner = %(owner)s OR i.owner IS NULL)
   AND (%(tag)s::text IS NULL OR %(tag)s = ANY (i.tags))
 ORDER BY array_position(ARRAY['CRITICAL', 'NORMAL', 'LOW'], i.criticality), i.id LIMIT %(limit)s
"""

_LOCK_PROCESS = text("SELECT status FROM processes WHERE id = :id FOR SHARE")
_LOCK_NODE = text("SELECT 1 FROM nodes WHERE id = :id AND settled_at IS NULL FOR NO KEY UPDATE")
_LOCK_ITEM = text(f"{_SELECT} WHERE i.id = :id FOR UPDATE")
_IS_LATE = text("SELECT :expires_at <= now()")
_RESOLVE = text(f"""
WITH resolved AS (
  UPDATE inbox_items i SET status = :status, answer = CAST(:answer AS jsonb), answered_by = :by, resolved_by = 'USER',
         answered_at = now()
   WHERE id = :id AND status = 'PENDING'
  RETURNING {ITEM}
), {told_of_items("resolved")}
SELECT count(*) FROM resolved
""")
# A new fence: a turn that is looking at the node as it was (at the deadline) must not settle it without the answer.
_WAKE = text("""
UPDATE nodes n SET due_at = now(), next_hint_at = now() + make_interval(secs => :grace), hints = 0,
       fence = n.fence + 1, lease_owner = NULL, lease_expires_at = NULL
  FROM processes p WHERE n.id = :id AND n.settled_at IS NULL AND p.id = n.process_id
RETURNING n.id, n.turn, p.engine, p.priority
""")

_EXPIRE = f"""
WITH late AS (
  SELECT n.id, i.id AS item FROM inbox_items i JOIN nodes n ON n.id = i.node_id
   WHERE i.status = 'PENDING' AND i.expires_at <= now() AND n.lease_expires_at IS NULL AND n.settled_at IS NULL
   ORDER BY i.expires_at LIMIT %(batch)s OFFSET %(skip)s FOR NO KEY UPDATE OF n SKIP LOCKED
), expired AS (
  UPDATE inbox_items i SET status = 'EXPIRED', resolved_by = 'EXPIRY', answered_at = now()
    FROM late WHERE i.id = late.item AND i.status = 'PENDING'
  RETURNING {ITEM}
), {told_of_items("expired")}, woken AS (
  UPDATE nodes n SET due_at = now(), next_hint_at = now() + make_interval(secs => %(grace)s), hints = 0
    FROM expired WHERE n.id = expired.node_id
  RETURNING n.id, n.turn, n.process_id
)
SELECT w.id, w.turn, p.engine, p.priority, p.status IN {OPEN} FROM woken w JOIN processes p ON p.id = w.process_id
"""

_BLOCK = f"""
WITH quiet AS (
  SELECT p.id FROM processes p
   WHERE p.status = 'RUNNING' AND p.id IN (SELECT process_id FROM inbox_items WHERE status = 'PENDING')
     AND {only_people("p.id")}
     AND NOT EXISTS (SELECT 1 FROM nodes WHERE process_id = p.id AND waits_for_place)
   LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE processes SET status = 'BLOCKED' FROM quiet WHERE processes.id = quiet.id RETURNING processes.id
"""


class Outcome(StrEnum):
    """What became of an answer or a dismissal."""

    STORED = "STORED"
    """It is the question's resolution from now on, and its node is due."""
    SAME = "SAME"
    """The very same was stored before; nothing changed."""
    OTHER = "OTHER"
    """A different answer was accepted before."""
    EXPIRED = "EXPIRED"
    """It comes after the question's time."""
    CLOSED = "CLOSED"
    """The question was dismissed, or its process has ended."""
    FOREIGN = "FOREIGN"
    """The question belongs to somebody else."""
    UNKNOWN = "UNKNOWN"
    """There is no such question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """``item`` as it is now (``None`` when unknown) and the turn to publish, with STORED only."""

    outcome: Outcome
    item: InboxItem | None = None
    due: tuple[Turn, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.outcome in (Outcome.STORED, Outcome.SAME)


def items(
    database: Database,
    tenant: str,
    project: str | None,
    *,
    status: ItemStatus | None = ItemStatus.PENDING,
    owner: str | None = None,
    tag: str | None = None,
    limit: int = 100,
) -> list[InboxItem]:
    """Questions of a project (``None``: of all of them), the pressing ones first.

    owner: this person's and those of the pool. tag: with it.
    """
    params = {"tenant": tenant, "project": project, "status": status, "owner": owner, "tag": tag, "limit": limit}
    return [item_of(row) for row in database.statement(_LIST, params)]


def pending(database: Database, tenant: str, *, limit: int = 100) -> int:
    """How many questions of a tenant are open, counted up to ``limit``."""
    rows = database.statement(
        "SELECT count(*) FROM (SELECT 1 FROM inbox_items WHERE tenant = %(tenant)s AND status = 'PENDING'"
        " LIMIT %(limit)s) open",
        {"tenant": tenant, "limit": limit},
    )
    number: int = rows[0][0]
    return number


def get(database: Database, item_id: int) -> InboxItem | None:
    """One question, whatever its status."""
    rows = database.statement(f"{_SELECT} WHERE i.id = %(id)s", {"id": item_id})
    return item_of(rows[0]) if rows else None


def answer(database: Database, item_id: int, given: dict[str, Any], *, by: str) -> Resolution:
    """Store the one answer of a question that is open, and make its node due. ``given``: checked by ``engines.inbox``.

    by: who answers; a question with an owner takes only the owner's answer. Raises ``NotStorable``.
    """
    return _resolve(database, item_id, ItemStatus.ANSWERED, given, by)


def dismiss(database: Database, item_id: int, *, by: str) -> Resolution:
    """Close a question that is open without an answer, and make its node due: it ends as failed."""
    return _resolve(database, item_id, ItemStatus.DISMISSED, None, by)


def expire(database: Database, *, batch: int) -> list[Turn]:
    """Close the questions whose time is up and make their nodes due."""
    return repaired(database, _EXPIRE, batch=batch)


def block_waiting(database: Database, *, batch: int) -> int:
    """Set processes in which only people are waited for to BLOCKED. Returns how many; the next claim undoes it."""
    return len(database.statement(_BLOCK, {"batch": batch}))


def item_of(row: Any) -> InboxItem:
    """A row of :data:`COLUMNS` as a record."""
    found = dict(zip(COLUMNS, row, strict=True))
    return InboxItem(**found | {"status": ItemStatus(found["status"]), "tags": tuple(found["tags"])})


def _resolve(database: Database, item_id: int, status: ItemStatus, given: dict[str, Any] | None, by: str) -> Resolution:
    cleaner = Cleaner()
    dumped = None if given is None else cleaner.json(given)
    found = get(database, item_id)
    if found is None:
        return Resolution(outcome=Outcome.UNKNOWN)
    with database.begin() as connection:
        process = connection.execute(_LOCK_PROCESS, {"id": found.process_id}).scalar()
        waits = connection.execute(_LOCK_NODE, {"id": found.node_id}).first() is not None
        item = _locked(connection, item_id)
        if item is None:
            return Resolution(outcome=Outcome.UNKNOWN)
        late = bool(connection.execute(_IS_LATE, {"expires_at": item.expires_at}).scalar())
        outcome = _judge(item, status, given, by, is_open=waits and process != "CLOSED", late=late)
        if outcome is not Outcome.STORED:
            return Resolution(outcome=outcome, item=item)
        connection.execute(_RESOLVE, {"id": item_id, "status": status.value, "answer": dumped, "by": cleaner.text(by)})
        woken = connection.execute(_WAKE, {"id": item.node_id, "grace": HINT_GRACE_SECONDS}).all()
        due = tuple(Turn(node_id=row[0], turn=row[1], engine=row[2], priority=row[3]) for row in woken)
        return Resolution(outcome=outcome, item=_locked(connection, item_id), due=due)


def _locked(connection: Connection, item_id: int) -> InboxItem | None:
    row = connection.execute(_LOCK_ITEM, {"id": item_id}).first()
    return None if row is None else item_of(row)


def _judge(
    item: InboxItem, status: ItemStatus, given: dict[str, Any] | None, by: str, *, is_open: bool, late: bool
) -> Outcome:
    """What to say to a resolution of ``item``, all of it being locked."""
    if item.owner is not None and item.owner != by:
        return Outcome.FOREIGN
    match item.status:
        case ItemStatus.PENDING if not is_open:
            return Outcome.CLOSED
        case ItemStatus.PENDING:
            return Outcome.EXPIRED if late else Outcome.STORED
        case ItemStatus.EXPIRED:
            return Outcome.EXPIRED
        case ItemStatus.ANSWERED if status is ItemStatus.ANSWERED:
            return Outcome.SAME if item.answer == given else Outcome.OTHER
        case ItemStatus.DISMISSED if status is ItemStatus.DISMISSED:
            return Outcome.SAME if item.resolved_by == "USER" else Outcome.CLOSED
        case ItemStatus.ANSWERED:
            return Outcome.OTHER
        case _:
            return Outcome.CLOSED
