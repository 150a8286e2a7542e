"""Retention: how long closed processes are kept, tenant by tenant, and the batches in which they go.

Two ages count, both since the top-level process was closed. ``artifacts_days``: the texts of its whole tree go:
artifacts, chat messages but for the result, what each turn said and what it got from outside, the working memory of
nodes. What was submitted stays, nodes with their goals, results, questions with their answers, the audit rows and the
ledger. ``keep_days``: everything goes. Documents and model specs outlive both.

Only trees that are closed as a whole and whose result was handed over are touched. Every statement is bounded: it takes
few trees and few nodes, and a tree that has more goes piece by piece. Tenants take turns, and rows that another sweeper
has locked are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from models.ages import Ages, BadPolicy
from models.store.clean import Cleaner
from models.store.database import Database
from models.tables import HANDED_OVER

TREES = 50
"""Trees that one step takes at most."""
NODES = 2_000
"""Nodes that one step takes at most, all its trees together."""
COUNTED = 100_000
"""No preview counts more of one kind for a tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A tenant's own ages, in place of the installation's."""

    tenant: str
    keep_days: float | None
    artifacts_days: float | None
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What retention would take from one tenant if it ran now. Top-level processes, counted up to :data:`COUNTED`.

    own: the ages are the tenant's own policy. processes: deleted with everything they own; artifacts: those that stay
    and lose their texts. undelivered: old enough to be deleted, and kept because nobody was given their result.
    """

    tenant: str
    keep_days: float | None
    artifacts_days: float | None
    own: bool
    processes: int
    artifacts: int
    undelivered: int


# From one tenant to the next by the index, not over all the processes.
_TENANTS = f"""
WITH RECURSIVE tenants AS (
  (SELECT tenant FROM processes WHERE {HANDED_OVER} ORDER BY tenant LIMIT 1)
  UNION ALL
  SELECT (SELECT p.tenant FROM processes p WHERE {HANDED_OVER} AND p.tenant > tenants.tenant ORDER BY p.tenant LIMIT 1)
    FROM tenants WHERE tenants.tenant IS NOT NULL
), ages AS (
  SELECT t.tenant, r.tenant IS NOT NULL AS own,
         CASE WHEN r.tenant IS NULL THEN %(keep)s::float8 ELSE r.keep_days END AS keep_days,
         CASE WHEN r.tenant IS NULL THEN %(artifacts)s::float8 ELSE r.artifacts_days END AS artifacts_days
    FROM (SELECT tenant FROM tenants WHERE tenant IS NOT NULL{{others}}) t
    LEFT JOIN retention_policies r ON r.tenant = t.tenant
)"""
# OFFSET 0: asked of each tree by the index on its root, never of all open processes at once.
_ALL_CLOSED = "NOT EXISTS (SELECT 1 FROM processes s WHERE s.root_id = p.id AND s.status <> 'CLOSED' OFFSET 0)"
_OLD = f"""p.tenant = ages.tenant AND {HANDED_OVER}{{kept}}
       AND p.closed_at < now() - make_interval(secs => 86400 * ages.{{days}}) AND {_ALL_CLOSED}"""
_WITH_TEXTS = " AND p.artifacts_removed_at IS NULL"

# The oldest of every tenant before the second oldest of any; with each tree its number of nodes.
_DUE = f"""{_TENANTS.format(others="")}
SELECT due.id, (SELECT count(*) FROM (SELECT 1 FROM processes s JOIN nodes n ON n.process_id = s.id
                                       WHERE s.root_id = due.id LIMIT %(nodes)s + 1) counted)
  FROM (SELECT old.id, old.place, old.closed_at FROM ages CROSS JOIN LATERAL (
          SELECT p.id, p.closed_at, row_number() OVER (ORDER BY p.closed_at) AS place FROM processes p
           WHERE {_OLD} ORDER BY p.closed_at LIMIT %(trees)s) old
         ORDER BY old.place, old.closed_at LIMIT %(trees)s) due
 ORDER BY due.place, due.closed_at
"""
_DUE_TO_GO = _DUE.format(kept="", days="keep_days")
_DUE_TO_LOSE_TEXTS = _DUE.format(kept=_WITH_TEXTS, days="artifacts_days")

