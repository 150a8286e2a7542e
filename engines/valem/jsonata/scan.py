"""Cutting a block of JSONata at its own semicolons."""

from __future__ import annotations

from typing import Final

from engines.valem.jsonata.tokens import Kind, tokenise

_OPEN: Final = frozenset("([{")
_CLOSE: Final = frozenset(")]}")


def statements(text: str) -> list[str] | None:
    """The parts of a block ``( …; …; … )``, comments included; ``None`` when the text is no single block.

    The text must compile: brackets are taken to be in order.
    """
    tokens = tokenise(text)
    if len(tokens) < 2 or tokens[0].text != "(" or tokens[-1].text != ")":
        return None
    parts, start, depth = [], tokens[0].end, 0
    for token in tokens:
        if token.kind is not Kind.OPERATOR:
            continue
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth == 0 and token is not tokens[-1]:
            return None
        if depth == 0 or (depth == 1 and token.text == ";"):
            parts.append(text[start : token.start].strip())
            start = token.end
    return parts
