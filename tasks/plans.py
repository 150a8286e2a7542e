"""Pictures of plans for people who watch: read from the store when asked for, published as plans change.

A plan that nobody watches costs a question to Redis at most twice a second and no statement. One that is watched is
read and published at most twice a second, however many workers are busy in it, and once more when it has come to rest.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import redis

from engines.marvin.snapshot import plan_payload
from engines.marvin.surroundings import plan_nodes
from models.store import plan as store
from models.store.database import Database, DatabaseUnavailable
from tasks.jsonable import dump

log = logging.getLogger(__name__)

PICTURE_SECONDS = 0.5
"""The least time between two pictures of one plan, over all workers."""
PICTURE_NODES = 300
MAX_PLANS = 2_000
"""Plans waiting to be published in one process; what comes on top is not published."""


def channel(root_id: UUID | str) -> str:
    """The Redis pub/sub channel of a root process and everything below it."""
    return f"vancetope:progress:{root_id}"


def picture(database: Database, process_id: UUID, *, limit: int = PICTURE_NODES) -> dict[str, Any] | None:
    """The event ``{"kind": "plan", "process", "status", "emittedAt", "plan"}``; ``plan`` is a ``PlanPayload``.

    ``emittedAt`` is the database's time: of two pictures the later one is newer, whichever arrives first. ``None`` when
    there is no such process. Raises ``DatabaseUnavailable``.
    """
    found = store.tree(database, process_id, limit=limit)
    if found is None:
        return None
    return {
        "kind": "plan",
        "process": str(process_id),
        "status": found.status.value,
        "emittedAt": found.taken_at.isoformat(),
        "plan": plan_payload(plan_nodes(found.rows)),
    }


def picture_within(database: Database, process_id: UUID, chars: int) -> dict[str, Any] | None:
    """The largest :func:`picture` of at most ``chars`` characters of JSON, or the smallest there is."""
    limit = PICTURE_NODES
    while True:
        found = picture(database, process_id, limit=limit)
        if found is None or limit <= 1 or len(dump(found)) <= chars:
            return found
        limit //= 2


@dataclass(slots=True)
class _Change:
    """A plan that has changed since its last picture. ``due``: not before, on the monotonic clock."""

    process_id: UUID
    root_id: UUID
    due: float
    last: bool


class PlanFeed:
    """Publishes pictures of plans that have changed. :meth:`mark` is for any thread, the rest for one."""

    def __init__(self, client: redis.Redis, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = client
        self._database = database
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Start anew: what a forked child does."""
        self._lock = threading.Lock()
        self._changed: dict[UUID, _Change] = {}
        self._not_before: dict[UUID, float] = {}

    def mark(self, root_id: UUID, process_id: UUID, *, last: bool) -> None:
        """The plan has changed. last: for good, so its picture need not wait. Never blocks, never raises."""
        now = self._clock()
        with self._lock:
            change = self._changed.get(process_id)
            if change is None:
                if len(self._changed) >= MAX_PLANS:
                    return
                due = max(now, self._not_before.get(process_id, 0.0))
                change = self._changed[process_id] = _Change(process_id, root_id, due, last)
            if last:
                change.due, change.last = now, True

    @property
    def next_at(self) -> float | None:
        """When the next picture is due, on the monotonic clock; ``None`` when nothing has changed."""
        with self._lock:
            return min((change.due for change in self._changed.values()), default=None)

    def publish(self, *, everything: bool = False) -> None:
        """Publish what is due, or everything that has changed. Logs what goes wrong: a picture is no guarantee."""
        due = self._take(everything)
        if not due:
            return
        try:
            self._publish(due)
        except redis.RedisError as error:
            log.warning("plans not published", extra={"error": type(error).__name__})
        except DatabaseUnavailable as error:
            log.warning("plans not read", extra={"error": str(error)})

    def _take(self, everything: bool) -> list[_Change]:
        now = self._clock()
        with self._lock:
            due = [change for change in self._changed.values() if everything or change.due <= now]
            for change in due:
                del self._changed[change.process_id]
            self._not_before = {each: at for each, at in self._not_before.items() if at > now}
            self._not_before |= {change.process_id: now + PICTURE_SECONDS for change in due}
        return due

    def _publish(self, due: Sequence[_Change]) -> None:
        for change in self._watched(due):
            if not self._turn_of(change):
                self._again(change)
                continue
            event = picture(self._database, change.process_id)
            if event is not None:
                text = json.dumps(event, ensure_ascii=False).encode("utf-8", "replace")
                self._redis.publish(channel(change.root_id), text)

    def _watched(self, due: Sequence[_Change]) -> list[_Change]:
        """Those whose very channel is listened to. Patterns do not count: every Celery worker subscribes to one."""
        pipe: Any = self._redis.pipeline(transaction=False)
        for change in due:
            pipe.pubsub_numsub(channel(change.root_id))
        return [each for each, found in zip(due, pipe.execute(), strict=True) if found[0][1]]

    def _turn_of(self, change: _Change) -> bool:
        """Whether this worker may publish now. A last picture always may."""
        key = f"vancetope:picture:{change.process_id}"
        milliseconds = int(PICTURE_SECONDS * 1000)
        return bool(self._redis.set(key, 1, nx=not change.last, px=milliseconds))

    def _again(self, change: _Change) -> None:
        """Another worker has just published; it may not have seen our change."""
        with self._lock:
            change.due = self._clock() + PICTURE_SECONDS
            newer = self._changed.setdefault(change.process_id, change)
            newer.last = newer.last or change.last
