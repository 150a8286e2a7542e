"""Watching a job's plan: pictures from the progress channel, and from the backend's database while that is silent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from celery import Celery

from vancetope_client.errors import JobTimeout, NoAnswer
from vancetope_client.payload import PLAN, STATUS
from vancetope_client.translation import translated

if TYPE_CHECKING:
    from vancetope_client.client import Client

TICK_SECONDS = 0.5
SILENCE_SECONDS = 3.0
"""After so long without a picture the backend's database is asked for one, ever less often while nothing changes."""
MAX_SILENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Picture:
    """A job's plan at one moment.

    status: ``RUNNING``, ``BLOCKED`` (only people are waited for), ``CLOSED`` … plan: ``{"rootNode": {"id", "kind",
    "title", "status", "children", "meta"}}``. at: when it was taken, the backend's time in ISO form.
    """

    status: str
    plan: dict[str, Any]
    at: str


class Listener:
    """Events of some jobs, in the order they come. Without Redis there are none, and that is no error."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._client: Any = None
        self._pubsub: Any = None
        self._roots: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._drop()

    def listen_to(self, root_id: str) -> None:
        """Also the job ``root_id`` and everything below it."""
        self._roots.append(root_id)
        self._drop()
        self._subscribe()

    def next_event(self, seconds: float) -> dict[str, Any] | None:
        """The next event within ``seconds``, or ``None``."""
        if self._pubsub is None and not self._subscribe():
            time.sleep(seconds)
            return None
        try:
            with translated():
                message = self._pubsub.get_message(timeout=seconds)
        except ConnectionError:
            self._drop()
            return None
        try:
            event = json.loads(message["data"]) if message else None
        except ValueError:
            return None
        return event if isinstance(event, dict) else None

    def _subscribe(self) -> bool:
        try:
            with translated():
                # Celery's transport: it is there if the broker is Redis.
                import redis  # noqa: PLC0415

                url = self._app.conf.broker_url or self._app.connection().as_uri(include_password=True)
                self._client = redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2)
                self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
                self._pubsub.subscribe(*(f"vancetope:progress:{root}" for root in self._roots))
        except ConnectionError:
            self._drop()
        return self._pubsub is not None

    def _drop(self) -> None:
        for part in (self._pubsub, self._client):
            if part is not None:
                part.close()
        self._pubsub = self._client = None


def watched(client: Client, id: str, timeout: float | None) -> Iterator[Picture]:
    """See :meth:`vancetope_client.Job.watch`."""
    deadline = None if timeout is None else time.monotonic() + timeout
    with client.listener() as listener:
        listener.listen_to(id)
        status = client.ask(STATUS, id)
        if status is not None and status["root_id"] != id:
            listener.listen_to(status["root_id"])
        shown: Picture | None = None
        silence, ask_at = SILENCE_SECONDS, 0.0
        while True:
            found: Picture | None = None
            if time.monotonic() >= ask_at:
                found = _stored(client, id)
                silence = SILENCE_SECONDS if _is_news(found, shown) else min(silence * 2, MAX_SILENCE_SECONDS)
                ask_at = time.monotonic() + silence
            else:
                event = listener.next_event(TICK_SECONDS)
                if event is not None and event.get("process") == id:
                    if event.get("kind") == "plan":
                        found = _picture(event)
                        silence, ask_at = SILENCE_SECONDS, time.monotonic() + SILENCE_SECONDS
                    elif event.get("kind") == "closed":
                        ask_at = 0.0
            if found is not None and _is_news(found, shown):
                shown = found
                yield found
                if found.status == "CLOSED":
                    return
            if deadline is not None and time.monotonic() >= deadline:
                raise JobTimeout(f"{id} is not closed after {timeout:g} s; it goes on")


def _stored(client: Client, id: str) -> Picture | None:
    """The plan as the database has it; ``None`` when nobody answers, or the job is unknown (yet)."""
    try:
        found = client.ask(PLAN, id)
    except NoAnswer:
        return None
    return None if found is None else _picture(found)


def _picture(found: dict[str, Any]) -> Picture:
    return Picture(found["status"], found["plan"], found["emittedAt"])


def _is_news(found: Picture | None, shown: Picture | None) -> bool:
    if found is None or shown is None:
        return found is not None
    return found.at >= shown.at and (found.status, found.plan) != (shown.status, shown.plan)
