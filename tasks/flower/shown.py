"""What Flower's pages show of a task, and where they link to.

Workers tell what a task is about (``tasks.redaction``) as ids and names. Here they become a line for people, and
addresses in the console, which are made of numbers and UUIDs only: nothing a message holds becomes part of a page.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import flower  # type: ignore[import-untyped]
from tornado.template import DictLoader

_TEMPLATE = Path(__file__).with_name("task.html")
_THEIRS = Path(flower.__file__).with_name("templates")
_MAX_CHARS = 10_000
_CALLBACK = re.compile(r"\('([0-9a-f-]{36})', \.\.\.\)")
"""The arguments of a callback task, as ``tasks.delivery`` writes them."""


def templates() -> DictLoader:
    """Flower's templates, with a page of a task that has our links above it."""
    theirs = {path.name: path.read_text(encoding="utf-8") for path in _THEIRS.glob("*.html")}
    return DictLoader({**theirs, "flower-task.html": theirs["task.html"], "task.html": _TEMPLATE.read_text("utf-8")})


class Formatter:
    """Flower's ``format_task``: gets a copy of a task and may change what is shown of it."""

    def __init__(self, console_url: str | None) -> None:
        self._console = console_url.rstrip("/") if console_url else None

    def __call__(self, task: Any) -> Any:
        told = _read(task.kwargs)
        done = _read(task.result)
        if (callback := _CALLBACK.fullmatch(str(task.args))) is not None:
            told = {"process": callback[1]}
        task.console_links = self.links({**told, **done})
        if told:
            task.args, task.kwargs = "", _line(told)
        if done:
            # A list has room for a beginning: what is new comes first, the long id last.
            new = {key: value for key, value in done.items() if key not in told and key != "process"}
            task.result = _line({**new, **{key: done[key] for key in ("process",) if key in done}})
        return task

    def links(self, told: dict[str, Any]) -> list[tuple[str, str]]:
        """Label and address of each page of the console that shows more of it; none when its address is unknown."""
        if self._console is None:
            return []
        process, node, item = _uuid(told.get("process")), _number(told.get("node")), _number(told.get("item"))
        found = []
        if process is not None:
            found.append((f"Process {process}", f"{self._console}/processes/{process}"))
        elif node is not None:
            # A turn that has not ended knows its node alone; the console knows the rest.
            found.append(("Process", f"{self._console}/nodes/{node}/process"))
        if node is not None:
            found.append((f"Node {node}", f"{self._console}/nodes/{node}"))
        if item is not None:
            found.append((f"Question {item}", f"{self._console}/inbox/{item}"))
        return found


def _read(shown: object) -> dict[str, Any]:
    """The dictionary of plain values that a worker wrote, or an empty one for anything else."""
    if not isinstance(shown, str) or len(shown) > _MAX_CHARS:
        return {}
    try:
        value = ast.literal_eval(shown)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return {}
    return value if isinstance(value, dict) else {}


def _line(told: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in told.items())


def _uuid(value: object) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else None
