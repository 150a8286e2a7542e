"""The sweeper: repairs whatever a crash, a lost message or a restart has left behind.

Safe with any number of beats and workers: each repair is one batched statement that skips rows locked by others. One
repair that fails (a bad row, a moment without PostgreSQL) stops none of the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sized
from uuid import UUID

import redis

from engines.base import Engine
from models.ages import Ages
from models.records import CloseReason, Turn
from models.store import inbox, retention, sweep
from models.store.database import Database, DatabaseUnavailable
from models.store.processes import Closing, fail_process, stop, undelivered
from tasks import faults
from tasks.closing import wrapper_of
from tasks.delivery import Deliverer
from tasks.logs import bound
from tasks.meter import CLOSED, REPAIRS, SWEEPS, Meter
from tasks.publish import Publisher, engine_queue, queue_lists

log = logging.getLogger(__name__)

SWEPT_KEY = "vancetope:swept"
"""When the last whole sweep ended, in seconds since the epoch."""
LOST_AGE_SECONDS = 2.0
"""A due turn whose queue is empty is taken for lost after this long."""

RETENTION_SECONDS = 60.0
"""How often retention looks for more once nothing was left."""


NO_AGES = Ages()


class Sweeper:
    """One sweep is :meth:`sweep`; beat asks for one every second or so.

    ages: how long processes of tenants without a policy of their own are kept.
    """

    def __init__(
        self,
        *,
        database: Database,
        client: redis.Redis,
        engines: Mapping[str, Engine],
        publisher: Publisher,
        deliverer: Deliverer,
        meter: Meter | None = None,
        batch: int,
        ages: Ages = NO_AGES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._redis = client
        self._engines = engines
        self._publisher = publisher
        self._deliverer = deliverer
        self._meter = meter or Meter(client)
        self._batch = batch
        self._ages = ages
        self._clock = clock
        self._not_before: dict[str, float] = {}

    def sweep(self) -> dict[str, int]:
        """Do every repair once. Returns how many rows each has touched; only those that touched any."""
        repairs: list[tuple[str, Callable[[], int]]] = [
            ("leases_taken_back", lambda: self._publish(sweep.take_back_expired(self._database, batch=self._batch))),
            ("parents_reactivated", lambda: self._publish(sweep.reactivate_parents(self._database, batch=self._batch))),
            ("waiting_started", lambda: self._publish(sweep.start_waiting(self._database, batch=self._batch))),
            ("callers_woken", lambda: self._publish(sweep.wake_callers(self._database, batch=self._batch))),
            ("overdue_woken", lambda: self._publish(sweep.wake_overdue(self._database, batch=self._batch))),
            ("questions_expired", lambda: self._publish(inbox.expire(self._database, batch=self._batch))),
            ("blocked", lambda: inbox.block_waiting(self._database, batch=self._batch)),
            ("republished", lambda: self._publish(sweep.republish_due(self._database, batch=self._batch))),
            ("lost_republished", self._republish_lost),
            ("poisoned_closed", self._close_poisoned),
            ("orphans_stopped", self._stop_orphans),
            ("delivered", self._deliver),
            ("pruned", lambda: self._now_and_then("pruned", retention.delete_old)),
            ("artifacts_removed", lambda: self._now_and_then("artifacts_removed", retention.remove_artifacts)),
        ]
        done: dict[str, int] = {}
        for name, repair in repairs:
            try:
                count = repair()
            except DatabaseUnavailable as error:
                log.warning("sweep interrupted", extra={"repair": name, "error": str(error)})
                break
            except Exception:
                log.exception("repair failed", extra={"repair": name})
                continue
            if count:
                done[name] = count
                self._meter.count(REPAIRS, name, by=count)
        else:
            self._note_time()
            self._meter.count(SWEEPS)
        if done:
            log.info("swept", extra=done)
        return done

    def _note_time(self) -> None:
        """For readiness checks: a beat asked for a sweep, a worker has taken it, and PostgreSQL was there."""
        try:
            self._redis.set(SWEPT_KEY, f"{time.time():.3f}", ex=86_400)
        except redis.RedisError as error:
            log.warning("sweep not noted, Redis is away", extra={"error": type(error).__name__})

    def _publish(self, turns: list[Turn]) -> int:
        faults.reach("in_sweep")
        if turns:
            self._publisher.publish(turns)
        return len(turns)

    def _republish_lost(self) -> int:
        empty = self._empty_queues()
        if not empty:
            return 0
        lost = sweep.republish_lost(self._database, empty, batch=self._batch, age_seconds=LOST_AGE_SECONDS)
        return self._publish(lost)

    def _empty_queues(self) -> list[str]:
        names = list(self._engines)
        try:
            pipe = self._redis.pipeline(transaction=False)
            for name in names:
                pipe.exists(*queue_lists(engine_queue(name)))
            return [name for name, present in zip(names, pipe.execute(), strict=True) if not present]
        except redis.RedisError as error:
            log.warning("queue lengths unknown, Redis is away", extra={"error": type(error).__name__})
            return []

    def _close_poisoned(self) -> int:
        message = "too many workers were lost while they ran this process; it is given up"
        poisoned = sweep.poisoned_processes(self._database, batch=self._batch)
        for process_id in poisoned:
            self._close(fail_process, CloseReason.FAILED, process_id, error="internal_error", message=message)
        return len(poisoned)

    def _stop_orphans(self) -> int:
        message = "the caller went on without this reply"
        orphans = sweep.orphaned_processes(self._database, batch=self._batch)
        for process_id in orphans:
            self._close(stop, CloseReason.STOPPED, process_id, error="stopped", message=message)
        return len(orphans)

    def _close(
        self, close: Callable[..., Sized], reason: CloseReason, process_id: UUID, *, error: str, message: str
    ) -> None:
        def wrapper(closing: Closing) -> dict[str, object]:
            return wrapper_of(self._engines.get(closing.engine), closing.cursor, error=error, message=message)

        try:
            closed = close(self._database, process_id, wrapper, failure=message)
            self._meter.count(CLOSED, reason.value, by=len(closed))
        except DatabaseUnavailable:
            raise
        except Exception:
            with bound(process=str(process_id)):
                log.exception("process cannot be closed")

    def _deliver(self) -> int:
        late = undelivered(self._database, batch=self._batch)
        if late:
            self._deliverer(late)
        return len(late)

    def _now_and_then(self, name: str, step: Callable[[Database, Ages], int]) -> int:
        """A step of retention with every sweep while there is something to take; nothing is urgent about it."""
        if self._clock() < self._not_before.get(name, 0.0):
            return 0
        taken = step(self._database, self._ages)
        if not taken:
            self._not_before[name] = self._clock() + RETENTION_SECONDS
        return taken
