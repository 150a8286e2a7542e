"""What must be true of a tree plan that is over: the tables against the plan, claim by claim (``treeplan``).

Each claim's finding is a list of the rows that break it; an empty list is the proof. ``portrait`` is everything that a
tree has left behind, without what differs from run to run: two runs of one plan have the same.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import Any
from uuid import UUID

import psycopg
from treeplan import EXPAND, LOOKUP, QUESTION, TreePlan, answer_to, conclusion, fact, usage_of

Rows = list[tuple[Any, ...]]

_NODES = """
WITH RECURSIVE tree AS (
  SELECT id, '0' AS place FROM nodes WHERE process_id = %(root)s AND parent_id IS NULL
  UNION ALL
  SELECT n.id, tree.place || '-' || array_to_string(n.order_key, '.') FROM nodes n JOIN tree ON n.parent_id = tree.id
)
SELECT tree.place, n.id, n.goal, n.kind, n.status, n.turn FROM nodes n JOIN tree ON tree.id = n.id
"""
_CHILD_FIRST = """
SELECT parent.id, child.id FROM nodes child JOIN nodes parent ON parent.id = child.parent_id
 WHERE child.process_id = %(root)s AND """
_STRUCTURE: dict[str, str] = {
    "no parent concluded before its subtree": f"""{_CHILD_FIRST} (parent.settled_at < child.settled_at
      OR EXISTS (SELECT 1 FROM phase_records r WHERE r.node_id = parent.id AND r.created_at < child.settled_at
                    AND r.phase IN ('CONCLUDE', 'VALIDATE')))""",
    "no child runs before its parent has created it": f"{_CHILD_FIRST} child.started_at < parent.started_at",
    "children of a sequential node do not overlap": """
        SELECT a.id, b.id FROM nodes a JOIN nodes b ON b.parent_id = a.parent_id AND b.order_key > a.order_key
          JOIN nodes parent ON parent.id = a.parent_id AND parent.child_mode = 'SEQUENTIAL'
         WHERE a.process_id = %(root)s AND b.started_at < a.settled_at""",
    "one prompt and one result in the history of each process": """
        SELECT p.id, count(*) FILTER (WHERE m.kind = 'prompt'), count(*) FILTER (WHERE m.kind = 'result')
          FROM processes p LEFT JOIN messages m ON m.process_id = p.id WHERE p.root_id = %(root)s GROUP BY p.id
        HAVING count(*) FILTER (WHERE m.kind = 'prompt') <> 1 OR count(*) FILTER (WHERE m.kind = 'result') <> 1""",
    "the money spent is the sum of the ledger": """
        SELECT p.used_calls, l.calls, p.used_tokens, l.tokens, p.used_cost_usd, l.cost FROM processes p, (
          SELECT count(*) AS calls, sum(input_tokens + output_tokens) AS tokens, sum(cost_usd) AS cost
            FROM llm_calls WHERE root_id = %(root)s) l
         WHERE p.id = %(root)s AND (p.used_calls, p.used_tokens, p.used_cost_usd)
            IS DISTINCT FROM (l.calls::int, l.tokens::bigint, l.cost)""",
}  # fmt: skip


class TreeProof:
    """The tables of one closed tree, held against its plan."""

    def __init__(self, database_url: str, root: UUID, plan: TreePlan) -> None:
        self._url = database_url
        self._root = root
        self._plan = plan

    def rows(self, query: str) -> Rows:
        with psycopg.connect(self._url, autocommit=True) as connection:
            return connection.execute(query, {"root": self._root}).fetchall()  # type: ignore[call-overload,no-any-return]

    def broken(self) -> dict[str, list[Any]]:
        """The claims that do not hold, each with some of what breaks it."""
        found = {claim: check() for claim, check in self.claims.items()}
        return {claim: rows[:5] for claim, rows in found.items() if rows}

    @property
    def claims(self) -> dict[str, Callable[[], list[Any]]]:
        structure = {claim: lambda query=query: self.rows(query) for claim, query in _STRUCTURE.items()}
        return {
            "the root's report counts every node": self._report,
            "exactly the planned nodes, each once, in its place, ended as planned": self._nodes,
            **structure,
            "each node took the planned turns, each once, without a gap": self._turns,
            "each node has its own result once": self._artifacts,
            "each document was written by whom it should be, each version once": self._documents,
            "each result has one draft": self._drafts,
            "one sub-process for each call, answered and read once": self._sub_processes,
            "each question was asked once and has the one answer": self._questions,
            "each planned call is in the ledger once, with the provider's tokens": self._ledger,
        }

    @cached_property
    def nodes(self) -> dict[int, str]:
        """The plan's goal of each node, by node id. The root keeps its goal in the process."""
        return {row[1]: row[2] or self._plan.root.goal for row in self.rows(_NODES)}

    def _report(self) -> list[Any]:
        rows = self.rows(
            "SELECT p.status, p.close_reason, p.node_count, r.wrapper FROM processes p"
            " LEFT JOIN results r ON r.process_id = p.id WHERE p.id = %(root)s"
        )
        (status, reason, count, wrapper) = rows[0] if rows else (None, None, None, None)
        size, report = self._plan.root.size, str((wrapper or {}).get("result", "")).partition("\n")[0]
        right = conclusion(size, self._plan.root.facts)
        ok = (status, reason, count, (wrapper or {}).get("nodeCount")) == ("CLOSED", "DONE", size, size)
        return [] if ok and report == right else [(status, reason, count, report, wrapper)]

    def _nodes(self) -> list[Any]:
        planned = [(task.place, task.goal, task.kind, task.status) for task in self._plan.tasks.values()]
        found = [(row[0], self.nodes[row[1]], row[3], row[4]) for row in self.rows(_NODES)]
        return _differences(planned, found)

    def _turns(self) -> list[Any]:
        found = defaultdict(list)
        for node, *turn in self.rows(
            "SELECT r.node_id, r.turn, r.phase, r.iteration, r.reason FROM phase_records r"
            " JOIN nodes n ON n.id = r.node_id WHERE n.process_id = %(root)s ORDER BY r.node_id, r.turn"
        ):
            found[self.nodes[node]].append(tuple(turn))
        wrong = []
        for goal, task in self._plan.tasks.items():
            turns = enumerate(self._plan.turns(task), start=1)
            planned = [(number, turn.phase, turn.iteration, turn.reason) for number, turn in turns]
            if found[goal] != planned:
                wrong.append((goal, found[goal], planned))
        return wrong

    def _artifacts(self) -> list[Any]:
        planned: list[Any] = []
        for task in self._plan.tasks.values():
            if task.kind == QUESTION and not task.undecided:
                planned.append((task.goal, answer_to(task.goal)["value"]["text"]))
            elif task.result is not None:
                planned.append((task.goal, task.result))
        expands = {task.goal for task in self._plan.tasks.values() if task.kind == EXPAND}
        found = [
            (self.nodes[node], content)
            for node, content in self.rows(
                "SELECT a.node_id, a.content FROM artifacts a JOIN nodes n ON n.id = a.node_id"
                " WHERE n.process_id = %(root)s AND a.key = 'result'"
            )
        ]
        # What a document's node hands on are its children's results, which are here as well.
        handed_on = [goal for goal, _ in found if goal in expands]
        return _differences(planned, [row for row in found if row[0] not in expands]) + _differences(expands, handed_on)

    def _documents(self) -> list[Any]:
        planned = [(path, task.goal) for task in self._plan.tasks.values() for path in task.writes if task.result]
        planned += [(path, None) for path in self._plan.documents]
        rows = self.rows(
            "SELECT d.path, v.node_id, v.version, d.version FROM documents d"
            " JOIN document_versions v ON v.document_id = d.id JOIN processes p ON p.id = %(root)s"
            " WHERE d.project = p.project AND NOT starts_with(d.path, '_marvin-drafts/')"
        )
        versions = defaultdict(list)
        for path, _, version, newest in rows:
            versions[path, newest].append(version)
        gaps = [each for each in versions.items() if sorted(each[1]) != list(range(1, each[0][1] + 1))]
        found = [(path, None if node is None else self.nodes.get(node)) for path, node, _, _ in rows]
        return _differences(planned, found) + gaps

    def _drafts(self) -> list[Any]:
        planned = [(task.place, task.goal, 1) for task in self._plan.tasks.values() if task.result is not None]
        rows = self.rows(
            "SELECT path, node_id, version FROM documents"
            " WHERE starts_with(path, '_marvin-drafts/' || %(root)s::uuid || '/')"
        )
        found = [
            (path.rpartition("/")[2].partition("__")[0], self.nodes.get(node), version) for path, node, version in rows
        ]
        return _differences(planned, found)

    def _sub_processes(self) -> list[Any]:
        planned = [
            (task.goal, str(number), LOOKUP, "DONE", {"fact": fact(task.goal, number)}, 1)
            for task in self._plan.tasks.values()
            for number in range(task.calls)
        ]
        rows = self.rows(
            "SELECT p.parent_node_id, p.parent_key, p.recipe_name, p.close_reason, r.wrapper -> 'data',"
            " (SELECT count(*) FROM messages m WHERE m.node_id = p.parent_node_id AND m.kind = 'recipe_reply'"
            "    AND strpos(m.content, r.wrapper #>> '{data,fact}') > 0)"
            " FROM processes p LEFT JOIN results r ON r.process_id = p.id"
            " WHERE p.root_id = %(root)s AND p.id <> p.root_id"
        )
        return _differences(planned, [(self.nodes.get(node), *rest) for node, *rest in rows])

    def _questions(self) -> list[Any]:
        planned = [
            (task.goal, task.goal, "ANSWERED", answer_to(task.goal), "USER")
            for task in self._plan.tasks.values()
            if task.kind == QUESTION
        ]
        rows = self.rows(
            "SELECT node_id, title, status, answer, resolved_by FROM inbox_items WHERE process_id = %(root)s"
        )
        return _differences(planned, [(self.nodes.get(node), *rest) for node, *rest in rows])

    def _ledger(self) -> list[Any]:
        planned = []
        for key in self._plan.calls:
            usage = usage_of(key)
            planned.append((key, usage["input"], usage["output"], None))
        return _differences(planned, [(key, *figures) for key, *figures in self.ledger()])

    def ledger(self) -> list[tuple[Any, ...]]:
        """``(key, input tokens, output tokens, kind of error)`` of every row of the ledger."""
        rows = self.rows(
            "SELECT c.node_id, p.parent_node_id, p.parent_key, r.phase, r.iteration, c.attempt, c.input_tokens,"
            " c.output_tokens, c.error_kind FROM llm_calls c JOIN processes p ON p.id = c.process_id"
            " LEFT JOIN phase_records r ON r.node_id = c.node_id AND r.turn = c.turn WHERE c.root_id = %(root)s"
        )
        found = []
        for node, caller, number, phase, iteration, attempt, *figures in rows:
            called = caller is not None
            goal = self.nodes.get(caller if called else node)
            key: tuple[Any, ...] = (goal, phase, int(number) if called else iteration, attempt)
            found.append((key, *figures))
        return found

    def asked_by(self) -> dict[int, str]:
        """The goal whose calls a node makes, by node id, the nodes of sub-processes included."""
        rows = self.rows(
            "SELECT n.id, p.parent_node_id FROM nodes n JOIN processes p ON p.id = n.process_id"
            " WHERE p.root_id = %(root)s AND p.id <> p.root_id"
        )
        return {**self.nodes, **{node: self.nodes[caller] for node, caller in rows}}


