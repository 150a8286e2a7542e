"""The plan as text: what a model sees of the tree before it decides, in a frame, never over the limit.

Built from a bounded set of nodes (the path to the root, the siblings, the children, a line for each other branch); what
was not loaded is counted at the node above it. Goals and summaries are data: flattened to one line and rid of
everything that looks like the frame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from engines.marvin.payload import PlanNodePayload, PlanPayload
from engines.recipes.fence import flattened
from models.records import NodeStatus

LIMIT_CHARS: Final = 4_000
MIN_LIMIT_CHARS: Final = 500
TITLE_CHARS: Final = 80
SUMMARY_CHARS: Final = 200

_TOP: Final = "┌─ LIVE PLAN (current state — supersedes any earlier view) ───────┐"
_BOTTOM: Final = "└─ end of plan ───────────────────────────────────────────────────"
_SIDE: Final = "│ "
_HERE: Final = " [YOU ARE HERE]"
_DEEPEST_INDENT: Final = 39
"""Levels below are not indented any further."""
_WORDS: Final = {
    NodeStatus.PENDING: "planned",
    NodeStatus.RUNNING: "running",
    NodeStatus.WAITING: "waiting",
    NodeStatus.DONE: "DONE",
    NodeStatus.FAILED: "FAILED",
    NodeStatus.SKIPPED: "skipped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """One node as far as the plan shows it."""

    id: int
    parent_id: int | None
    order_key: tuple[int, ...] = ()
    goal: str = ""
    kind: str = "WORKER"
    status: NodeStatus = NodeStatus.PENDING
    awaiting: bool = False
    """DONE only in name: its children are at work."""
    phase: str = ""
    summary: str = ""
    """The beginning of its result (or of the answer it waited for)."""
    failure_reason: str = ""
    inbox_item_id: str | None = None
    index: int | None = None
    """Its place among all its siblings, from 1; ``None``: by order of those given (all of them, then)."""
    below: tuple[tuple[NodeStatus, int], ...] = ()
    """Descendants that were not loaded, counted by status."""

    @property
    def shown_status(self) -> NodeStatus:
        return NodeStatus.RUNNING if self.awaiting else self.status


def render_plan(nodes: Sequence[PlanNode], current_id: int | None, limit: int = LIMIT_CHARS) -> str:
    """The plan around ``current_id`` in at most ``limit`` characters (at least 500, else ``ValueError``).

    The current node is always there, and so is its path to the root (the middle of a path that would fill the limit by
    itself apart). Too much for the limit is left out in this order: the frame's right border, branches away from the
    current node, summaries, siblings and children far from it. What is left out is counted at the node above it.
    """
    if limit < MIN_LIMIT_CHARS:
        raise ValueError(f"a plan needs at least {MIN_LIMIT_CHARS} characters")
    tree = _Tree.of(nodes, current_id)
    if tree.root is None:
        return _framed(["(no plan yet)"], padded=True)
    everything = _lines(tree, _View(frozenset(tree.depth), frozenset(tree.depth)))
    for padded in (True, False):
        text = _framed(everything, padded=padded)
        if len(text) <= limit:
            return text
    return _pruned(tree, limit)


def plan_payload(nodes: Sequence[PlanNode]) -> PlanPayload:
    """The plan for the progress channel.

    ``children`` is ``None`` for a leaf. ``meta`` has ``position`` (from 0) and, where there is one, ``phase``,
    ``failureReason``, ``inboxItemId``, ``awaiting`` (its subtasks are at work), and ``hidden``: counts of descendants
    that were not loaded.
    """
    tree = _Tree.of(nodes, None)
    if tree.root is None:
        return {"rootNode": None}
    made: dict[int, PlanNodePayload] = {}
    for node in reversed(list(tree.walk())):  # children before their parents: no recursion, whatever the depth
        children = [made[child.id] for child in tree.children.get(node.id, ())]
        made[node.id] = {
            "id": str(node.id),
            "kind": node.kind.lower(),
            "title": flattened(node.goal, TITLE_CHARS),
            "status": node.shown_status.value.lower(),
            "children": children or None,
            "meta": _meta(node, tree.position[node.id]),
        }
    return {"rootNode": made[tree.root.id]}


def plan_labels(nodes: Sequence[PlanNode], current_id: int | None) -> dict[int, str]:
    """The label of each node as the plan shows it: ``ROOT``, ``#1``, ``#1.2``."""
    return _Tree.of(nodes, current_id).label


