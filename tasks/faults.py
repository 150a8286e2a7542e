"""Named points around the commits at which tests can kill a worker. Inert unless ``VANCETOPE_FAULT`` is set.

``VANCETOPE_FAULT=point:action:token`` where ``action`` is ``kill`` (SIGKILL to itself) or ``raise``, and ``token`` is a
file that is removed when the fault fires: each token fires once, whichever process gets there first. Several faults are
separated by commas. ``point@PHASE.REASON`` (``after_commit@SCOPE.CALLED``) is that point at commits of such turns only.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

POINTS = (
    "before_store",
    "after_store",
    "after_claim",
    "before_call",
    "after_call",
    "before_commit",
    "after_commit",
    "after_publish",
    "before_answer",
    "after_answer",
    "before_delivery",
    "after_delivery",
    "in_sweep",
    "after_webhook",
    "after_park",
    "before_batch",
    "after_batch",
    "after_answers",
)


class InjectedFault(Exception):
    """Raised at a fault point by a test."""


def _armed() -> dict[str, list[tuple[str, Path]]]:
    faults: dict[str, list[tuple[str, Path]]] = {}
    for part in filter(None, os.environ.get("VANCETOPE_FAULT", "").split(",")):
        point, action, token = part.split(":", 2)
        if point.partition("@")[0] not in POINTS or action not in ("kill", "raise"):
            raise ValueError(f"VANCETOPE_FAULT: {part!r} names no fault point and action")
        faults.setdefault(point, []).append((action, Path(token)))
    return faults


_FAULTS = _armed()


def reach(point: str, turn: str = "") -> None:
    """Pass the point, unless a test has armed it. turn: what the turn is, as ``PHASE.REASON``."""
    if not _FAULTS:
        return
    for action, token in (*_FAULTS.get(point, ()), *_FAULTS.get(f"{point}@{turn}", ())):
        try:
            token.unlink()
        except FileNotFoundError:
            continue
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise InjectedFault(point)
