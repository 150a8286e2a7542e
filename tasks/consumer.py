"""The worker's consumer: a message nobody can act on is logged once and set aside, and the worker lives.

Celery would log such a message with its whole body (which may hold a prompt) and forget it; one that is no JSON at all
would end the worker.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import kombu.transport.redis
from celery.exceptions import NotRegistered
from celery.worker import consumer

from models.store import processes as store
from models.store.clean import NotStorable
from models.store.database import Database, DatabaseUnavailable
from tasks.wiring import Runtime

log = logging.getLogger(__name__)

_KEPT_CHARACTERS = 20_000


def set_aside(database: Database, task: str, problem: str, payload: object) -> None:
    """Keep the message in ``dead_letters`` for a person to look at, and log that it is there, without its content."""
    log.error("message set aside", extra={"task": task, "problem": problem})
    kept = payload if isinstance(payload, str) else repr(payload)
    try:
        store.set_aside(database, task=task, problem=problem, payload=kept[:_KEPT_CHARACTERS])
    except (DatabaseUnavailable, NotStorable) as error:
        log.error("message lost, no database to keep it", extra={"error": str(error)})


class Consumer(consumer.Consumer):
    """Celery's consumer with an own end for what it cannot understand. Named in ``worker_consumer``."""

    connection_errors: Any
    runtime: Runtime
    """Set by ``tasks.celery`` on the class: Celery makes the instance."""

    def _refuse(self, message: Any, problem: str) -> None:
        headers = message.headers if isinstance(message.headers, dict) else {}
        body = message.body
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
        set_aside(self.runtime.database, str(headers.get("task", ""))[:200], problem, text)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        self._refuse(message, f"not decodable as {message.content_type}: {type(exc).__name__}")
        message.ack_log_error(log, self.connection_errors)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        self._refuse(message, "names no task")
        message.reject_log_error(log, self.connection_errors)

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        self._refuse(message, f"not acceptable: {type(exc).__name__}: {exc}"[:500])
        message.reject_log_error(log, self.connection_errors)

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        name = str(message.headers.get("task"))
        self._refuse(message, "no such task")
        message.reject_log_error(log, self.connection_errors)
        if message.headers.get("id"):
            # Whoever waits for its result learns the reason.
            self.app.backend.mark_as_failure(message.headers["id"], NotRegistered(name))


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# Kombu parses what it has popped in the worker's event loop, where an exception ends the worker, and has no setting
# for another parser. Everything it reads of its own making is JSON and passes unchanged.
kombu.transport.redis.loads = _loads  # type: ignore[attr-defined]
