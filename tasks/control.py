"""Stopping and resuming processes from any face: Celery tasks, the command line, HTTP."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from models.records import CloseReason
from models.store import processes as store
from models.store import read
from models.store.processes import Closing
from tasks.closing import wrapper_of
from tasks.logs import bound
from tasks.meter import CLOSED
from tasks.wiring import Runtime

log = logging.getLogger(__name__)


def stop_process(wired: Runtime, process_id: UUID) -> tuple[UUID, ...]:
    """Stop, then hand over the results of what was closed."""

    def wrapper(closing: Closing) -> dict[str, Any]:
        engine = wired.engines.get(closing.engine)
        return wrapper_of(engine, closing.cursor, error="stopped", message="stopped on request")

    closed = store.stop(wired.database, process_id, wrapper)
    wired.background.meter.count(CLOSED, CloseReason.STOPPED.value, by=len(closed))
    deliveries = [found for each in closed if (found := store.delivery_of(wired.database, each)) is not None]
    if deliveries:
        wired.deliverer(deliveries)
    return closed


def steer_process(wired: Runtime, process_id: UUID) -> bool:
    """A message to a process that has started. No engine here can be steered: it is dropped with a warning.

    ``False`` always: nothing was taken. The message itself is not logged.
    """
    found = read.status(wired.database, process_id)
    engine = found["engine"] if found else "none"
    with bound(process=str(process_id)):
        log.warning("message to a running process dropped", extra={"engine": engine})
    return False


def resume_process(wired: Runtime, process_id: UUID) -> bool:
    """Resume and publish what is due."""
    turns = store.resume(wired.database, process_id)
    if turns:
        wired.publisher.publish(turns)
    return turns is not None
