"""A small cluster for acceptance tests and the drill: real workers and beats as child processes, and how to ask of it.

Each child leads its own process group and dies with its parent; what it logs goes to ``<folder>/<name>.log``.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import redis
from celery import Celery
from kombu import Queue
from processes import eventually
from uuid_utils.compat import uuid7

from models.records import Turn
from models.store import processes as store
from models.store import read
from tasks.control import stop_process
from tasks.dev.celery_processes import CeleryProcess, beat_command, flower_command, worker_command
from tasks.dev.process import ChildProcess, free_port, wait_until
from tasks.publish import CONTROL_QUEUE, PRIORITY_SEPARATOR, PRIORITY_STEPS
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare
from tasks.wiring import Runtime

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 60.0
SUBMIT = "vancetope.submit"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
# Workers of all tests share compiled modules here: half of a worker's start is compiling what it imports.
BYTECODE = Path(tempfile.gettempdir()) / f"vancetope-tests-bytecode-{os.getuid()}"


@contextmanager
def provider_process(folder: Path, *options: str) -> Iterator[tuple[str, Path]]:
    """The fake provider as a process of its own: its URL for OpenAI clients, and the log of its calls."""
    log = folder / "calls.jsonl"
    lines: list[str] = []
    command = [sys.executable, str(ROOT / "tests/fakes/provider.py"), "--log", str(log), *options]
    process = ChildProcess("provider", command, sink=lines.append, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    process.start()
    try:
        wait_until(lambda: any(line.startswith("listening ") for line in lines), process, 60)
        url = next(line for line in lines if line.startswith("listening ")).split()[1]
        yield f"{url}/v1", log
    finally:
        process.stop()


class Member(CeleryProcess):
    """A worker or a beat that can be killed, paused and started again."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.lines: list[str] = []
        self._file = log.open("a", encoding="utf-8")
        self._writing = threading.Lock()
        super().__init__(name, list(command), env, self._keep)

    def _keep(self, line: str) -> None:
        with self._writing:
            self.lines.append(line)
            if not self._file.closed:
                self._file.write(line + "\n")
                self._file.flush()

    @property
    def owner(self) -> str:
        """The name under which this worker holds leases (threads and solo; a prefork child has its own)."""
        return f"{socket.gethostname()}:{self.pid}"

    @property
    def ready(self) -> bool:
        """Whether it consumes (a worker) or runs (a beat)."""
        return self.running and (self._ready or not self.name.startswith("worker"))

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill9(self) -> None:
        """SIGKILL and nothing else; what it forked is left to notice."""
        self._process.kill9()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def said(self, text: str) -> bool:
        """Whether a line it logged contains ``text``."""
        return any(text in line for line in list(self.lines))

    def close(self) -> None:
        self.kill()
        with self._writing:
            self._file.close()


