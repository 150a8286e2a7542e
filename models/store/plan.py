"""What a node sees of its tree, in one statement of bounded cost however large the tree is, and the tree for people."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from models.records import ChildRow, InboxItem, NodeStatus, PhaseRow, PlanPicture, PlanRow, PlanView, ProcessStatus
from models.store.commit_sql import WORKING
from models.store.database import Database
from models.store.inbox import COLUMNS, item_of

SIBLINGS_EACH_SIDE = 40
CHILDREN_SHOWN = 200
CHILDREN_READ = 1_000
CHILDREN_COUNTED = 1_000
"""More children of another node are not counted: the number shown is then too small. A node's own all are."""
HISTORY = 60
PATH_GOAL_CHARS = 20_000
GOAL_CHARS = 400
SUMMARY_CHARS = 200
RESULT_CHARS = 20_000
ALL_RESULTS_CHARS = 400_000
ANSWERS = 20
TREE_SHOWN = 500
BUSY_SHOWN = 60

# Of other nodes only what a prompt shows of an answered question.
_ITEM = ", ".join(f"i.{name}" for name in COLUMNS)
_ANSWERED = _ITEM.replace("i.payload", "'{}'::json").replace("i.body", f"left(i.body, {GOAL_CHARS})")

# Every part goes by an index whatever the planner thinks of a parent with very many children: OFFSET 0 and ORDER BY are
# there to keep it from reading the whole table.
PLAN = f"""
WITH RECURSIVE path AS (
  SELECT n.id, n.parent_id, n.order_key, 0 AS up FROM nodes n WHERE n.id = %(node)s
  UNION ALL
  SELECT n.id, n.parent_id, n.order_key, path.up + 1 FROM path JOIN nodes n ON n.id = path.parent_id WHERE path.up < 64
), shown AS (
  SELECT id, true AS on_path, false AS near FROM path
  UNION ALL
  SELECT s.id, false, path.up = 0 FROM path CROSS JOIN LATERAL (
    (SELECT n.id FROM nodes n WHERE n.parent_id = path.parent_id AND n.order_key < path.order_key
      ORDER BY n.order_key DESC LIMIT {SIBLINGS_EACH_SIDE})
    UNION ALL
    (SELECT n.id FROM nodes n WHERE n.parent_id = path.parent_id AND n.order_key > path.order_key
      ORDER BY n.order_key LIMIT {SIBLINGS_EACH_SIDE})) s
  UNION ALL
  (SELECT n.id, false, true FROM nodes n WHERE n.parent_id = %(node)s ORDER BY n.order_key LIMIT {CHILDREN_SHOWN})
), plan AS (
  SELECT json_agg(json_build_array(n.id, n.parent_id, n.order_key, n.kind,
           left(CASE WHEN n.parent_id IS NULL
                     THEN (SELECT i.goal FROM process_inputs i WHERE i.process_id = n.process_id) ELSE n.goal END,
                CASE WHEN s.on_path THEN {PATH_GOAL_CHARS} ELSE {GOAL_CHARS} END),
           n.status, n.awaiting_post_children, n.phase,
           CASE WHEN s.near AND n.status = 'DONE'
                THEN (SELECT left(content, {SUMMARY_CHARS} * 4) FROM artifacts
                       WHERE node_id = n.id AND key = 'result') END,
           CASE WHEN n.status = 'FAILED' THEN left(n.failure, {SUMMARY_CHARS} * 4) END,
           CASE WHEN n.child_mode IS NOT NULL THEN (
             SELECT json_object_agg(c.shown, c.number) FROM (
               SELECT f.shown, count(*) AS number FROM (
                 SELECT CASE WHEN k.awaiting_post_children THEN 'RUNNING' ELSE k.status END AS shown
                   FROM nodes k WHERE k.parent_id = n.id
                  ORDER BY k.order_key LIMIT CASE WHEN n.id = %(node)s THEN NULL ELSE {CHILDREN_COUNTED} END) f
                GROUP BY f.shown) c) END)
           ORDER BY n.depth, n.order_key) AS rows
    FROM shown s CROSS JOIN LATERAL (SELECT * FROM nodes WHERE id = s.id OFFSET 0) n
), own AS (
  SELECT n.id, n.order_key, n.kind, n.goal, n.status, n.failure FROM nodes n
   WHERE n.parent_id = %(node)s ORDER BY n.order_key LIMIT {CHILDREN_READ}
), share AS (
  SELECT least({RESULT_CHARS}, {ALL_RESULTS_CHARS} / greatest(count(*), 1))::int AS chars FROM own
), results AS (
  SELECT json_agg(json_build_array(o.id, o.order_key, o.kind, left(o.goal, {GOAL_CHARS}), o.status, o.failure,
                                     left(a.content, share.chars), length(a.content)) ORDER BY o.order_key) AS rows
    FROM share, own o
    LEFT JOIN LATERAL (SELECT content FROM artifacts WHERE node_id = o.id AND key = 'result' OFFSET 0) a ON true
), past AS (
  SELECT json_agg(json_build_array(r.phase, r.iteration, r.model) ORDER BY r.turn) AS rows
    FROM (SELECT turn, phase, iteration, model FROM phase_records
           WHERE node_id = %(node)s AND model IS NOT NULL ORDER BY turn DESC LIMIT {HISTORY}) r
)
SELECT p.node_count, plan.rows, results.rows, past.rows, (SELECT array_agg(id ORDER BY up DESC) FROM path),
       EXISTS (SELECT 1 FROM inbox_items i WHERE i.process_id = p.id), pg_current_snapshot()::text
  FROM processes p, plan, results, past WHERE p.id = %(process)s
"""

