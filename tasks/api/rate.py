"""How many requests a token may send: a token bucket in Redis, shared by every API process."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, cast

import redis

log = logging.getLogger(__name__)

# Server time, so that processes with different clocks fill one bucket alike. Returns {granted, seconds until the next}.
_TAKE: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local size, per_second = tonumber(ARGV[1]), tonumber(ARGV[2])
local state = redis.call('HMGET', KEYS[1], 'left', 'at')
local left = math.min(size, (tonumber(state[1]) or size) + (now - (tonumber(state[2]) or now)) * per_second)
local granted = left >= 1 and 1 or 0
left = left - granted
redis.call('HSET', KEYS[1], 'left', tostring(left), 'at', tostring(now))
redis.call('EXPIRE', KEYS[1], math.ceil(size / per_second) + 1)
return {granted, tostring(granted == 1 and 0 or (1 - left) / per_second)}
"""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Whether the request may go on; if not, after how long one may."""

    granted: bool
    per_minute: int
    retry_seconds: float = 0.0


class RateLimit:
    """``per_minute`` requests per token, in bursts of as many; 0 means no limit. Without Redis nobody is held up."""

    def __init__(self, client: redis.Redis, per_minute: int) -> None:
        self._redis = client
        self._per_minute = per_minute
        self._take = client.register_script(_TAKE)

    def take(self, token_id: int | None) -> Allowance:
        """One request of this token. Callers of the loopback have none and are not limited."""
        if token_id is None or not self._per_minute:
            return Allowance(True, self._per_minute)
        key = f"vancetope:rate:{token_id}"
        try:
            answer = self._take(keys=[key], args=[self._per_minute, self._per_minute / 60])
        except redis.RedisError as error:
            log.warning("rate limit not checked", extra={"error": type(error).__name__})
            return Allowance(True, self._per_minute)
        granted, wait = cast("tuple[int, bytes]", answer)
        return Allowance(bool(granted), self._per_minute, float(wait))
