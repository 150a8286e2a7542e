"""What a Marvin process hands back: the root's result first, then what failed on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engines.marvin.material import ChildResult, cut

CHILD_CHARS = 20_000
GOAL_CHARS = 200
MAX_FAILED = 50


def report_text(result: str, children: Sequence[ChildResult]) -> str:
    """The result, and below it the root's subtasks that failed, with their reasons."""
    failed = [child for child in children if child.status == "FAILED"]
    if not failed:
        return result
    lines = [f"- {child.label} {_goal(child)}: {_one_line(child.text) or 'no reason'}" for child in failed[:MAX_FAILED]]
    if len(failed) > MAX_FAILED:
        lines.append(f"- and {len(failed) - MAX_FAILED} more")
    return "\n".join((result.rstrip(), "", "## Subtasks that failed", "", *lines))


def collected(children: Sequence[ChildResult], left_out: int = 0) -> str:
    """The results of children one after the other under the line "N of M succeeded"; empty without children.

    left_out: how many more there are, whose results were not read.
    """
    if not children:
        return ""
    done = sum(child.status == "DONE" for child in children)
    more = f"; {left_out:,} more children are not shown here" if left_out else ""
    parts = [f"{done} of {len(children)} succeeded{more}"]
    for child in children:
        text = cut(child.text, CHILD_CHARS, "the child node", child.whole_chars) or "(no result)"
        told = text if child.status == "DONE" else f"{child.status}: {text}"
        parts.append(f"## {child.label} {_goal(child)}\n\n{told}")
    return "\n\n".join(parts)


def success_wrapper(
    result: str,
    children: Sequence[ChildResult],
    *,
    failed: int,
    root_node: int,
    node_count: int,
    warning: str | None,
    documents: Sequence[str],
) -> dict[str, Any]:
    """The result of a process whose root is DONE. ``forced`` and ``warning`` say that a limit decided.

    failed: how many children failed, also of those that were not read.
    """
    wrapper: dict[str, Any] = {"success": True, "result": report_text(result, children)}
    if warning is not None:
        wrapper |= {"forced": True, "warning": warning}
    return wrapper | {"documents": list(documents)} | _figures(failed, root_node, node_count)


def failure_wrapper(
    error: str,
    message: str,
    children: Sequence[ChildResult],
    *,
    left_out: int = 0,
    failed: int,
    root_node: int,
    node_count: int,
) -> dict[str, Any]:
    """The result of a process whose root is FAILED: why, and what its children had by then as ``partial``.

    left_out: how many more children there are, whose results were not read; ``failed`` counts those among them too.
    """
    wrapper: dict[str, Any] = {"success": False, "error": error, "message": message}
    partial = collected(children, left_out)
    if partial:
        wrapper["partial"] = partial
    return wrapper | _figures(failed, root_node, node_count)


def _figures(failed: int, root_node: int, node_count: int) -> dict[str, Any]:
    return {"rootNodeId": str(root_node), "nodeCount": node_count, "failedChildren": failed}


def _goal(child: ChildResult) -> str:
    goal = _one_line(child.goal)
    return goal if len(goal) <= GOAL_CHARS else f"{goal[: GOAL_CHARS - 1]}…"


def _one_line(text: str) -> str:
    return " ".join(text.split())
