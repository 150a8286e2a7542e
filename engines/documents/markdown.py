"""Lists and trees in Markdown. What is no entry and continues none is dropped."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engines.documents.errors import DocumentError, Problem
from engines.documents.lines import Line, LineKind, scan
from engines.documents.model import Branch, Item

MAX_TREE_DEPTH = 30
_INDENT = 2
_ROOT = re.compile(r"root(?:\(\((?P<round>.*)\)\)|\[(?P<square>.*)\]|\((?P<soft>.*)\))\Z")


def read_list(body: str) -> tuple[Item, ...]:
    """Bullets at the left margin; indented lines right below one continue it, indented bullets included."""
    entries: list[list[str]] = []
    open_entry: list[str] | None = None
    for line in scan(body):
        if line.kind is LineKind.BULLET and line.indent == 0:
            open_entry = [line.text]
            entries.append(open_entry)
        elif line.kind is not LineKind.BLANK and line.indent >= _INDENT and open_entry is not None:
            open_entry.append(_continued(line))
        else:
            open_entry = None
    return tuple(Item(text=text) for entry in entries if (text := "\n".join(entry).strip()))


def _continued(line: Line) -> str:
    return f"- {line.text}" if line.kind is LineKind.BULLET else line.text


@dataclass(slots=True)
class _Node:
    level: int
    lines: list[str]
    children: list[_Node] = field(default_factory=list)


def read_tree(body: str) -> tuple[Branch, ...]:
    """Bullets nested by indent; without any bullet, every line is an entry."""
    lines = list(scan(body))
    bullets = any(line.kind is LineKind.BULLET for line in lines)
    entry_kind = LineKind.BULLET if bullets else LineKind.TEXT
    top = _Node(-1, [])
    path = [top]
    following = False
    for line in lines:
        if line.kind is entry_kind:
            _enter(path, line)
            if len(path) - 1 > MAX_TREE_DEPTH:
                raise DocumentError(Problem.TOO_DEEP, f"the tree has more than {MAX_TREE_DEPTH} levels")
            following = True
        elif following and line.kind is not LineKind.BLANK and bullets and line.indent >= (len(path) - 1) * _INDENT:
            path[-1].lines.append(line.text)
        else:
            following = False
    roots = tuple(filter(None, map(_branch, top.children)))
    return roots if bullets else tuple(_bare_root(root) for root in roots)


def _enter(path: list[_Node], line: Line) -> None:
    """Hangs an entry under the nearest one before it that is indented less.

    For two spaces a level that is the level itself, and a jump of several levels counts as one. For wider indents the
    fixed rule would lose the way back up: after three levels of four spaces, four spaces must be level one again.
    """
    level = line.indent // _INDENT
    while path[-1].level >= level:
        path.pop()
    node = _Node(level, [line.text])
    path[-1].children.append(node)
    path.append(node)


def _branch(node: _Node) -> Branch | None:
    text = "\n".join(node.lines).strip()
    children = tuple(filter(None, map(_branch, node.children)))
    return Branch(text=text, children=children) if text or children else None


def _bare_root(root: Branch) -> Branch:
    found = _ROOT.match(root.text)
    if not found:
        return root
    text = next(group for group in found.groups() if group is not None).strip()
    return Branch(text=text, children=root.children)