class Cluster:
    """Workers and beats on one database and one Redis, with the test's own hands on both."""

    def __init__(
        self, folder: Path, *, database_url: str, redis_url: str, provider_url: str, **settings: object
    ) -> None:
        self.folder = folder
        self.database_url = database_url
        self.redis_url = redis_url
        defaults: dict[str, object] = {
            "lease_seconds": 3.0,
            "sweep_seconds": 0.3,
            "breaker_failures": 0,
            "llm_base_url": provider_url,
            "llm_model": "fake-model",
        }
        given = {**defaults, "database_url": database_url, "redis_url": redis_url, **settings}
        self.environment = {f"VANCETOPE_{name.upper()}": str(value) for name, value in given.items()}
        self.settings = load_settings(self.environment)
        self.members: list[Member] = []

    # -- processes -------------------------------------------------------------------------------------------------

    def worker(
        self,
        *,
        pool: str = "threads",
        concurrency: int = 2,
        queues: str | None = None,
        events: bool = False,
        environment: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> Member:
        """Start a worker; with ``wait`` it consumes when this returns."""
        name = f"worker{len(self.members) + 1}"
        command = worker_command("tasks.celery", name, pool, concurrency)
        command += ["-l", "INFO", *(["-Q", queues] if queues else []), *(["-E"] if events else [])]
        return self.start(name, command, environment or {}, wait=wait)

    def beat(self, environment: Mapping[str, str] | None = None) -> Member:
        name = f"beat{len(self.members) + 1}"
        folder = self.folder / name
        folder.mkdir()
        return self.start(name, beat_command("tasks.celery", folder), environment or {}, wait=False)

    def flower(self, *options: str, environment: Mapping[str, str] | None = None) -> tuple[Member, str]:
        """Start Flower with our configuration: it, and its address. Whether it answers yet is the caller's to see."""
        port = free_port()
        command = [*flower_command("tasks.celery", port), *options]
        member = self.start(f"flower{len(self.members) + 1}", command, environment or {}, wait=False)
        return member, f"http://127.0.0.1:{port}"

    def workers(self, number: int, **options: Any) -> list[Member]:
        """Several at once, all consuming when this returns."""
        started = [self.worker(wait=False, **options) for _ in range(number)]
        for member in started:
            member.wait_ready()
        return started

    def start(
        self, name: str, command: list[str], extra: Mapping[str, str] | None = None, *, wait: bool = True
    ) -> Member:
        """Start any process of the stack; with ``wait`` one that is ready when this returns."""
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "PYTHONPYCACHEPREFIX": str(BYTECODE)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        member = Member(name, command, {**env, **self.environment, **(extra or {})}, self.folder / f"{name}.log")
        self.members.append(member)
        member.start()
        if wait:
            member.wait_ready()
        return member

    def close(self) -> None:
        """Kill every child, by its own id, and close what this process has opened."""
        for member in self.members:
            member.close()
        if "runtime" in self.__dict__:
            self.runtime.close()
            self.app.close()

    def print_logs(self, lines: int = 60) -> None:
        """The last lines of every child, for the report of a failed test."""
        for member in self.members:
            print(f"----- {member.log} (code {member.returncode})")
            shown = [line for line in member.lines if "vancetope.sweep" not in line]
            print("\n".join(shown[-lines:]))

    # -- the test's own hands --------------------------------------------------------------------------------------

    @cached_property
    def app(self) -> Celery:
        """A Celery application of another program: it knows the broker and the task names, nothing else."""
        app = Celery("acceptance", broker=self.redis_url, backend=self.redis_url, set_as_current=False)
        app.conf.update(
            broker_transport_options={"priority_steps": list(PRIORITY_STEPS), "sep": PRIORITY_SEPARATOR},
            task_queues=[Queue(CONTROL_QUEUE)],
            task_default_queue=CONTROL_QUEUE,
        )
        return app

    @cached_property
    def runtime(self) -> Runtime:
        return Runtime(self.settings, self.app)

    def store(self, prompt: str, **submission: Any) -> tuple[UUID, list[Turn]]:
        """Store a job without telling anybody."""
        params = {"prompt": prompt, "schema": SCHEMA, **submission.pop("params", {})}
        return self._store({"recipe": "jeltz", "params": params, **submission})

    def _store(self, payload: dict[str, Any]) -> tuple[UUID, list[Turn]]:
        process = prepare(parse_submission(payload), self.settings, self.runtime.engines)
        return process.id, store.submit(self.runtime.database, [process])

    def submit(self, prompt: str, **submission: Any) -> UUID:
        """Store a job and publish its first turn, as every face does."""
        process_id, turns = self.store(prompt, **submission)
        self.runtime.publisher.publish(turns)
        return process_id

    def submit_recipe(self, recipe: str, **submission: Any) -> UUID:
        """The same for any recipe."""
        process_id, turns = self._store({"recipe": recipe, **submission})
        self.runtime.publisher.publish(turns)
        return process_id

    def send(self, prompt: str, **submission: Any) -> UUID:
        """Submit as another application does: a message to the broker, and nothing else."""
        payload = {"recipe": "jeltz", "params": {"prompt": prompt, "schema": SCHEMA}, **submission}
        process_id = self.new_id()
        self.app.send_task(SUBMIT, kwargs=payload, task_id=process_id, queue=CONTROL_QUEUE)
        return UUID(process_id)

    @staticmethod
    def new_id() -> str:
        return str(uuid7())

    def stop(self, process_id: UUID) -> tuple[UUID, ...]:
        return stop_process(self.runtime, process_id)

    def rows(self, query: str, *params: object) -> list[tuple[Any, ...]]:
        """What a query of the test's own finds."""
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=10) as connection:
            return connection.execute(query, params).fetchall()  # type: ignore[call-overload]

    def everything_in_redis(self) -> str:
        """All keys and values, message bodies decoded."""
        with redis.Redis.from_url(self.redis_url) as client:
            return "\n".join(_contents(client))

    def status(self, process_id: UUID) -> str:
        """The process's status, ``""`` when it is not stored."""
        rows = self.rows("SELECT status FROM processes WHERE id = %s", process_id)
        return str(rows[0][0]) if rows else ""

    def result(self, process_id: UUID) -> dict[str, Any]:
        wrapper = read.result(self.runtime.database, process_id)
        assert wrapper is not None, f"{process_id} has no result"
        return wrapper

    def open_jobs(self, ids: Sequence[UUID]) -> list[UUID]:
        """Those of ``ids`` that are not closed and delivered yet."""
        query = "SELECT id FROM processes WHERE id = ANY(%s) AND status = 'CLOSED' AND delivered_at IS NOT NULL"
        done = {row[0] for row in self.rows(query, list(ids))}
        return [each for each in ids if each not in done]

    def wait_closed(self, *ids: UUID, timeout: float = DEADLINE) -> None:
        """Wait until every job is closed and its result handed over."""
        eventually(lambda: not self.open_jobs(ids), f"{len(ids)} jobs closed and delivered", timeout)

    def lease_owner(self, process_id: UUID) -> str | None:
        return self.rows("SELECT lease_owner FROM nodes WHERE process_id = %s AND parent_id IS NULL", process_id)[0][0]


def _contents(client: redis.Redis) -> Iterator[str]:
    for key in client.scan_iter():
        kind = client.type(key)
        read: dict[bytes, Any] = {
            b"string": lambda key: [client.get(key)],
            b"list": lambda key: client.lrange(key, 0, -1),
            b"hash": lambda key: [part for pair in client.hgetall(key).items() for part in pair],
            b"set": client.smembers,
            b"zset": lambda key: client.zrange(key, 0, -1),
        }
        for value in [key, *read[kind](key)]:
            text = (value or b"").decode("utf-8", "replace")
            yield text
            try:
                body = json.loads(text).get("body")
                yield base64.b64decode(body).decode("utf-8", "replace")
            except (ValueError, AttributeError, TypeError):
                continue


MakeCluster = Callable[..., Cluster]
"""``make_cluster(**settings)``: the fixture that makes clusters with settings of their own."""
