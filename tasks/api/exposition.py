"""The metrics in Prometheus's words: what PostgreSQL and Redis know now, and what the workers have counted."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import redis
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from models.records import OPEN_PROCESS
from models.store.database import DatabaseUnavailable
from models.store.figures import NODE_STATES, Figures, figures
from tasks.gate import open_breakers
from tasks.meter import CALLS, INFINITE, METRICS, Field, Histogram, stored
from tasks.publish import CONTROL_QUEUE, URGENT_QUEUE, engine_queue, queue_lists
from tasks.sweeper import SWEPT_KEY
from tasks.wiring import Runtime

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 5.0
"""Scrapes within this time get the same figures: however many scrape, PostgreSQL is asked so often and no oftener."""


class Metrics(Collector):
    """What one scrape shows. Safe to share between threads: one reads, the others wait for what it has found."""

    def __init__(self, runtime: Runtime, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._runtime = runtime
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = -math.inf
        self._found: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        """All metrics, those without a value too; without PostgreSQL or Redis those that the other one knows."""
        with self._lock:
            if self._clock() - self._read_at >= FRESH_SECONDS:
                self._found = [*self._of_postgresql(), *self._of_redis()]
                self._read_at = self._clock()
            return self._found

    def _of_postgresql(self) -> Iterator[Metric]:
        found: Figures | None = None
        try:
            found = figures(self._runtime.database)
        except DatabaseUnavailable as error:
            log.warning("figures not read", extra={"error": str(error)})
        yield _gauge(
            "vancetope_postgresql_up", "Whether PostgreSQL answers the questions below.", float(found is not None)
        )
        if found is not None:
            yield from self._figures(found)

    def _figures(self, found: Figures) -> Iterator[Metric]:
        engines = self._runtime.engines
        processes = _labelled("vancetope_processes", "Open processes, sub-processes too.", "engine", "status")
        numbers = {(engine, str(status)): 0 for engine in engines for status in OPEN_PROCESS}
        numbers |= {(engine, status): number for engine, status, number in found.processes}
        for labels, number in sorted(numbers.items()):
            processes.add_metric(labels, number)
        yield processes
        nodes = _labelled("vancetope_nodes", "Nodes that are not settled, by what they wait for.", "state")
        counted = dict.fromkeys(NODE_STATES, 0) | dict(found.nodes)
        for state, number in counted.items():
            nodes.add_metric([state], number)
        nodes.add_metric(["waits_for_person"], found.questions)
        nodes.add_metric(["waits_for_batch"], found.batch_requests)
        yield nodes
        due = _labelled("vancetope_due_turns", "Turns nobody has taken yet, of processes that may run.", "engine")
        leased = _labelled("vancetope_leased_turns", "Turns that workers have now.", "engine")
        oldest = _labelled("vancetope_oldest_due_turn_seconds", "How long the oldest due turn has waited.", "engine")
        backlogs = {each.engine: each for each in found.backlogs}
        for engine in sorted({*engines, *backlogs}):
            backlog = backlogs.get(engine)
            due.add_metric([engine], backlog.due if backlog else 0)
            leased.add_metric([engine], backlog.leased if backlog else 0)
            oldest.add_metric([engine], backlog.oldest_seconds if backlog else 0)
        yield from (due, leased, oldest)
        for name, words, value in (
            (
                "budgets_nearly_spent",
                "Open root processes with 90 % of a limit used or reserved.",
                found.budgets_nearly_spent,
            ),
            ("undelivered_results", "Results of closed processes that were not handed over yet.", found.undelivered),
            (
                "oldest_undelivered_result_seconds",
                "Since the oldest of them was closed.",
                found.undelivered_oldest_seconds,
            ),
            ("questions_pending", "Questions that wait for a person.", found.questions),
            ("oldest_question_seconds", "Since the oldest of them was asked.", found.questions_oldest_seconds),
            (
                "oldest_batch_request_seconds",
                "Since the oldest model call that waits for a batch was filed.",
                found.batch_requests_oldest_seconds,
            ),
            ("dead_letters", "Messages set aside because nobody can act on them.", found.dead_letters),
            ("webhooks_pending", "Webhooks that were not delivered yet.", found.webhooks.pending),
            ("oldest_pending_webhook_seconds", "Since the event of the oldest of them.", found.webhooks.oldest_seconds),
            (
                "oldest_due_webhook_seconds",
                "How long the oldest webhook is due to an endpoint that does not fail and that nobody sends to.",
                found.webhooks.late_seconds,
            ),
            ("webhook_endpoints_failing", "Endpoints that take no webhooks at present.", found.webhooks.failing),
            (
                "webhook_endpoints_given_up",
                "Endpoints disabled because they took none for days, or wanted no more.",
                found.webhooks.given_up,
            ),
        ):
            yield _gauge(f"vancetope_{name}", words, value)

    def _of_redis(self) -> Iterator[Metric]:
        client = self._runtime.redis
        queues = [CONTROL_QUEUE, URGENT_QUEUE, *(engine_queue(name) for name in sorted(self._runtime.engines))]
        counts: list[tuple[Field, float]] = []
        try:
            pipe: Any = client.pipeline(transaction=False)
            for queue in queues:
                for name in queue_lists(queue):
                    pipe.llen(name)
            lengths = iter(pipe.execute())
            swept = cast("bytes | None", client.get(SWEPT_KEY))
            counts = list(stored(client))
            providers = sorted({field[1] for field, _ in counts if field[0] == CALLS.name})
            breakers = open_breakers(client, providers)
        except redis.RedisError as error:
            log.warning("queues and counts not read", extra={"error": type(error).__name__})
            yield _gauge("vancetope_redis_up", _REDIS_UP, 0)
            return
        yield _gauge("vancetope_redis_up", _REDIS_UP, 1)
        depth = _labelled(
            "vancetope_queue_messages", "Messages that wait in a queue, over all its priorities.", "queue"
        )
        for queue in queues:
            depth.add_metric([queue], sum(next(lengths) for _ in queue_lists(queue)))
        yield depth
        age = math.inf if swept is None else max(time.time() - float(swept), 0.0)
        yield _gauge(
            "vancetope_last_sweep_age_seconds", "Since the last whole sweep; infinite when none is known.", age
        )
        breaker = _labelled(
            "vancetope_provider_breaker_open",
            "1: the provider is left alone, or was and has not answered since.",
            "provider",
        )
        for provider in providers:
            breaker.add_metric([provider], float(provider in breakers))
        yield breaker
        yield from counted(counts)


_REDIS_UP: Final = "Whether Redis answers the questions below."


def counted(counts: Iterable[tuple[Field, float]]) -> Iterator[Metric]:
    """The metrics of the workers, from what :func:`tasks.meter.stored` has read. Unknown fields are left out."""
    by_name: defaultdict[str, list[tuple[Field, float]]] = defaultdict(list)
    for field, amount in sorted(counts):
        by_name[field[0]].append((field[1:], amount))
    for metric in METRICS:
        rows = by_name[metric.name]
        if isinstance(metric, Histogram):
            yield _histogram(metric, rows)
            continue
        family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, amount in rows or ([] if metric.labels else [((), 0.0)]):
            if len(labels) == len(metric.labels):
                family.add_metric(labels, amount)
        yield family


def _histogram(metric: Histogram, rows: Iterable[tuple[Field, float]]) -> Metric:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    sums: defaultdict[Field, float] = defaultdict(float)
    numbers: defaultdict[Field, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for field, amount in rows:
        labels, part = field[:-1], field[-1]
        if len(labels) != len(metric.labels):
            continue
        if part == "sum":
            sums[labels] += amount
        else:
            # A worker of another version may have other bounds: what it counted goes to the next one of ours.
            numbers[labels][INFINITE if part == INFINITE else metric.bucket(float(part))] += amount
    for labels, found in numbers.items():
        running, buckets = 0.0, []
        for bound in (*(repr(each) for each in metric.bounds), INFINITE):
            running += found[bound]
            buckets.append((bound, running))
        family.add_metric(labels, buckets, sums[labels])
    return family


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)


def _labelled(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, words, labels=labels)