def _meta(node: PlanNode, position: int) -> dict[str, Any]:
    meta: dict[str, Any] = {"position": position - 1}
    if node.phase:
        meta["phase"] = node.phase
    if node.failure_reason:
        meta["failureReason"] = flattened(node.failure_reason, SUMMARY_CHARS)
    if node.inbox_item_id is not None:
        meta["inboxItemId"] = node.inbox_item_id
    if node.awaiting:
        meta["awaiting"] = True
    if node.below:
        meta["hidden"] = {status.value.lower(): count for status, count in node.below}
    return meta


# --- the tree ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tree:
    """The nodes reachable from the root, with their places. Terminates on any parent pointers, cycles included."""

    root: PlanNode | None = None
    current: PlanNode | None = None
    path: tuple[PlanNode, ...] = ()
    """From the root to the current node."""
    children: dict[int, list[PlanNode]] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=dict)
    label: dict[int, str] = field(default_factory=dict)
    # What fits is found by trying: a line is put together once, however many views it is shown in.
    _lines: dict[tuple[int, bool, int], str] = field(default_factory=dict)
    _seconds: dict[int, str] = field(default_factory=dict)

    def line(self, node: PlanNode, *, bare: bool, title_chars: int) -> str:
        """The node's line without the counts of what is hidden below it. bare: without status and title."""
        found = self._lines.get((node.id, bare, title_chars))
        if found is None:
            status = "" if bare else f" ({_WORDS[node.shown_status]})"
            goal = "" if bare else flattened(node.goal, title_chars)
            title = f" — {goal}" if goal else ""
            here = _HERE if self.current is not None and node.id == self.current.id else ""
            found = f"{' ' * _indent(self.depth[node.id])}{self.label[node.id]}{status}{title}{here}"
            self._lines[node.id, bare, title_chars] = found
        return found

    def second_line(self, node: PlanNode) -> str:
        """What became of the node; empty while there is nothing to say."""
        found = self._seconds.get(node.id)
        if found is None:
            text = "" if self.current is not None and node.id == self.current.id else _second_line(node)
            found = f"{' ' * _summary_indent(self.depth[node.id])}└ {text}" if text else ""
            self._seconds[node.id] = found
        return found

    @classmethod
    def of(cls, nodes: Sequence[PlanNode], current_id: int | None) -> _Tree:
        by_id = {node.id: node for node in nodes}
        path = _path(by_id, current_id)
        tops = [node for node in by_id.values() if node.parent_id not in by_id]
        root = path[0] if path else min(tops, key=_order, default=None)
        tree = cls(root=root, current=path[-1] if path else None, path=path)
        if root is not None:
            tree._place(root, by_id)
        return tree

    def _place(self, root: PlanNode, by_id: dict[int, PlanNode]) -> None:
        below: dict[int, list[PlanNode]] = {}
        for node in sorted(by_id.values(), key=_order):
            if node.parent_id is not None and node.id != root.id:
                below.setdefault(node.parent_id, []).append(node)
        self.depth, self.position, self.label = {root.id: 0}, {root.id: root.index or 1}, {root.id: "ROOT"}
        todo = [root]
        while todo:
            parent = todo.pop()
            # Each node has one parent and the root has none here, so no walk down comes back to where it was.
            children = self.children[parent.id] = below.get(parent.id, [])
            above = "#" if parent is root else f"{self.label[parent.id]}."
            for place, child in enumerate(children, start=1):
                self.depth[child.id] = self.depth[parent.id] + 1
                self.position[child.id] = child.index or place
                self.label[child.id] = f"{above}{self.position[child.id]}"
            todo += children

    def walk(self, start: PlanNode | None = None) -> Iterator[PlanNode]:
        """``start`` (the root) and everything below it, parents first, siblings in order."""
        first = start or self.root
        todo = [first] if first is not None else []
        while todo:
            node = todo.pop()
            yield node
            todo += reversed(self.children.get(node.id, ()))


