"""How long one call takes longer through the queue: from submitting to the wrapper in hand, with an idle worker."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.contest import warm_up
from bench.figures import median, number, percentile, ratio, table, times
from bench.programs.job import PROMPT, SCHEMA
from bench.sections.base import Section, Setting
from bench.systems.celery_noop import CeleryNoop
from bench.systems.vancetope import Vancetope
from engines.llm.base import LlmRequest, Message
from engines.llm.client import build_client
from engines.llm.config import LlmConfig

BARE, ROUND_TRIP = "the bare call", "Celery round trip"
DIRECT, BY_TASK = "vancetope, stored by the caller", "vancetope, through `vancetope.submit`"


def measure(setting: Setting) -> Section:
    """One call at a time; the ways take turns in blocks, on workers that have nothing else to do."""
    sizes = setting.sizes
    vancetope, celery = Vancetope(setting.servers), CeleryNoop(setting.servers)
    samples: dict[str, list[float]] = {BARE: [], ROUND_TRIP: [], DIRECT: [], BY_TASK: []}
    try:
        vancetope.start()
        celery.start()
        warm_up(vancetope, sizes.warm_jobs)
        warm_up(celery, sizes.warm_jobs)
        assert vancetope.submitter is not None
        assert celery.submitter is not None
        own, other = vancetope.submitter, celery.submitter
        ways: dict[str, Callable[[], float]] = {
            BARE: _bare_call(vancetope),
            ROUND_TRIP: lambda: float(other.ask("wait")),
            DIRECT: lambda: float(own.ask("wait")),
            BY_TASK: lambda: float(own.ask("wait_task")),
        }
        for way in ways.values():
            way()
        for number_of_round in range(1, sizes.latency_rounds + 1):
            for name, way in ways.items():
                block = [way() for _ in range(sizes.latency_samples)]
                samples[name] += block
                setting.say(f"latency {number_of_round}/{sizes.latency_rounds} {name}: {median(block):.2f} ms")
    finally:
        for contestant in (vancetope, celery):
            contestant.stop()
            contestant.close()
    base, bare = median(samples[ROUND_TRIP]), median(samples[BARE])
    rows = [
        (
            name,
            number(median(values), 2),
            number(percentile(values, 95), 2),
            number(max(values), 2),
            number(median(values) - bare, 2),
            times(ratio(median(values), base)),
        )
        for name, values in samples.items()
    ]
    return Section(
        name="latency",
        title=f"Latency added to one call, {sizes.latency_samples * sizes.latency_rounds:,} calls one at a time",
        tables=[table(("", "median ms", "p95 ms", "max ms", "added ms (median)", "to a Celery round trip"), rows)],
        notes=[
            "From submitting to the wrapper in the caller's hand, by `AsyncResult(id).get()`; the worker is idle.",
            "The bare call is the scripted provider through our client, without any queue.",
        ],
        data={name: sorted(values) for name, values in samples.items()},
    )


def _bare_call(vancetope: Vancetope) -> Callable[[], float]:
    client = build_client(LlmConfig(scripted_path=vancetope.script))
    request = LlmRequest(model="default:fast", messages=(Message(role="user", content=PROMPT),), schema=SCHEMA)

    def call() -> float:
        started = time.perf_counter()
        client.complete(request)
        return (time.perf_counter() - started) * 1000

    return call
