"""Expressions that mean harm: each gives an error in time, and the next expression is evaluated as if nothing was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.valem.jsonata.errors import BAD_INPUT, KILLED, ExpressionError
from engines.valem.jsonata.evaluation import Limits
from engines.valem.jsonata.expression import UNDEFINED, compile_expression
from tasks.expressions.guarded import GuardedEvaluator, guarded_evaluator

ROOT = Path(__file__).resolve().parents[3]
LIMITS = Limits(seconds=0.5)
PATIENCE = 20.0
"""Seconds; far beyond what the limits allow, so that a busy machine fails no test."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedEvaluator]:
    evaluator = GuardedEvaluator()
    yield evaluator
    evaluator.close()


def evaluate(guarded: GuardedEvaluator, text: str, document: Any = UNDEFINED) -> Any:
    return compile_expression(text).evaluate(document, now=0, evaluator=guarded, limits=LIMITS)


HOSTILE = {
    "endless tail call": "($f := function($x) { $f($x + 1) }; $f(1))",
    "endless recursion": "($f := function($x) { 1 + $f($x + 1) }; $f(1))",
    "long range": "[1..1e7]",
    "ranges in ranges": "[1..1e5].[1..1e5].[1..1e5]",
    "huge padding": "$pad('', 1e9)",
    "catastrophic regex": "$match('" + "a" * 40 + "b', /(a+)+$/)",
    "evaluation bomb": "($s := '$eval($s)'; $eval($s))",
    "string doubling": "$reduce([1..100], function($a, $b) { $a & $a }, 'xxxxxxxxxx')",
    "object doubling": "$reduce([1..40], function($a, $b) { {'a': $a, 'b': $a} }, 1)",
    "replacement bomb": "$replace($pad('', 1e6, 'a'), 'a', $pad('', 1e5, 'b'))",
    "deep value": "$reduce([1..100000], function($a, $b) { [[$a]] }, 1)",
    "deep text": "$eval($pad('', 1e5, '['))",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_expression_gives_an_error_in_time_and_harms_nobody(guarded: GuardedEvaluator, text: str) -> None:
    started = time.monotonic()
    with pytest.raises(ExpressionError) as raised:
        evaluate(guarded, text)
    assert time.monotonic() - started < PATIENCE
    assert raised.value.message
    assert evaluate(guarded, "a + 1", {"a": 1}) == 2


def test_values_and_errors_are_those_of_an_evaluation_here(guarded: GuardedEvaluator) -> None:
    assert evaluate(guarded, "missing", {}) is UNDEFINED
    assert evaluate(guarded, "null", {}) is None
    assert evaluate(guarded, "'ö\n' & a", {"a": "\u2028"}) == "ö\n\u2028"
    with pytest.raises(ExpressionError) as raised:
        evaluate(guarded, "  1 + null")
    assert (raised.value.code, raised.value.position, raised.value.token) == ("T2002", 2, "+")


def test_what_is_no_json_does_not_reach_the_process(guarded: GuardedEvaluator) -> None:
    with pytest.raises(ExpressionError) as raised:
        compile_expression("$x").evaluate(bindings={"x": object()}, now=0, evaluator=guarded)
    assert raised.value.code == BAD_INPUT


def test_more_memory_than_there_is_ends_the_process_only() -> None:
    evaluator = GuardedEvaluator()
    try:
        with pytest.raises(ExpressionError) as raised:
            evaluate(evaluator, HOSTILE["replacement bomb"])
        assert raised.value.code == KILLED
        assert "too much memory" in raised.value.message
        assert evaluate(evaluator, "1") == 1
    finally:
        evaluator.close()


def test_a_process_that_died_between_two_evaluations_is_replaced() -> None:
    evaluator = GuardedEvaluator()
    try:
        assert evaluate(evaluator, "1") == 1
        process = evaluator._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert evaluate(evaluator, "2") == 2
    finally:
        evaluator.close()


def test_the_process_sees_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    evaluator = GuardedEvaluator()
    try:
        assert evaluate(evaluator, "1") == 1
        assert evaluator._process is not None
        with open(f"/proc/{evaluator._process.pid}/environ", "rb") as environment:
            assert b"sk-secret" not in environment.read()
    finally:
        evaluator.close()


def test_threads_share_one_process(guarded: GuardedEvaluator) -> None:
    found: list[tuple[int, Any]] = []

    def work(number: int) -> None:
        found.extend((number, evaluate(guarded, "a * 2", {"a": number})) for _ in range(20))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert all(result == number * 2 for number, result in found)


FORKED = """
import os
from engines.valem.jsonata.expression import compile_expression
from tasks.expressions.guarded import guarded_evaluator

def ask(n):
    return compile_expression("a * 2").evaluate({"a": n}, now=0, evaluator=guarded_evaluator())

assert ask(1) == 2
mine = guarded_evaluator()._process.pid
if (child := os.fork()) == 0:
    right = ask(2) == 4 and guarded_evaluator()._process.pid != mine
    guarded_evaluator().close()
    os._exit(0 if right else 1)
assert os.waitpid(child, 0)[1] == 0
assert ask(3) == 6 and guarded_evaluator()._process.pid == mine
"""


def test_after_a_fork_each_side_has_a_process_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKED], cwd=ROOT, check=True, timeout=60)


def test_the_process_ends_with_the_one_it_serves() -> None:
    script = (
        "import os\n"
        "from engines.valem.jsonata.expression import compile_expression\n"
        "from tasks.expressions.guarded import guarded_evaluator\n"
        "compile_expression('1').evaluate(now=0, evaluator=guarded_evaluator())\n"
        "print(guarded_evaluator()._process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    deadline = time.monotonic() + PATIENCE
    while _is_running(int(ended.stdout)):
        assert time.monotonic() < deadline, "still there"
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        # One that nobody has asked for its end is a zombie.
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_closed_evaluator_starts_again_when_it_is_needed() -> None:
    evaluator = GuardedEvaluator()
    assert evaluate(evaluator, "1") == 1
    evaluator.close()
    assert evaluate(evaluator, "1") == 1
    evaluator.close()


def test_there_is_one_evaluator_for_everybody() -> None:
    assert guarded_evaluator() is guarded_evaluator()
