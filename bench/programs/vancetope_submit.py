"""Submits processes the way the command line does: checked, stored, published. Arguments: how many at a time, by how
many threads, and the payload of each as JSON."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis

from bench.programs.lines import serve
from models.store import processes as store
from models.store.database import Database
from tasks.broker import publisher_app
from tasks.cookbook import recipe_sources
from tasks.publish import Publisher
from tasks.settings import current
from tasks.submission import Submission, prepare
from tasks.wiring import load_engines


class Submitter:
    """Holds what an application would hold: one pool of connections and one publisher."""

    def __init__(self, batch: int, threads: int, job: dict[str, Any]) -> None:
        self._settings = current()
        self._engines = load_engines(self._settings.engines)
        self._database = Database(self._settings.database, pool_size=threads)
        self._app = publisher_app(self._settings)
        self._publisher = Publisher(redis.Redis.from_url(self._settings.redis))
        self._batch = batch
        self._threads = ThreadPoolExecutor(threads)
        self._job = job
        self._sources = recipe_sources(self._settings)

    def one(self) -> str:
        """Submit one process; its id."""
        return self._submit(1)[0]

    def many(self, jobs: str) -> float:
        """Submit and publish ``jobs`` processes; how many seconds it took."""
        started = time.perf_counter()
        total = int(jobs)
        sizes = [min(self._batch, total - first) for first in range(0, total, self._batch)]
        for _ in self._threads.map(self._submit, sizes):
            continue
        return time.perf_counter() - started

    def _submit(self, count: int) -> list[str]:
        new = [prepare(Submission(**self._job), self._settings, self._engines, self._sources) for _ in range(count)]
        self._publisher.publish(store.submit(self._database, new))
        return [str(process.id) for process in new]

    def wait_for_one(self) -> float:
        """Submit one process and wait for its wrapper as an application does; milliseconds."""
        started = time.perf_counter()
        process_id = self.one()
        wrapper = self._app.AsyncResult(process_id).get(timeout=60, interval=0.001)
        took = (time.perf_counter() - started) * 1000
        if not wrapper["success"]:
            raise RuntimeError(f"unexpected result: {wrapper}")
        return took

    def wait_for_task(self) -> float:
        """The same through the task ``vancetope.submit``, as an application without database access does."""
        started = time.perf_counter()
        process_id = str(Submission(**self._job).id)
        self._app.send_task("vancetope.submit", kwargs=self._job, task_id=process_id)
        wrapper = self._app.AsyncResult(process_id).get(timeout=60, interval=0.001)
        took = (time.perf_counter() - started) * 1000
        if not wrapper["success"]:
            raise RuntimeError(f"unexpected result: {wrapper}")
        return took


if __name__ == "__main__":
    submitter = Submitter(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
    serve({"submit": submitter.many, "wait": submitter.wait_for_one, "wait_task": submitter.wait_for_task})
