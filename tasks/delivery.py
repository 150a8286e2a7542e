"""Handing results to whoever waits: Celery's own result backend under the process id, and the callback task.

At least once: a result is marked as delivered only after it was handed over; the sweeper repeats what is not marked.
"""

from __future__ import annotations

import json
import logging
from typing import Any
from uuid import UUID

import redis
from celery import Celery, states
from kombu.exceptions import OperationalError

from models.store.database import Database, DatabaseUnavailable
from models.store.processes import Delivery, mark_delivered
from tasks import faults
from tasks.logs import bound

log = logging.getLogger(__name__)

FOREIGN_QUEUE = "celery"
"""Where a callback without a queue goes: Celery's default in other applications. Our own queues would drop it."""


def abridged(wrapper: dict[str, Any], limit: int) -> dict[str, Any]:
    """The wrapper itself, or when its JSON is longer than ``limit`` bytes a note of what it is and how long.

    The client fetches an oversize result in pieces, so that no message and no result key grows without bound.
    """
    # As the result backend stores it: Celery escapes everything beyond ASCII.
    size = len(json.dumps(wrapper))
    if size <= limit:
        return wrapper
    kept: dict[str, Any] = {key: wrapper[key] for key in ("success", "attempts", "error") if key in wrapper}
    return {**kept, "oversize": True, "bytes": size}


class Deliverer:
    """Delivers results in batches."""

    def __init__(self, app: Celery, database: Database, *, max_bytes: int) -> None:
        self._app = app
        self._database = database
        self._max_bytes = max_bytes

    def __call__(self, deliveries: list[Delivery]) -> None:
        """Hand over and mark at once."""
        self.mark(self.hand_over(deliveries))

    def hand_over(self, deliveries: list[Delivery]) -> list[UUID]:
        """Hand over; returns the ids to mark. What fails is not among them and is tried again later by the sweeper."""
        done = []
        for delivery in deliveries:
            try:
                self._send(delivery)
            except faults.InjectedFault:
                raise
            except (OperationalError, OSError, redis.RedisError) as error:
                with bound(process=str(delivery.process_id)):
                    log.warning("result not delivered yet", extra={"error": type(error).__name__})
                # Nobody is there to take the others either; each would only wait for the same answer.
                break
            except Exception:
                # One result that cannot be handed over must not keep back those behind it.
                with bound(process=str(delivery.process_id)):
                    log.exception("result cannot be delivered")
            else:
                done.append(delivery.process_id)
        faults.reach("after_delivery")
        return done

    def mark(self, process_ids: list[UUID]) -> None:
        """Remember what was handed over. Forgetting it only repeats the delivery."""
        try:
            mark_delivered(self._database, process_ids)
        except DatabaseUnavailable as error:
            log.warning("delivery not marked, it will be repeated", extra={"error": str(error)})

    def _send(self, delivery: Delivery) -> None:
        faults.reach("before_delivery")
        process_id = str(delivery.process_id)
        shown = abridged(delivery.wrapper, self._max_bytes)
        self._app.backend.store_result(process_id, shown, states.SUCCESS)
        callback = delivery.callback
        if callback is not None:
            self._app.send_task(
                callback["task"],
                args=(process_id, shown),
                queue=callback.get("queue") or FOREIGN_QUEUE,
                ignore_result=True,
                argsrepr=f"({process_id!r}, ...)",
                retry=False,
            )
