"""One event loop in one thread per OS process, on which every provider call runs.

Why: only an asynchronous call can be aborted at any moment, also while it waits for the first byte. Callers block in
their own threads. Nothing is started before the first call; after a fork the child starts its own, never touching what
it inherited (its sockets belong to the parent).
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

from engines.llm.base import CancelToken
from engines.llm.wire import Wire

T = TypeVar("T")


class Aborted(Exception):
    """The call was cancelled, by its token or by the shutdown of this process."""


class Runtime:
    """The loop, its thread and the connection pools of this process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._wires: dict[Hashable, Wire] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="llm-calls", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def wire(self, key: Hashable, build: Callable[[], Wire]) -> Wire:
        """The connection pool of ``key``, built on first use."""
        with self._lock:
            wire = self._wires.get(key)
            if wire is None:
                wire = self._wires[key] = build()
            return wire

    def run(self, work: Coroutine[Any, Any, T], cancel: CancelToken | None) -> T:
        """Block until ``work`` is done. Raises :class:`Aborted` as soon as ``cancel`` is set; the work ends too."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        unregister: Callable[[], None] | None = None
        try:
            if cancel is not None:
                unregister = cancel.on_cancel(lambda: _abort(future))
            return future.result()
        except (concurrent.futures.CancelledError, asyncio.CancelledError):
            raise Aborted from None
        except BaseException:
            # Also an exception raised into this thread from outside (a soft time limit): the call must not go on.
            future.cancel()
            raise
        finally:
            if unregister is not None:
                unregister()

    def close(self, timeout: float) -> None:
        """Cancel what runs, close every connection, stop the thread."""
        if not self._thread.is_alive():
            return
        done = asyncio.run_coroutine_threadsafe(self._finish(), self._loop)
        with contextlib.suppress(concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            done.result(timeout)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self._loop.close()

    async def _finish(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with self._lock:
            wires, self._wires = list(self._wires.values()), {}
        await asyncio.gather(*(wire.close() for wire in wires), return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


def _abort(future: concurrent.futures.Future[Any]) -> None:
    future.cancel()


_lock = threading.Lock()
_current: Runtime | None = None
_inherited: list[Runtime] = []


def current() -> Runtime:
    """This process's runtime, started on first use."""
    global _current
    with _lock:
        if _current is None:
            _current = Runtime()
        return _current


def shutdown(timeout: float = 5.0) -> None:
    """End the loop thread and close all connections. Safe to call twice; a later call starts anew."""
    global _current
    with _lock:
        runtime, _current = _current, None
    if runtime is not None:
        runtime.close(timeout)


def _after_fork() -> None:
    """In the child: forget the parent's runtime without closing it, and its lock, which may have been held."""
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _inherited.append(_current)  # kept alive: closing or collecting it would touch the parent's descriptors
        _current = None


os.register_at_fork(after_in_child=_after_fork)
atexit.register(shutdown)
