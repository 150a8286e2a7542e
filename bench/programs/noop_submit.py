"""Sends jobs of no-op tasks with one kept producer, and measures round trips.

Arguments: ``answer`` (one task), ``chain``, or ``tree`` (a chord of chains); and the branches of a tree.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from celery import chain, chord

from bench.programs.job import CHAIN_STEPS, CHILD_STEPS, LAST_STEPS
from bench.programs.lines import serve
from bench.programs.noop_app import app, echo, leaf, link, noop


class Submitter:
    def __init__(self, job: str, children: int) -> None:
        self._job = job
        self._children = children
        self._sent = 0

    def many(self, jobs: str) -> float:
        started = time.perf_counter()
        goal = self._sent + int(jobs)
        with app.producer_or_acquire() as producer:
            for number in range(int(jobs)):
                self._signature(number, goal).apply_async(producer=producer)
        self._sent = goal
        return time.perf_counter() - started

    def _signature(self, number: int, goal: int) -> Any:
        last = noop.si(number, goal)
        match self._job:
            case "chain":
                return chain(*(link.si(number) for _ in range(CHAIN_STEPS - 1)), last)
            case "tree":
                branches = [
                    chain(*(link.si(branch) for _ in range(CHILD_STEPS - 1)), leaf.si(branch))
                    for branch in range(self._children)
                ]
                return chord(branches, chain(*(link.si(number) for _ in range(LAST_STEPS - 1)), last))
            case _:
                return last

    def wait_for_one(self) -> float:
        """Milliseconds from sending a task to its result in hand."""
        started = time.perf_counter()
        echo.delay(7).get(timeout=60, interval=0.001)
        return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    submitter = Submitter(sys.argv[1], int(sys.argv[2]))
    serve({"submit": submitter.many, "wait": submitter.wait_for_one})
