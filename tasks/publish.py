"""Putting turns on the broker. A message carries a node id and a turn number and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from models.records import Turn

log = logging.getLogger(__name__)


def turn_task(engine: str) -> str:
    """The Celery task name of an engine's turns."""
    return f"vancetope.{engine}.turn"


def engine_queue(engine: str) -> str:
    """The queue an engine's turns go to."""
    return f"vancetope.{engine}"


CONTROL_QUEUE = "vancetope.control"
"""Submissions, sweeps, stops and questions: served apart from turns, so that they never wait behind long calls."""


class Publisher:
    """Publishes due turns. A failure is logged and forgotten: the sweeper publishes what is due again."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def publish(self, turns: Iterable[Turn]) -> int:
        """Send one message per turn; returns how many were sent."""
        sent = 0
        try:
            with self._app.producer_or_acquire() as producer:
                for turn in turns:
                    self._app.send_task(
                        turn_task(turn.engine),
                        args=(turn.node_id, turn.turn),
                        queue=engine_queue(turn.engine),
                        priority=turn.priority,
                        producer=producer,
                        retry=False,
                        ignore_result=True,
                    )
                    sent += 1
        except (OperationalError, OSError, redis.RedisError) as error:
            log.warning("turns not published, the sweeper will", extra={"error": type(error).__name__})
        return sent
