"""What the commands share: a spec or document from a file or standard input, and the evaluator of strangers' texts."""

from __future__ import annotations

import time
from typing import Any

from engines.valem.jsonata.budget import BudgetedEvaluator
from engines.valem.spec.parse import parse_spec
from engines.valem.spec.records import ModelSpec
from tasks.cli.asked import STDIN, parse_json, read_file, read_stdin
from tasks.expressions.guarded import guarded_evaluator

RUN_SECONDS = 60.0
"""For all evaluations of one command."""


def read_json(given: str, option: str) -> Any:
    """A JSON document from a file, or from standard input for ``-``."""
    if given == STDIN:
        return parse_json(read_stdin(option), "standard input")
    return parse_json(read_file(given, option), given)


def read_spec(given: str) -> ModelSpec:
    """A spec from a file or standard input. One that cannot be read ends the command with what is wrong where."""
    return parse_spec(read_json(given, "FILE"))


def evaluator() -> BudgetedEvaluator:
    """The evaluator for one command."""
    return BudgetedEvaluator(guarded_evaluator(), RUN_SECONDS, time.monotonic)


def now() -> int:
    """Milliseconds since the epoch, for ``$now()`` and ``$millis()``."""
    return time.time_ns() // 1_000_000
