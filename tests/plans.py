"""Marvin processes for tests: a model that is a function of phase and goal, submissions with recipes of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from factory import broken_invariants, rows
from rig import Rig

from engines.llm.base import LlmRequest
from engines.llm.scripted import Script, ScriptedAnswer
from models.store import read
from models.store.database import Database
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare

Play = Callable[[str, str, LlmRequest], Any]
"""What the model answers in a phase (``answer`` for a jeltz recipe) to a goal (or to jeltz's prompt)."""

WEB_RESEARCH = """
description: |
  Looks things up.
engine: jeltz
params:
  model: scripted:scripted
schema:
  type: object
  required: [text]
  properties:
    text: {type: string}
"""


class Model(Script):
    """Asks a function for each answer and keeps what was asked."""

    def __init__(self, play: Play) -> None:
        super().__init__(keep=10_000)
        self.play = play
        self.asked: list[tuple[str, str]] = []

    def next(self, request: LlmRequest) -> ScriptedAnswer:
        phase, goal = request.schema_name.upper(), goal_of(request)
        with self._lock:
            self.requests.append(request)
            self.asked.append((phase, goal))
        return Script.of(self.play(phase, goal, request)).next(request)


class Stage:
    """Rigs whose model is a function. Close it."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._rigs: list[Rig] = []

    def __call__(self, play: Play, **options: Any) -> tuple[Rig, Model]:
        model = Model(play)
        self._rigs.append(Rig(self._url, script=model, **options))
        return self._rigs[-1], model

    def close(self) -> None:
        for rig in self._rigs:
            rig.close()


def goal_of(request: LlmRequest) -> str:
    text = user_text(request)
    found = re.search(r"<<< Goal \[\w+\]\n(.*?)\n\[\w+\] end >>>", text, re.DOTALL)
    return found[1] if found else text


def user_text(request: LlmRequest) -> str:
    """The message that holds the task: the first of the user."""
    return next(message.content for message in request.messages if message.role == "user")


def straight(result: str = "done", **conclusion: Any) -> Callable[[str], dict[str, Any]]:
    """The answers of a node that does its work by itself, by phase."""
    answers: dict[str, dict[str, Any]] = {
        "SCOPE": {"action": "PROCEED_TO_CONCLUDE", "reason": "small"},
        "POST_CHILDREN": {"action": "PROCEED_TO_CONCLUDE", "reason": "enough"},
        "REFLECT": {"action": "PROCEED_TO_CONCLUDE", "reason": "enough"},
        "CONCLUDE": {"result": result, "reason": "written", **conclusion},
        "VALIDATE": {"verdict": "PASS", "issues": [], "reason": "good"},
    }
    return answers.__getitem__


def subtasks(*goals: str | Mapping[str, Any]) -> dict[str, Any]:
    tasks = [goal if isinstance(goal, Mapping) else {"goal": goal, "taskKind": "WORKER"} for goal in goals]
    return {"action": "NEEDS_SUBTASKS", "newTasks": tasks, "reason": "falls into parts"}


def call(recipe: str, steer: str) -> dict[str, Any]:
    return {"action": "CALL_RECIPE", "recipeCall": {"recipe": recipe, "steerContent": steer}, "reason": "unknown"}


def submit_plan(
    rig: Rig,
    goal: str,
    *,
    recipes: Path | None = None,
    limits: dict[str, Any] | None = None,
    submitter: str | None = None,
    **params: Any,
) -> UUID:
    """Submit the bundled recipe as a caller would; ``recipes`` is the installation's folder of recipes."""
    settings = load_settings({} if recipes is None else {"VANCETOPE_RECIPES_DIR": str(recipes)})
    payload = {"recipe": "marvin", "goal": goal, "params": params, "limits": limits or {}, "owner": submitter}
    return rig.send(prepare(parse_submission(payload), settings, rig.engines))


def closed_plan(rig: Rig, process: UUID, reason: str = "DONE") -> dict[str, Any]:
    """The result of a closed process, checked against what must hold of every one."""
    found = read.status(rig.database, process)
    wrapper = rig.result(process)
    assert found is not None
    assert wrapper is not None, f"still open: {found}"
    assert (found["status"], found["close_reason"]) == ("CLOSED", reason), json.dumps(wrapper)[:2000]
    assert wrapper["success"] is (reason == "DONE")
    assert broken_invariants(rig.database) == {}
    counted = rows(
        rig.database,
        "SELECT node_count, (SELECT count(*) FROM nodes WHERE process_id = p.id) FROM processes p WHERE id = %(id)s",
        id=process,
    )[0]
    assert counted[0] == counted[1] == wrapper["nodeCount"]
    return wrapper


_PLAN_INVARIANTS = {
    "a process knows how many nodes it has": """
        SELECT id FROM processes p WHERE node_count <> (SELECT count(*) FROM nodes WHERE process_id = p.id)""",
    "no node settles before everything below it": """
        SELECT c.id FROM nodes c JOIN nodes parent ON parent.id = c.parent_id
         WHERE parent.settled_at < c.settled_at OR (parent.settled_at IS NOT NULL AND c.settled_at IS NULL)""",
    "each version of a document is there once, up to its own": """
        SELECT d.id FROM documents d LEFT JOIN document_versions v ON v.document_id = d.id
         GROUP BY d.id HAVING count(*) <> d.version OR max(v.version) <> d.version""",
    "every worker that is DONE has a result and a draft": """
        SELECT n.id FROM nodes n LEFT JOIN artifacts a ON a.node_id = n.id AND a.key = 'result'
         WHERE n.kind = 'WORKER' AND n.status = 'DONE' AND n.settled_at IS NOT NULL AND (a.node_id IS NULL
            OR NOT EXISTS (SELECT 1 FROM documents d
                            WHERE d.node_id = n.id AND starts_with(d.path, '_marvin-drafts/')))""",
    "a draft is written once": """
        SELECT id FROM documents WHERE starts_with(path, '_marvin-drafts/') AND version > 1""",
    "siblings are numbered without gaps": """
        SELECT parent_id FROM nodes WHERE parent_id IS NOT NULL
         GROUP BY parent_id HAVING max(order_key[1]) + 1 <> count(*)""",
    "a sequential parent's children do not overlap": """
        SELECT a.id FROM nodes a JOIN nodes b ON b.parent_id = a.parent_id AND b.order_key > a.order_key
          JOIN nodes parent ON parent.id = a.parent_id AND parent.child_mode = 'SEQUENTIAL'
         WHERE b.started_at < a.settled_at""",
}  # fmt: skip


def broken_plan_invariants(database: Database) -> dict[str, list[Any]]:
    """What does not hold of the tables, in addition to what must hold of all processes. Empty is good."""
    found = broken_invariants(database)
    for name, sql in _PLAN_INVARIANTS.items():
        wrong = [each[0] for each in rows(database, sql)]
        if wrong:
            found[name] = wrong
    return found


def nodes_of(rig: Rig, process: UUID) -> list[tuple[str, str, str]]:
    """``(goal, kind, status)`` of every node but the root, parents first, siblings in order."""
    found: list[tuple[str, str, str]] = rows(
        rig.database,
        "SELECT goal, kind, status FROM nodes WHERE process_id = %(id)s AND parent_id IS NOT NULL"
        " ORDER BY depth, parent_id, order_key",
        id=process,
    )  # type: ignore[assignment]
    return found
