"""Waiting without holding a thread: for a process to close, and for what is told of it on the way.

The truth is read from PostgreSQL at intervals; Redis only makes it quicker, and its absence only makes it slower.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import redis
import redis.asyncio
from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from models.store import read
from tasks.api.parts import Parts
from tasks.jsonable import dump
from tasks.plans import channel

POLL_SECONDS: Final = 1.0
BLIND_POLL_SECONDS: Final = 0.3
"""Between two looks while Redis is away."""
KEEP_ALIVE_SECONDS: Final = 15.0
"""Between two comments on a stream on which nothing happens: proxies cut silent ones."""

Row = dict[str, Any]
Shown = Callable[[Row], Row | None]


async def until_closed(
    here: Parts, process_id: UUID, allowed: Callable[[Row], bool], *, seconds: float
) -> tuple[Row, Row | None] | None:
    """The process's status, with its result once it is closed, after at most ``seconds``. ``None``: not there."""
    deadline = time.monotonic() + seconds
    status = await run_in_threadpool(read.state, here.runtime.database, process_id)
    if status is None or not allowed(status):
        return None
    if status["status"] != "CLOSED" and seconds > 0:
        async with _listening(here, status["root_id"]) as listener:
            # Looked at again after subscribing: what was told in between nobody heard.
            while True:
                status = await run_in_threadpool(read.state, here.runtime.database, process_id)
                left = deadline - time.monotonic()
                if status is None or status["status"] == "CLOSED" or left <= 0 or here.closing.is_set():
                    break
                await listener.until("closed", process_id, min(left, listener.poll_seconds))
    if status is None:
        return None
    if status["status"] != "CLOSED":
        return status, None
    return status, await run_in_threadpool(read.result, here.runtime.database, process_id)


def events(here: Parts, request: Request, process_id: UUID, root_id: UUID, shown: Shown | None = None) -> Response:
    """A response that streams the process's events until it is closed, the caller has gone or the server ends.

    shown: what is told of an event, or ``None`` to leave it out; without it all that is told on the root's channel.
    """
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = _stream(here, request, process_id, root_id, shown or (lambda event: event))
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _stream(here: Parts, request: Request, process_id: UUID, root_id: UUID, shown: Shown) -> AsyncIterator[str]:
    told: tuple[str, str | None] | None = None
    quiet_since = time.monotonic()
    async with _listening(here, root_id) as listener:
        while not here.closing.is_set() and not await request.is_disconnected():
            status = await run_in_threadpool(read.state, here.runtime.database, process_id)
            if status is None:
                return
            state = (status["status"], status["close_reason"])
            if state != told:
                told, quiet_since = state, time.monotonic()
                yield _event("state", {"process": str(process_id), "status": state[0], "closeReason": state[1]})
            if state[0] == "CLOSED":
                return
            ends = time.monotonic() + listener.poll_seconds
            while (left := ends - time.monotonic()) > 0:
                event = await listener.next(left)
                if event is None:
                    continue
                kind = str(event.get("kind", "event"))
                if kind == "closed":
                    break
                if (told_of := shown(event)) is not None:
                    quiet_since = time.monotonic()
                    yield _event(kind, told_of)
            if time.monotonic() - quiet_since >= KEEP_ALIVE_SECONDS:
                quiet_since = time.monotonic()
                yield ": nothing new\n\n"


def _event(kind: str, data: Row) -> str:
    # JSON has no raw line ends, so one data line is enough; the kind is one of ours or of an engine's.
    name = "".join(char for char in kind if char.isalnum() or char in "_-") or "event"
    return f"event: {name}\ndata: {dump(data)}\n\n"


class _Listener:
    """What is told on the progress channel of a root process; silent while Redis is away."""

    def __init__(self, pubsub: redis.asyncio.client.PubSub | None) -> None:
        self._pubsub = pubsub

    @property
    def poll_seconds(self) -> float:
        return POLL_SECONDS if self._pubsub is not None else BLIND_POLL_SECONDS

    async def until(self, kind: str, process_id: UUID, seconds: float) -> None:
        """Return when that is told of the process, or after ``seconds``."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            event = await self.next(left)
            if event is not None and event.get("kind") == kind and event.get("process") == str(process_id):
                return

    async def next(self, seconds: float) -> Row | None:
        """The next event, or ``None`` after ``seconds``."""
        if self._pubsub is None:
            await asyncio.sleep(seconds)
            return None
        try:
            message = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=seconds)
        except (redis.RedisError, OSError):
            self._pubsub = None
            return None
        if message is None:
            return None
        try:
            event = json.loads(message["data"])
        except ValueError:
            return None
        return event if isinstance(event, dict) else None


@asynccontextmanager
async def _listening(here: Parts, root_id: UUID) -> AsyncIterator[_Listener]:
    pubsub: redis.asyncio.client.PubSub | None = here.listener.pubsub()
    try:
        assert pubsub is not None
        try:
            await pubsub.subscribe(channel(root_id))
        except (redis.RedisError, OSError):
            yield _Listener(None)
        else:
            yield _Listener(pubsub)
    finally:
        if pubsub is not None:
            await pubsub.aclose()  # type: ignore[no-untyped-call]
