"""An engine of bare durable steps: what the peers' programs do, as turns of vancetope.

Parameters: ``prompt``, ``steps`` (of each node that does not split), and ``children``: with some, the root splits into
so many branches first and does its last steps when all are back. Nothing is asked of anybody, so what is left is the
price of the turns themselves. Named in VANCETOPE_ENGINES by ``bench.systems.vancetope``.
"""

from __future__ import annotations

from typing import Any, Never

from bench.programs.job import CHILD_STEPS, LAST_STEPS, child_goal, instant_model
from engines.base import Decided, Outcome
from models.records import ChildMode, CloseReason, View
from models.transition import (
    CloseProcess,
    NewChild,
    PhaseNote,
    SpawnChildren,
    Transition,
    WriteArtifact,
    advance,
    fan_out,
    finish,
)

STEP, SPLIT = "STEP", "SPLIT"


class Steps:
    """Each turn runs the step that the peers run, and stores its answer."""

    name = "steps"
    first_phase = STEP
    history = 0

    def prepare(self, view: View) -> Decided:
        params, cursor = view.process.params, view.node.cursor
        is_root = view.node.parent_id is None
        children = params.get("children", 0) if is_root else 0
        if children and not cursor:
            return Decided(transition=_split(children))
        done = cursor.get("done", 0) + 1
        answer = instant_model(params["prompt"] if is_root else view.node.goal)
        note = PhaseNote(phase=STEP, iteration=done, output=answer)
        cursor = {"done": done, "answer": answer}
        if done < (LAST_STEPS if children else params["steps"] if is_root else CHILD_STEPS):
            return Decided(transition=advance(STEP, cursor, note=note))
        if is_root:
            result = {"success": True, "data": answer}
            close = CloseProcess(reason=CloseReason.DONE, result=result, message=f"{len(answer)} fields")
            return Decided(transition=finish(STEP, cursor, note=note, effects=(close,)))
        kept = WriteArtifact(key="result", content=str(answer))
        return Decided(transition=finish(STEP, cursor, note=note, effects=(kept,)))

    def decide(self, view: View, outcome: Outcome) -> Never:
        raise RuntimeError(f"{type(outcome).__name__}: nothing was asked for")

    def wrapper(self, cursor: dict[str, Any], *, error: str, message: str) -> dict[str, Any]:
        return {"success": False, "error": error, "message": message}


def _split(children: int) -> Transition:
    branches = tuple(
        NewChild(order_key=(number + 1,), kind="BRANCH", goal=child_goal(number), phase=STEP)
        for number in range(children)
    )
    spawned = SpawnChildren(children=branches, mode=ChildMode.PARALLEL)
    return fan_out(STEP, {"done": 0}, note=PhaseNote(phase=SPLIT, iteration=1), children=spawned)


STEPS = Steps()
