"""How feedback of the checks is written for a model: a line for each point, bounded, nothing like a marker in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engines.recipes.fence import defuse
from engines.structured.text import one_line, shorten

MAX_POINTS: Final = 40
MESSAGE_CHARS: Final = 600
EXPRESSION_CHARS: Final = 2_000

Remark = tuple[str, str, str | None]
"""Location, message, hint (how to put it right)."""

Failure = tuple[str, str, str | None, str | None]
"""Test, message, hint, and the derivation at the failing path as ``address: expression``."""


def remark_lines(remarks: Sequence[Remark]) -> str:
    """``- [location] message — FIX: hint`` for each; of very many, the first ones and a count."""
    lines = [
        f"- [{plain(location, 200)}] {plain(message)}{f' — FIX: {plain(hint)}' if hint else ''}"
        for location, message, hint in remarks[:MAX_POINTS]
    ]
    return "\n".join((*lines, *_rest(remarks)))


def failure_lines(failures: Sequence[Failure]) -> str:
    """A failing test, what to look at, and the expression that gave the value."""
    lines = []
    for test, message, hint, derivation in failures[:MAX_POINTS]:
        lines.append(f"- Test '{plain(test, 200)}': {plain(message)}")
        if hint:
            lines.append(f"  FIX: {plain(hint)}")
        if derivation:
            lines.append(f"  derivation {plain(derivation, EXPRESSION_CHARS)}")
    return "\n".join((*lines, *_rest(failures)))


def plain(text: str, limit: int = MESSAGE_CHARS) -> str:
    """``text`` on one line, at most ``limit`` characters, harmless beside fences."""
    return defuse(one_line(shorten(" ".join(text.split()), limit)))


def _rest(points: Sequence[object]) -> tuple[str, ...]:
    return (f"- and {len(points) - MAX_POINTS} more",) if len(points) > MAX_POINTS else ()
