"""`watch`: a live view of one job. Needs PostgreSQL; Redis makes it quicker and shows the text as it is written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from models.store import read
from models.store.database import Database, DatabaseUnavailable
from tasks.cli.failures import UNFINISHED, CommandError
from tasks.cli.follow import Follower, NotFinished
from tasks.cli.here import backend_settings
from tasks.cli.output import STYLES, cell, json_option, out, plain, print_json
from tasks.cli.show import status_fields
from tasks.cli.store import known_status, open_database, process_id
from tasks.cli.tree import Plan

FIGURES_SECONDS = 5.0
"""The least time between two readings of the figures while a job moves."""
SILENCE_SECONDS = 20.0
"""The same while nothing is told of it: Redis may be away."""
_TURNS_SHOWN = 8
_TAIL_CHARS = 600
_OTHER_LINES = 28
"""Lines of the screen that are not the plan's."""


@click.command()
@click.argument("identity", metavar="ID")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Watch at most this long.")
@json_option
def watch(identity: str, timeout: float | None, as_json: bool) -> None:
    """Watch a job until it closes: state, turns, calls, and the text as the model writes it.

    Leaving with Ctrl-C does nothing to the job. With --json every event is one line.
    """
    settings = backend_settings()
    database = open_database(settings)
    process = process_id(database, identity)
    found = known_status(database, process)
    with Follower(database, settings.redis, process, found["root_id"]) as follower:
        live = not as_json and out().is_terminal
        view: LiveView | LineView = (
            LiveView(Figures(database, process, found), Plan(database, process)) if live else LineView(process, as_json)
        )
        try:
            with view:
                for event in follower.events(timeout):
                    view.show(event, follower.state or found)
        except NotFinished as error:
            raise CommandError(f"{error}; it goes on", UNFINISHED) from None
    if not as_json:
        plan = None if live else Plan(database, process)
        whole = plan.tree() if plan else None
        if whole is not None:
            out().print(whole)
        closed = follower.state or found
        out().print(f"{closed['close_reason']}: `vancetope result {process}` prints the result", markup=False)


class Figures:
    """What `status` tells of the job. Reading it counts all nodes and adds up the ledger, so it is done rarely."""

    def __init__(
        self,
        database: Database,
        process: UUID,
        known: dict[str, Any],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.known = known
        self._database = database
        self._process = process
        self._clock = clock
        self._read_at = clock()
        self._moved = False

    def see(self, event: dict[str, Any] | None, state: dict[str, Any]) -> None:
        """Take in one event and the state. The figures are read again some time after a change, and at the close."""
        self.known |= {"status": state["status"], "close_reason": state["close_reason"]}
        self._moved = self._moved or (event is not None and event.get("kind") in ("turn", "plan", "closed"))
        overdue = SILENCE_SECONDS if not self._moved else FIGURES_SECONDS
        closed = state["status"] == "CLOSED" and self.known["closed_at"] is None
        if closed or self._clock() - self._read_at >= overdue:
            self._read()

    def _read(self) -> None:
        self._read_at, self._moved = self._clock(), False
        with suppress(DatabaseUnavailable):
            self.known = read.status(self._database, self._process) or self.known


class LineView:
    """One line per event, for files, pipes and other programs."""

    def __init__(self, process: UUID, as_json: bool) -> None:
        self._process = str(process)
        self._json = as_json
        self._last = ""

    def __enter__(self) -> LineView:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, event: dict[str, Any] | None, state: dict[str, Any]) -> None:
        if event is not None:
            self._event(event)
        if event is None and state["status"] != self._last:
            self._last, reason = state["status"], state["close_reason"]
            told = {"kind": "state", "process": self._process, "status": self._last, "reason": reason}
            self._print(told, f"{self._last} {reason or ''}".rstrip())

    def _event(self, event: dict[str, Any]) -> None:
        if event.get("kind") == "turn":
            text = f"turn {event.get('turn')} of node {event.get('node')}: {event.get('phase')} {event.get('reason')}"
            self._print(event, text)
        elif event.get("kind") == "away":
            self._print(event, f"PostgreSQL does not answer, still trying: {event.get('message')}")
        elif self._json:
            print_json(event)

    def _print(self, event: dict[str, Any], text: str) -> None:
        if self._json:
            print_json(event)
        else:
            click.echo(plain(text))


class LiveView:
    """The whole job on one screen, redrawn."""

    def __init__(self, figures: Figures, plan: Plan) -> None:
        self._figures = figures
        self._plan = plan
        self._turns: deque[dict[str, Any]] = deque(maxlen=_TURNS_SHOWN)
        self._tail = ""
        self._remark = ""
        self._live = Live(self._screen(), console=out(), refresh_per_second=8)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tail = ""
        self._plan.touch()
        self._live.update(self._screen())
        self._live.stop()

    def show(self, event: dict[str, Any] | None, state: dict[str, Any]) -> None:
        self._figures.see(event, state)
        kind = event.get("kind") if event else None
        if event:
            self._plan.see(event)
        if event and kind == "turn":
            self._turns.append(event)
            self._tail = ""
        elif event and kind == "chunk":
            self._tail = (self._tail + plain(event.get("text", "")))[-_TAIL_CHARS:]
        self._remark = "PostgreSQL does not answer, still trying" if kind == "away" else ""
        self._live.update(self._screen())

    def _screen(self) -> RenderableType:
        head = Table.grid(padding=(0, 2))
        for name, value in status_fields(self._figures.known):
            if value is not None and value != "":
                text = cell(value)
                head.add_row(Text(name, style="dim"), Text(text, style=STYLES.get(text, "")))
        parts: list[RenderableType] = [head]
        plan = self._plan.tree(lines=max(out().height - _OTHER_LINES, 5))
        if plan is not None:
            parts += [Text(""), plan]
        if self._turns:
            turns = Table("turn", "node", "phase", "outcome", box=None, header_style="bold", pad_edge=False)
            for turn in self._turns:
                turns.add_row(*(plain(turn.get(key, "")) for key in ("turn", "node", "phase", "reason")))
            parts += [Text(""), turns]
        if self._tail:
            parts += [Text(""), Text(self._tail, style="dim", overflow="fold")]
        if self._remark:
            parts.append(Text(self._remark, style="yellow"))
        return Group(*parts)
