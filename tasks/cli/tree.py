"""The plan of a job as a tree for people: who does what, and how far it is."""

from __future__ import annotations

import click
from rich.text import Text
from rich.tree import Tree

from engines.marvin.snapshot import plan_payload
from engines.marvin.surroundings import plan_nodes
from models.records import NodeStatus, PlanRow
from models.store import plan as store
from tasks.cli.output import json_option, out, plain, print_json
from tasks.cli.store import known_status, open_database, process_id

MAX_LINES = 60
"""More nodes than a screen holds are counted instead."""
_TITLE_CHARS = 90
_SIGNS = {
    NodeStatus.PENDING: ("○", "dim"),
    NodeStatus.RUNNING: ("▶", "cyan"),
    NodeStatus.WAITING: ("…", "yellow"),
    NodeStatus.DONE: ("✓", "green"),
    NodeStatus.FAILED: ("✗", "red"),
    NodeStatus.SKIPPED: ("-", "dim"),
}


@click.command("plan")
@click.argument("identity", metavar="ID")
@json_option
def plan(identity: str, as_json: bool) -> None:
    """The plan of one job as it is now: its tasks, their subtasks, and how far each is."""
    database = open_database()
    process = process_id(database, identity)
    known_status(database, process)
    rows = store.tree(database, process)
    if as_json:
        print_json(plan_payload(plan_nodes(rows)))
        return
    tree = plan_tree(rows, lines=len(rows))
    out().print(Text("this job is a single task") if tree is None else tree)


def plan_tree(rows: tuple[PlanRow, ...], *, lines: int = MAX_LINES) -> Tree | None:
    """The tree of ``models.store.plan.tree``; ``None`` for a job that is one node only."""
    if len(rows) < 2:
        return None
    below: dict[int | None, list[PlanRow]] = {}
    for row in rows:
        below.setdefault(row.parent_id, []).append(row)
    root = below[None][0]
    tree = Tree(_line(root))
    todo = [(root, tree)]
    left = lines
    while todo:
        row, branch = todo.pop(0)
        children = below.get(row.id, [])
        shown = children[: max(left, 0)]
        left -= len(shown)
        todo += [(child, branch.add(_line(child))) for child in shown]
        if len(shown) < len(children):
            branch.add(Text(f"and {len(children) - len(shown)} more", style="dim"))
    return tree


def _line(row: PlanRow) -> Text:
    status = NodeStatus.RUNNING if row.awaiting else row.status
    sign, style = _SIGNS[status]
    goal = " ".join(plain(row.goal).split())
    line = Text(f"{sign} ", style=style)
    line.append(goal if len(goal) <= _TITLE_CHARS else f"{goal[: _TITLE_CHARS - 1]}…", style="")
    if row.awaiting:
        line.append("  waits for its subtasks", style="dim")
    elif status in (NodeStatus.RUNNING, NodeStatus.WAITING, NodeStatus.PENDING):
        line.append(f"  {row.phase}" if status is not NodeStatus.PENDING else "", style="dim")
    elif status is NodeStatus.FAILED:
        line.append(f"  {' '.join(plain(row.failure).split())[:120]}", style="red")
    return line
