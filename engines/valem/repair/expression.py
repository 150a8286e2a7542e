"""One expression, mended: every rewrite in order until none finds anything more.

What the engine compiles keeps its meaning: only what is certain to fail, or to find nothing, when it runs is rewritten
there (:data:`~engines.valem.repair.rewrites.ALWAYS`), and the result has to compile as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import compile_text
from engines.valem.jsonata.tokens import Kind, Unreadable
from engines.valem.repair.rewrites import ALWAYS, EVERY, Edit, Rewrite, equality
from engines.valem.repair.shape import Holds, read

MAX_CHARS: Final = 10_000
"""A longer expression stays as it is: nobody wrote it by hand, and its rewriting would take too long."""
_MAX_EDITS: Final = 100


@dataclass(frozen=True, slots=True)
class RepairedExpression:
    """text: the result. steps: the names of the rewrites that changed something, in order; none: nothing changed."""

    text: str
    steps: tuple[str, ...] = ()


def repair_expression(
    text: str, bound: frozenset[str] = frozenset(), *, perhaps_plain: bool = False
) -> RepairedExpression:
    """``text`` with the mistakes that leave no doubt put right; anything else is returned as it came.

    bound: variables (with their ``$``) that the spec's library defines. perhaps_plain: the text may be plain language
    for a reader; then the whole of it has to compile afterwards, and without a ``$`` in it (nobody would evaluate it)
    only equality signs are touched.
    """
    if len(text) > MAX_CHARS or not text.strip():
        return RepairedExpression(text)
    try:
        own = _bound_in(text)
        sound = _compiles(text)
        rewrites: Mapping[str, Rewrite] = ALWAYS if sound else EVERY
        if perhaps_plain and "$" not in text:
            rewrites = {"equality": equality}
        result = _rewritten(text, rewrites, bound | own)
    except (Unreadable, _Endless):
        return RepairedExpression(text)
    if (sound or perhaps_plain) and result.steps and not _compiles(result.text):
        return RepairedExpression(text)
    return result


def bound_variables(text: str) -> frozenset[str]:
    """The variables that ``text`` binds, with ``:=`` or as parameters; none when it cannot be read."""
    try:
        return _bound_in(text)
    except Unreadable:
        return frozenset()


def _bound_in(text: str) -> frozenset[str]:
    shape = read(text)
    return frozenset(
        token.text
        for at, token in enumerate(shape.tokens)
        if token.kind is Kind.VARIABLE
        and (shape.says(at + 1, ":=") or shape.holds.get(shape.inside[at]) is Holds.PARAMETERS)
    )


def _compiles(text: str) -> bool:
    try:
        compile_text(text)
    except ExpressionError:
        return False
    return True


class _Endless(RuntimeError):
    """The rewrites went on for longer than any real expression needs."""


def _rewritten(text: str, rewrites: Mapping[str, Rewrite], bound: frozenset[str]) -> RepairedExpression:
    steps: dict[str, None] = {}
    left = _MAX_EDITS
    settled = False
    while not settled:
        settled = True
        for name, rewrite in rewrites.items():
            while edits := rewrite(read(text), bound):
                text = edited(text, edits)
                steps[name] = None
                settled = False
                left -= 1
                if left < 0:
                    raise _Endless
    return RepairedExpression(text, tuple(steps))


def edited(text: str, edits: list[Edit]) -> str:
    """``text`` after ``edits``, which do not overlap."""
    parts: list[str] = []
    at = 0
    for start, end, new in sorted(edits):
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])
