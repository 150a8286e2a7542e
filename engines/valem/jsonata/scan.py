"""Just enough of JSONata's lexical rules to cut a text at the right places: strings, comments and regular expressions
are stepped over, brackets are counted."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SKIPPED = re.compile(
    r"""
    \s+ | /\*.*?(?:\*/|\Z)            # blanks, comments
    | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `[^`]*`
    | \$?[^\W\d]\w* | \$\$? | \d+(?:\.\d+)?
    """,
    re.DOTALL | re.VERBOSE,
)
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[])+/[a-z]*", re.DOTALL)
_BEFORE_REGEX = frozenset("(,;:?[{=<>~+-*&|!^%@#")
_WORDS_BEFORE_REGEX = frozenset({"and", "or", "in"})
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


def statements(text: str) -> list[str] | None:
    """The parts of a block ``( …; …; … )``, cut at its own semicolons; ``None`` when the text is no single block.

    The text must compile: brackets are taken to be in order.
    """
    inner = _inside_brackets(text)
    if inner is None:
        return None
    cuts = [at for at, char, depth in _signs(inner) if char == ";" and depth == 0]
    return [inner[start:end].strip() for start, end in zip([0, *(at + 1 for at in cuts)], [*cuts, None], strict=True)]


def _inside_brackets(text: str) -> str | None:
    signs = list(_signs(text))
    if not signs or signs[0][1] != "(" or _has_words(text[: signs[0][0]]):
        return None
    end = next((at for at, char, depth in signs if char == ")" and depth == 0), None)
    if end is None or end != signs[-1][0] or _has_words(text[end + 1 :]):
        return None
    return text[signs[0][0] + 1 : end]


def _has_words(text: str) -> bool:
    return bool(re.sub(r"\s+|/\*.*?\*/", "", text, flags=re.DOTALL))


def _signs(text: str) -> Iterator[tuple[int, str, int]]:
    """Brackets and other signs with their place and depth; a bracket has the depth of what is around it."""
    at, depth, before = 0, 0, ""
    while at < len(text):
        skipped = _SKIPPED.match(text, at)
        if skipped is not None:
            at = skipped.end()
            if not skipped[0].isspace() and not skipped[0].startswith("/*"):
                before = skipped[0]
            continue
        char = text[at]
        regex = _REGEX.match(text, at) if char == "/" and _regex_may_follow(before) else None
        if regex is not None:
            at, before = regex.end(), regex[0]
            continue
        depth -= char in _CLOSE
        yield at, char, depth
        depth += char in _OPEN
        before = char
        at += 1


def _regex_may_follow(before: str) -> bool:
    return not before or before in _BEFORE_REGEX or before in _WORDS_BEFORE_REGEX
