"""DBOS: durable workflows as a library on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from bench.contest import SUBMIT_THREADS, Contestant
from bench.program import Program
from bench.programs.job import CHAIN_STEPS, tree_steps
from bench.servers import Servers


class DbosOneStep(Contestant):
    """One worker process with a queue; one workflow of one step per job."""

    workflow = "answer"

    def __init__(
        self,
        servers: Servers,
        python: Path,
        *,
        name: str = "DBOS",
        threads: int = 32,
        submit_threads: int = SUBMIT_THREADS,
        poll_seconds: float = 0.05,
    ) -> None:
        super().__init__(servers)
        self.name = name
        self._python = python
        self.database_url = servers.new_database("dbos")
        self._environment = {
            "BENCH_DATABASE_URL": self.database_url,
            "BENCH_THREADS": str(threads),
            "BENCH_POLL_SECONDS": str(poll_seconds),
            "BENCH_SUBMIT_THREADS": str(submit_threads),
            "BENCH_WORKFLOW": self.workflow,
        }
        self.notes = (
            f"one worker, queue without limits polled every {poll_seconds * 1000:.0f} ms (the default of 1 s "
            f"would cost it that second), {threads} executor threads, its own system database; enqueued one by one "
            f"with `DBOSClient` by {submit_threads} threads of another process"
        )
        self._worker: Program | None = None
        self._watch: psycopg.Connection[Any] | None = None

    def start(self) -> None:
        self._worker = Program("dbos_program", "worker", python=self._python, environment=self._environment)
        self.submitter = Program("dbos_program", "submit", python=self._python, environment=self._environment)

    def stop(self) -> None:
        for program in (self.submitter, self._worker):
            if program is not None:
                program.stop()
        self.submitter = self._worker = None

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def last_words(self) -> str:
        return self._worker.last_words() if self._worker is not None else ""

    def worker_pids(self) -> Sequence[int]:
        return [self._worker.pid] if self._worker is not None else []

    def finished(self) -> int:
        if self._watch is None:
            self._watch = psycopg.connect(self.database_url, autocommit=True)
        row = self._watch.execute(
            "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS' AND name = %s", (self.workflow,)
        ).fetchone()
        return int(row[0]) if row else 0


class DbosChain(DbosOneStep):
    """One workflow of several steps per job."""

    workflow = "chain"
    steps_per_job = CHAIN_STEPS


class DbosTree(DbosOneStep):
    """One workflow per job that starts others, waits for them and goes on."""

    workflow = "tree"

    def __init__(self, servers: Servers, python: Path, children: int) -> None:
        super().__init__(servers, python)
        self.steps_per_job = tree_steps(children)
        self._environment["BENCH_CHILDREN"] = str(children)
        self.notes += (
            "; the branches are child workflows started with `DBOS.start_workflow` in the same process, which spares "
            "them the queue and the parent the polling for their results"
        )
