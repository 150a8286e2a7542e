"""Kombu's Redis transport, less what hints do not need.

A turn message is a hint: its row is the guarantee. So a worker that prefetches one keeps it in memory, where Kombu
would write it into Redis twice and delete it twice (a third of a short turn's processor time). A hint that is lost
with its worker is published again by the sweeper; one still held at a warm shutdown goes back to its queue. Other
messages, above all submissions, keep Kombu's bookkeeping.

Named in ``broker_transport``; nothing of Kombu is patched here.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from kombu.transport import redis, virtual

from tasks.publish import CONTROL_QUEUE, QUEUE_PREFIX, URGENT_QUEUE

_KEPT = (CONTROL_QUEUE, URGENT_QUEUE)


def _is_hint(message: Any) -> bool:
    queue = message.delivery_info["routing_key"]
    return isinstance(queue, str) and queue.startswith(QUEUE_PREFIX) and queue not in _KEPT


def _readable(payload: Any) -> dict[str, Any]:
    """What lies in a queue, as an envelope; what is none becomes one that ``tasks.consumer`` cannot decode."""
    if isinstance(payload, dict):
        properties, headers = payload.get("properties"), payload.get("headers")
        if isinstance(properties, dict) and isinstance(headers, dict) and "delivery_tag" in properties:
            return payload
    return {
        "body": payload if isinstance(payload, str) else json.dumps(payload),
        "content-type": "application/x-unreadable",
        "content-encoding": "utf-8",
        "headers": {},
        "properties": {"delivery_tag": uuid.uuid4().hex, "delivery_info": {"exchange": "", "routing_key": ""}},
    }


class _Message(virtual.Message):
    """A message whatever lies in the queue: rubbish must not end the worker that reads it."""

    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        super().__init__(_readable(payload), channel=channel, **kwargs)


class HintQoS(redis.QoS):
    """Unacknowledged hints live in this process only."""

    # As they are in Kombu; its stubs know less.
    channel: Any
    _delivered: Any

    def append(self, message: Any, delivery_tag: str) -> None:
        if _is_hint(message):
            virtual.QoS.append(self, message, delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        if self._held(delivery_tag):
            virtual.QoS.ack(self, delivery_tag)
        else:
            super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if not self._held(delivery_tag):
            super().reject(delivery_tag, requeue=requeue)
            return
        if requeue:
            self._put_back(self._delivered[delivery_tag])
        virtual.QoS.ack(self, delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        hints = [tag for tag, message in self._delivered.items() if _is_hint(message)]
        for tag in hints:
            self._put_back(self._delivered.pop(tag))
        super().restore_unacked(client)

    def _held(self, delivery_tag: str) -> bool:
        message = self._delivered.get(delivery_tag)
        return message is not None and _is_hint(message)

    def _put_back(self, message: Any) -> None:
        info = message.delivery_info
        with self.channel.conn_or_acquire() as client:
            self.channel._do_restore_message(
                message._raw, info["exchange"], info["routing_key"], client, leftmost=False
            )


class HintChannel(redis.Channel):
    """A channel with hints, and one client per pool where Kombu makes a new one for every operation."""

    QoS = HintQoS
    Message = _Message
    pool: Any
    _client_kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        kombus: Any = super()
        if asynchronous:
            return kombus._create_client(asynchronous=True)
        if self._client_kept is None or self._client_kept.connection_pool is not self.pool:
            self._client_kept = kombus._create_client()
        return self._client_kept


class HintTransport(redis.Transport):
    """``broker_transport = "tasks.transport:HintTransport"``."""

    Channel = HintChannel
