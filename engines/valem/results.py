"""The one result of a process of valem, as an object: what was made, or why nothing was."""

from __future__ import annotations

import json
from typing import Any, Final

from engines.structured.text import shorten
from engines.valem.cursor import Candidate, ValemState
from engines.valem.machine import Closed

_PROBLEM_CHARS: Final = 1_000
_PROBLEMS: Final = 50
_LAST_RAW_CHARS: Final = 20_000


def wrapper_of(closed: Closed) -> dict[str, Any]:
    """The result of a process that ends by itself."""
    if closed.error is not None:
        return error_wrapper(closed.state, closed.error, closed.message, counts=closed.counts)
    chosen = closed.state.chosen
    if chosen is None:
        raise ValueError("a process that ends well has chosen something")
    wrapper: dict[str, Any] = {
        "success": True,
        "modelId": chosen.model_id,
        "version": chosen.version,
        "specVersion": chosen.candidate.spec_version,
        "attempts": closed.state.attempt,
        "bestEffort": chosen.best_effort,
        "report": chosen.candidate.colour,
        **_flaws(chosen.candidate),
        **_made(chosen.candidate, chosen.model_id),
    }
    if closed.state.base_version is not None:
        wrapper["baseVersion"] = closed.state.base_version
    if chosen.why is not None:
        wrapper |= {"forced": True, "message": chosen.why}
    return wrapper


def error_wrapper(state: ValemState, error: str, message: str, *, counts: bool = False) -> dict[str, Any]:
    """A result without success. A spec that was made all the same is in it, so nothing is lost."""
    wrapper: dict[str, Any] = {
        "success": False,
        "error": error,
        "message": message,
        "attempts": state.attempts + counts,
    }
    if state.problems:
        wrapper["errors"] = [shorten(str(each), _PROBLEM_CHARS) for each in state.problems[:_PROBLEMS]]
    raw = state.reply or state.last_raw
    if raw:
        wrapper["lastRaw"] = shorten(raw, _LAST_RAW_CHARS)
    if state.chosen is not None:
        wrapper["modelId"] = state.chosen.model_id
        wrapper |= {**_flaws(state.chosen.candidate), **_made(state.chosen.candidate, state.chosen.model_id)}
    elif state.best is not None:
        wrapper |= {**_flaws(state.best), **_made(state.best, state.best.model_id)}
    if state.base_version is not None:
        wrapper["baseVersion"] = state.base_version
    return wrapper


def _flaws(candidate: Candidate) -> dict[str, Any]:
    return {
        "failingTests": list(candidate.failing),
        "warnings": [*candidate.findings, *candidate.warnings],
    }


def _made(candidate: Candidate, model_id: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if candidate.evolution is not None:
        made["evolution"] = json.loads(candidate.evolution)
    made["spec"] = spec_of(candidate, model_id)
    return made


def spec_of(candidate: Candidate, model_id: str) -> dict[str, Any]:
    """The spec as it is stored: under the id it got."""
    spec: dict[str, Any] = json.loads(candidate.spec)
    spec["id"] = model_id
    return spec
