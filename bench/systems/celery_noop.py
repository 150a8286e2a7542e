"""Bare Celery: a task that does nothing and keeps nothing. The ceiling of everything that takes turns from Celery."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

import redis

from bench.contest import Contestant
from bench.program import Program
from bench.programs.job import CHAIN_STEPS, tree_steps
from bench.servers import Servers
from tasks.dev.celery_processes import CeleryProcess, worker_command

DONE_KEY = "bench:done"


class CeleryNoop(Contestant):
    """One worker, one task per job, nothing durable."""

    durable = False
    job = "answer"

    def __init__(
        self, servers: Servers, *, name: str = "Celery no-op", pool: str = "threads", concurrency: int = 8
    ) -> None:
        super().__init__(servers)
        self.name = name
        self.pool, self.concurrency = pool, concurrency
        self.children = 0
        self.notes = (
            f"`-P {pool} -c {concurrency}`, JSON, results ignored, events off, Celery's default prefetch; "
            "one kept producer; **nothing is durable**"
        )
        self.redis_url = servers.new_redis()
        self._client = redis.Redis.from_url(self.redis_url)
        self._worker: CeleryProcess | None = None
        self._log: deque[str] = deque(maxlen=40)

    def start(self) -> None:
        environment = {**os.environ, "BENCH_REDIS_URL": self.redis_url}
        self._client.delete(DONE_KEY)
        command = worker_command("bench.programs.noop_app", "worker", self.pool, self.concurrency)
        self._worker = CeleryProcess("worker", command, environment, self._log.append)
        self._worker.start()
        self.submitter = Program("noop_submit", self.job, str(self.children), environment=environment)

    def stop(self) -> None:
        if self.submitter is not None:
            self.submitter.stop()
            self.submitter = None
        if self._worker is not None:
            self._worker.ask_to_end()
            self._worker.wait(15.0)
            self._worker.kill()
            self._worker = None

    def close(self) -> None:
        self._client.close()
        self.servers.release_redis(self.redis_url)

    def last_words(self) -> str:
        return "\n".join(self._log)

    def worker_pids(self) -> Sequence[int]:
        return [self._worker.pid] if self._worker is not None else []

    def finished(self) -> int:
        return int(self._client.get(DONE_KEY) or 0)


class CeleryChain(CeleryNoop):
    """A chain of no-op tasks per job."""

    job = "chain"
    steps_per_job = CHAIN_STEPS

    def __init__(self, servers: Servers, *, name: str = "Celery chain") -> None:
        super().__init__(servers, name=name)
        self.notes += f"; a chain of {CHAIN_STEPS} tasks per job"


class CeleryChord(CeleryNoop):
    """A chord of chains of no-op tasks per job."""

    job = "tree"

    def __init__(self, servers: Servers, children: int, *, name: str = "Celery chord") -> None:
        super().__init__(servers, name=name)
        self.children = children
        self.steps_per_job = tree_steps(children)
        self.notes += "; a chord of chains per job, whose last tasks alone have results"
