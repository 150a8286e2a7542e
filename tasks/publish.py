"""Putting turns on the broker. A message carries a node id and a turn number and nothing else.

Turns are written in Celery's own message form straight to the queue's list in Redis, all of one commit in one round
trip: a tenth of what a general ``send_task`` costs. A test keeps the form equal to what ``send_task`` writes.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import uuid
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import redis

from models.records import Turn

log = logging.getLogger(__name__)

QUEUE_PREFIX = "vancetope."
CONTROL_QUEUE = "vancetope.control"
"""Submissions: served apart from turns, so that they never wait behind long calls."""
URGENT_QUEUE = "vancetope.urgent"
"""Sweeps, stops and questions: apart from submissions too, so that a flood of those does not hold them up."""
# Kombu keeps one Redis list per priority step; the first has the plain name.
PRIORITY_SEPARATOR = "\x06\x16"
PRIORITY_STEPS = (0, 3, 6, 9)
"""The priority lists that can exist on the broker: Kombu's own, so that a message of an application that knows nothing
of ours, with a priority of its own, lies in a list that workers read. Ours (``BROKER_PRIORITY``) are among them."""

_EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def turn_task(engine: str) -> str:
    """The Celery task name of an engine's turns."""
    return f"{QUEUE_PREFIX}{engine}.turn"


def engine_queue(engine: str) -> str:
    """The queue an engine's turns go to."""
    return f"{QUEUE_PREFIX}{engine}"


def queue_lists(queue: str) -> list[str]:
    """Every Redis list that belongs to ``queue``, one per priority step."""
    return [queue if step == 0 else f"{queue}{PRIORITY_SEPARATOR}{step}" for step in PRIORITY_STEPS]


def _list_of(queue: str, priority: int) -> str:
    step = max(step for step in PRIORITY_STEPS if step <= max(priority, 0))
    return queue if step == 0 else f"{queue}{PRIORITY_SEPARATOR}{step}"


def envelope(turn: Turn, origin: str) -> dict[str, Any]:
    """The turn's message as Celery 5 and Kombu's Redis transport write one (message protocol 2)."""
    task_id, task, queue = str(uuid.uuid4()), turn_task(turn.engine), engine_queue(turn.engine)
    arguments = f"({turn.node_id}, {turn.turn})"
    body = json.dumps([[turn.node_id, turn.turn], {}, _EMBED]).encode()
    return {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": task,
            "id": task_id,
            "shadow": None,
            "eta": None,
            "expires": None,
            "group": None,
            "group_index": None,
            "retries": 0,
            "timelimit": [None, None],
            "root_id": task_id,
            "parent_id": None,
            "argsrepr": arguments,
            "kwargsrepr": "{}",
            "origin": origin,
            "ignore_result": True,
            "replaced_task_nesting": 0,
            "stamped_headers": None,
            "stamps": {},
        },
        "properties": {
            "correlation_id": task_id,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": turn.priority,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }


class Publisher:
    """Publishes due turns. A failure is logged and forgotten: the sweeper publishes what is due again."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client
        self._host = socket.gethostname()

    def publish(self, turns: Iterable[Turn]) -> int:
        """Send one message per turn, in order; returns how many were sent."""
        origin = f"gen{os.getpid()}@{self._host}"
        lists: defaultdict[str, list[str]] = defaultdict(list)
        for turn in turns:
            message = json.dumps(envelope(turn, origin))
            lists[_list_of(engine_queue(turn.engine), turn.priority)].append(message)
        if not lists:
            return 0
        try:
            pipe = self._redis.pipeline(transaction=False)
            for name, messages in lists.items():
                pipe.lpush(name, *messages)
            pipe.execute()
        except redis.RedisError as error:
            log.warning("turns not published, the sweeper will", extra={"error": type(error).__name__})
            return 0
        return sum(len(messages) for messages in lists.values())
