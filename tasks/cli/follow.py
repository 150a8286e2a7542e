"""Following one process until it closes: by its progress channel while Redis is there, by its row in any case."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import redis

from models.store import read
from models.store.database import Database, DatabaseUnavailable
from tasks.plans import channel

Event = dict[str, Any]

TICK_SECONDS = 0.2
"""How often a follower gives its caller a chance to redraw."""
POLL_SECONDS = 1.0
"""How often the row is looked at while the channel works; without it, at every second tick."""


class NotFinished(Exception):
    """The process is still open after the time that was given."""


class Follower:
    """Subscribes on entering, so that nothing is missed of a process submitted inside the block.

    ``root_id`` is the process whose channel is listened to; ``process_id`` the one whose close ends the following.
    Redis away, now or later: following goes on by looking at the row.
    """

    def __init__(self, database: Database, redis_url: str, process_id: UUID, root_id: UUID | None = None) -> None:
        self._database = database
        self._process_id = process_id
        self._channel = channel(root_id or process_id)
        self._client = redis.Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=2)
        self._pubsub: Any = None
        self.state: dict[str, Any] | None = None
        """The process as last seen in PostgreSQL, as ``read.state`` tells: one row, however large its tree is."""

    @property
    def live(self) -> bool:
        """Whether the progress channel is being listened to."""
        return self._pubsub is not None

    def __enter__(self) -> Self:
        try:
            client: Any = self._client
            self._pubsub = client.pubsub(ignore_subscribe_messages=True)
            self._pubsub.subscribe(self._channel)
        except redis.RedisError:
            self._drop()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._drop()
        self._client.close()

    def _drop(self) -> None:
        if self._pubsub is not None:
            self._pubsub.close()
            self._pubsub = None

    def events(self, timeout: float | None = None) -> Iterator[Event | None]:
        """Progress events as they come, ``None`` at every tick between them; ends when the process is closed.

        An event of kind ``away`` says that PostgreSQL does not answer; following goes on. Raises :class:`NotFinished`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        next_poll = 0.0
        while True:
            if time.monotonic() >= next_poll:
                try:
                    self.state = read.state(self._database, self._process_id)
                except DatabaseUnavailable as error:
                    yield {"kind": "away", "message": str(error)}
                if self.state is not None and self.state["status"] == "CLOSED":
                    yield from self._rest()
                    # A last look for the caller, with the closed row.
                    yield None
                    return
                next_poll = time.monotonic() + (POLL_SECONDS if self.live else 2 * TICK_SECONDS)
            if deadline is not None and time.monotonic() >= deadline:
                raise NotFinished(f"{self._process_id} is still open after {timeout:g} s")
            event = self._next_event()
            yield event
            if event is not None and event.get("kind") == "closed" and event.get("process") == str(self._process_id):
                next_poll = 0.0

    def _rest(self) -> Iterator[Event]:
        """What is on its way already when the row says closed."""
        while (event := self._next_event(wait=0.0)) is not None:
            yield event

    def _next_event(self, wait: float = TICK_SECONDS) -> Event | None:
        if self._pubsub is None:
            time.sleep(wait)
            return None
        try:
            message = self._pubsub.get_message(timeout=wait)
        except redis.RedisError:
            self._drop()
            return None
        if message is None or message.get("type") != "message":
            return None
        try:
            event = json.loads(message["data"])
        except ValueError:
            return None
        return event if isinstance(event, dict) else None

    def wrapper(self) -> dict[str, Any] | None:
        """The result, once the process is closed."""
        return read.result(self._database, self._process_id)
