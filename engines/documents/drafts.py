"""Drafts: the result of every concluded worker node as a Markdown file, for whoever wants to look inside a run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engines.recipes.filters import slug

DRAFT_FOLDER = "_marvin-drafts"
MAX_SLUG_CHARS = 60
MAX_LEVELS = 32
MAX_HISTORY = 50
ROOT_POSITION = "0"

_PROCESS = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}\Z")
_POSITION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:-[0-9]+(?:\.[0-9]+)*)*\Z")
# What YAML does not print or takes for a line end, although JSON writes it as it is.
_ESCAPED = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
_BROKEN = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLine:
    """One entry of the phase history, without what the model said."""

    phase: str
    iteration: int
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftNode:
    """A settled node, as it is *after* the turn that settled it: the draft shows the same counters as the node.

    ``position_path``: see :func:`child_position`.
    """

    process_id: str
    position_path: str
    node_id: str
    goal: str
    task_kind: str
    status: str
    current_phase: str
    result: str | None
    counters: Mapping[str, int] = field(default_factory=dict)
    history: Sequence[PhaseLine] = ()
    audit_warning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A document to write over whatever an earlier run of the node left there.

    time_at: where the time of the commit belongs in ``content``, as the value of ``completedAt``.
    """

    path: str
    title: str
    content: str
    time_at: int


def child_position(parent: str, order_key: Sequence[int]) -> str:
    """The position path of a node below ``parent`` (the root's own is ``ROOT_POSITION``).

    Made once, from the order key the node was created with, and kept. A sibling inserted later gets a longer key
    between its neighbours (``0-1.1``), so no path ever moves. Raises :class:`ValueError` for no or negative numbers and
    below 32 levels.
    """
    if not order_key or any(number < 0 for number in order_key):
        raise ValueError(f"an order key needs numbers from 0 up, found {list(order_key)}")
    if parent.count("-") + 2 > MAX_LEVELS:
        raise ValueError(f"a tree has at most {MAX_LEVELS} levels")
    return f"{parent}-{'.'.join(str(number) for number in order_key)}"


def draft_path(process_id: str, position_path: str, goal: str) -> str:
    """``_marvin-drafts/<processId>/<position-path>__<slug>.md``. Raises :class:`ValueError` for ids that are none."""
    if not _PROCESS.match(process_id) or not _POSITION.match(position_path):
        raise ValueError(f"no draft path for process {process_id!r} at {position_path!r}")
    return f"{DRAFT_FOLDER}/{process_id}/{position_path}__{slug(goal, MAX_SLUG_CHARS)}.md"


def draft_of(node: DraftNode) -> Draft | None:
    """The draft of a worker that is done with a result; ``None`` for every other node."""
    if node.task_kind != "WORKER" or node.status != "DONE" or not node.result or not node.result.strip():
        return None
    path = draft_path(node.process_id, node.position_path, node.goal)
    head = "\n".join(["---", *_fields(node), 'completedAt: "'])
    rest = ['"', *_history(node), "---", "", _BROKEN.sub("\ufffd", node.result)]
    content = head + "\n".join(rest)
    return Draft(path=path, title=_one_line(node.goal)[:80], content=content, time_at=len(head))


def _fields(node: DraftNode) -> list[str]:
    fields: dict[str, object] = {
        "nodeId": node.node_id,
        "processId": node.process_id,
        "position": node.position_path,
        "goal": node.goal,
        "taskKind": node.task_kind,
        "status": node.status,
        "currentPhase": node.current_phase,
        **dict(node.counters),
        "validatorAuditWarning": node.audit_warning,
    }
    return [f"{key}: {_scalar(value)}" for key, value in fields.items() if value is not None]


def _history(node: DraftNode) -> list[str]:
    lines = []
    shown = list(node.history)[-MAX_HISTORY:]
    if len(shown) < len(node.history):
        lines.append(f"phaseHistoryOmitted: {len(node.history) - len(shown)}")
    lines.append("phaseHistory:" if shown else "phaseHistory: []")
    for entry in shown:
        model = f", model: {_scalar(entry.model)}" if entry.model else ""
        lines.append(f"  - {{phase: {_scalar(entry.phase)}, iteration: {entry.iteration}{model}}}")
    return lines


def _scalar(value: object) -> str:
    """A value on one line that is both JSON and YAML, whatever is in it."""
    if isinstance(value, str):
        value = _BROKEN.sub("\ufffd", value)
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _one_line(text: str) -> str:
    return " ".join(_BROKEN.sub("\ufffd", text).split())
