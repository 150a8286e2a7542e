"""Workers, beat, the HTTP API and Flower as child processes of the development stack."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tasks.dev.process import POLL_SECONDS, ChildProcess, Sink, StackError

APPLICATION = "tasks.celery"
FLOWER_CONFIG = Path(__file__).resolve().parents[1] / "flower" / "config.py"
READY_SECONDS = 30.0
# A child that ends this soon after its start has not worked at all; three times in a row is a fault, not bad luck.
SHORT_LIFE_SECONDS = 5.0
SHORT_LIVES_MAX = 3

Command = list[str]


def worker_command(application: str, name: str, pool: str, concurrency: int) -> Command:
    # Neighbours are of no interest here, and asking for them costs each start a second.
    alone = ["--without-mingle", "--without-gossip"]
    return [*_celery(application), "worker", "-P", pool, "-c", str(concurrency), "-n", f"{name}@%h", *alone]


def beat_command(application: str, folder: Path) -> Command:
    # No pid file: the stack's lock already keeps a second one away, and a stale file would keep this one away too.
    return [*_celery(application), "beat", "-s", str(folder / "celerybeat-schedule"), "--pidfile="]


def flower_command(application: str, port: int, address: str = "127.0.0.1") -> Command:
    return [*_celery(application), "flower", f"--conf={FLOWER_CONFIG}", f"--address={address}", f"--port={port}"]


def api_command(port: int) -> Command:
    return [sys.executable, "-c", "from tasks.cli import main; main()", "api", "--port", str(port)]


def _celery(application: str) -> Command:
    return [sys.executable, "-m", "celery", "-q", "-A", application]


class CeleryProcess:
    """A worker, beat, the API or Flower: readiness is read from its log, and a dead one can be started again."""

    def __init__(self, name: str, command: Command, env: Mapping[str, str], sink: Sink) -> None:
        self.name = name
        self._forward = sink
        self._ready = False
        self._started_at = 0.0
        self._short_lives = 0
        # SIGKILL: when the parent is gone so is the database, and a turn that is cut off is taken back by its lease.
        self._process = ChildProcess(name, command, env=env, sink=self._receive, death_signal=signal.SIGKILL)

    @property
    def started(self) -> bool:
        return self._started_at > 0

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def start(self) -> None:
        self._ready = False
        self._started_at = time.monotonic()
        self._process.start()

    def start_again(self) -> None:
        """Start after an unexpected end. StackError when it never lives long."""
        short = time.monotonic() - self._started_at < SHORT_LIFE_SECONDS
        self._short_lives = self._short_lives + 1 if short else 0
        if self._short_lives >= SHORT_LIVES_MAX:
            raise StackError(f"{self.name} keeps ending right after its start:\n{self._process.last_words()}")
        # Whatever it started may still hold its work.
        self._process.stop(signal.SIGKILL)
        self.start()

    def wait_ready(self) -> None:
        """Wait for a worker or the API to say that it is ready; the others are ready when they run.

        StackError when it ends. One that runs but never says so (another log level) is believed after a while.
        """
        deadline = time.monotonic() + READY_SECONDS
        while self.name.startswith(("worker", "api")) and not self._ready and time.monotonic() < deadline:
            self._refuse_dead()
            time.sleep(POLL_SECONDS)
        self._refuse_dead()

    def ask_to_end(self) -> None:
        """Warm shutdown: no new turns, the running ones may end."""
        self._process.send(signal.SIGTERM)

    def wait(self, timeout: float) -> bool:
        return self._process.wait(timeout)

    def kill(self) -> None:
        """End it and everything it started, now."""
        if self.started:
            self._process.stop(signal.SIGKILL)

    def _refuse_dead(self) -> None:
        if not self._process.running:
            raise StackError(
                f"{self.name} ended with code {self.returncode} while starting:\n{self._process.last_words()}"
            )

    def _receive(self, line: str) -> None:
        # Their own words, whatever the format of the line around them.
        if (f"{self.name}@{os.uname().nodename}" in line and " ready." in line) or "Uvicorn running on" in line:
            self._ready = True
        self._forward(line)