def _path(by_id: dict[int, PlanNode], current_id: int | None) -> tuple[PlanNode, ...]:
    """From the topmost known ancestor down to the current node; a cycle is cut where it closes."""
    path: list[PlanNode] = []
    seen: set[int] = set()
    at = current_id
    while at is not None and at in by_id and at not in seen:
        seen.add(at)
        path.append(by_id[at])
        at = by_id[at].parent_id
    return tuple(reversed(path))


def _order(node: PlanNode) -> tuple[tuple[int, ...], int]:
    return node.order_key, node.id


# --- the text ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _View:
    """What is shown: the ids of nodes with a line, with a second line, and without a title; how long titles may be."""

    shown: frozenset[int]
    summaries: frozenset[int]
    bare: frozenset[int] = frozenset()
    title_chars: int = TITLE_CHARS
    counts: bool = True


def _lines(tree: _Tree, view: _View) -> list[str]:
    lines: list[str] = []
    for node in _shown_nodes(tree, view.shown):
        is_leaf = not node.below and not tree.children.get(node.id)
        counts = "" if is_leaf or not view.counts else _counts(_hidden(tree, node, view.shown))
        # A branch far away is a label and its counts.
        is_bare = node.id in view.bare
        line = tree.line(node, bare=is_bare, title_chars=view.title_chars)
        lines.append(f"{line}{counts}" if counts or not is_bare else f"{line} ({_WORDS[node.shown_status]})")
        if node.id in view.summaries and (second := tree.second_line(node)):
            lines.append(second)
    return lines


def _shown_nodes(tree: _Tree, shown: Collection[int]) -> Iterator[PlanNode]:
    return (node for node in tree.walk() if node.id in shown)


def _indent(depth: int) -> int:
    return min(2 + 5 * (depth - 1), _DEEPEST_INDENT) if depth else 0


def _summary_indent(depth: int) -> int:
    return _indent(depth) + 5


def _second_line(node: PlanNode) -> str:
    status = node.shown_status
    text = node.summary if status is NodeStatus.DONE else node.failure_reason if status is NodeStatus.FAILED else ""
    return flattened(text, SUMMARY_CHARS)


def _hidden(tree: _Tree, node: PlanNode, shown: Collection[int]) -> Counter[NodeStatus]:
    """Descendants without a line of their own whose nearest shown ancestor is ``node``."""
    counts = Counter(dict(node.below))
    todo = [child for child in tree.children.get(node.id, ()) if child.id not in shown]
    while todo:
        hidden = todo.pop()
        counts[hidden.shown_status] += 1
        if hidden.below:
            counts.update(dict(hidden.below))
        todo += [child for child in tree.children.get(hidden.id, ()) if child.id not in shown]
    return counts


def _counts(counts: Counter[NodeStatus]) -> str:
    total = sum(counts.values())
    if not total:
        return ""
    order = (NodeStatus.DONE, NodeStatus.FAILED, NodeStatus.RUNNING, NodeStatus.WAITING, NodeStatus.PENDING)
    parts = [f"{counts[status]} {_WORDS[status]}" for status in (*order, NodeStatus.SKIPPED) if counts[status]]
    return f" (+ {total} subtask{'' if total == 1 else 's'}, {', '.join(parts)})"


def _framed(lines: Iterable[str], *, padded: bool) -> str:
    inner = len(_TOP) - 3
    body = [f"{_SIDE}{line:<{inner}}│" if padded else f"{_SIDE}{line}" for line in lines]
    return "\n".join((_TOP, *body, _BOTTOM))


# --- pruning ----------------------------------------------------------------------------------------------------------


