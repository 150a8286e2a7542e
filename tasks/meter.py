"""What workers count and time: added up in each process, and every few seconds in one hash in Redis that all share.

Why Redis and not the tables: the ledger loses rows to retention, its rows become visible out of order, and it never
learns of a call whose turn was lost. These counts outlive workers and API processes, and each API process shows the
same. A killed worker takes the last seconds with it, and a flushed Redis starts them from zero, as any counter may;
about money the ledger has the last word.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import redis

log = logging.getLogger(__name__)

KEY: Final = "vancetope:metrics"
FLUSH_SECONDS: Final = 3.0
MAX_FIELDS: Final = 20_000
"""Fields of the hash. Models and phases come from submissions: whoever invents names must not fill Redis with them."""
MAX_PENDING: Final = 5_000
MAX_LABEL: Final = 100
"""Characters of a label's value; longer ones are cut."""
INFINITE: Final = "+Inf"

# KEYS: the hash. ARGV: the most fields it may have, then field, amount, … Returns how many had no place any more.
_ADD: Final = """
local full = redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[1])
local refused = 0
for index = 2, #ARGV, 2 do
  if full and redis.call('HEXISTS', KEYS[1], ARGV[index]) == 0 then
    refused = refused + 1
  else
    redis.call('HINCRBYFLOAT', KEYS[1], ARGV[index], ARGV[index + 1])
  end
end
return refused
"""


@dataclass(frozen=True, slots=True)
class Counter:
    """A number that only grows. ``name`` is without ``_total``, as Prometheus's client wants it."""

    name: str
    help: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often a value lay below each of ``bounds``, and the sum of all values."""

    name: str
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...]

    def bucket(self, value: float) -> str:
        """The smallest bound that is not below ``value``, as Prometheus writes it."""
        index = bisect_left(self.bounds, value)
        return INFINITE if index == len(self.bounds) else repr(self.bounds[index])


_SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
_LONG = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

TURNS: Final = Counter(
    "vancetope_turns",
    "Turns that ended: committed, postponed (nothing was done), lost (the lease), unavailable (the database), crashed.",
    ("engine", "outcome"),
)
TURN_SECONDS: Final = Histogram(
    "vancetope_turn_duration_seconds",
    "From claim to commit, calls and tools included; committed turns only.",
    ("engine", "phase"),
    _SHORT + _LONG,
)
CALLS: Final = Counter(
    "vancetope_provider_calls",
    "Provider calls that ended; error_kind is empty for those that were answered.",
    ("provider", "model", "error_kind"),
)
CALL_SECONDS: Final = Histogram(
    "vancetope_provider_call_duration_seconds",
    "Provider calls from request to the end of the reply, failed ones too.",
    ("provider", "model"),
    _SHORT[4:] + _LONG,
)
TOKENS: Final = Counter(
    "vancetope_provider_tokens",
    "Tokens as providers counted them: input, output, cache_read, cache_write; none is counted twice.",
    ("provider", "model", "kind"),
)
COST: Final = Counter(
    "vancetope_provider_cost_usd",
    "US dollars by the catalogue's prices; unpriced models cost nothing.",
    ("provider", "model"),
)
CLOSED: Final = Counter("vancetope_processes_closed", "Processes closed, sub-processes too.", ("reason",))
SWEEPS: Final = Counter("vancetope_sweeps", "Sweeps that went through all repairs.", ())
REPAIRS: Final = Counter(
    "vancetope_sweep_repairs",
    "Rows the sweeper has repaired; leases_taken_back are workers lost in the middle of a turn.",
    ("repair",),
)
WEBHOOKS: Final = Counter(
    "vancetope_webhook_attempts",
    "Webhooks sent: delivered, retried (it failed and is tried again), failed (it is given up).",
    ("outcome",),
)

BATCHES: Final = Counter(
    "vancetope_batches",
    "Batches that ended: completed, expired, cancelled, failed, refused (never taken), withdrawn (never sent).",
    ("provider", "outcome"),
)

METRICS: Final[tuple[Counter | Histogram, ...]] = (
    TURNS, TURN_SECONDS, CALLS, CALL_SECONDS, TOKENS, COST, CLOSED, SWEEPS, REPAIRS, WEBHOOKS, BATCHES,
)  # fmt: skip

Field = tuple[str, ...]
"""Metric name, label values, and of a histogram ``sum`` or the bucket's bound."""


class Meter:
    """Adds up in this process; :meth:`flush` carries it to Redis. Safe to share between threads, and over a fork."""

    def __init__(self, client: redis.Redis, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = client
        self._clock = clock
        self._add: Any = client.register_script(_ADD)
        self._notify: Callable[[], None] = _nobody
        self.forget()

    def forget(self) -> None:
        """Start at zero: what was counted before a fork is the parent's to flush."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._amounts: defaultdict[Field, float] = defaultdict(float)
        self._flush_at: float | None = None

    def on_first(self, notify: Callable[[], None]) -> None:
        """Call ``notify`` with the first count after each flush: whoever flushes may have gone to sleep."""
        self._notify = notify

    def count(self, counter: Counter, *labels: str, by: float = 1.0) -> None:
        """Add ``by``. Never blocks, never raises."""
        self._put({(counter.name, *labels): by})

    def observe(self, histogram: Histogram, *labels: str, value: float) -> None:
        """One value. Never blocks, never raises."""
        name = histogram.name
        self._put({(name, *labels, histogram.bucket(value)): 1.0, (name, *labels, "sum"): value})

    @property
    def next_at(self) -> float | None:
        """When the next flush is due, on the monotonic clock; ``None`` when nothing was counted."""
        return self._flush_at

    def flush(self, *, everything: bool = False) -> None:
        """Carry over what has been counted, if it is time; ``everything``: at once, for there may be no other time.

        What Redis does not take is kept for the next flush, except with ``everything``.
        """
        if self._flush_at is None or not (everything or self._clock() >= self._flush_at):
            return
        with self._lock:
            taken, self._amounts, self._flush_at = self._amounts, defaultdict(float), None
        arguments: list[str | float] = [MAX_FIELDS]
        for field, amount in taken.items():
            arguments += [json.dumps([part[:MAX_LABEL] for part in field]), amount]
        try:
            refused = self._add(keys=[KEY], args=arguments)
        except redis.RedisError as error:
            log.warning("metrics not flushed", extra={"error": type(error).__name__})
            if not everything:
                self._put(taken)
            return
        if refused:
            log.warning("too many metrics, new ones are dropped", extra={"dropped": refused, "most": MAX_FIELDS})

    def _put(self, amounts: Mapping[Field, float]) -> None:
        if self._pid != os.getpid():
            self.forget()
        with self._lock:
            for field, amount in amounts.items():
                if field in self._amounts or len(self._amounts) < MAX_PENDING:
                    self._amounts[field] += amount
            first = self._flush_at is None
            if first:
                self._flush_at = self._clock() + FLUSH_SECONDS
        if first:
            self._notify()


def _nobody() -> None:
    """Whoever uses a meter without a background thread flushes it themselves."""


def stored(client: redis.Redis) -> Iterator[tuple[Field, float]]:
    """Everything the workers have counted so far. Raises ``redis.RedisError``."""
    found = cast("dict[bytes, bytes]", client.hgetall(KEY))
    for field, amount in found.items():
        yield tuple(json.loads(field)), float(amount)
