"""How long a service that has turned somebody away is left alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Pauses(Protocol):
    """Pauses of services, by name. Safe to share between threads; never raises."""

    def left(self, service: str) -> float:
        """Seconds until it may be asked again; 0 when it may be asked now."""
        ...

    def pause(self, service: str, seconds: float) -> None:
        """Leave it alone for so long from now on, or as long as was said before if that is longer."""
        ...


class OwnPauses:
    """The pauses of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ends: dict[str, float] = {}

    def left(self, service: str) -> float:
        with self._lock:
            return max(0.0, self._ends.get(service, 0.0) - self._clock())

    def pause(self, service: str, seconds: float) -> None:
        with self._lock:
            self._ends[service] = max(self._ends.get(service, 0.0), self._clock() + seconds)
