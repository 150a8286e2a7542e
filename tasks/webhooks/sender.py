"""Sending what is in the webhook outbox, in threads of its own: no turn, no sweep and no worker slot waits for anybody.

Beat asks for a run every second or so (:meth:`Sender.kick`); it goes on in this process until nothing is due. Runs of
several processes share the work by leases. A crash loses nothing: what was leased is sent again, with the same id.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final

from engines.llm.cancel import Cancellation
from engines.tools.base import ToolFailed
from engines.tools.guard import Forbidden, Guard
from engines.tools.http import Fetcher, Page
from models.store import outbox
from models.store.database import Database, DatabaseUnavailable
from models.store.outbox import Attempt
from tasks import faults
from tasks.meter import WEBHOOKS, Meter
from tasks.settings import Settings
from tasks.webhooks.schedule import next_delay, rest_of
from tasks.webhooks.signing import headers_of

log = logging.getLogger(__name__)

ATTEMPT_SECONDS: Final = 15.0
"""One attempt altogether: name, connection, answer."""
LEASE_SECONDS: Final = 60.0
"""Longer than any attempt: a lease that runs out is that of a sender which has died."""
THREADS: Final = 16
EACH: Final = 4
"""Attempts at once to one endpoint. To one that fails: one."""
LOOK_SECONDS: Final = 0.5
"""How often a run that waits for slow receivers looks whether something else is due."""
KEEP_SECONDS: Final = 30 * 86_400.0
PRUNE_SECONDS: Final = 60.0
PRUNE_EACH: Final = 50
MAX_ANSWER_BYTES: Final = 1_000
PORTS: Final = frozenset({443, 8443})
_GONE, _REST = 410, frozenset({429, 503})


def webhook_guard(settings: Settings) -> Guard:
    """Which addresses webhooks may go to: public ones by https, and what the installation allows."""
    return Guard(ports=PORTS, networks=settings.webhook_networks, tls_only=True)


def webhook_fetcher(guard: Guard) -> Fetcher:
    """What attempts are sent with."""
    return Fetcher(guard, max_bytes=MAX_ANSWER_BYTES)


class Sender:
    """One per process; a forked child begins anew."""

    def __init__(
        self,
        *,
        database: Database,
        fetcher: Fetcher,
        meter: Meter,
        threads: int = THREADS,
        lease_seconds: float = LEASE_SECONDS,
        attempt_seconds: float = ATTEMPT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._fetcher = fetcher
        self._meter = meter
        self._threads = threads
        self._lease_seconds = lease_seconds
        self._attempt_seconds = attempt_seconds
        self._clock = clock
        self._wall_clock = wall_clock
        self._prune_at = 0.0
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._cancel = Cancellation()
        self._run: threading.Thread | None = None

    def kick(self) -> bool:
        """Begin a run in the background, unless one is under way in this process. Never blocks."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            if self._stop.is_set() or (self._run is not None and self._run.is_alive()):
                return False
            self._run = threading.Thread(target=self._in_background, name="vancetope-webhooks", daemon=True)
            self._run.start()
        return True

    def close(self, timeout: float = 5.0) -> None:
        """Take nothing more, let attempts end that end soon, and cut the others: they are tried again later."""
        self._stop.set()
        run = self._run
        if self._pid != os.getpid() or run is None:
            return
        run.join(timeout)
        self._cancel.set()
        run.join(timeout)

    def _in_background(self) -> None:
        try:
            self.run()
        except DatabaseUnavailable as error:
            log.warning("webhooks not sent for now", extra={"error": str(error)})
        except Exception:
            log.exception("a run of webhooks broke off")

    def run(self) -> int:
        """Send until nothing is due. Returns the number of attempts that were made."""
        made = 0
        flying: dict[Future[None], Attempt] = {}
        failing: set[Future[None]] = set()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="vancetope-webhook") as pool:
            while True:
                if not self._stop.is_set():
                    for is_failing in (False, True):
                        for attempt in self._claim(len(flying), len(failing), failing=is_failing):
                            future = pool.submit(self._attempt, attempt)
                            flying[future] = attempt
                            made += 1
                            if is_failing:
                                failing.add(future)
                    self._prune()
                if not flying:
                    return made
                done, _ = wait(flying, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED)
                failing -= done
                for future in done:
                    attempt = flying.pop(future)
                    if (error := future.exception()) is not None:
                        self._note(attempt, error)

    def _claim(self, flying: int, slow: int, *, failing: bool) -> list[Attempt]:
        """Never more than there are threads; endpoints that fail get half of them at most."""
        room = self._threads - flying
        if failing:
            room = min(room, max(self._threads // 2, 1) - slow)
        if room <= 0:
            return []
        return outbox.claim(self._database, limit=room, each=EACH, lease_seconds=self._lease_seconds, failing=failing)

    def _attempt(self, attempt: Attempt) -> None:
        body = attempt.body.encode()
        signed = headers_of(attempt.event_id, int(self._wall_clock()), body, attempt.secrets)
        headers = {"Content-Type": "application/json", "User-Agent": "vancetope-webhooks/1", **signed}
        try:
            answer = self._fetcher.post(
                attempt.url, body, headers=headers, seconds=self._attempt_seconds, cancel=self._cancel
            )
        except Forbidden as error:
            self._failed(attempt, f"not sent: {error}")
        except ToolFailed as error:
            self._failed(attempt, str(error))
        else:
            faults.reach("after_webhook")
            self._answered(attempt, answer)

    def _answered(self, attempt: Attempt, answer: Page) -> None:
        if 200 <= answer.status < 300:
            if outbox.mark_delivered(self._database, attempt, status_code=answer.status):
                self._meter.count(WEBHOOKS, "delivered")
            return
        rest = rest_of(answer.retry_after) if answer.status in _REST else None
        self._failed(attempt, _told(answer), status=answer.status, rest=rest)

    def _failed(self, attempt: Attempt, error: str, *, status: int | None = None, rest: float | None = None) -> None:
        gone = status == _GONE
        delay = None if gone else next_delay(attempt.number, rest_seconds=rest)
        disabled = outbox.mark_failed(
            self._database,
            attempt,
            error=error,
            status_code=status,
            delay_seconds=delay,
            rest_seconds=rest,
            gone=gone,
        )
        if disabled is None:
            return
        self._meter.count(WEBHOOKS, "failed" if delay is None else "retried")
        if disabled:
            log.warning("webhook endpoint disabled", extra={"endpoint": attempt.endpoint_id, "status": status})

    def _note(self, attempt: Attempt, error: BaseException) -> None:
        """Its lease runs out, and it is sent again."""
        ids = {"endpoint": attempt.endpoint_id, "delivery": attempt.id}
        if isinstance(error, DatabaseUnavailable):
            log.warning("webhook not marked, it will be repeated", extra={**ids, "error": str(error)})
        else:
            log.error("webhook attempt broke", exc_info=error, extra=ids)

    def _prune(self) -> None:
        """A batch at a time; nothing is urgent about it, so only now and then once nothing is left."""
        if self._clock() < self._prune_at:
            return
        if not outbox.prune(self._database, older_seconds=KEEP_SECONDS, each=PRUNE_EACH):
            self._prune_at = self._clock() + PRUNE_SECONDS


def _told(answer: Page) -> str:
    """What the receiver said of its refusal, in one line."""
    words = " ".join(answer.body.decode("utf-8", "replace").split())
    if 300 <= answer.status < 400:
        words = "redirects are not followed"
    return f"answered {answer.status}" + (f": {words}" if words else "")
