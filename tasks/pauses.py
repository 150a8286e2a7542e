"""The pauses of services (``engines.tools.pauses``) shared by all workers: keys in Redis that expire by themselves.

Redis carries only a hint here too: when it is away a worker knows of its own pauses, and asks a service that it knows
nothing bad of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import redis

from engines.tools.pauses import OwnPauses

log = logging.getLogger(__name__)

# A pause never becomes shorter: of two workers that were turned away the more patient one counts.
_PAUSE = """
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], '1', 'PX', ARGV[1]) end
return 1
"""


class SharedPauses:
    """Pauses over all workers. client: makes the connection at the first use; a process that asks nobody needs none."""

    def __init__(self, client: Callable[[], redis.Redis], own: OwnPauses | None = None) -> None:
        self._client = client
        self._own = own or OwnPauses()

    def left(self, service: str) -> float:
        own = self._own.left(service)
        try:
            milliseconds = self._client().pttl(_key(service))
        except redis.RedisError as error:
            log.warning("shared pauses are off, Redis is away", extra={"error": type(error).__name__})
            return own
        # Negative: there is none.
        return max(own, float(milliseconds) / 1000)

    def pause(self, service: str, seconds: float) -> None:
        self._own.pause(service, seconds)
        milliseconds = int(seconds * 1000)
        if milliseconds <= 0:
            return
        try:
            self._client().eval(_PAUSE, 1, _key(service), str(milliseconds))
        except redis.RedisError as error:
            log.warning("a pause was not shared, Redis is away", extra={"error": type(error).__name__})


def _key(service: str) -> str:
    return f"vancetope:pause:{service}"
