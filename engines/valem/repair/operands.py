"""Where an operand begins and ends, seen from the operator beside it. Positions are token numbers."""

from __future__ import annotations

from typing import Final

from engines.valem.jsonata.tokens import Kind
from engines.valem.repair.shape import Holds, Shape

_LOOSER_THAN_COMPARISON: Final = frozenset({"and", "or", "?", ":", "??", "?:", ",", ";", ":=", "~>", "|"})
_COMPARISONS: Final = frozenset({"=", "==", "===", "!=", "!==", "<", "<=", ">", ">=", "in", "between"})
_STEPS: Final = frozenset({".", "@", "#", "^"})
_ON_AN_OPERAND: Final = frozenset({Holds.CALL, Holds.PREDICATE, Holds.GROUP, Holds.ORDER})


def path_start(shape: Shape, last: int) -> int | None:
    """The first token of the path (name, call, predicates, steps) that ends with the token ``last``; ``None``: none."""
    at = last
    while True:
        opened = shape.opener.get(at)
        if opened is not None:
            holds = shape.holds[opened]
            if holds is Holds.CALL and shape.says(opened - 1, "not") and shape.prefix[opened - 1]:
                # The word of other languages, not a function.
                return opened
            if holds in _ON_AN_OPERAND:
                at = opened - (2 if holds is Holds.ORDER else 1)
                continue
            if holds in (Holds.BODY, Holds.ROUND_BODY, Holds.PARAMETERS):
                return None
            at = opened
        elif shape.tokens[at].kind is Kind.OPERATOR and not (shape.prefix[at] and shape.tokens[at].text in "%**"):
            return None
        if not shape.prefix[at]:
            return None
        if at > 1 and shape.tokens[at - 1].text in _STEPS:
            at -= 2
            continue
        return at


def path_end(shape: Shape, first: int) -> int | None:
    """The last token of the path that starts with the token ``first``; ``None`` when no whole operand starts there."""
    at = _primary_end(shape, first)
    while at is not None and at + 1 < len(shape):
        following = at + 1
        if following in shape.holds and shape.holds[following] in _ON_AN_OPERAND:
            at = shape.match.get(following)
        elif shape.tokens[following].text in _STEPS and shape.starts_operand(following + 1):
            at = _primary_end(shape, following + 1)
        else:
            return at
    return at


def _primary_end(shape: Shape, at: int) -> int | None:
    if not shape.starts_operand(at) or shape.says(at, "-"):
        return None
    if at in shape.holds:
        return shape.match.get(at)
    if shape.says(at, "function", "λ") and shape.holds.get(at + 1) is Holds.PARAMETERS:
        return None
    return at


def comparison_side_start(shape: Shape, last: int) -> int | None:
    """The first token of the arithmetic that ends with ``last``: what stands left of a comparison."""
    at = last
    bracket = shape.inside[last]
    while True:
        at = shape.opener.get(at, at)
        before = at - 1
        if before < 0 or before == bracket or shape.inside[before] != bracket or _is_boundary(shape, before, True):
            return at
        if shape.says(before, "not") and shape.prefix[before]:
            return at
        if not shape.prefix[at] and _juxtaposed(shape, at):
            return None
        at = before


def operand_end(shape: Shape, first: int, *, with_comparison: bool) -> int | None:
    """The last token of what starts at ``first`` and reaches to the next looser operator.

    with_comparison: comparisons belong to it (``not a = b``); otherwise they end it. ``None`` when it is not one whole
    operand, as in plain language.
    """
    if not shape.starts_operand(first):
        return None
    bracket = shape.inside[first]
    at = first
    while True:
        if _juxtaposed(shape, at):
            return None
        closing = shape.match.get(at) if at in shape.holds else at
        if closing is None:
            return None
        following = closing + 1
        ends = following >= len(shape) or shape.inside[following] != bracket or following in shape.opener
        if ends or _is_boundary(shape, following, not with_comparison):
            return None if closing in shape.infix else closing
        at = following


def _is_boundary(shape: Shape, at: int, comparisons_too: bool) -> bool:
    text = shape.tokens[at].text
    if shape.tokens[at].kind not in (Kind.OPERATOR, Kind.NAME) or (shape.prefix[at] and text not in ",;:"):
        return False
    return text in _LOOSER_THAN_COMPARISON or (comparisons_too and text in _COMPARISONS)


def _juxtaposed(shape: Shape, at: int) -> bool:
    """Whether an operand stands at ``at`` where only an operator may."""
    return not shape.prefix[at] and at not in shape.infix and at not in shape.holds and at not in shape.opener
