"""A ready-made :class:`engines.llm.base.CancelToken`."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Cancellation:
    """Set once, from any thread. Callbacks run in the thread that sets it, outside the lock, each at most once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._callbacks: dict[object, Callable[[], None]] = {}

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        with self._lock:
            self._set = True
            callbacks, self._callbacks = list(self._callbacks.values()), {}
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        token = object()
        with self._lock:
            if not self._set:
                self._callbacks[token] = callback
                return lambda: self._forget(token)
        callback()
        return lambda: None

    def _forget(self, token: object) -> None:
        with self._lock:
            self._callbacks.pop(token, None)