_LOCKED = f"""old AS MATERIALIZED (
  SELECT p.id FROM processes p WHERE p.id = ANY(%(ids)s) AND {HANDED_OVER}{{kept}} AND {_ALL_CLOSED}
   ORDER BY p.id FOR UPDATE SKIP LOCKED
)"""
_DELETE = f"""
WITH {_LOCKED.format(kept="")}
DELETE FROM processes WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING id
"""

# What was called last goes first and of each process the deepest nodes: nothing that is left hangs below what is gone.
_DELETE_SOME = f"""
WITH {_LOCKED.format(kept="")}, marked AS (
  UPDATE processes SET artifacts_removed_at = coalesce(artifacts_removed_at, now())
   WHERE id = ANY(ARRAY(SELECT id FROM old))
), leaves AS (
  SELECT n.id FROM processes s JOIN nodes n ON n.process_id = s.id
   WHERE s.root_id = ANY(ARRAY(SELECT id FROM old))
   ORDER BY s.created_at DESC, s.id, n.depth DESC, n.id DESC LIMIT %(nodes)s
)
DELETE FROM nodes WHERE id = ANY(ARRAY(SELECT id FROM leaves)) RETURNING id
"""

_STRIPPED = """files AS (
  DELETE FROM artifacts WHERE node_id = ANY(ARRAY(SELECT id FROM own))
), turns AS (
  UPDATE phase_records SET output = NULL, recorded = NULL
   WHERE node_id = ANY(ARRAY(SELECT id FROM own)) AND (output IS NOT NULL OR recorded IS NOT NULL)
), memories AS (
  UPDATE nodes SET cursor = '{}' WHERE id = ANY(ARRAY(SELECT id FROM own)) AND cursor <> '{}'
)"""
_STRIP = f"""
WITH {_LOCKED.format(kept=_WITH_TEXTS)}, tree AS MATERIALIZED (
  SELECT id FROM processes WHERE root_id = ANY(ARRAY(SELECT id FROM old))
), own AS MATERIALIZED (
  SELECT id FROM nodes WHERE process_id = ANY(ARRAY(SELECT id FROM tree))
), {_STRIPPED}, chats AS (
  DELETE FROM messages WHERE process_id = ANY(ARRAY(SELECT id FROM tree)) AND kind <> 'result'
), marked AS (
  UPDATE processes SET artifacts_removed_at = now() WHERE id = ANY(ARRAY(SELECT id FROM tree))
)
SELECT id FROM old
"""
# A node that has taken a turn has a working memory: those without one have been here before.
_STRIP_SOME = f"""
WITH {_LOCKED.format(kept=_WITH_TEXTS)}, own AS MATERIALIZED (
  SELECT n.id FROM processes s JOIN nodes n ON n.process_id = s.id
   WHERE s.root_id = ANY(ARRAY(SELECT id FROM old)) AND n.cursor <> '{{}}' LIMIT %(nodes)s
), {_STRIPPED}
SELECT id FROM own
"""

_COUNT = f"SELECT count(*) FROM (SELECT 1 FROM processes p WHERE {_OLD} LIMIT {COUNTED}) counted"
_UNDELIVERED = f"""SELECT count(*) FROM (SELECT 1 FROM processes p
    WHERE p.status = 'CLOSED' AND p.delivered_at IS NULL AND p.tenant = ages.tenant AND p.parent_node_id IS NULL
      AND p.closed_at < now() - make_interval(secs => 86400 * ages.keep_days) LIMIT {COUNTED}) counted"""
_STAYS = f"""{_WITH_TEXTS}
       AND coalesce(p.closed_at >= now() - make_interval(secs => 86400 * ages.keep_days), true)"""
_PREVIEW = f"""{_TENANTS.format(others=" UNION SELECT tenant FROM retention_policies")}
SELECT tenant, keep_days, artifacts_days, own, ({_COUNT.format(kept="", days="keep_days")}),
       ({_COUNT.format(kept=_STAYS, days="artifacts_days")}), ({_UNDELIVERED})
  FROM ages WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s ORDER BY tenant
"""

