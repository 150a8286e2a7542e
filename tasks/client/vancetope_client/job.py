"""One job: its id, its result, and what can be done with it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from celery.exceptions import TimeoutError as CeleryTimeout
from celery.result import AsyncResult

from vancetope_client.errors import JobTimeout, NoAnswer
from vancetope_client.payload import RESULT, RESUME, STATUS, STOP, SUSPEND
from vancetope_client.translation import translated
from vancetope_client.watching import Picture, watched

if TYPE_CHECKING:
    from vancetope_client.client import Client

SLICE_SECONDS = 5.0
"""After so long without a notice the database is asked: a notice may be lost with Redis, a result never is."""
MAX_SLICE_SECONDS = 60.0


class Job:
    """A job of the backend, by its process id."""

    def __init__(self, client: Client, id: str, payload: Mapping[str, Any] | None) -> None:
        self.id = id
        self._client = client
        self._payload = payload

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the job to close and return its wrapper: ``success`` and ``data``, or ``error`` and ``message``.

        Waits through Celery's result backend, and when that stays silent asks the backend's database from time to
        time, so neither a flushed Redis nor an expired result loses an answer. A result too large for a message is
        fetched in pieces. Raises :class:`JobTimeout` after ``timeout`` seconds; the job goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        silence = SLICE_SECONDS
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            found = self._notice(silence if left is None else max(0.01, min(silence, left)))
            if found is not None and not found.get("oversize"):
                return found
            left = None if deadline is None else deadline - time.monotonic()
            if found is not None or left is None or left > 0:
                whole = self._fetch(self._patience(left))
                if whole is not None:
                    return whole
            if left is not None and left <= 0:
                raise JobTimeout(f"{self.id} is not closed after {timeout:g} s; it goes on")
            silence = min(silence * 2, MAX_SLICE_SECONDS)

    def _notice(self, seconds: float) -> dict[str, Any] | None:
        """What Celery's result backend says within ``seconds``."""
        with translated():
            try:
                found: Any = AsyncResult(self.id, app=self._client.app).get(
                    timeout=seconds, disable_sync_subtasks=False
                )
            except CeleryTimeout:
                return None
        return found if isinstance(found, dict) else None

    @staticmethod
    def _patience(left: float | None) -> float:
        return 10.0 if left is None else max(1.0, min(10.0, left))

    def _fetch(self, patience: float) -> dict[str, Any] | None:
        """The whole wrapper from the database, in pieces. ``None`` while there is none, or nobody answers."""
        pieces: list[str] = []
        offset: int | None = 0
        try:
            while offset is not None:
                answer = self._client.ask(RESULT, self.id, offset, timeout=patience)
                if answer is None:
                    self._send_again(patience)
                    return None
                pieces.append(answer["text"])
                offset = answer["next"]
        except NoAnswer:
            return None
        wrapper: dict[str, Any] = json.loads("".join(pieces))
        return wrapper

    def _send_again(self, patience: float) -> None:
        """Repeat a submission the backend knows nothing of: its message was lost with Redis. Twice is once there."""
        if self._payload is not None and self._client.ask(STATUS, self.id, timeout=patience) is None:
            self._client.send(self._payload)

    def watch(self, *, timeout: float | None = None) -> Iterator[Picture]:
        """The job's plan as it grows: a :class:`Picture` now, one after each change (at most two a second), and one of
        the closed job; then the iterator ends.

        Changes come over Redis as they happen. After a silence, and in the end, a worker is asked for the plan in the
        backend's database, so what Redis loses is only late. Raises :class:`JobTimeout` after ``timeout`` seconds and
        :class:`NoAnswer` when nobody is there to ask at the beginning.
        """
        return watched(self._client, self.id, timeout)

    def status(self, *, timeout: float | None = None) -> dict[str, Any] | None:
        """What the backend knows: ``status``, ``close_reason``, ``usage`` …; ``None`` when it knows no such job (yet).

        Times are ISO texts. Raises :class:`NoAnswer` when no worker answers in time.
        """
        found: dict[str, Any] | None = self._client.ask(STATUS, self.id, timeout=timeout)
        return found

    def stop(self, *, timeout: float | None = None) -> list[str]:
        """Close the job and everything below it now. Returns the ids closed by this; empty when it was closed."""
        closed: list[str] = self._client.ask(STOP, self.id, timeout=timeout)
        return closed

    def suspend(self, *, now: bool = False, timeout: float | None = None) -> bool:
        """Start no further turn until :meth:`resume`; ``now`` also aborts a running model call.

        ``False`` when the job is closed, suspended already or unknown.
        """
        return bool(self._client.ask(SUSPEND, self.id, now, timeout=timeout))

    def resume(self, *, timeout: float | None = None) -> bool:
        """Let a suspended job go on. ``False`` when it was not suspended."""
        return bool(self._client.ask(RESUME, self.id, timeout=timeout))
