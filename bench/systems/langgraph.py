"""LangGraph with the PostgreSQL checkpointer: durable state as a library, without a queue or workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.contest import Contestant
from bench.program import Program
from bench.programs.job import CHAIN_STEPS, LAST_STEPS, tree_steps
from bench.servers import Servers


class LanggraphOneStep(Contestant):
    """One process with a pool of threads; one graph run of one node per job."""

    graph = "answer"
    last_step = 1
    """The number of the checkpoint after the last node; the input has one too, before the first."""

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
            "BENCH_GRAPH": self.graph,
        }
        self.notes = (
            f"one process, {threads} threads on a connection pool, one `PostgresSaver` per thread (a shared one locks"
            f'), `durability="{durability}"`; no queue: jobs go straight to the threads, and a job that was not '
            "begun is not stored"
        )
        self._watch: psycopg.Connection[Any] | None = None

    def start(self) -> None:
        self._empty()
        self.submitter = Program("langgraph_program", python=self._python, environment=self._environment)

    def _empty(self) -> None:
        """Counting the finished reads all checkpoints: it must not cost a later round more than the first."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
                found = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
                if found is not None and found[0] is not None:
                    connection.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(table)))

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
        row = self._watch.execute(
            "SELECT count(*) FROM checkpoints WHERE checkpoint_ns = '' AND metadata->>'step' = %s",
            (str(self.last_step),),
        ).fetchone()
        return int(row[0]) if row else 0


class LanggraphChain(LanggraphOneStep):
    """One graph of several nodes, one after the other, per job."""

    graph = "chain"
    steps_per_job = last_step = CHAIN_STEPS


class LanggraphTree(LanggraphOneStep):
    """One graph per job that sends its branches to a subgraph and goes on when all are back."""

    graph = "tree"
    last_step = 1 + LAST_STEPS

    def __init__(self, servers: Servers, python: Path, children: int) -> None:
        super().__init__(servers, python)
        self.steps_per_job = tree_steps(children)
        self._environment["BENCH_CHILDREN"] = str(children)
        self.notes += "; the branches are `Send`s to a subgraph, which has checkpoints of its own; `max_concurrency` 8"