_POLICY = "SELECT tenant, keep_days, artifacts_days, updated_at FROM retention_policies"
_PUT = """
INSERT INTO retention_policies (tenant, keep_days, artifacts_days) VALUES (%(tenant)s, %(keep)s, %(artifacts)s)
ON CONFLICT (tenant) DO UPDATE
   SET keep_days = excluded.keep_days, artifacts_days = excluded.artifacts_days, updated_at = now()
RETURNING tenant, keep_days, artifacts_days, updated_at
"""


def policies(database: Database) -> list[Policy]:
    """Every tenant's own policy, by tenant."""
    return [_policy(row) for row in database.statement(f"{_POLICY} ORDER BY tenant", {})]


def policy(database: Database, tenant: str) -> Policy | None:
    """A tenant's own policy; ``None``: the installation's ages hold."""
    rows = database.statement(f"{_POLICY} WHERE tenant = %(tenant)s", {"tenant": tenant})
    return _policy(rows[0]) if rows else None


def set_policy(database: Database, tenant: str, ages: Ages) -> Policy:
    """From now on these ages hold for the tenant. Raises :class:`BadPolicy`."""
    if not tenant.strip():
        raise BadPolicy("tenant: is blank; it must be the name that submissions carry")
    ages.check()
    params = {"tenant": Cleaner().text(tenant), "keep": ages.keep, "artifacts": ages.artifacts}
    return _policy(database.statement(_PUT, params)[0])


def remove_policy(database: Database, tenant: str) -> bool:
    """From now on the installation's ages hold for the tenant. ``False``: they did before."""
    sql = "DELETE FROM retention_policies WHERE tenant = %(tenant)s RETURNING tenant"
    return bool(database.statement(sql, {"tenant": tenant}))


def preview(database: Database, default: Ages, *, tenant: str | None = None) -> list[Preview]:
    """What would go if retention ran now, tenant by tenant. Nothing is changed.

    default: the ages of tenants without a policy of their own. tenant: only this one's.
    """
    params = {"keep": default.keep, "artifacts": default.artifacts, "tenant": tenant}
    names = ("tenant", "keep_days", "artifacts_days", "own", "processes", "artifacts", "undelivered")
    return [Preview(**dict(zip(names, row, strict=True))) for row in database.statement(_PREVIEW, params)]


def delete_old(database: Database, default: Ages, *, trees: int = TREES, nodes: int = NODES) -> int:
    """One step: delete old processes with all they own. Returns how many trees are gone, or pieces of a large one.

    0: nothing is left that this sweeper could take.
    """
    return _step(database, _DUE_TO_GO, _DELETE, _DELETE_SOME, default, trees, nodes, whole_at_last=False)


def remove_artifacts(database: Database, default: Ages, *, trees: int = TREES, nodes: int = NODES) -> int:
    """One step: take the texts of old trees away. Returns how many trees have lost them, or pieces of a large one.

    0: nothing is left that this sweeper could take.
    """
    return _step(database, _DUE_TO_LOSE_TEXTS, _STRIP, _STRIP_SOME, default, trees, nodes, whole_at_last=True)


def _step(
    database: Database, due: str, whole: str, piece: str, default: Ages, trees: int, nodes: int, *, whole_at_last: bool
) -> int:
    """Take the trees that fit into one statement; of one that is too large by itself, a piece.

    whole_at_last: a tree of which no piece is left is done as a whole all the same (its nodes are still there).
    """
    found = database.statement(
        due, {"keep": default.keep, "artifacts": default.artifacts, "trees": trees, "nodes": nodes}
    )
    if not found:
        return 0
    if found[0][1] > nodes:
        ids = [found[0][0]]
        taken = len(database.statement(piece, {"ids": ids, "nodes": nodes}))
        if taken or not whole_at_last:
            return int(taken > 0)
        return len(database.statement(whole, {"ids": ids}))
    return len(database.statement(whole, {"ids": _fitting(found, nodes)}))


def _fitting(found: list[tuple[Any, ...]], nodes: int) -> list[UUID]:
    """The first trees that together have no more than so many nodes. A large one waits until it is the first."""
    chosen: list[UUID] = []
    for tree, size in found:
        nodes -= size
        if nodes < 0:
            break
        chosen.append(tree)
    return chosen


def _policy(row: tuple[Any, ...]) -> Policy:
    return Policy(tenant=row[0], keep_days=row[1], artifacts_days=row[2], updated_at=row[3])
