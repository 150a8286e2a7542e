"""What events, logs and Flower see of a task: what it is about, never what its sender wrote."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from celery.exceptions import InvalidTaskError
from celery.worker.request import Request

from tasks.publish import QUEUE_PREFIX

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""What may be shown of a text that names something: a prompt in the place of a name does not look like this."""
_TURN = ".turn"
_OF_PROCESS = frozenset({"status", "plan", "result", "stop", "suspend", "resume", "steer"})
_OF_ITEM = frozenset({"inbox.answer", "inbox.dismiss"})


class RedactedRequest(Request):
    """A task as its worker tells of it: what it is :func:`about` instead of its arguments, failures by their kind."""

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        # Read here, in the consumer, which sets aside what is unreadable; in the pool it would be logged whole.
        body = message.payload
        if not (isinstance(body, list | tuple) and len(body) == 3 and isinstance(body[0], list | tuple)):
            raise InvalidTaskError("the body is not [args, kwargs, options]")
        super().__init__(message, *args, **kwargs)
        told = about(self.name, self.id, body[0], body[1] if isinstance(body[1], dict) else {})
        self._argsrepr: str = "()" if told or not body[0] else "(...)"
        self._kwargsrepr: str = repr(told) if told or not body[1] else "{...}"

    def send_event(self, type: str, **fields: Any) -> None:
        # An exception's text may quote what was sent, and its traceback ends with it; both are in the worker's log.
        if "exception" in fields:
            fields["exception"] = str(fields["exception"]).partition("(")[0]
            fields["traceback"] = None
        super().send_event(type, **fields)


def about(task: str, task_id: str, args: list[Any] | tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The ids and names that say what a task works on: numbers, UUIDs and words that can only be names.

    Empty for a task of somebody else and for one that works on nothing in particular, like a sweep.
    """
    short = task.removeprefix(QUEUE_PREFIX)
    if short == task:
        return {}
    if short.endswith(_TURN):
        return _kept(node=args[0], turn=args[1]) if len(args) == 2 and not kwargs else {}
    if short == "submit":
        given = args[0] if args and isinstance(args[0], dict) else kwargs
        names = {key: given.get(key) for key in ("recipe", "tenant", "project")}
        return _kept(process=_process(given.get("id") or task_id), **names)
    first = args[0] if args else None
    if short in _OF_PROCESS:
        return _kept(process=_process(kwargs.get("process_id", first)))
    if short in _OF_ITEM:
        return _kept(item=kwargs.get("item_id", first))
    if short == "inbox.list":
        return _kept(tenant=kwargs.get("tenant", first), project=kwargs.get("project"))
    return {}


def _process(value: object) -> str | None:
    try:
        return str(UUID(str(value)))
    except ValueError:
        return None


def _kept(**values: object) -> dict[str, Any]:
    return {key: value for key, value in values.items() if _shows_nothing_written(value)}


def _shows_nothing_written(value: object) -> bool:
    if isinstance(value, str):
        return _NAME.fullmatch(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
