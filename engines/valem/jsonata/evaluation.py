"""One evaluation of a JSONata expression, and the one place that knows the engine which does it.

An :class:`Evaluation` is plain data, so that it can be done here (:func:`evaluate_here`) or in a process that may be
lost (see ``tasks.expressions``): the engine's own limits hold for loops, recursion and results, not for what a single
built-in function allocates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol

import jlens

from engines.structured.text import one_line, shorten
from engines.valem.jsonata.errors import BAD_INPUT, TOO_LONG, ExpressionError

MAX_EXPRESSION_CHARS: Final = 200_000
"""Of a text handed to the engine; a library of the most layers, as long as they may be, is in front of it."""
CACHED_EXPRESSIONS: Final = 500
MAX_MESSAGE_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one evaluation may take. ``array_items`` and ``string_bytes`` hold for every value on the way."""

    seconds: float = 2.0
    depth: int = 200
    array_items: int = 100_000
    string_bytes: int = 1_000_000
    result_bytes: int = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything an evaluation depends on.

    document: JSON text of the context ``$``; ``None`` for none.
    bindings: variable name (without ``$``) -> JSON value.
    now: what ``$now()`` and ``$millis()`` say, in milliseconds since the epoch.
    """

    text: str
    document: str | None
    now: int
    bindings: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = Limits()


class Evaluator(Protocol):
    """Carries out an evaluation: the result as JSON text, ``None`` when it is undefined.

    Raises :class:`ExpressionError`, and nothing else whatever the expression does.
    """

    def __call__(self, evaluation: Evaluation, /) -> str | None: ...


def evaluate_here(evaluation: Evaluation, /) -> str | None:
    """The evaluator of this process. Not for expressions of strangers: one that allocates enough ends the process."""
    compiled = compile_text(evaluation.text)
    limits = evaluation.limits
    try:
        return compiled.evaluate_json(
            evaluation.document,
            dict(evaluation.bindings),
            timeout=limits.seconds,
            max_depth=limits.depth,
            max_array_length=limits.array_items,
            max_string_length=limits.string_bytes,
            max_result_size=limits.result_bytes,
            now=evaluation.now,
            # A test must give the same answer twice.
            seed=0,
        )
    except jlens.JlensError as error:
        raise _translated(error) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ExpressionError(BAD_INPUT, _line(str(error))) from None


@lru_cache(maxsize=CACHED_EXPRESSIONS)
def compile_text(text: str) -> jlens.Expression:
    """The engine's compiled form; safe to share between threads. Raises :class:`ExpressionError`."""
    if len(text) > MAX_EXPRESSION_CHARS:
        raise ExpressionError(TOO_LONG, f"the expression is longer than {MAX_EXPRESSION_CHARS:,} characters")
    try:
        return jlens.Expression(text)
    except jlens.JlensError as error:
        raise _translated(error) from None
    except ValueError:
        raise ExpressionError(BAD_INPUT, "the expression contains half of a surrogate pair") from None


def _translated(error: jlens.JlensError) -> ExpressionError:
    at = error.start if error.start is not None else error.position
    return ExpressionError(error.code, _line(str(error)), at, error.token)


def _line(text: str) -> str:
    return shorten(one_line(text), MAX_MESSAGE_CHARS)
