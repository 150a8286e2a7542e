"""The client: one Celery application that publishes to a vancetope backend and reads its results."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from celery import Celery
from celery.exceptions import TimeoutError as CeleryTimeout

from vancetope_client.errors import AnswerRefused, InvalidSubmission, NoAnswer
from vancetope_client.job import Job
from vancetope_client.payload import (
    CONTROL_QUEUE,
    INBOX_ANSWER,
    INBOX_DISMISS,
    INBOX_LIST,
    SUBMIT,
    URGENT_QUEUE,
    checked_id,
    new_id,
    submission,
)
from vancetope_client.translation import translated
from vancetope_client.watching import Listener, Picture

ANSWER_SECONDS = 10.0
"""How long a question to the backend (status, stop …) waits for a worker."""
MAX_BYTES = 1_000_000
"""Largest submission sent, as JSON; the backend's own default."""


class Client:
    """Submits jobs and waits for them. Safe to share between threads; keep one per process.

    broker_url: the backend's Redis. result_backend: its Celery result backend; default: the same Redis.
    tenant, project: go with every job of this client. app: an existing Celery application that is already configured
    for the backend's broker and results, instead of the two URLs.
    """

    def __init__(
        self,
        broker_url: str | None = None,
        result_backend: str | None = None,
        *,
        tenant: str | None = None,
        project: str | None = None,
        app: Celery | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if (broker_url is None) == (app is None):
            raise InvalidSubmission("give either broker_url or app")
        self._own = app is None
        self._app = app or _application(str(broker_url), result_backend or str(broker_url))
        self._tenant = tenant
        self._project = project
        self._max_bytes = max_bytes

    def submit(
        self,
        recipe: str,
        *,
        params: Mapping[str, Any] | None = None,
        goal: str = "",
        owner: str | None = None,
        id: str | uuid.UUID | None = None,
        priority: str = "normal",
        lane: str = "normal",
        batch_deadline_seconds: float | None = None,
        limits: Mapping[str, float] | None = None,
        callback: str | tuple[str, str] | None = None,
        trace_context: Mapping[str, str] | None = None,
    ) -> Job:
        """Send one job and return at once. The id is minted here: sending the same one again changes nothing.

        owner: who submits it; shown with the job, and a plan's questions are theirs.
        priority: ``high``, ``normal`` or ``low``. limits: ``maxCalls``, ``maxTokens``, ``maxCostUsd``,
        ``deadlineSeconds``. lane: ``batch`` sends the job's model calls in the providers' batches, which cost less and
        may take a day; after ``batch_deadline_seconds`` (default: the backend's) they are made at once.
        callback: a task name of yours (or ``(name, queue)``; the queue is ``celery`` otherwise), called as
        ``task(process_id, wrapper)`` at least once when the job closes. trace_context: W3C headers.

        Raises :class:`InvalidSubmission` (nothing sent) or :class:`Unreachable`. What only the backend can judge
        (unknown recipe, wrong parameters) comes as a result with ``"success": False``.
        """
        payload = submission(
            recipe=recipe,
            identity=new_id() if id is None else checked_id(id),
            params=params,
            goal=goal,
            tenant=self._tenant,
            project=self._project,
            owner=owner,
            priority=priority,
            lane=lane,
            batch_deadline_seconds=batch_deadline_seconds,
            limits=limits,
            callback=callback,
            trace_context=trace_context,
            max_bytes=self._max_bytes,
        )
        self.send(payload)
        return Job(self, payload["id"], payload)

    def jeltz(self, prompt: str, schema: Mapping[str, Any], *, recipe: str = "jeltz", **options: Any) -> Job:
        """One question, one JSON object of ``schema``. Options: those of :meth:`submit`, and any parameter by its name
        (``model``, ``max_attempts`` or ``maxAttempts``, ``temperature`` …)."""
        named = ("goal", "owner", "id", "priority", "lane", "batch_deadline_seconds", "limits", "callback")
        own = {key: options.pop(key) for key in (*named, "trace_context") if key in options}
        own["params"] = {
            **options.pop("params", {}),
            **{_camel(key): value for key, value in options.items()},
            "prompt": prompt,
            "schema": dict(schema),
        }
        return self.submit(recipe, **own)

    def job(self, id: str | uuid.UUID) -> Job:
        """A job submitted earlier, or by somebody else. Asks nobody whether it exists."""
        return Job(self, checked_id(id), None)

    def watch(self, id: str | uuid.UUID, *, timeout: float | None = None) -> Iterator[Picture]:
        """A job's plan as it grows; see :meth:`Job.watch`."""
        return self.job(id).watch(timeout=timeout)

    def inbox(
        self,
        *,
        status: str | None = "PENDING",
        owner: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[dict[str, Any]]:
        """Questions to people in this client's tenant and project, the pressing ones first, as many as fit an answer.

        status: ``PENDING``, ``ANSWERED``, ``DISMISSED``, ``EXPIRED`` or ``None`` for all. owner: only this person's and
        those that are nobody's. tag: only those with it; a plan's have ``marvin``.
        """
        found = self.ask(INBOX_LIST, self._tenant, self._project, status, owner, limit, tag, timeout=timeout)
        items: list[dict[str, Any]] = found["items"]
        return items

    def answer(self, item_id: int, answer: Mapping[str, Any], *, by: str, timeout: float | None = None) -> str:
        """Answer a question; its job goes on. The same answer again is fine, a second one is refused.

        answer: the value in the shape of the question's type (``{"approved": True}``, ``{"chosen": "…"}``, ``{"text":
        "…"}`` …), or ``{"outcome": "INSUFFICIENT_INFO" or "UNDECIDABLE", "reason": "…"}``. by: who answers.

        Returns ``STORED``, or ``SAME`` when this very answer was there. Raises :class:`AnswerRefused`.
        """
        return self._accepted(self.ask(INBOX_ANSWER, item_id, dict(answer), by, self._tenant, timeout=timeout))

    def dismiss(self, item_id: int, *, by: str, timeout: float | None = None) -> str:
        """Close a question without an answer: the part of the plan that asked fails. Raises :class:`AnswerRefused`."""
        return self._accepted(self.ask(INBOX_DISMISS, item_id, by, self._tenant, timeout=timeout))

    @staticmethod
    def _accepted(said: dict[str, Any]) -> str:
        outcome: str = said["outcome"]
        if outcome not in ("STORED", "SAME"):
            raise AnswerRefused(said["message"], outcome)
        return outcome

    def send(self, payload: Mapping[str, Any]) -> None:
        """Publish a submission as it is. For :class:`Job`, which sends a lost one again."""
        with translated():
            self._app.send_task(
                SUBMIT,
                kwargs=dict(payload),
                task_id=payload["id"],
                queue=CONTROL_QUEUE,
                # The result under this id is written when the job closes, by the backend and not by this task.
                ignore_result=True,
                # Events, Flower and logs show these instead of the arguments, which hold the prompt.
                argsrepr="()",
                kwargsrepr=f"{{'recipe': {payload['recipe']!r}, ...}}",
            )

    def ask(self, task: str, *args: Any, timeout: float | None = None) -> Any:
        """Run one of the backend's control tasks and return its answer. For :class:`Job`."""
        seconds = ANSWER_SECONDS if timeout is None else timeout
        with translated():
            answer = self._app.send_task(
                task,
                args=args,
                queue=URGENT_QUEUE,
                ignore_result=False,
                # Nobody waits any longer; a stop is carried out even when it is late.
                expires=None if task.endswith(".stop") else max(1.0, seconds),
            )
            try:
                return answer.get(timeout=seconds, disable_sync_subtasks=False)
            except CeleryTimeout:
                raise NoAnswer(f"no worker answered {task} within {seconds:g} s") from None
            finally:
                answer.forget()

    def listener(self) -> Listener:
        """A subscription to the backend's progress channels. For :class:`Job`."""
        return Listener(self._app)

    @property
    def app(self) -> Celery:
        """The Celery application in use."""
        return self._app

    def close(self) -> None:
        """Close this client's connections. An application given by the caller is left alone."""
        if self._own:
            consumer = getattr(self._app.backend, "result_consumer", None)
            if consumer is not None:
                consumer.stop()
            redis = getattr(self._app.backend, "client", None)
            if redis is not None:
                redis.close()
            self._app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _application(broker_url: str, result_backend: str) -> Celery:
    app = Celery("vancetope-client", broker=broker_url, backend=result_backend, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        task_default_queue=CONTROL_QUEUE,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=5,
        task_publish_retry_policy={"max_retries": 3, "interval_start": 0, "interval_step": 0.3, "interval_max": 1},
        redis_socket_connect_timeout=5,
        redis_socket_keepalive=True,
        redis_backend_health_check_interval=10,
        result_backend_transport_options={"health_check_interval": 10},
        broker_transport_options={"socket_keepalive": True, "socket_connect_timeout": 5},
    )
    return app
