"""LangGraph with its PostgreSQL checkpointer: one graph of one node, one thread id per job, run in this process.

Environment: BENCH_DATABASE_URL, BENCH_THREADS, BENCH_DURABILITY (sync, async or exit).
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver  # type: ignore[import-not-found, unused-ignore]
from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found, unused-ignore]
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool  # type: ignore[import-not-found, unused-ignore]

from bench.programs.job import PROMPT, instant_model
from bench.programs.lines import serve


class State(TypedDict, total=False):
    """The graph's state."""

    prompt: str
    answer: dict[str, Any]


def ask(state: State) -> State:
    """The durable step."""
    return {"answer": instant_model(state["prompt"])}


class Program:
    """A pool of threads, each with a checkpointer of its own: one saver lets only one thread work at a time."""

    def __init__(self) -> None:
        threads = int(os.environ["BENCH_THREADS"])
        self._durability = os.environ["BENCH_DURABILITY"]
        self.connections: ConnectionPool[Any] = ConnectionPool(
            os.environ["BENCH_DATABASE_URL"],
            min_size=threads,
            max_size=threads,
            kwargs={"autocommit": True, "row_factory": dict_row},
            open=True,
        )
        PostgresSaver(self.connections).setup()
        self._local = threading.local()
        self.threads = ThreadPoolExecutor(threads)

    def _graph(self) -> Any:
        if not hasattr(self._local, "graph"):
            builder = StateGraph(State)
            builder.add_node("ask", ask)
            builder.add_edge(START, "ask")
            builder.add_edge("ask", END)
            self._local.graph = builder.compile(checkpointer=PostgresSaver(self.connections))
        return self._local.graph

    def _one(self, _: int) -> None:
        config = {"configurable": {"thread_id": str(uuid.uuid4())}}
        self._graph().invoke({"prompt": PROMPT}, config, durability=self._durability)

    def many(self, jobs: str) -> float:
        """Run ``jobs`` graphs; seconds."""
        started = time.perf_counter()
        for _ in self.threads.map(self._one, range(int(jobs))):
            continue
        return time.perf_counter() - started


if __name__ == "__main__":
    program = Program()
    try:
        serve({"submit": program.many})
    finally:
        program.threads.shutdown()
        program.connections.close()