def _differences(planned: Any, found: Any) -> list[Any]:
    """What is missing and what is too much, compared as multisets; objects whatever the order of their keys."""
    wanted, there = (Counter(json.dumps(row, sort_keys=True) for row in rows) for rows in (planned, found))
    missing = [("missing", each) for each in (wanted - there).elements()]
    return missing + [("too much", each) for each in (there - wanted).elements()]


# --- portraits --------------------------------------------------------------------------------------------------------

_WHERE = "JOIN places t ON t.id = {0}.node_id"
_PLACES = """
WITH RECURSIVE places AS (
  SELECT n.id, '0' AS place FROM nodes n WHERE n.process_id = %(root)s AND n.parent_id IS NULL
  UNION ALL
  SELECT n.id, places.place || coalesce('-' || array_to_string(nullif(n.order_key, '{}'), '.'), '/' || p.parent_key)
    FROM places, nodes n JOIN processes p ON p.id = n.process_id
   WHERE n.parent_id = places.id OR (n.parent_id IS NULL AND p.parent_node_id = places.id)
)
"""
_PORTRAIT: dict[str, str] = {
    "processes": """
        SELECT t.place, p.status, p.close_reason, p.node_count, p.used_calls, p.used_tokens, p.used_cost_usd, r.wrapper
          FROM places t JOIN nodes n ON n.id = t.id AND n.parent_id IS NULL JOIN processes p ON p.id = n.process_id
          LEFT JOIN results r ON r.process_id = p.id""",
    "nodes": """
        SELECT t.place, n.goal, n.kind, n.status, n.phase, n.turn, n.failure, n.child_mode, n.depth, n.spawned_calls,
               n.cursor FROM places t JOIN nodes n ON n.id = t.id""",
    "artifacts": f"""
        SELECT t.place, a.key, CASE WHEN a.key <> 'awaitingUserInputNode' THEN a.content END
          FROM artifacts a {_WHERE.format('a')}""",
    "turns": f"""
        SELECT t.place, r.turn, r.phase, r.iteration, r.reason, r.forced, r.output, r.model, r.tokens, r.cost_usd
          FROM phase_records r {_WHERE.format('r')}""",
    "calls": f"""
        SELECT t.place, c.turn, c.attempt, c.provider, c.model, c.error_kind, c.stop_reason, c.structured_path,
               c.input_tokens, c.output_tokens, c.cost_usd FROM llm_calls c {_WHERE.format('c')}""",
    "messages": f"SELECT t.place, m.role, m.kind, m.content FROM messages m {_WHERE.format('m')}",
    "questions": f"""
        SELECT t.place, i.type, i.criticality, i.title, i.body, i.payload, i.status, i.answer, i.answered_by,
               i.resolved_by FROM inbox_items i {_WHERE.format('i')}""",
    "documents": f"""
        SELECT d.path, t.place, v.kind, v.title, v.content
          FROM document_versions v JOIN documents d ON d.id = v.document_id {_WHERE.format('v')}""",
}  # fmt: skip
_PASSING = re.compile(
    r"(?:nodeId|rootNodeId|processId)\W{1,4}[\w-]+|completedAt\W{1,4}[\w:.+-]+|\[\w{8}\]|_marvin-drafts/[\w-]{36}"
)


def portrait(database_url: str, root: UUID) -> dict[str, list[str]]:
    """Every row that the tree has left, by table, in an order of its own: ids, times and random tokens are left out.

    Shared documents: which of their versions came first is chance, so versions are there without their number.
    """
    found = {}
    with psycopg.connect(database_url, autocommit=True) as connection:
        for table, query in _PORTRAIT.items():
            rows = connection.execute(_PLACES + query, {"root": root}).fetchall()  # type: ignore[call-overload]
            found[table] = sorted(_PASSING.sub("…", repr(row)) for row in rows)
    return found
