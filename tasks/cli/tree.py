"""The plan of a job as a tree for people: who does what, and how far it is."""

from __future__ import annotations

import click
from rich.text import Text
from rich.tree import Tree

from engines.marvin.payload import PlanNodePayload, PlanPayload
from tasks.cli.output import json_option, out, plain, print_json
from tasks.cli.store import known_status, open_database, process_id
from tasks.plans import picture

MAX_LINES = 60
"""More nodes than a screen holds are counted instead."""
_NODES = 500
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
