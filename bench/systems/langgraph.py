"""LangGraph with the PostgreSQL checkpointer: durable state as a library, without a queue or workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from bench.contest import Contestant
from bench.program import Program
from bench.servers import Servers


class LanggraphOneStep(Contestant):
    """One process with a pool of threads; one graph run of one node per job."""

    def __init__(
        self,
        servers: Servers,
        python: Path,
        *,
        name: str = "LangGraph + Postgres",
        threads: int = 8,
        durability: str = "sync",
    ) -> None:
        super().__init__(servers)
        self.name = name
        self._python = python
        self.database_url = servers.new_database("langgraph")
        self._environment = {
            "BENCH_DATABASE_URL": self.database_url,
            "BENCH_THREADS": str(threads),
            "BENCH_DURABILITY": durability,
        }
        self.notes = (
            f"one process, {threads} threads on a connection pool, one `PostgresSaver` per thread (a shared one locks"
            f'), `durability="{durability}"`; no queue: jobs go straight to the threads, and a job that was not '
            "begun is not stored"
        )
        self._watch: psycopg.Connection[Any] | None = None

    def start(self) -> None:
        self.submitter = Program("langgraph_program", python=self._python, environment=self._environment)

    def stop(self) -> None:
        if self.submitter is not None:
            self.submitter.stop()
            self.submitter = None

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def last_words(self) -> str:
        return self.submitter.last_words() if self.submitter is not None else ""

    def worker_pids(self) -> Sequence[int]:
        return [self.submitter.pid] if self.submitter is not None else []

    def finished(self) -> int:
        if self._watch is None:
            self._watch = psycopg.connect(self.database_url, autocommit=True)
        # The checkpoint after the only node; the input has another, before it.
        row = self._watch.execute("SELECT count(*) FROM checkpoints WHERE metadata->>'step' = '1'").fetchone()
        return int(row[0]) if row else 0
