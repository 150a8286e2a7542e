"""The check of an answer as the engine sees it: a call of an internal tool, and its verdict as one JSON object.

The check itself repairs, validates, runs and tests the answer (``engines.valem.check``); it evaluates expressions of
strangers, so it is done where tools are run and never in a decision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from engines.errors import EngineError
from engines.llm.base import ToolCall
from engines.structured.text import shorten
from engines.valem.cursor import MAX_REPLY_CHARS, Candidate, Problem, ValemState
from engines.valem.machine import Judged, Verdict
from engines.valem.params import Params

CHECK: Final = "valem_check"
"""The tool's name. It is never offered to a model."""

MAX_PROBLEMS: Final = 40
MAX_PROBLEM_CHARS: Final = 1_500
MAX_REPORT_CHARS: Final = 40 * MAX_REPLY_CHARS
"""Of the whole object. A spec is in it at most three times, and six characters stand for one that is not ASCII; the
spec that an evolution makes may be longer than any answer."""


class CheckBroken(EngineError):
    """The check gave no verdict: nothing that the answer is to blame for. The turn is tried again."""


def check_call(state: ValemState, params: Params, base: Mapping[str, Any] | None) -> ToolCall:
    """The call that checks the answer of ``state``. base: the spec that is evolved."""
    arguments: dict[str, Any] = {
        "text": state.reply,
        "cut": state.cut,
        "task": params.task.value,
        "seconds": params.check_seconds,
        "expressionSeconds": params.expression_seconds,
    }
    if base is not None:
        # As text, because arguments are checked and normalised: what is stored stays what it is.
        arguments["base"] = json.dumps(base, ensure_ascii=False)
        if state.base_version is not None:
            arguments["baseVersion"] = state.base_version
    elif params.model_id is not None:
        arguments["modelId"] = params.model_id
    return ToolCall(id="check", name=CHECK, arguments=arguments)


def write(judged: Judged) -> str:
    """The verdict as text."""
    return json.dumps(
        {
            "verdict": judged.verdict.value,
            "count": judged.count,
            "problems": _bounded(judged.problems),
            "previous": judged.previous,
            "candidate": None if judged.candidate is None else judged.candidate.to_json(),
            "truncated": judged.truncated,
        }
    )


def read(text: str) -> Judged:
    """The verdict of :func:`write`. Raises :class:`CheckBroken`."""
    try:
        found: dict[str, Any] = json.loads(text)
        return Judged(
            verdict=Verdict(found["verdict"]),
            count=found["count"],
            problems=tuple(Problem(**each) for each in found["problems"]),
            previous=found["previous"],
            candidate=None if found["candidate"] is None else Candidate.from_json(found["candidate"]),
            truncated=found["truncated"],
        )
    except (ValueError, KeyError, TypeError):
        raise CheckBroken(f"the check gave no verdict: {shorten(text, 500)}") from None


def _bounded(problems: tuple[Problem, ...]) -> list[dict[str, Any]]:
    kept = [
        Problem(
            where=shorten(each.where, 200),
            message=shorten(each.message, MAX_PROBLEM_CHARS),
            hint=None if each.hint is None else shorten(each.hint, MAX_PROBLEM_CHARS),
            derivation=None if each.derivation is None else shorten(each.derivation, MAX_PROBLEM_CHARS),
        )
        for each in problems[:MAX_PROBLEMS]
    ]
    return [each.to_json() for each in kept]
