"""JSONata text as tokens, for repairs that must not touch a string, a regular expression, a comment or a quoted name.

The same cuts as the engine's own scanner makes, with one addition: what models write as one operator (``==``, ``===``,
``!==``) is one token here, so a repair sees it whole. Blanks and comments are no tokens; they live in the gaps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final


class Kind(StrEnum):
    NAME = "name"
    VARIABLE = "variable"
    NUMBER = "number"
    STRING = "string"
    REGEX = "regex"
    QUOTED = "quoted"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Token:
    """``text[start:end]`` of the expression it was read from."""

    kind: Kind
    text: str
    start: int
    end: int


class Unreadable(ValueError):
    """A string, comment, quoted name or regular expression without an end: nobody knows what is code behind it."""


_GAP: Final = re.compile(r"(?:[ \t\n\r\v]++|/\*.*?\*/)*+", re.DOTALL)
_OPERATOR: Final = re.compile(r"===|==|!==|\?\?|\?:|\.\.|:=|!=|>=|<=|\*\*|~>|[.\[\]{}(),@#;:?+\-*/%|=<>^&!~]")
_NUMBER: Final = re.compile(r"(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?")
_NAME: Final = re.compile(r"[^ \t\n\r\v.\[\]{}(),@#;:?+\-*/%|=<>^&!~]++")
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|\'[^\'\\]*+(?:\\.[^\'\\]*+)*+\'', re.DOTALL)
_QUOTED: Final = re.compile(r"`[^`]*+`")
_FLAGS: Final = re.compile(r"[im]*+")

OPERATOR_WORDS: Final = frozenset({"and", "or", "in"})
MISPLACED_WORDS: Final = frozenset({"mod", "between"})
"""Operators of other languages: words between two operands, where JSONata has none."""


def tokenise(text: str) -> list[Token]:
    """The tokens of ``text`` in order. Raises :class:`Unreadable`."""
    tokens: list[Token] = []
    at = _gap(text, 0)
    while at < len(text):
        token = _token(text, at, tokens)
        tokens.append(token)
        at = _gap(text, token.end)
    return tokens


def _gap(text: str, at: int) -> int:
    blank = _GAP.match(text, at)
    at = blank.end() if blank else at
    if text.startswith("/*", at):
        raise Unreadable
    return at


def _token(text: str, at: int, before: list[Token]) -> Token:
    char = text[at]
    if char in "\"'":
        return _whole(_STRING.match(text, at), Kind.STRING)
    if char == "`":
        return _whole(_QUOTED.match(text, at), Kind.QUOTED)
    if char == "/" and not _ends_operand(before):
        end = _regex_end(text, at)
        return Token(Kind.REGEX, text[at:end], at, end)
    found = _OPERATOR.match(text, at)
    if found is not None:
        return _whole(found, Kind.OPERATOR)
    found = _NUMBER.match(text, at)
    if found is not None:
        return _whole(found, Kind.NUMBER)
    found = _NAME.match(text, at)
    return _whole(found, Kind.VARIABLE if char == "$" else Kind.NAME)


def _regex_end(text: str, at: int) -> int:
    """Where the regular expression that begins at ``at`` ends, its flags included. A slash within brackets is in it."""
    depth = 0
    for place in range(at + 1, len(text)):
        if text[place - 1] == "\\":
            continue
        if text[place] == "/" and depth == 0:
            flags = _FLAGS.match(text, place + 1)
            return flags.end() if flags else place + 1
        depth += (text[place] in "([{") - (text[place] in ")]}")
    raise Unreadable


def _whole(found: re.Match[str] | None, kind: Kind) -> Token:
    if found is None:
        raise Unreadable
    return Token(kind, found.group(), found.start(), found.end())


def _ends_operand(tokens: list[Token]) -> bool:
    """Whether a slash behind ``tokens`` divides; otherwise it opens a regular expression."""
    if not tokens:
        return False
    last = tokens[-1]
    if last.kind is Kind.OPERATOR:
        return last.text in (")", "]", "}") or (last.text in ("*", "**", "%") and not _ends_operand(tokens[-2:-1]))
    if last.kind is Kind.NAME and last.text in OPERATOR_WORDS:
        return not _ends_operand(tokens[-2:-1])
    return True


def called_names(text: str) -> frozenset[str]:
    """The names (without ``$``) of functions that ``text`` calls; none of a text that cannot be cut into tokens."""
    try:
        tokens = tokenise(text)
    except Unreadable:
        return frozenset()
    return frozenset(
        token.text[1:] for token, after in pairwise(tokens) if token.kind is Kind.VARIABLE and after.text == "("
    )
