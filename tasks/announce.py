"""What the world learns of a committed turn: those who watch it, and whoever waits for the result."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from models.records import View
from models.store.processes import Delivery
from models.transition import CloseProcess, Transition
from tasks.progress import Background

log = logging.getLogger(__name__)

_COLLECTED: ContextVar[list[dict[str, Any]] | None] = ContextVar("vancetope_announced", default=None)


@contextmanager
def collected() -> Iterator[list[dict[str, Any]]]:
    """The turns announced in this block by this thread: ids, and where each went. For events and Flower."""
    done: list[dict[str, Any]] = []
    token = _COLLECTED.set(done)
    try:
        yield done
    finally:
        _COLLECTED.reset(token)


def announce(background: Background, view: View, transition: Transition, *, closed: bool) -> None:
    """Say that the turn is done, that the plan has changed, and if so that the process is closed. Never blocks."""
    process, node = view.process, view.node
    went = {"phase": transition.phase, "status": transition.status.value, "reason": transition.reason.value}
    log.info("turn done", extra=went)
    turn = {"process": str(process.id), "node": node.id, "turn": node.turn, **went}
    if (done := _COLLECTED.get()) is not None:
        done.append(turn)
    background.emit(process.root_id, {"kind": "turn", **turn})
    if view.plan is not None:
        background.plan_changed(process.root_id, process.id, last=closed)
    if not closed:
        return
    background.emit(process.root_id, {"kind": "closed", "process": str(process.id)})
    if process.parent_node_id is None:
        close = next(effect for effect in transition.effects if isinstance(effect, CloseProcess))
        background.deliver(Delivery(process_id=process.id, wrapper=close.result, callback=process.callback))
