"""What goes over the wire: task names of a vancetope backend, the payload of a submission. Standard library only."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from vancetope_client.errors import InvalidSubmission

CONTROL_QUEUE = "vancetope.control"
URGENT_QUEUE = "vancetope.urgent"
SUBMIT = "vancetope.submit"
STATUS = "vancetope.status"
PLAN = "vancetope.plan"
RESULT = "vancetope.result"
STOP = "vancetope.stop"
SUSPEND = "vancetope.suspend"
RESUME = "vancetope.resume"
INBOX_LIST = "vancetope.inbox.list"
INBOX_ANSWER = "vancetope.inbox.answer"
INBOX_DISMISS = "vancetope.inbox.dismiss"

PRIORITIES = ("high", "normal", "low")
LANES = ("normal", "batch")
LIMITS = ("maxCalls", "maxTokens", "maxCostUsd", "deadlineSeconds")
DEFAULT_CALLBACK_QUEUE = "celery"

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A UUIDv7: sorts by time, and ids minted one after the other by this process never go backwards."""
    global _last
    with _lock:
        # 48 bits of milliseconds and 12 bits of a fraction, as RFC 9562 allows (method 3).
        nanoseconds = time.time_ns()
        stamp = (nanoseconds // 1_000_000) << 12 | (nanoseconds % 1_000_000) * 4096 // 1_000_000
        _last = stamp = max(stamp, _last + 1)
    random = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return str(uuid.UUID(int=(stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | random))


def checked_id(value: str | uuid.UUID) -> str:
    """The canonical text of a process id. Raises :class:`InvalidSubmission`."""
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise InvalidSubmission(f"id: {str(value)[:60]!r} is no UUID") from None


def submission(
    *,
    recipe: str,
    identity: str,
    params: Mapping[str, Any] | None,
    goal: str,
    tenant: str | None,
    project: str | None,
    owner: str | None = None,
    priority: str,
    lane: str = "normal",
    batch_deadline_seconds: float | None = None,
    limits: Mapping[str, float] | None,
    callback: str | tuple[str, str] | None,
    trace_context: Mapping[str, str] | None,
    max_bytes: int,
) -> dict[str, Any]:
    """The keyword arguments of ``vancetope.submit``: plain JSON, checked as far as a client can."""
    if not isinstance(recipe, str) or not recipe.strip():
        raise InvalidSubmission("recipe: must be the name of a recipe")
    if priority not in PRIORITIES:
        raise InvalidSubmission(f"priority: {priority!r} is none of {', '.join(PRIORITIES)}")
    if lane not in LANES:
        raise InvalidSubmission(f"lane: {lane!r} is none of {', '.join(LANES)}")
    if batch_deadline_seconds is not None and (lane != "batch" or batch_deadline_seconds <= 0):
        raise InvalidSubmission('batch_deadline_seconds: must be above 0, and goes with lane="batch"')
    unknown = sorted(set(limits or ()) - set(LIMITS))
    if unknown:
        raise InvalidSubmission(f"limits: there is no {unknown[0]!r}, only {', '.join(LIMITS)}")
    asked: dict[str, Any] = {
        "id": identity,
        "recipe": recipe,
        "params": dict(params or {}),
        "goal": goal,
        "tenant": tenant,
        "project": project,
        "owner": owner,
        "priority": priority,
        "lane": None if lane == "normal" else lane,
        "batchDeadlineSeconds": batch_deadline_seconds,
        "limits": dict(limits or {}),
        "callback": _callback(callback),
        "traceContext": dict(trace_context or {}),
    }
    given = {key: value for key, value in asked.items() if value not in (None, "", {})}
    text = _json(given)
    if len(text.encode("utf-8", "replace")) > max_bytes:
        raise InvalidSubmission(
            f"params: the submission is {len(text):,} characters of JSON; at most {max_bytes:,} bytes are sent"
            " (max_bytes of Client, VANCETOPE_MAX_INPUT_BYTES of the backend)"
        )
    # Read back, so that what is sent is exactly JSON: Celery's own encoder would mark UUIDs and dates in its own way.
    plain: dict[str, Any] = json.loads(text)
    return plain


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError as error:
        raise InvalidSubmission(f"params: must be plain JSON values: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidSubmission(f"params: has no JSON form: {error}") from None


def _callback(given: str | tuple[str, str] | None) -> dict[str, str] | None:
    if given is None:
        return None
    task, queue = (given, DEFAULT_CALLBACK_QUEUE) if isinstance(given, str) else given
    if not task or not queue:
        raise InvalidSubmission("callback: must be a task name, or (task name, queue)")
    return {"task": task, "queue": queue}
