"""Sends no-op tasks with one kept producer, and measures round trips."""

from __future__ import annotations

import time

from bench.programs.lines import serve
from bench.programs.noop_app import app, echo, noop


class Submitter:
    def __init__(self) -> None:
        self._sent = 0

    def many(self, jobs: str) -> float:
        started = time.perf_counter()
        goal = self._sent + int(jobs)
        with app.producer_or_acquire() as producer:
            for number in range(int(jobs)):
                noop.apply_async((number, goal), producer=producer)
        self._sent = goal
        return time.perf_counter() - started

    def wait_for_one(self) -> float:
        """Milliseconds from sending a task to its result in hand."""
        started = time.perf_counter()
        echo.delay(7).get(timeout=60, interval=0.001)
        return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    submitter = Submitter()
    serve({"submit": submitter.many, "wait": submitter.wait_for_one})
