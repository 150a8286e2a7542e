"""The whole embedded stack: it says what runs, brings back what dies, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import DEADLINE, descendants, ended, eventually
from services import note, notes, private_folder

from tasks.dev.state import StackState, find_running, read_state

pytestmark = pytest.mark.integration

RUN = Path(__file__).resolve().parents[1] / "run_embedded.py"


@pytest.fixture
def folder() -> Iterator[Path]:
    with private_folder() as path:
        yield path


class Running:
    """A stack in a process of its own."""

    def __init__(self, folder: Path, pool: str = "threads") -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(RUN.parents[1])}
        self.log = folder.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(RUN), str(folder), pool], stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    def ready(self) -> StackState:
        eventually(lambda: self.process.poll() is not None or "ready; Ctrl-C" in self.text(), "the stack is ready")
        state = find_running(self.folder)
        assert state is not None, self.text()
        return state

    def text(self) -> str:
        return self.log.read_text()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def run(pool: str = "threads") -> Running:
        started.append(Running(folder / "stack", pool))
        return started[-1]

    try:
        yield run
    finally:
        for running in started:
            if running.process.poll() is None:
                running.end(signal.SIGKILL)


class TestStack:
    def test_it_stops_in_order_and_leaves_nothing_but_data(self, start: Callable[..., Running]) -> None:
        running = start()
        state = running.ready()
        assert set(state.children) == {"postgres", "redis", "worker1", "worker-control", "beat"}
        assert stat.S_IMODE((running.folder / "stack.json").stat().st_mode) == 0o600
        family = descendants(running.process.pid)
        assert set(state.children.values()) <= set(family)
        note(state.database_url, "kept")

        assert running.end(signal.SIGINT) == 0, running.text()
        eventually(ended(family), "all children are gone")
        assert find_running(running.folder) is None
        assert not (running.folder / "stack.json").exists()

        again = start()
        assert notes(again.ready().database_url) == ["kept"]

    def test_a_second_start_says_what_runs(self, start: Callable[..., Running]) -> None:
        first = start()
        state = first.ready()
        text = first.text()
        second = start()
        assert second.process.wait(DEADLINE) == 1
        assert f"kill {first.process.pid}" in second.text()
        assert "postgres" in second.text()
        assert state.database_url not in second.text()
        assert find_running(first.folder) == state
        assert "password" not in text

    @pytest.mark.parametrize("pool", ["threads", "prefork"])
    def test_children_die_with_a_stack_that_is_killed(self, start: Callable[..., Running], pool: str) -> None:
        running = start(pool)
        running.ready()
        family = descendants(running.process.pid)
        running.end(signal.SIGKILL)
        eventually(ended(family), "all children are gone")
        assert read_state(running.folder) is not None
        assert find_running(running.folder) is None
        start().ready()

    def test_what_dies_is_started_again(self, start: Callable[..., Running]) -> None:
        running = start()
        before = running.ready().children
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)

        def replaced() -> bool:
            state = find_running(running.folder)
            return state is not None and not set(state.children.values()) & set(before.values())

        eventually(replaced, "everything runs again")
        state = find_running(running.folder)
        assert state is not None
        assert state.children.keys() == before.keys()
        assert running.end(signal.SIGTERM) == 0, running.text()

    def test_a_killed_start_does_not_leave_a_state_to_believe(self, folder: Path) -> None:
        folder.joinpath("stack.json").write_text(json.dumps({"pid": 1}))
        assert read_state(folder) is None
        assert find_running(folder) is None
