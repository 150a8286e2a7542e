"""The real store and the real turn runner without Celery: published turns are collected and run here."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import redis
from factory import PROBE, ProbeEngine, Step, make_everything_due, new_process, rows, value
from sqlalchemy import Connection

from engines.base import Engine
from engines.ford.engine import Ford
from engines.jeltz.engine import Jeltz
from engines.llm.base import CancelToken, ChunkSink, LlmReply, LlmRequest
from engines.llm.batch import BatchClient
from engines.llm.catalogue import Candidate, Catalogue
from engines.llm.client import RoutingClient
from engines.llm.scripted import Script, ScriptedProvider
from engines.marvin.engine import Marvin
from engines.tools.base import Tool
from engines.tools.registry import Registry, bundled_tools, internal_tools
from engines.valem.engine import Valem
from engines.valem.jsonata.evaluation import Evaluator, evaluate_here
from models.records import NewProcess, Turn
from models.store import processes, read
from models.store.database import Database, Row
from models.store.processes import Delivery
from tasks.attempt import Client
from tasks.cookbook import recipe_sources
from tasks.gate import Gate
from tasks.heartbeat import Heartbeat
from tasks.lane import BatchLane
from tasks.lessons import Lessons
from tasks.meter import Meter
from tasks.observe import Observer, Sink, TurnCounts
from tasks.runner import TurnRunner
from tasks.settings import load_settings
from tasks.toolbox import Toolbox

# Nobody listens there: what a turn does when Redis is away.
NO_REDIS = "redis://127.0.0.1:1/0"


class RecordingDatabase(Database):
    """Keeps the statements that were sent, and fails on demand: ``failures`` holds what the next commits raise."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.sent: list[str] = []
        self.hooks: list[Callable[[str], None]] = []
        """Called with each statement before it is sent; may raise."""

    def statement(self, sql: str, params: dict[str, Any]) -> list[Row]:
        self.sent.append(sql)
        for hook in list(self.hooks):
            hook(sql)
        return super().statement(sql, params)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        self.sent.append("BEGIN")
        with super().begin() as connection:
            yield connection


def is_commit(sql: str) -> bool:
    return "phase_records" in sql and "moved" in sql


class CollectingPublisher:
    """Stands in for the broker: turns pile up until somebody runs them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.turns: deque[Turn] = deque()
        self.seen: list[Turn] = []

    def publish(self, turns: Iterable[Turn]) -> int:
        with self._lock:
            batch = list(turns)
            self.turns.extend(batch)
            self.seen.extend(batch)
            return len(batch)

    def take(self) -> Turn | None:
        with self._lock:
            return self.turns.popleft() if self.turns else None


class CollectingBackground:
    """Stands in for the progress channel."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.events: list[dict[str, Any]] = []
        self.deliveries: list[Delivery] = []
        self.plans: list[tuple[UUID, bool]] = []

    def ensure_own_process(self) -> None: ...

    def emit(self, root_id: UUID, event: dict[str, Any]) -> None:
        self.events.append(event)

    def plan_changed(self, root_id: UUID, process_id: UUID, *, last: bool) -> None:
        self.plans.append((process_id, last))

    def deliver(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)


class ProbeClient(ScriptedProvider):
    """Answers from a script, for any model name; ``during`` runs in the middle of each call.

    ``shared=True`` looks like a provider that all workers share, so that the gate and the lessons come into play.
    """

    def __init__(self, script: Script, *, shared: bool = False) -> None:
        super().__init__(script)
        self._candidate = Catalogue.load().candidate("scripted", "scripted")
        if shared:
            spec = self._candidate.provider.model_copy(update={"wire": "openai"})
            self._candidate = dataclasses.replace(self._candidate, provider=spec, provider_name="fake")
        self.during: Callable[[LlmRequest, CancelToken | None], None] | None = None
        self._lock = threading.Lock()
        self.calls = 0
        self.running = 0
        self.most_running = 0

    def candidate(self, request: LlmRequest) -> Candidate:
        return self._candidate

    def complete(  # type: ignore[override]
        self, request: LlmRequest, *, cancel: CancelToken | None = None, on_chunk: ChunkSink | None = None
    ) -> LlmReply:
        with self._lock:
            self.calls += 1
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        try:
            if self.during is not None:
                self.during(request, cancel)
            return super().complete(request, self._candidate, cancel=cancel, on_chunk=on_chunk)
        finally:
            with self._lock:
                self.running -= 1


