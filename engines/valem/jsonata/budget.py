"""A limit on the time that all evaluations of a run take together: a spec may hold hundreds of slow expressions."""

from __future__ import annotations

from collections.abc import Callable

from engines.valem.jsonata.errors import NO_TIME_LEFT, ExpressionError
from engines.valem.jsonata.evaluation import Evaluation, Evaluator


class BudgetedEvaluator:
    """Passes evaluations on while there is time, then refuses them. For one run, in one thread.

    ``clock`` gives seconds (``time.monotonic``). The evaluation that crosses the line is still finished.
    """

    def __init__(self, evaluator: Evaluator, seconds: float, clock: Callable[[], float]) -> None:
        self._evaluator = evaluator
        self._clock = clock
        self._total = seconds
        self._left = seconds

    def __call__(self, evaluation: Evaluation, /) -> str | None:
        if self._left <= 0:
            raise ExpressionError(
                NO_TIME_LEFT, f"not evaluated: the expressions before it took all of the {self._total:g} s there are"
            )
        started = self._clock()
        try:
            return self._evaluator(evaluation)
        finally:
            self._left -= self._clock() - started
