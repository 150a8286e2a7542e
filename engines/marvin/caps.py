"""The limits of one Marvin process, read from its parameters.

A bad value means the default, one out of range the nearest bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Range:
    """A parameter: its name in recipes, default and bounds."""

    name: str
    default: int
    low: int
    high: int


RANGES: Final[dict[str, Range]] = {
    "max_tree_nodes": Range("maxTreeNodes", 200, 1, 10_000),
    "max_tree_depth": Range("maxTreeDepth", 5, 0, 20),
    "reflect": Range("reflectMaxIterations", 3, 0, 20),
    "validate": Range("validateMaxIterations", 2, 0, 10),
    "conclude_retries": Range("concludeMaxRetries", 2, 0, 10),
    "need_more_data": Range("needMoreDataMax", 4, 0, 20),
    "parse_corrections": Range("parseCorrectionMax", 2, 0, 10),
    "recipe_reply_chars": Range("recipeReplyTruncateChars", 8_000, 200, 200_000),
    "recipe_call_timeout_seconds": Range("recipeCallTimeoutSeconds", 900, 1, 86_400),
    "inbox_ttl_seconds": Range("inboxTtlSeconds", 604_800, 1, 31_536_000),
    "max_parallel_nodes": Range("maxParallelNodes", 8, 1, 1_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """All limits, as whole numbers within their bounds. The field's parameter is in ``README.md``."""

    max_tree_nodes: int = 200
    max_tree_depth: int = 5
    """The root has depth 0; a node at this depth spawns no subtasks."""
    reflect: int = 3
    """How often one node may enter REFLECT: after a recipe call, or because VALIDATE wanted more data."""
    validate: int = 2
    conclude_retries: int = 2
    need_more_data: int = 4
    parse_corrections: int = 2
    recipe_reply_chars: int = 8_000
    recipe_call_timeout_seconds: int = 900
    inbox_ttl_seconds: int = 604_800
    """How long a question waits for its answer: a week."""
    max_parallel_nodes: int = 8

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Caps:
        """The limits in a process's effective parameters. Never raises."""
        return cls(**{field: _clamped(params.get(limit.name), limit) for field, limit in RANGES.items()})

    def worst_case_calls(self, rounds: int) -> int:
        """The most phase calls one node can make with ``rounds`` rounds of POST_CHILDREN, corrections not counted."""
        more_data = min(self.need_more_data, self.reflect)
        returns = min(self.validate, self.conclude_retries + more_data)
        reviews = min(self.validate, 1 + self.conclude_retries + more_data)
        return 1 + self.reflect + rounds + (1 + returns) + reviews

    def most_rounds(self, depth: int) -> int:
        """The most rounds of POST_CHILDREN a node at ``depth`` can have, questions of the root included.

        The first two rounds need the same depth, each later one a level more. The root's questions lead there as well:
        one from SCOPE and one for each entry into REFLECT.
        """
        fan_outs = 0 if depth >= self.max_tree_depth else self.max_tree_depth - depth + 1
        return fan_outs + (1 + self.reflect if depth == 0 else 0)


def _clamped(value: Any, limit: Range) -> int:
    """A number or numeric text within the bounds; the default for anything else."""
    if isinstance(value, str):
        try:
            value = int(value.strip())
        except ValueError:
            return limit.default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return limit.default
    return max(limit.low, min(limit.high, value))
