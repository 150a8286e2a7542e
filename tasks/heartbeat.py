"""Keeping leases alive: one thread per worker process extends all of its leases in one statement.

The same round trip tells which leases are lost (taken over, stopped) or past their process's deadline; the calls made
under them are aborted. So a lease can be short however long a call takes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

from engines.llm.cancel import Cancellation
from models.records import Lease
from models.store.claim import extend_leases
from models.store.database import Database, DatabaseUnavailable

log = logging.getLogger(__name__)

MAX_INTERVAL_SECONDS = 3.0
"""The longest a stopped or overdue call goes on before it is aborted."""


class Cancel(Cancellation):
    """Tells the call made under a lease that it is no longer wanted. ``reason`` is ``lost`` or ``overdue`` once set."""

    def __init__(self) -> None:
        super().__init__()
        self.reason: str | None = None
        self._since = time.monotonic()

    def age(self) -> float:
        """Seconds since the lease was taken."""
        return time.monotonic() - self._since

    def set(self, reason: str = "lost") -> None:
        """Run the callbacks, the first time only; the first reason stands."""
        # Before the token itself: whoever sees it set finds the reason.
        self.reason = self.reason or reason
        super().set()


class Heartbeat:
    """Holds the leases of this operating-system process. Safe to share between threads; a fork starts afresh."""

    def __init__(
        self,
        database: Database,
        *,
        lease_seconds: float,
        longest_seconds: float = 3600.0,
        on_beat: Callable[[], None] | None = None,
    ) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._longest_seconds = longest_seconds
        self._on_beat = on_beat
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._held: dict[Lease, Cancel] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.owner = f"{socket.gethostname()}:{self._pid}"

    @contextlib.contextmanager
    def hold(self, lease: Lease) -> Iterator[Cancel]:
        """Keep ``lease`` alive during the block."""
        cancel = Cancel()
        with self._lock:
            self._held[lease] = cancel
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="vancetope-heartbeat", daemon=True)
                self._thread.start()
        try:
            yield cancel
        finally:
            with self._lock:
                self._held.pop(lease, None)

    def ensure_own_process(self) -> None:
        """Forget what was inherited over a fork. Called at the start of each task."""
        if self._pid != os.getpid():
            self._reset()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def beat(self) -> None:
        """One round: extend what is held, cancel what is lost or overdue."""
        with self._lock:
            held = dict(self._held)
        for lease in [lease for lease, cancel in held.items() if cancel.age() > self._longest_seconds]:
            # No turn takes this long: its thread hangs. Another worker shall have it.
            log.error("turn hangs, its lease is given up", extra={"node": lease.node_id, "turn": lease.turn})
            held.pop(lease).set("lost")
        if held:
            states = extend_leases(self._database, list(held), owner=self.owner, lease_seconds=self._lease_seconds)
            for lease, state in states.items():
                if state != "held":
                    log.info("call no longer wanted", extra={"node": lease.node_id, "turn": lease.turn, "why": state})
                    held[lease].set(state)
        if self._on_beat is not None:
            self._on_beat()

    def _run(self) -> None:
        # Three chances per lease: one lost beat, even two, must not cost a turn. And a stop reaches its call soon.
        while not self._wake.wait(min(self._lease_seconds / 3, MAX_INTERVAL_SECONDS)) and not self._closed:
            try:
                self.beat()
            except DatabaseUnavailable as error:
                log.warning("heartbeat failed, trying again", extra={"error": str(error)})
            except Exception:
                log.exception("heartbeat failed")
