"""The internal tool ``valem_check``: the answer of a model, checked where expressions of strangers are evaluated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from engines.tools.base import ToolContext, ToolFailed, ToolResult
from engines.valem import verdicts
from engines.valem.check import Answer, Surroundings, check
from engines.valem.cursor import Task
from engines.valem.jsonata.evaluation import Evaluation, Evaluator


class ValemCheck:
    """Never offered to a model: valem calls it itself. Its text is a verdict (``engines.valem.verdicts``)."""

    name = verdicts.CHECK
    description = "Mends, validates, runs and tests a model spec or an evolution."
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "cut": {"type": "boolean"},
            "task": {"type": "string", "enum": [task.value for task in Task]},
            "modelId": {"type": "string"},
            "base": {"type": "string", "description": "The spec that is evolved, as JSON"},
            "baseVersion": {"type": "integer"},
            "seconds": {"type": "number"},
            "expressionSeconds": {"type": "number"},
        },
        "required": ["text", "cut", "task", "seconds", "expressionSeconds"],
    }

    def __init__(
        self,
        evaluator: Evaluator,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """now: seconds since the epoch, for ``$now()``; clock: seconds that pass, for the limits."""
        self._evaluator = evaluator
        self._now = now
        self._clock = clock

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        base = arguments.get("base")
        answer = Answer(
            text=arguments["text"],
            cut=arguments["cut"],
            task=Task(arguments["task"]),
            model_id=arguments.get("modelId"),
            base=None if base is None else json.loads(base),
            base_version=arguments.get("baseVersion"),
            seconds=min(arguments["seconds"], context.seconds),
            expression_seconds=arguments["expressionSeconds"],
        )

        def evaluate(evaluation: Evaluation, /) -> str | None:
            if context.cancel is not None and context.cancel.is_set():
                raise ToolFailed("the check was stopped")
            return self._evaluator(evaluation)

        around = Surroundings(evaluate, int(self._now() * 1_000), self._clock)
        return ToolResult(text=verdicts.write(check(answer, around)))
