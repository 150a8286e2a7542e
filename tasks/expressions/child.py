"""The process that evaluates expressions of strangers: ``python -m tasks.expressions.child MEMORY_BYTES``.

One JSON line in, one JSON line out, until standard input ends. It has no credentials, no connections and little memory,
and an alarm ends it when an evaluation stays longer than it may: the kernel's default action needs no Python, so it
also works in the middle of a regular expression. A :class:`~tasks.expressions.guarded.GuardedEvaluator` keeps it.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import Evaluation, Limits, evaluate_here

READY = b"ready\n"


def main() -> None:
    _confine(int(sys.argv[1]))
    answers = sys.stdout.buffer
    answers.write(READY)
    answers.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["killAfter"])
        answer = json.dumps(_answer(request)).encode()
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(answer + b"\n")
        answers.flush()


def _confine(memory_bytes: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # Where an operating system does not know a limit, the alarm is what is left.
    for name, limit in (("RLIMIT_AS", memory_bytes), ("RLIMIT_CORE", 0)):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (limit, limit))
    # When memory is short all the same, this process goes before the worker that it serves.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    evaluation = Evaluation(
        text=request["text"],
        document=request["document"],
        bindings=request["bindings"],
        now=request["now"],
        limits=Limits(**request["limits"]),
    )
    try:
        return {"result": evaluate_here(evaluation)}
    except ExpressionError as error:
        return {"error": [error.code, error.message, error.position, error.token]}


if __name__ == "__main__":
    main()
