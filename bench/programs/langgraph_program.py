"""LangGraph with its PostgreSQL checkpointer: one graph, one thread id per job, run in this process.

Environment: BENCH_DATABASE_URL, BENCH_THREADS, BENCH_DURABILITY (sync, async or exit), BENCH_GRAPH (``answer``,
``chain`` or ``tree``) and BENCH_CHILDREN (of a tree).
"""

from __future__ import annotations

import operator
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver  # type: ignore[import-not-found, unused-ignore]
from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found, unused-ignore]
from langgraph.types import Send  # type: ignore[import-not-found, unused-ignore]
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool  # type: ignore[import-not-found, unused-ignore]

from bench.programs.job import CHAIN_STEPS, CHILD_STEPS, LAST_STEPS, PROMPT, child_goal, instant_model
from bench.programs.lines import serve


class State(TypedDict, total=False):
    """The graph's state."""

    prompt: str
    answer: dict[str, Any]
    results: Annotated[list[dict[str, Any]], operator.add]


class Results(TypedDict, total=False):
    """What of a branch's state is the tree's: several branches may not write the same prompt."""

    results: Annotated[list[dict[str, Any]], operator.add]


def ask(state: State) -> State:
    """The durable step."""
    return {"answer": instant_model(state["prompt"])}


def hand_over(state: State) -> State:
    """The last step of a branch: what the tree gets of it."""
    return {"results": [instant_model(state["prompt"])]}


def chained(steps: int, last: Callable[[State], State] = ask, output: type = State) -> Any:
    """A graph of so many steps, one after the other."""
    builder = StateGraph(State, output_schema=output)
    nodes = [*(ask for _ in range(steps - 1)), last]
    names = [f"step{number}" for number in range(steps)]
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node)
    for before, after in pairwise([START, *names, END]):
        builder.add_edge(before, after)
    return builder


def tree(children: int) -> Any:
    """Map and reduce: one ``Send`` for each branch, a graph of its own, then the steps of the whole."""
    builder = chained(LAST_STEPS)
    builder.edges.discard((START, "step0"))
    builder.add_node("branch", chained(CHILD_STEPS, hand_over, Results).compile())
    branches = [Send("branch", {"prompt": child_goal(number)}) for number in range(children)]
    builder.add_conditional_edges(START, lambda _: branches, ["branch"])
    builder.add_edge("branch", "step0")
    return builder


class Program:
    """A pool of threads, each with a checkpointer of its own: one saver lets only one thread work at a time."""

    def __init__(self) -> None:
        threads = int(os.environ["BENCH_THREADS"])
        graphs: dict[str, Callable[[], Any]] = {
            "answer": lambda: chained(1),
            "chain": lambda: chained(CHAIN_STEPS),
            "tree": lambda: tree(int(os.environ["BENCH_CHILDREN"])),
        }
        self._builder = graphs[os.environ["BENCH_GRAPH"]]()
        self._parallel = threads
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
            self._local.graph = self._builder.compile(checkpointer=PostgresSaver(self.connections))
        return self._local.graph

    def _one(self, _: int) -> None:
        config = {"configurable": {"thread_id": str(uuid.uuid4())}, "max_concurrency": self._parallel}
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
