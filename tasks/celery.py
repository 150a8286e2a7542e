"""The Celery application: ``celery -A tasks.celery worker|beat|flower``.

Task names are constants. Turns carry ids only and are acknowledged early: the row is the guarantee, the message a hint.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import Any
from uuid import UUID

from celery import Celery, Task, signals
from kombu import Queue
from psycopg import DataError

from engines.inbox.answers import InvalidAnswer
from models.records import ItemStatus
from models.store import processes as store
from models.store import read
from models.store.clean import NotStorable
from models.store.database import DatabaseUnavailable
from tasks import faults, inbox, logs
from tasks.announce import collected
from tasks.broker import connection_options
from tasks.consumer import Consumer, set_aside
from tasks.control import resume_process, steer_process, stop_process
from tasks.jsonable import dump, jsonable
from tasks.plans import picture_within
from tasks.publish import CONTROL_QUEUE, URGENT_QUEUE, engine_queue, turn_task
from tasks.settings import current
from tasks.submission import SubmissionError, parse_submission, prepare, rejected
from tasks.traces import sent_along
from tasks.wiring import Runtime, load_engines

log = logging.getLogger(__name__)

SUBMIT = "vancetope.submit"
SWEEP = "vancetope.sweep"
WEBHOOKS = "vancetope.webhooks"
BATCHES = "vancetope.batches"
STATUS = "vancetope.status"
PLAN = "vancetope.plan"
RESULT = "vancetope.result"
STOP = "vancetope.stop"
SUSPEND = "vancetope.suspend"
RESUME = "vancetope.resume"
STEER = "vancetope.steer"

INBOX_LIST = "vancetope.inbox.list"
INBOX_ANSWER = "vancetope.inbox.answer"
INBOX_DISMISS = "vancetope.inbox.dismiss"

PLAN_CHARS = 48_000
"""``vancetope.plan`` answers with at most this much JSON, as a result backend stores it."""
RESULT_PIECE_CHARS = 48_000
RESULT_PIECE_BYTES = 64_000
"""``vancetope.result`` answers with at most this much of a wrapper's JSON at a time, as a result backend stores it."""

SHOWN_CHARS = 1_000
"""Of what a turn or a sweep returns events show so much: ids, names and counts, made to be shown."""

settings = current()
_ENGINES = load_engines(settings.engines)

app = Celery("vancetope")
app.conf.update(
    **connection_options(settings),
    task_acks_late=False,
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    task_track_started=False,
    task_queues=[Queue(CONTROL_QUEUE), Queue(URGENT_QUEUE), *(Queue(engine_queue(name)) for name in _ENGINES)],
    worker_consumer="tasks.consumer:Consumer",
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    task_send_sent_event=False,
    beat_schedule={
        **{
            name: {
                "task": task,
                "schedule": settings.sweep_seconds,
                # A sweep nobody took in time is pointless: the next one does the same.
                "options": {"queue": URGENT_QUEUE, "expires": max(10.0, settings.sweep_seconds * 5), "priority": 0},
            }
            for name, task in (("sweep", SWEEP), ("webhooks", WEBHOOKS))
        },
        "batches": {
            "task": BATCHES,
            "schedule": settings.batch_poll_seconds,
            "options": {"queue": CONTROL_QUEUE, "expires": max(60.0, settings.batch_poll_seconds * 5)},
        },
    },
)

runtime = Runtime(settings, app)
Consumer.runtime = runtime


class VancetopeTask(Task):  # type: ignore[type-arg]
    """Base of every task here."""

    Request = "tasks.redaction:RedactedRequest"
    # What a task returns (a result, say) is nothing for events and logs, unless it was made for them.
    resultrepr_maxsize = 0
    abstract = True


@signals.setup_logging.connect
def _configure_logging(**_: Any) -> None:
    logs.configure(level=settings.log_level, style=settings.log_format, secrets=settings.secrets())


@signals.worker_init.connect
def _starting(**_: Any) -> None:
    # Once, before any fork: the first call of a job should not pay for importing an SDK.
    runtime.client.preload()


