"""DBOS: ``worker`` runs a queue of workflows of one step each; ``submit`` enqueues from another process.

Environment: BENCH_DATABASE_URL (its own system database), BENCH_THREADS, BENCH_POLL_SECONDS,
BENCH_SUBMIT_THREADS.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig  # type: ignore[import-not-found, unused-ignore]

from bench.programs.job import PROMPT, instant_model
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

    def one(_: int) -> None:
        client.enqueue({"queue_name": QUEUE, "workflow_name": "answer", "app_version": "bench"}, PROMPT)

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
