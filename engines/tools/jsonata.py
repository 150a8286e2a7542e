"""The tool ``eval_jsonata``: what an expression gives for a sample, before it is relied on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from engines.structured.text import quote, shorten
from engines.tools.base import ToolContext, ToolFailed, ToolResult, cut
from engines.valem.hints import hint_for_error
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import Evaluation, Evaluator, Limits

_MAX_SECONDS: Final = 2.0
_MAX_SAMPLE_CHARS: Final = 200_000


class EvalJsonata:
    """Evaluates without network, in bounded time and memory. An error says what is wrong, where, and what would do."""

    name = "eval_jsonata"
    description = (
        "Evaluates one JSONata expression on a sample document and returns the value as JSON, or says what is wrong."
        " Use it to try an expression before you hand it in."
    )
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "expression": {"type": "string", "minLength": 1, "description": "The JSONata expression"},
            "input": {"description": "The document the expression sees as $, as JSON; {} if left out"},
            "constants": {"type": "object", "description": "What the expression reads as $const"},
        },
        "required": ["expression"],
        "additionalProperties": False,
    }

    def __init__(self, evaluator: Evaluator, now: Callable[[], float] = time.time) -> None:
        """evaluator: for expressions of strangers. now: seconds since the epoch, for ``$now()``."""
        self._evaluator = evaluator
        self._now = now

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        evaluation = Evaluation(
            text=arguments["expression"],
            document=_sample(arguments.get("input", {})),
            now=int(self._now() * 1_000),
            bindings={"const": arguments.get("constants", {})},
            limits=Limits(seconds=min(_MAX_SECONDS, context.seconds)),
        )
        try:
            found = self._evaluator(evaluation)
        except ExpressionError as error:
            raise ToolFailed(_in_words(error)) from None
        if found is None:
            return ToolResult(text="[missing] the expression has no value: nothing in the input matches it")
        return ToolResult(text=cut(found, context.max_chars, "the value"))


def _sample(value: Any) -> str:
    """The document as JSON text. Models like to send it as a text of their own, so a text that holds JSON is taken."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise ToolFailed("input: must be JSON without NaN, Infinity and endless nesting") from None
    if len(text) > _MAX_SAMPLE_CHARS:
        raise ToolFailed(f"input: has {len(text):,} characters; a sample of at most {_MAX_SAMPLE_CHARS:,} will do")
    return text


def _in_words(error: ExpressionError) -> str:
    at = f" at character {error.position}" if error.position is not None else ""
    token = f", near {quote(error.token, 40)}" if error.token else ""
    hint = hint_for_error(error)
    return f"{error.code}{at}{token}: {shorten(error.message, 500)}" + (f" — FIX: {hint}" if hint else "")
