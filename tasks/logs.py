"""Structured logs: one JSON object (or one readable line) per event, with process, node and turn ids, redacted.

Prompts, replies and keys never belong in a log line; the one filter here is the safety net for what libraries log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

_CONTEXT: ContextVar[dict[str, Any] | None] = ContextVar("vancetope_log_context", default=None)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}
_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|gsk|xai|key)-[A-Za-z0-9_\-]{6,}|\bAIza[0-9A-Za-z_\-]{20,}|\bwhsec_[A-Za-z0-9+/=]{6,}"
)
_URL_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):[^@/\s]+@")
MASK = "[redacted]"
_CHATTY = ("celery.pool", "celery.worker.strategy", "celery.app.trace", "celery.beat")


@contextlib.contextmanager
def bound(**ids: Any) -> Iterator[None]:
    """Add ids (process, node, turn) to every line logged in this block by this thread."""
    token = _CONTEXT.set({**(_CONTEXT.get() or {}), **ids})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


class Redactor:
    """Replaces the known secrets, anything shaped like an API key, and passwords in URLs."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = secrets

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _URL_PASSWORD.sub(rf"\1:{MASK}@", _KEY_LIKE.sub(MASK, text))


class Formatter(logging.Formatter):
    """``json``: one object per line. ``text``: for a terminal."""

    def __init__(self, style: str, redact: Redactor) -> None:
        super().__init__()
        self._json = style == "json"
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        fields = {**(_CONTEXT.get() or {}), **extra}
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = "".join(traceback.format_exception(record.exc_info[1]))
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if self._json:
            line = json.dumps(
                {"at": at, "level": record.levelname, "logger": record.name, "event": message, **fields},
                default=str,
                ensure_ascii=False,
            )
        else:
            tail = " ".join(f"{key}={value}" for key, value in fields.items() if key != "exception")
            line = f"{at[11:23]} {record.levelname:<7} {message}{'  ' + tail if tail else ''}"
            if "exception" in fields:
                line += "\n" + str(fields["exception"])
        return self._redact(line)


def configure(*, level: str, style: str, secrets: tuple[str, ...]) -> None:
    """Install the one handler on the root logger.

    SDK and HTTP loggers stay at WARNING: at INFO they print URLs, and Celery's pool prints whole submissions at DEBUG.
    So do Celery's own lines about every message received, sent and done: a turn has one line of ours, with its ids.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(style, Redactor(secrets)))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in ("httpx", "httpx2", "httpcore", "openai", "anthropic", "amqp", "kombu", *_CHATTY):
        logging.getLogger(name).setLevel(logging.WARNING)
