"""What `run` shows on standard error while it waits."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from tasks.cli.output import err, plain, seconds
from tasks.cli.tree import Plan
from tasks.cli.wired import workers_answering

_SILENCES = (3.0, 15.0)
"""A job nobody has taken up after so many seconds makes us ask whether any worker is there."""
_TAIL = 60
_OTHER_LINES = 6
"""Lines of the screen that are not the plan's."""

_NO_WORKER = (
    "no worker answers: start one with `vancetope dev` here, or `celery -A tasks.celery worker -P threads`; "
    "the job is stored and runs as soon as there is one"
)


class RunProgress:
    """On a terminal a line that moves, and below it the plan as it grows; elsewhere one line per turn. Quiet: nothing.

    Says so when no worker is there, and when the job waits for people.
    """

    def __init__(self, process_id: UUID, app: Any, plan: Plan, *, quiet: bool) -> None:
        self._id = process_id
        self._app = app
        self._plan = plan
        self._quiet = quiet
        self._console = err()
        self._live: Live | None = None
        self._started = time.monotonic()
        self._asked = 0
        self._turns = 0
        self._characters = 0
        self._tail = ""
        self._state = "submitted"
        self._blocked = False

    def __enter__(self) -> Self:
        if self._quiet:
            return self
        if self._console.is_terminal:
            self._live = Live(self._screen(), console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
        else:
            self._console.print(f"submitted {self._id}", markup=False, soft_wrap=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            if kind is None:
                self._plan.touch()
                tree = self._plan.tree()
                if tree is not None:
                    self._console.print(tree)
                took = seconds(time.monotonic() - self._started)
                self._console.print(Text(f"{self._id}  {self._turns} turns, {took}", style="dim"))

    def remark(self, text: str) -> None:
        """A line that stays. Shown also with ``quiet``: it says why there may never be an answer."""
        self._console.print(Text(text, style="yellow"), soft_wrap=True)

    def show(self, event: dict[str, Any] | None, state: dict[str, Any] | None) -> None:
        """Take in one event (``None``: a tick) and the process as last seen (``read.state``)."""
        kind = None if event is None else event.get("kind")
        if event is not None:
            self._plan.see(event)
        if event is not None and kind == "chunk":
            text = plain(event.get("text", ""))
            self._characters += len(text)
            self._tail = (self._tail + text)[-400:]
            self._state = "the model writes"
        elif event is not None and kind == "turn":
            self._turns += 1
            self._characters, self._tail = 0, ""
            self._state = f"{plain(event.get('phase'))} {str(event.get('reason', '')).lower()}"
            if self._live is None and not self._quiet:
                took = seconds(time.monotonic() - self._started)
                self._console.print(f"turn {self._turns}: {self._state} ({took})", markup=False, soft_wrap=True)
        elif event is not None and kind == "away":
            self._state = "PostgreSQL does not answer, still trying"
        elif state is not None and self._turns == 0 and self._characters == 0:
            self._state = "waiting for a worker" if state["status"] == "INIT" else state["status"].lower()
        if self._live is not None:
            self._live.update(self._screen())
        self._ask_for_workers(state)
        self._say_who_is_asked(state)

    def _say_who_is_asked(self, state: dict[str, Any] | None) -> None:
        blocked = state is not None and state["status"] == "BLOCKED"
        if blocked and not self._blocked:
            self.remark("it waits for people: `vancetope inbox ls` shows the questions, `vancetope answer` takes one")
        self._blocked = blocked

    def _ask_for_workers(self, state: dict[str, Any] | None) -> None:
        if self._asked >= len(_SILENCES) or time.monotonic() - self._started < _SILENCES[self._asked]:
            return
        self._asked += 1
        if state is None or state["status"] != "INIT":
            return
        workers = workers_answering(self._app)
        if not workers:
            self.remark(_NO_WORKER)
        elif self._asked > 1:
            self.remark(f"{len(workers)} worker(s) answer but none has begun: all busy, or failing (see their log)")

    def _screen(self) -> RenderableType:
        tree = self._plan.tree(lines=max(self._console.height - _OTHER_LINES, 5))
        return self._line() if tree is None else Group(self._line(), tree)

    def _line(self) -> Spinner:
        parts = [f"{seconds(time.monotonic() - self._started)}  {self._state}"]
        if self._turns:
            parts.append(f"turn {self._turns + 1}")
        if self._characters:
            parts.append(f"{self._characters} characters")
        text = Text(" · ".join(parts))
        if self._tail:
            text.append("  …" + " ".join(self._tail.split())[-_TAIL:], style="dim")
        text.no_wrap, text.overflow = True, "ellipsis"
        return Spinner("dots", text=text)