@signals.worker_process_init.connect
def _forked(**_: Any) -> None:
    logs.configure(level=settings.log_level, style=settings.log_format, secrets=settings.secrets())


@signals.worker_shutdown.connect
@signals.worker_process_shutdown.connect
def _closing(**_: Any) -> None:
    runtime.close()


def _register_turn(engine: str) -> None:
    def run(*given: object, **named: object) -> dict[str, Any] | None:
        numbers = [item for item in given if isinstance(item, int) and not isinstance(item, bool)]
        if named or len(given) != 2 or len(numbers) != 2:
            problem = "a turn is two whole numbers: node id, turn number"
            set_aside(runtime.database, turn_task(engine), problem, [*given, named])
            return None
        with collected() as done:
            runtime.runner.run(engine, numbers[0], numbers[1])
        # The last one of a burst.
        return done[-1] if done else None

    run.__doc__ = f"One turn of {engine}: node id and turn number."
    app.task(name=turn_task(engine), base=VancetopeTask, typing=False, resultrepr_maxsize=SHOWN_CHARS)(run)


for _name in _ENGINES:
    _register_turn(_name)


def _remark(process_id: UUID, text: str) -> None:
    with logs.bound(process=str(process_id)):
        log.warning("submission accepted with a remark", extra={"remark": text})


# Acknowledged late, unlike everything else: until its row exists, the message is all there is of a submission.
@app.task(
    name=SUBMIT,
    base=VancetopeTask,
    bind=True,
    typing=False,
    acks_late=True,
    reject_on_worker_lost=True,
    autoretry_for=(DatabaseUnavailable,),
    retry_backoff=True,
    retry_backoff_max=30,
    max_retries=None,
)
def submit(self: Any, *args: Any, **payload: Any) -> None:
    """Store a process and publish its first turn. Keyword arguments: see ``tasks.submission.Submission``.

    Sent with ``task_id`` equal to ``id``, the sender's ``AsyncResult`` is the process's result; ``id`` may be left out.
    """
    given: object = args[0] if args and not payload else payload
    if args and payload:
        given = list(args)
    identity = given.get("id") if isinstance(given, dict) else None
    try:
        process_id = UUID(str(identity or self.request.id))
    except ValueError:
        set_aside(runtime.database, SUBMIT, "id (or the task id) must be a UUID", given)
        return
    try:
        submission = parse_submission({**given, "id": str(process_id)} if isinstance(given, dict) else given)
        if not submission.trace_context:
            # As instrumented senders write them: beside Celery's own headers.
            submission = submission.model_copy(update={"trace_context": sent_along(self.request.get)})
        process = prepare(submission, settings, runtime.engines, runtime.sources, partial(_remark, process_id))
        faults.reach("before_store")
        turns = store.submit(runtime.database, [process])
        faults.reach("after_store")
    except (SubmissionError, NotStorable, DataError) as error:
        # Nothing else may be tried with it: its sender gets the reason as the result.
        process, wrapper = rejected(given, process_id, str(error), settings)
        store.submit_rejected(runtime.database, process, wrapper, str(error))
        delivery = store.delivery_of(runtime.database, process_id)
        if delivery is not None:
            runtime.deliverer([delivery])
        return
    runtime.publisher.publish(turns)


@app.task(name=SWEEP, base=VancetopeTask, typing=False, resultrepr_maxsize=SHOWN_CHARS)
def sweep() -> dict[str, int]:
    """One sweep; beat sends it. Returns how many rows each repair has touched."""
    done: dict[str, int] = runtime.sweeper.sweep()
    return done


@app.task(name=WEBHOOKS, base=VancetopeTask, typing=False)
def webhooks() -> None:
    """Have this process send what is due; beat sends it. Returns at once: nothing here waits for a receiver."""
    runtime.webhooks.kick()


@app.task(name=BATCHES, base=VancetopeTask, typing=False, resultrepr_maxsize=SHOWN_CHARS)
def batches() -> dict[str, int]:
    """Send and fetch batches; beat asks for it. No part of the sweep, which never waits for a provider. Returns how
    many were sent or asked for."""
    return {"batches": runtime.collector.collect()}


