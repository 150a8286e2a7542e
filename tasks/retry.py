"""The same work again, later or otherwise: a turn that cannot run now, and a node whose call failed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, assert_never

from engines.llm.base import LlmError
from engines.llm.policy import FailureCounts, RetryIn, StepDown
from models.records import NodeView, Reason
from models.store.database import DatabaseUnavailable
from models.transition import PhaseNote, Transition, advance

log = logging.getLogger(__name__)


class Postponed(Exception):
    """The turn cannot run now, and that is nobody's failure. Control flow."""

    def __init__(self, delay_seconds: float) -> None:
        super().__init__(delay_seconds)
        self.delay_seconds = delay_seconds


@contextmanager
def nothing_paid(what: str) -> Iterator[None]:
    """Without PostgreSQL in this block the turn is given back: nothing is paid yet, and a lease left to run out would
    look as if a worker had died."""
    try:
        yield
    except DatabaseUnavailable as error:
        log.warning("%s, trying again later", what, extra={"error": str(error)})
        raise Postponed(1.0) from error


def given_up(node: NodeView, *, losses: int, crashes: int) -> str | None:
    """Why the turn is given up instead of tried again, or ``None``. The numbers: how many of each are enough."""
    if node.losses >= losses:
        return f"{node.losses} workers were lost while they ran this turn"
    crashed = node.transport.get("crashes", 0)
    if crashed >= crashes:
        return f"the engine failed {crashed} times on this turn: {node.transport.get('crash', '')}"
    return None


def called_again(
    node: NodeView, attempt: int, error: LlmError, counts: FailureCounts, step: RetryIn | StepDown
) -> Transition:
    """Phase and cursor stay; the failure is counted and what was learned is kept with the node."""
    after: dict[str, Any] = {**_lasting(node), "failures": counts.after(error).to_json()}
    delay, reason = 0.0, Reason.STEPPED_DOWN
    match step:
        case RetryIn():
            delay, reason = step.seconds, Reason.RETRY_LATER
        case StepDown():
            if step.path is not None:
                after["path"] = step.path.value
            if step.parameter is not None:
                after["without"] = sorted({*node.transport.get("without", ()), step.parameter})
        case _:
            assert_never(step)
    output = {"error": error.kind.value, "message": error.message, "delaySeconds": round(delay, 3)}
    note = PhaseNote(phase=node.phase, iteration=attempt, output=output)
    again = advance(node.phase, node.cursor, note=note, reason=reason, delay_seconds=delay)
    return again.with_transport(after)


def crashed_again(node: NodeView, crashes: int, crash: str) -> Transition:
    """The turn once more after its engine failed for the ``crashes``-th time, a little later each time."""
    note = PhaseNote(phase=node.phase, iteration=crashes, output={"crash": crash[:2000]})
    delay = 2.0 ** (crashes - 1)
    again = advance(node.phase, node.cursor, note=note, reason=Reason.CRASHED, delay_seconds=delay)
    return again.with_transport({**_lasting(node), "crashes": crashes, "crash": crash[:500]})


def _lasting(node: NodeView) -> dict[str, Any]:
    """What the node's next turn is told, too: all but when this one was claimed first."""
    return {key: value for key, value in node.transport.items() if key != "claimedIn"}