class Rig:
    """One worker process, more or less: runner, heartbeat, gate, client. Close it."""

    def __init__(
        self,
        database_url: str,
        *answers: Any,
        script: Script | None = None,
        redis_url: str | None = None,
        shared: bool = False,
        engines: Mapping[str, Engine] | None = None,
        burst: int = 1,
        pool_size: int = 4,
        lease_seconds: float = 30.0,
        concurrency: int = 0,
        breaker_failures: int = 0,
        breaker_seconds: float = 0.2,
        patience: float = 30.0,
        publisher: CollectingPublisher | None = None,
        tools: Iterable[Tool] = (),
        client: Client | None = None,
        evaluator: Evaluator = evaluate_here,
        sinks: Iterable[Sink] = (),
    ) -> None:
        self.database = RecordingDatabase(database_url, pool_size=pool_size, name="vancetope-rig")
        self.script = script or Script.of(*answers)
        self.client = ProbeClient(self.script, shared=shared)
        self.redis = redis.Redis.from_url(redis_url or NO_REDIS, socket_connect_timeout=1)
        self.gate = Gate(
            self.redis, concurrency=concurrency, breaker_failures=breaker_failures, breaker_seconds=breaker_seconds
        )
        self.heartbeat = Heartbeat(self.database, lease_seconds=lease_seconds, on_beat=self.gate.extend)
        self.publisher = publisher or CollectingPublisher()
        self.background = CollectingBackground(Meter(self.redis))
        self.tools = Registry([*bundled_tools(evaluator=evaluator), *tools], internal=internal_tools(evaluator))
        specs = self.tools.specs()
        self.batches = BatchClient(client) if isinstance(client, RoutingClient) else None
        built_in = (PROBE, Jeltz(), Marvin(), Ford(specs), Valem(specs), ProbeEngine("other"))
        self.engines: dict[str, Engine] = dict(engines or {engine.name: engine for engine in built_in})
        self.runner = TurnRunner(
            database=self.database,
            engines=self.engines,
            client=client or self.client,
            heartbeat=self.heartbeat,
            gate=self.gate,
            lessons=Lessons(self.redis),
            lane=BatchLane(self.database, self.batches, Lessons(self.redis)) if self.batches else None,
            publisher=self.publisher,  # type: ignore[arg-type]
            background=self.background,  # type: ignore[arg-type]
            toolbox=Toolbox(self.tools, self.database, recipe_sources(load_settings({}), self.database)),
            observer=Observer(TurnCounts(self.background.meter), *sinks),
            lease_seconds=lease_seconds,
            burst=burst,
            commit_patience_seconds=patience,
        )

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.heartbeat.close()
        self.redis.close()
        self.database.dispose()

    def submit(self, *steps: Step, **fields: Any) -> UUID:
        """Submit a process of the probe engine and publish its first turn."""
        return self.send(new_process(steps, **fields))

    def send(self, process: NewProcess) -> UUID:
        self.publisher.publish(processes.submit(self.database, [process]))
        return process.id

    def run_next(self) -> int:
        """Run one published turn."""
        turn = self.publisher.take()
        assert turn is not None, "no turn is published"
        return self.runner.run(turn.engine, turn.node_id, turn.turn)

    def drain(self, *, limit: int = 1_000, skip_delays: bool = False) -> int:
        """Run published turns until there are none. ``skip_delays`` makes delayed turns due and runs them too."""
        done = 0
        for _ in range(limit):
            turn = self.publisher.take()
            if turn is not None:
                done += self.runner.run(turn.engine, turn.node_id, turn.turn)
            elif not (skip_delays and make_everything_due(self.database) and self.publish_due()):
                return done
        raise AssertionError(f"more than {limit} turns")

    def drain_in_threads(self, number: int, *, until: Callable[[], bool], timeout: float = 30.0) -> None:
        """Run published turns in that many threads until the condition holds. Delayed turns are published when due."""
        deadline = time.monotonic() + timeout
        failures: list[BaseException] = []
        stop = threading.Event()

        def work() -> None:
            try:
                while not stop.is_set():
                    turn = self.publisher.take()
                    if turn is None:
                        stop.wait(0.005)
                    else:
                        self.runner.run(turn.engine, turn.node_id, turn.turn)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(number)]
        for thread in threads:
            thread.start()
        try:
            while not until() and not failures:
                assert time.monotonic() < deadline, "not done in time"
                self.publish_due()
                time.sleep(0.01)
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
        if failures:
            raise failures[0]

    def publish_due(self) -> int:
        """What the sweeper would find: due turns that nobody has."""
        found = rows(
            self.database,
            "SELECT n.id, n.turn, p.engine, p.priority FROM nodes n JOIN processes p ON p.id = n.process_id"
            " WHERE n.due_at <= now() AND n.next_hint_at <= now() AND n.lease_expires_at IS NULL"
            " AND p.status IN ('INIT', 'RUNNING', 'BLOCKED')",
        )
        waiting = {(turn.node_id, turn.turn) for turn in list(self.publisher.turns)}
        turns = [Turn(node_id=row[0], turn=row[1], engine=row[2], priority=row[3]) for row in found]
        return self.publisher.publish([turn for turn in turns if (turn.node_id, turn.turn) not in waiting])

    def publish_due_now(self) -> int:
        """As if all hints had been lost a while ago."""
        rows(self.database, "UPDATE nodes SET next_hint_at = now() WHERE next_hint_at IS NOT NULL RETURNING id")
        return self.publish_due()

    def flush_counts(self) -> None:
        """What the background thread of a worker does every few seconds."""
        self.background.meter.flush(everything=True)

    def result(self, process_id: UUID) -> dict[str, Any] | None:
        return read.result(self.database, process_id)

    def status(self, process_id: UUID) -> str:
        found: str = value(self.database, "SELECT status FROM processes WHERE id = %(id)s", id=process_id)
        return found

    def all_closed(self) -> bool:
        return not value(self.database, "SELECT count(*) FROM processes WHERE status <> 'CLOSED'")


def in_threads(number: int, work: Callable[[int], Any]) -> list[Any]:
    """``work(0)`` … ``work(number - 1)`` at the same time, started together; an exception of one is raised."""
    barrier = threading.Barrier(number)
    results: list[Any] = [None] * number
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            barrier.wait(10)
            results[index] = work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
    return results


def other_session(database_url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection of the test's own, to hold locks or to look on."""
    return psycopg.connect(database_url, autocommit=True)