@app.task(name=STATUS, base=VancetopeTask, ignore_result=False, expires=60)
def status(process_id: str) -> dict[str, Any] | None:
    """What is known of a process, or ``None``."""
    found = read.status(runtime.database, UUID(process_id))
    return None if found is None else jsonable(found)


@app.task(name=PLAN, base=VancetopeTask, ignore_result=False, expires=60)
def plan(process_id: str) -> dict[str, Any] | None:
    """The plan as the progress channel would show it now (``tasks.plans.picture``), or ``None``."""
    return picture_within(runtime.database, UUID(process_id), PLAN_CHARS)


@app.task(name=RESULT, base=VancetopeTask, ignore_result=False, expires=60)
def result(process_id: str, offset: int = 0) -> dict[str, Any] | None:
    """A piece of the wrapper's JSON text from ``offset``: ``{"text", "next"}``; ``None`` while there is no result."""
    wrapper = read.result(runtime.database, UUID(process_id))
    if wrapper is None:
        return None
    text = dump(wrapper)
    piece = text[offset : offset + RESULT_PIECE_CHARS]
    while len(json.dumps(piece)) > RESULT_PIECE_BYTES:
        piece = piece[: len(piece) // 2]
    end = offset + len(piece)
    return {"text": piece, "next": end if end < len(text) else None}


@app.task(name=STOP, base=VancetopeTask, ignore_result=False)
def stop(process_id: str) -> list[str]:
    """Stop a process and everything below it. Returns the ids closed by this call."""
    return [str(each) for each in stop_process(runtime, UUID(process_id))]


@app.task(name=SUSPEND, base=VancetopeTask, ignore_result=False)
def suspend(process_id: str, abort_running: bool = False) -> bool:
    """Suspend a process. ``False`` when it is closed, suspended already or unknown."""
    return store.suspend(runtime.database, UUID(process_id), abort_running=abort_running)


@app.task(name=RESUME, base=VancetopeTask, ignore_result=False)
def resume(process_id: str) -> bool:
    """Resume a suspended process."""
    return resume_process(runtime, UUID(process_id))


@app.task(name=STEER, base=VancetopeTask, ignore_result=False)
def steer(process_id: str, message: str) -> bool:
    """Send a message to a process after its submission. Dropped with a warning: its question was the submission."""
    return steer_process(runtime, UUID(process_id))


@app.task(name=INBOX_LIST, base=VancetopeTask, ignore_result=False, expires=60)
def inbox_list(
    tenant: str | None = None,
    project: str | None = None,
    status: str | None = "PENDING",
    owner: str | None = None,
    limit: int = 100,
    tag: str | None = None,
) -> dict[str, Any]:
    """Questions of a project: ``{"items", "more"}``. status ``None``: of any; owner: this person's and the pool's;
    tag: only those with it."""
    wanted = None if status is None else ItemStatus(status)
    place = (tenant or settings.tenant, project or settings.project)
    return inbox.listed(runtime, *place, status=wanted, owner=owner, tag=tag, limit=max(1, min(limit, 500)))


@app.task(name=INBOX_ANSWER, base=VancetopeTask, ignore_result=False)
def inbox_answer(item_id: int, answer: Any, by: str, tenant: str | None = None) -> dict[str, Any]:
    """Answer a question: ``{"outcome", "message", "status"}``; the outcome is INVALID when the answer does not fit."""
    try:
        return inbox.reported(item_id, inbox.answer_item(runtime, item_id, answer, by=by, tenant=tenant))
    except (InvalidAnswer, NotStorable) as error:
        return {"outcome": "INVALID", "message": str(error)}


@app.task(name=INBOX_DISMISS, base=VancetopeTask, ignore_result=False)
def inbox_dismiss(item_id: int, by: str, tenant: str | None = None) -> dict[str, Any]:
    """Close a question without an answer: ``{"outcome", "message", "status"}``."""
    return inbox.reported(item_id, inbox.dismiss_item(runtime, item_id, by=by, tenant=tenant))
