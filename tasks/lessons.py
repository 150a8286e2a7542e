"""What one job learned about a model, for the next ones: refused structured-output rungs and refused parameters.

A node remembers its own lessons in its row, so a retry never depends on this. Here they are hints in Redis, shared by
all workers and forgotten after a while; losing them costs one more refusal.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace

import redis

from engines.llm.base import ErrorKind, LlmError, LlmRequest, StructuredPath
from engines.llm.catalogue import Candidate
from engines.llm.policy import StepDown
from engines.structured.schema import compile_schema

log = logging.getLogger(__name__)

REFUSED_SECONDS = 7 * 86_400
FAILING_SECONDS = 3_600
"""A rung that merely kept failing is tried again sooner than one the provider refused."""
_FRESH_SECONDS = 30.0
_MAX_KNOWN = 4096
_ORDER = (StructuredPath.STRICT, StructuredPath.LOOSE, StructuredPath.PROMPT)


@dataclass(frozen=True, slots=True)
class _Known:
    path: str | None
    without: frozenset[str]
    read_at: float


class Lessons:
    """Applies and records lessons. Safe to share between threads; never raises, Redis away means nothing is known."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], _Known] = {}

    def apply(self, request: LlmRequest, candidate: Candidate) -> LlmRequest:
        """The request without what this model is known to refuse."""
        known = self._recall(candidate, request)
        if known.path is None and not known.without:
            return request
        highest = request.highest_path
        if known.path is not None:
            highest = max(highest, StructuredPath(known.path), key=_ORDER.index)
        return replace(request, highest_path=highest, without=request.without | known.without)

    def note(self, request: LlmRequest, candidate: Candidate, error: LlmError, step: StepDown) -> None:
        """Remember why the step down was taken."""
        path_key, without_key = self._keys(candidate, request)
        try:
            if step.path is not None and request.schema is not None:
                seconds = REFUSED_SECONDS if error.kind is ErrorKind.SCHEMA_REJECTED else FAILING_SECONDS
                self._redis.set(path_key, step.path.value, ex=seconds)
            if step.parameter is not None:
                self._redis.sadd(without_key, step.parameter)
                self._redis.expire(without_key, REFUSED_SECONDS)
        except redis.RedisError as failure:
            log.debug("lesson not shared, Redis is away", extra={"error": type(failure).__name__})
        with self._lock:
            self._known.pop((path_key, without_key), None)

    @staticmethod
    def _keys(candidate: Candidate, request: LlmRequest) -> tuple[str, str]:
        model = f"{candidate.provider_name}:{candidate.model}"
        schema = compile_schema(request.schema).sha256 if request.schema is not None else "-"
        return f"vancetope:lesson:path:{model}:{schema}", f"vancetope:lesson:without:{model}"

    def _recall(self, candidate: Candidate, request: LlmRequest) -> _Known:
        keys = self._keys(candidate, request)
        now = time.monotonic()
        with self._lock:
            known = self._known.get(keys)
        if known is not None and now - known.read_at < _FRESH_SECONDS:
            return known
        try:
            pipe = self._redis.pipeline(transaction=False)
            pipe.get(keys[0])
            pipe.smembers(keys[1])
            path, without = pipe.execute()
        except redis.RedisError as failure:
            log.debug("no lessons, Redis is away", extra={"error": type(failure).__name__})
            path, without = None, ()
        known = _Known(
            path=path.decode() if path else None,
            without=frozenset(name.decode() for name in without),
            read_at=now,
        )
        with self._lock:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[keys] = known
        return known