def _pruned(tree: _Tree, limit: int) -> str:
    """The fullest of ever smaller views that fits."""
    path = frozenset(node.id for node in tree.path) or frozenset(node.id for node in (tree.root,) if node)
    near, far = _near(tree), _far(tree)
    shown = path | set(near) | set(far)
    # The whole tree has been tried.
    views = [frozenset[int]()] if len(shown) < len(tree.depth) else []
    for bare in (*views, frozenset(far)) if far else views:
        text = _framed(_lines(tree, _View(shown, path | set(near), bare)), padded=False)
        if len(text) <= limit:
            return text
    return _fitting(tree, path, near, far, limit) or _only_path(tree, limit)


def _near(tree: _Tree) -> list[int]:
    """The current node's children and siblings, the closest first."""
    if tree.current is None:
        return [child.id for child in tree.children.get(tree.root.id, ())] if tree.root else []
    own = [child.id for child in tree.children.get(tree.current.id, ())]
    siblings = tree.children.get(tree.path[-2].id, []) if len(tree.path) > 1 else []
    here = tree.position[tree.current.id]
    others = [sibling for sibling in siblings if sibling.id != tree.current.id]
    return own + [node.id for node in sorted(others, key=lambda node: abs(tree.position[node.id] - here))]


def _far(tree: _Tree) -> list[int]:
    """The other children of all ancestors above the parent: one line for each branch away, the closest level first."""
    on_path = {node.id for node in tree.path}
    above = reversed(tree.path[:-2])
    return [child.id for node in above for child in tree.children.get(node.id, ()) if child.id not in on_path]


def _fitting(tree: _Tree, path: frozenset[int], near: list[int], far: list[int], limit: int) -> str | None:
    """Lines come before summaries: knowing that a neighbour exists is what keeps a node in its lane."""
    options = [(number, False) for number in (*near, *far)] + [(number, True) for number in near]
    far_ids = frozenset(far)

    def text(count: int) -> str:
        chosen = options[:count]
        shown = path | {number for number, second in chosen if not second}
        summaries = frozenset(number for number, second in chosen if second)
        return _framed(_lines(tree, _View(frozenset(shown), summaries, far_ids)), padded=False)

    shortest = text(0)
    if len(shortest) > limit:
        return None
    # By the lines' own lengths the first try is close to the place: only the counts of what is hidden differ.
    nodes = {node.id: node for node in tree.walk()}
    added = (_length(tree, nodes[number], second, number in far_ids) for number, second in options)
    place = sum(length <= limit for length in accumulate(added, initial=len(shortest))) - 1
    probes = [place + 1, place]
    low, high, best = 0, len(options), shortest
    while low < high:
        middle = probes.pop() if probes else (low + high + 1) // 2
        if not low < middle <= high:
            continue
        tried = text(middle)
        if len(tried) <= limit:
            low, best = middle, tried
        else:
            high = middle - 1
    return best


def _length(tree: _Tree, node: PlanNode, second: bool, bare: bool) -> int:
    """What a node's line (or its ``second`` one) adds to a plan, the counts of what is hidden below it apart."""
    line = tree.second_line(node) if second else tree.line(node, bare=bare, title_chars=TITLE_CHARS)
    return len(f"{_SIDE}{line}\n") if line else 0


def _only_path(tree: _Tree, limit: int) -> str:
    """The path alone, with ever shorter titles; then without its middle."""
    path = tree.path or tuple(node for node in (tree.root,) if node)
    shown = frozenset(node.id for node in path)
    for title_chars, counts in ((TITLE_CHARS, True), (40, True), (16, True), (16, False)):
        lines = _lines(tree, _View(shown, frozenset(), title_chars=title_chars, counts=counts))
        text = _framed(lines, padded=False)
        if len(text) <= limit:
            return text
    lines = [line if len(line) <= 150 else f"{line.lstrip()[:60]}…{line[-80:]}" for line in lines]
    for kept in range(len(lines) - 2, 0, -1):
        shortened = [lines[0], f"… {len(lines) - 1 - kept} levels …", *lines[len(lines) - kept :]]
        text = _framed(shortened, padded=False)
        if len(text) <= limit:
            return text
    return _framed(lines[-1:], padded=False)
