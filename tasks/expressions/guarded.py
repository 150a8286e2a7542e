"""Evaluations in a process that may be lost: the evaluator of workers and of the command line.

The engine keeps to its limits on loops, recursion and results, but a single built-in function can ask for any amount of
memory, and then the process ends. So it is another process that ends: the caller gets an error, the next evaluation a
new process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from functools import cache
from typing import Any, NoReturn

from engines.valem.jsonata.errors import BAD_INPUT, KILLED, ExpressionError
from engines.valem.jsonata.evaluation import Evaluation
from tasks.expressions.child import READY

log = logging.getLogger(__name__)

MEMORY_BYTES = 3 * 512 * 1024**2
"""Address space of the process. A GiB of it is what the engine sets aside (and does not use) for deep recursion."""
GRACE_SECONDS = 1.0
"""What an evaluation may take beyond its own limit before its process is ended."""
START_SECONDS = 30.0
_CHUNK = 1 << 16


class GuardedEvaluator:
    """An evaluator (see ``engines.valem.jsonata.evaluation``) that no expression can end or keep for long.

    Starts its process when it is first needed. Threads take turns; after a fork, each side has a process of its own.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES, grace_seconds: float = GRACE_SECONDS) -> None:
        self._memory_bytes = memory_bytes
        self._grace = grace_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        atexit.register(self.close)

    def __call__(self, evaluation: Evaluation, /) -> str | None:
        seconds = evaluation.limits.seconds + self._grace
        line = _request(evaluation, seconds)
        with self._lock:
            answer = self._ask(line, seconds)
        if answer is None:
            self._explain(evaluation)
        if "error" in answer:
            raise ExpressionError(*answer["error"])
        result: str | None = answer["result"]
        return result

    def close(self) -> None:
        """End the process. The next evaluation starts another."""
        with self._lock:
            self._end()

    def _ask(self, line: bytes, seconds: float) -> dict[str, Any] | None:
        """The answer; ``None`` when the process did not live to give one."""
        try:
            # The alarm in the process comes first; the time here is for a process that does not notice an alarm.
            answer = _line(self._told(line), seconds + self._grace)
        except BrokenPipeError:
            answer = None
        except BaseException:
            # Stopped in the middle: the answer to come must not be taken for that to the next question.
            self._end()
            raise
        if answer is None:
            self._end()
            return None
        found: dict[str, Any] = json.loads(answer)
        return found

    def _told(self, line: bytes) -> subprocess.Popen[bytes]:
        """The process, with the question on its way to it."""
        process = self._running()
        try:
            _write(process, line)
        except BrokenPipeError:
            # It had died between two evaluations, which is not this one's doing.
            self._end()
            process = self._running()
            _write(process, line)
        return process

    def _running(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            # Forked: the process belongs to the other side.
            self._process, self._owner = None, os.getpid()
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            self._process = self._start()
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            # -P: nothing in the current folder is imported.
            [sys.executable, "-P", "-m", "tasks.expressions.child", str(self._memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Where the modules are, and nothing else: keys and passwords stay here.
            env={"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            start_new_session=True,
        )
        if _line(process, START_SECONDS) != READY:
            self._process = process
            self._end()
            raise RuntimeError("the process that evaluates expressions does not start")
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # What was still to be written has no reader any more.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _explain(self, evaluation: Evaluation) -> NoReturn:
        log.warning("expression ended with its process", extra={"expression": evaluation.text[:500]})
        raise ExpressionError(
            KILLED,
            f"the evaluation was ended: it takes longer than {evaluation.limits.seconds:g} s or too much memory",
        )


@cache
def guarded_evaluator() -> GuardedEvaluator:
    """The evaluator of this process."""
    return GuardedEvaluator()


def _request(evaluation: Evaluation, kill_after: float) -> bytes:
    try:
        text = json.dumps(asdict(evaluation) | {"killAfter": kill_after}, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ExpressionError(BAD_INPUT, f"the document is not JSON: {error}") from None
    return text.encode() + b"\n"


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """One line of the process; ``None`` at its end or after ``seconds``."""
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    deadline = time.monotonic() + seconds
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if not poll.poll(left * 1_000):
            continue
        part = os.read(process.stdout.fileno(), _CHUNK)
        if not part:
            return None
        parts.append(part)
        if part.endswith(b"\n"):
            return b"".join(parts)
    return None


def _write(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()
