"""The plan of a job as a tree for people: who does what, and how far it is."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any
from uuid import UUID

import click
from rich.text import Text
from rich.tree import Tree

from engines.marvin.payload import PlanNodePayload, PlanPayload
from models.store.database import Database, DatabaseUnavailable
from tasks.cli.output import json_option, out, plain, print_json
from tasks.cli.store import known_status, open_database, process_id
from tasks.plans import picture

MAX_LINES = 60
"""More nodes than a screen holds are counted instead."""
_NODES = 500
_SILENCE_SECONDS = 2.0
"""Without a picture on the channel for so long the plan is read from the store: pub/sub may lose one."""
_SIGNS = {
    "pending": ("○", "dim"),
    "running": ("▶", "cyan"),
    "waiting": ("…", "yellow"),
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("-", "dim"),
}


@click.command("plan")
@click.argument("identity", metavar="ID")
@json_option
def plan(identity: str, as_json: bool) -> None:
    """The plan of one job as it is now: its tasks, their subtasks, and how far each is.

    Of a large plan the upper levels are shown, and every place where work is going on or a person is waited for.
    """
    database = open_database()
    process = process_id(database, identity)
    known_status(database, process)
    found = picture(database, process, limit=_NODES)
    payload: PlanPayload = found["plan"] if found else {"rootNode": None}
    if as_json:
        print_json(payload)
        return
    tree = plan_tree(payload, lines=10 * _NODES)
    out().print(Text("this job is a single task") if tree is None else tree)


class Plan:
    """The job's tree: as the channel shows it, and as the store has it at the start, after a silence and at the end."""

    def __init__(self, database: Database, process_id: UUID) -> None:
        self._database = database
        self._process = process_id
        self._payload: PlanPayload = {"rootNode": None}
        self._taken_at: datetime | None = None
        self._read_at = 0.0

    def see(self, event: dict[str, Any]) -> None:
        """Take in an event of the channel, if it is a newer picture of this job's plan."""
        if (
            event.get("kind") == "plan"
            and event.get("process") == str(self._process)
            and {"emittedAt", "plan"} <= set(event)
        ):
            self._take(event)

    def touch(self) -> None:
        """Read it from the store next time."""
        self._read_at = 0.0

    def tree(self, *, lines: int = MAX_LINES) -> Tree | None:
        """The tree as last seen; ``None`` for a job that is a single task."""
        if time.monotonic() >= self._read_at:
            self._read_at = time.monotonic() + _SILENCE_SECONDS
            try:
                found = picture(self._database, self._process)
            except DatabaseUnavailable:
                found = None  # the view's remark says so
            if found is not None:
                self._take(found)
        return plan_tree(self._payload, lines=lines)

    def _take(self, event: dict[str, Any]) -> None:
        taken_at = datetime.fromisoformat(event["emittedAt"])
        if self._taken_at is None or taken_at >= self._taken_at:
            self._taken_at, self._payload = taken_at, event["plan"]
            self._read_at = time.monotonic() + _SILENCE_SECONDS


def plan_tree(payload: PlanPayload, *, lines: int = MAX_LINES) -> Tree | None:
    """The payload as a tree of at most ``lines`` nodes; ``None`` for a job that is one node only."""
    root = payload["rootNode"]
    if root is None or not (root["children"] or root["meta"].get("hidden")):
        return None
    tree = Tree(_line(root))
    todo = [(root, tree)]
    left = lines
    while todo:
        node, branch = todo.pop(0)
        children = node["children"] or []
        shown = children[: max(left, 0)]
        left -= len(shown)
        todo += [(child, branch.add(_line(child))) for child in shown]
        more = len(children) - len(shown) + sum(node["meta"].get("hidden", {}).values())
        if more:
            branch.add(Text(f"and {more} more", style="dim"))
    return tree


def _line(node: PlanNodePayload) -> Text:
    meta = node["meta"]
    sign, style = _SIGNS.get(node["status"], ("?", "dim"))
    line = Text(f"{sign} ", style=style)
    line.append(plain(node["title"]), style="")
    if meta.get("awaiting"):
        line.append("  waits for its subtasks", style="dim")
    elif meta.get("inboxItemId"):
        line.append(f"  waits for an answer: inbox item {plain(meta['inboxItemId'])}", style="yellow")
    elif node["status"] in ("running", "waiting"):
        line.append(f"  {plain(meta.get('phase', ''))}", style="dim")
    elif node["status"] == "failed":
        line.append(f"  {' '.join(plain(meta.get('failureReason', '')).split())[:120]}", style="red")
    return line
