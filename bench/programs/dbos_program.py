"""DBOS: ``worker`` runs a queue of workflows; ``submit`` enqueues from another process.

Environment: BENCH_DATABASE_URL (its own system database), BENCH_THREADS, BENCH_POLL_SECONDS,
BENCH_SUBMIT_THREADS, BENCH_WORKFLOW (what is submitted: ``answer``, ``chain`` or ``tree``), BENCH_CHILDREN (of a tree).
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig  # type: ignore[import-not-found, unused-ignore]

from bench.programs.job import CHAIN_STEPS, CHILD_STEPS, LAST_STEPS, PROMPT, child_goal, instant_model
from bench.programs.lines import serve

QUEUE = "bench"
APPLICATION = "bench"


@DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
def ask(prompt: str) -> dict[str, Any]:
    """The durable step."""
    return instant_model(prompt)


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
def answer(prompt: str) -> dict[str, Any]:
    """One step per workflow."""
    found: dict[str, Any] = ask(prompt)
    return found


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
def chain(prompt: str) -> dict[str, Any]:
    """Steps one after the other."""
    return _ask_again(prompt, CHAIN_STEPS)


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
def branch(prompt: str) -> dict[str, Any]:
    """What a tree starts for each of its parts."""
    return _ask_again(prompt, CHILD_STEPS)


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
def tree(prompt: str, children: int) -> dict[str, Any]:
    """Fan out, wait for all, go on."""
    handles = [DBOS.start_workflow(branch, child_goal(number)) for number in range(children)]
    results = [handle.get_result() for handle in handles]
    return _ask_again(f"{prompt}\n{results}", LAST_STEPS)


def _ask_again(prompt: str, steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(steps):
        found = ask(prompt)
    return found


def work() -> None:
    """Run until the input ends."""
    config: DBOSConfig = {
        "name": APPLICATION,
        "system_database_url": os.environ["BENCH_DATABASE_URL"],
        "application_version": "bench",
        "executor_id": "bench-worker",
        "log_level": "WARNING",
        "max_executor_threads": int(os.environ["BENCH_THREADS"]),
    }  # type: ignore[typeddict-unknown-key, unused-ignore]
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=float(os.environ["BENCH_POLL_SECONDS"]))
    try:
        serve({})
    finally:
        DBOS.destroy()


def submit() -> None:
    """Enqueue by name, as an application that does not hold the workflow's code."""
    client = DBOSClient(system_database_url=os.environ["BENCH_DATABASE_URL"], application_name=APPLICATION)

    threads = ThreadPoolExecutor(int(os.environ["BENCH_SUBMIT_THREADS"]))
    name = os.environ["BENCH_WORKFLOW"]
    arguments = (PROMPT, int(os.environ["BENCH_CHILDREN"])) if name == "tree" else (PROMPT,)

    def one(_: int) -> None:
        client.enqueue({"queue_name": QUEUE, "workflow_name": name, "app_version": "bench"}, *arguments)

    def many(jobs: str) -> float:
        started = time.perf_counter()
        for _ in threads.map(one, range(int(jobs))):
            continue
        return time.perf_counter() - started

    try:
        serve({"submit": many})
    finally:
        client.destroy()


if __name__ == "__main__":
    {"worker": work, "submit": submit}[sys.argv[1]]()
