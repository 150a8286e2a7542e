"""The progress channel, the hand-over of results and the metrics: one background thread per worker process, in batches.

Nothing here is a guarantee. Progress is for people who watch; results are handed over again by the sweeper until they
are marked as delivered.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from typing import Any
from uuid import UUID

import redis

from models.store.processes import Delivery
from tasks.delivery import Deliverer
from tasks.meter import Meter
from tasks.plans import PlanFeed, channel

log = logging.getLogger(__name__)

MAX_PENDING = 20_000
"""Progress events kept while Redis is slow; older ones are dropped."""


MARK_SECONDS = 0.5
"""Results handed over are marked as delivered after at most this long; the sweeper repeats none younger than 5 s."""
MARK_MOST = 500


class Background:
    """Publishes progress and delivers results outside of the turn. A forked child starts its own.

    Results are handed over at once and marked as delivered together a moment later, so that marking costs next to
    nothing per job.
    """

    def __init__(self, client: redis.Redis, deliverer: Deliverer, plans: PlanFeed) -> None:
        self._redis = client
        self._deliverer = deliverer
        self._plans = plans
        self.meter = Meter(client)
        """What is counted in this process; its thread carries it to Redis."""
        self._reset()
        self.meter.on_first(self._signal)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._events: deque[tuple[str, dict[str, Any]]] = deque(maxlen=MAX_PENDING)
        self._deliveries: deque[Delivery] = deque()
        self._unmarked: list[UUID] = []
        self._mark_at = 0.0
        self._hurry = False
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ensure_own_process(self) -> None:
        """Forget what was inherited over a fork."""
        if self._pid != os.getpid():
            self._plans.forget()
            self.meter.forget()
            self._reset()

    def emit(self, root_id: UUID, event: dict[str, Any]) -> None:
        """Queue one progress event. Never blocks, never raises."""
        self._events.append((channel(root_id), event))
        self._signal()

    def plan_changed(self, root_id: UUID, process_id: UUID, *, last: bool) -> None:
        """A picture of the plan is wanted, soon; with ``last`` at once. Never blocks, never raises."""
        self._plans.mark(root_id, process_id, last=last)
        self._signal()

    def deliver(self, delivery: Delivery) -> None:
        """Queue one result for its waiting callers."""
        self._deliveries.append(delivery)
        self._signal()

    def flush(self, timeout: float) -> bool:
        """Wait until everything queued so far is out. ``False`` when it takes too long."""
        self._hurry = True
        self._signal()
        return self._idle.wait(timeout)

    def _signal(self) -> None:
        self._idle.clear()
        self._wake.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="vancetope-background", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while True:
            self._wake.wait(self._patience())
            self._wake.clear()
            try:
                self._drain()
            except redis.RedisError as error:
                log.warning("progress not published", extra={"error": type(error).__name__})
            except Exception:
                log.exception("background work failed; the sweeper delivers what is missing")
            if not self._events and not self._deliveries and not self._unmarked and not self._due_times():
                self._hurry = False
                self._idle.set()

    def _patience(self) -> float | None:
        """Seconds until something is due that waits for its time; ``None``: nothing does."""
        times = [*([self._mark_at] if self._unmarked else []), *self._due_times()]
        return max(min(times) - time.monotonic(), 0.0) if times else None

    def _due_times(self) -> list[float]:
        return [at for at in (self._plans.next_at, self.meter.next_at) if at is not None]

    def _drain(self) -> None:
        deliveries = [self._deliveries.popleft() for _ in range(len(self._deliveries))]
        if deliveries:
            done = self._deliverer.hand_over(deliveries)
            if done and not self._unmarked:
                self._mark_at = time.monotonic() + MARK_SECONDS
            self._unmarked += done
        if self._unmarked and (self._hurry or time.monotonic() >= self._mark_at or len(self._unmarked) >= MARK_MOST):
            marked, self._unmarked = self._unmarked, []
            self._deliverer.mark(marked)
        events = [self._events.popleft() for _ in range(len(self._events))]
        # The last picture of a plan goes out before the event that says it is closed.
        self._plans.publish(everything=self._hurry)
        if events:
            pipe = self._redis.pipeline(transaction=False)
            for name, event in events:
                # A lone surrogate in a streamed piece must not cost the other events of the batch.
                pipe.publish(name, json.dumps(event, ensure_ascii=False, default=str).encode("utf-8", "replace"))
            pipe.execute()
        self.meter.flush(everything=self._hurry)


class Chunks:
    """Collects the pieces of one streamed reply and emits them some at a time."""

    SIZE = 160

    def __init__(self, background: Background, root_id: UUID, ids: dict[str, Any]) -> None:
        self._background = background
        self._root_id = root_id
        self._ids = ids
        self._pieces: list[str] = []
        self._length = 0

    def __call__(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length >= self.SIZE:
            self.flush()

    def flush(self) -> None:
        """Emit what is left."""
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces, self._length = [], 0
            self._background.emit(self._root_id, {"kind": "chunk", **self._ids, "text": text})