_QUESTION = f"SELECT {_ITEM} FROM inbox_items i WHERE i.node_id = %(node)s"
_ANSWERS = f"""
SELECT {_ANSWERED} FROM inbox_items i
 WHERE i.process_id = %(process)s AND i.status = 'ANSWERED' ORDER BY i.answered_at DESC, i.id DESC LIMIT {ANSWERS}
"""

# For people: the upper levels, and wherever the tree is at work or waits for somebody, with the way up from there.
_TREE = f"""
WITH RECURSIVE top AS (
  SELECT id FROM nodes WHERE process_id = %(process)s ORDER BY depth, id LIMIT %(limit)s
), busy AS (
  (SELECT id, parent_id FROM nodes
    WHERE process_id = %(process)s AND {WORKING} LIMIT {BUSY_SHOWN})
  UNION
  (SELECT n.id, n.parent_id FROM inbox_items i JOIN nodes n ON n.id = i.node_id
    WHERE i.process_id = %(process)s AND i.status = 'PENDING' ORDER BY i.id LIMIT {BUSY_SHOWN})
), path AS (
  SELECT id, parent_id FROM busy
  UNION
  SELECT n.id, n.parent_id FROM path JOIN nodes n ON n.id = path.parent_id
), shown AS (SELECT id FROM top UNION SELECT id FROM path)
SELECT n.id, n.parent_id, n.order_key, n.kind,
       left(CASE WHEN n.parent_id IS NULL THEN i.goal ELSE n.goal END, {GOAL_CHARS}), n.status,
       n.awaiting_post_children, n.phase, '', left(n.failure, {SUMMARY_CHARS} * 4), counted.numbers, asked.id, now(),
       p.status
  FROM processes p CROSS JOIN shown s CROSS JOIN LATERAL (SELECT * FROM nodes WHERE id = s.id OFFSET 0) n
  LEFT JOIN process_inputs i ON i.process_id = n.process_id AND n.parent_id IS NULL
  LEFT JOIN LATERAL (SELECT id FROM inbox_items WHERE node_id = n.id AND status = 'PENDING' OFFSET 0) asked ON true
  CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(c.shown, c.number) AS numbers FROM (
      SELECT f.shown, count(*) AS number FROM (
        SELECT CASE WHEN k.awaiting_post_children THEN 'RUNNING' ELSE k.status END AS shown
          FROM nodes k WHERE n.child_mode IS NOT NULL AND k.parent_id = n.id
         ORDER BY k.order_key LIMIT {CHILDREN_COUNTED}) f GROUP BY f.shown) c) counted
 WHERE p.id = %(process)s
 ORDER BY n.depth, n.order_key, n.id
"""


def load_plan(database: Database, process_id: UUID, node_id: int) -> PlanView:
    """The tree around a node as it is now. Siblings and children far away in order are left out and only counted."""
    rows = database.statement(PLAN, {"node": node_id, "process": process_id})
    node_count, plan, children, history, path, has_asked, snapshot = rows[0]
    question, answers = _inbox(database, process_id, node_id) if has_asked else (None, ())
    return PlanView(
        node_count=node_count,
        rows=tuple(_row(row) for row in plan or ()),
        path=tuple(path or ()),
        children=tuple(
            ChildRow(
                id=row[0],
                order_key=tuple(row[1]),
                kind=row[2],
                goal=row[3],
                status=NodeStatus(row[4]),
                failure=row[5] or "",
                result=row[6] or "",
                result_chars=row[7] or 0,
            )
            for row in children or ()
        ),
        history=tuple(PhaseRow(phase=row[0], iteration=row[1], model=row[2]) for row in history or ()),
        question=question,
        answers=answers,
        snapshot=snapshot,
    )


def _inbox(database: Database, process_id: UUID, node_id: int) -> tuple[InboxItem | None, tuple[InboxItem, ...]]:
    own = database.statement(_QUESTION, {"node": node_id})
    answered = database.statement(_ANSWERS, {"process": process_id})
    return item_of(own[0]) if own else None, tuple(item_of(row) for row in reversed(answered))


def tree(database: Database, process_id: UUID, *, limit: int = TREE_SHOWN) -> PlanPicture | None:
    """The process's tree for people who watch: the ``limit`` uppermost nodes, and those at work or waiting for somebody
    with the way up from each. What is left out is counted at its parent. ``None``: there is no such process."""
    rows = database.statement(_TREE, {"process": process_id, "limit": limit})
    if not rows:
        return None
    return PlanPicture(taken_at=rows[0][12], status=ProcessStatus(rows[0][13]), rows=tuple(_row(row) for row in rows))


def _row(row: Any) -> PlanRow:
    return PlanRow(
        id=row[0],
        parent_id=row[1],
        order_key=tuple(row[2]),
        kind=row[3],
        goal=row[4] or "",
        status=NodeStatus(row[5]),
        awaiting=row[6],
        phase=row[7],
        summary=row[8] or "",
        failure=row[9] or "",
        children=tuple((NodeStatus(status), number) for status, number in sorted((row[10] or {}).items())),
        item_id=row[11] if len(row) > 11 else None,
    )
