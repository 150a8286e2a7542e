"""A Celery application whose tasks do nothing. ``BENCH_REDIS_URL`` names its Redis.

Completions are counted in memory shared by the worker's processes; the count is written to Redis by the one who
completes a round, so that seeing the end costs a task nothing.
"""

from __future__ import annotations

import multiprocessing
import os

import redis
from celery import Celery

app = Celery("bench-noop", broker=os.environ["BENCH_REDIS_URL"], backend=os.environ["BENCH_REDIS_URL"])
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)
DONE_KEY = "bench:done"

_done = multiprocessing.Value("q", 0)


@app.task(name="bench.noop")
def noop(number: int, goal: int) -> None:
    """Count itself; two whole numbers, as a turn has. Tells when ``goal`` are done since the worker started."""
    with _done.get_lock():
        _done.value += 1
        done = _done.value
    if done == goal:
        with redis.Redis.from_url(os.environ["BENCH_REDIS_URL"]) as client:
            client.set(DONE_KEY, done)


@app.task(name="bench.link")
def link(number: int) -> None:
    """A step before the last one of a chain."""


@app.task(name="bench.leaf", ignore_result=False)
def leaf(number: int) -> int:
    """The last step of a branch; a chord counts the results of these."""
    return number


@app.task(name="bench.echo", ignore_result=False)
def echo(number: int) -> int:
    """A round trip."""
    return number
