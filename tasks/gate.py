"""Limits shared by all workers through Redis: calls at the same time per provider, and a circuit breaker per provider.

Redis carries only hints here: when it is away every call is let through, and a flush merely forgets the counts. Its own
clock is used. A refused turn is given a due time and its slot is free for other work.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

log = logging.getLogger(__name__)

SLOT_SECONDS = 30
"""A slot whose worker died is free again after this long; heartbeats extend the slots of the living."""

# KEYS: slots (sorted set), state (hash). ARGV: token, limit, slot ms, breaker threshold, breaker ms.
# Returns 0 when the call may go, else the milliseconds to wait. Waiting turns get places one service time apart, so
# they come back spread out and not as a herd.
_ENTER = """
local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)
local state = redis.call('HMGET', KEYS[2], 'open_until', 'probe_until', 'average', 'line')
local open_until = tonumber(state[1] or '0')
if open_until > now then return open_until - now end
if open_until > 0 and tonumber(state[2] or '0') > now then return 1000 end
local limit = tonumber(ARGV[2])
if limit > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
  if redis.call('ZCARD', KEYS[1]) >= limit then
    local step = math.max(tonumber(state[3] or '500'), 20) / limit
    local place = math.max(tonumber(state[4] or '0'), now) + step
    -- Longer than the longest wait: begin again at the front, or all beyond it would come back in one herd.
    if place - now > 60000 then place = now + step end
    redis.call('HSET', KEYS[2], 'line', place)
    redis.call('PEXPIRE', KEYS[2], 3600000)
    return math.ceil(math.min(place - now, 60000))
  end
  redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], 3600000)
end
if open_until > 0 then redis.call('HSET', KEYS[2], 'probe_until', now + ARGV[3]) end
return 0
"""

# ARGV: token, outcome (ok, failed, neutral), duration ms, breaker threshold, breaker ms.
_LEAVE = """
local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREM', KEYS[1], ARGV[1])
if ARGV[2] == 'ok' then
  local average = tonumber(redis.call('HGET', KEYS[2], 'average') or ARGV[3])
  redis.call('HDEL', KEYS[2], 'failures', 'open_until', 'probe_until')
  redis.call('HSET', KEYS[2], 'average', average * 0.8 + ARGV[3] * 0.2)
elseif ARGV[2] == 'failed' and tonumber(ARGV[4]) > 0 then
  if redis.call('HINCRBY', KEYS[2], 'failures', 1) >= tonumber(ARGV[4]) then
    redis.call('HSET', KEYS[2], 'open_until', now + ARGV[5])
    redis.call('HDEL', KEYS[2], 'probe_until')
  end
else
  redis.call('HDEL', KEYS[2], 'probe_until')
end
redis.call('PEXPIRE', KEYS[2], 3600000)
return 1
"""


@dataclass(frozen=True, slots=True)
class Permit:
    """A call may be made; give it back with :meth:`Gate.leave`."""

    provider: str
    token: str
    since: float


class Gate:
    """The shared limits. ``concurrency`` 0 and ``breaker_failures`` 0 switch the two parts off."""

    def __init__(
        self,
        client: redis.Redis,
        *,
        concurrency: int,
        breaker_failures: int,
        breaker_seconds: float,
        slot_seconds: float = SLOT_SECONDS,
    ) -> None:
        self._redis = client
        self._slot_ms = int(slot_seconds * 1000)
        self._concurrency = concurrency
        self._breaker_failures = breaker_failures
        self._breaker_seconds = breaker_seconds
        self._enter: Any = client.register_script(_ENTER)
        self._leave: Any = client.register_script(_LEAVE)
        self._lock = threading.Lock()
        self._permits: set[Permit] = set()

    @property
    def active(self) -> bool:
        return self._concurrency > 0 or self._breaker_failures > 0

    @staticmethod
    def _keys(provider: str) -> list[str]:
        # One hash tag per provider: both keys live in the same slot of a Redis cluster.
        return [f"vancetope:gate:{{{provider}}}:slots", _state_key(provider)]

    def enter(self, provider: str) -> Permit | float:
        """A permit, or the seconds after which to ask again."""
        permit = Permit(provider, uuid.uuid4().hex, time.monotonic())
        if self.active:
            try:
                wait = self._enter(
                    keys=self._keys(provider),
                    args=[permit.token, self._concurrency, self._slot_ms, self._breaker_failures,
                          int(self._breaker_seconds * 1000)],
                )  # fmt: skip
            except redis.RedisError as error:
                log.warning("provider limits are off, Redis is away", extra={"error": type(error).__name__})
                wait = 0
            if wait:
                return float(wait) / 1000
            with self._lock:
                self._permits.add(permit)
        return permit

    def leave(self, permit: Permit, outcome: str) -> None:
        """``outcome``: ``ok``, ``failed`` (counts against the provider's health) or ``neutral``."""
        if not self.active:
            return
        with self._lock:
            self._permits.discard(permit)
        try:
            self._leave(
                keys=self._keys(permit.provider),
                args=[permit.token, outcome, int((time.monotonic() - permit.since) * 1000), self._breaker_failures,
                      int(self._breaker_seconds * 1000)],
            )  # fmt: skip
        except redis.RedisError:
            log.debug("a slot was not given back; it expires by itself")

    def extend(self) -> None:
        """Keep the slots of the running calls; the heartbeat calls this."""
        with self._lock:
            permits = list(self._permits)
        if not permits or self._concurrency == 0:
            return
        try:
            seconds, micros = self._redis.time()
            until = seconds * 1000 + micros // 1000 + self._slot_ms
            for permit in permits:
                self._redis.zadd(self._keys(permit.provider)[0], {permit.token: until}, xx=True)
        except redis.RedisError:
            log.debug("slots not extended, Redis is away")


def open_breakers(client: redis.Redis, providers: Sequence[str]) -> set[str]:
    """Those that are left alone now, or were and have not answered since. Raises ``redis.RedisError``."""
    pipe: Any = client.pipeline(transaction=False)
    for provider in providers:
        pipe.hexists(_state_key(provider), "open_until")
    return {provider for provider, opened in zip(providers, pipe.execute(), strict=True) if opened}


def _state_key(provider: str) -> str:
    return f"vancetope:gate:{{{provider}}}:state"
