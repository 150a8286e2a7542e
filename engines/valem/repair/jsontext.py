"""A model's JSON as text: found, mended where the value is beyond doubt, and edited in place.

:mod:`engines.structured` reads replies into values; here the text itself is kept, because everything outside an
expression has to stay byte for byte as it came, and because a rejected spec is shown to the model again. Other
differences to what it does: line ends in a string become blanks (in an expression they mean the same, and the original
does so), bare expressions are quoted, and commas, single quotes and comments are left alone.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from engines.structured.extract import after_leading_thought, parse_exactly

Path = tuple[str | int, ...]

_FENCE: Final = re.compile(r"^[ \t]*```[^\n`]*$", re.MULTILINE)
_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_UNCLOSED: Final = re.compile(r'"([\w.$*-]{1,50})\s*[}\],]')
_LITERAL: Final = re.compile(r"(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)\Z")
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_NEXT_KEY: Final = re.compile(r'\s*"(?:[^"\\]|\\.)*"\s*:')
_BARE_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"|\'(?:[^\'\\\n]|\\.)*+\'|[(\[{]|[)\]}]|,|\n|[^"\'()\[\]{},\n]++')
_SEPARATOR: Final = re.compile(r"\s*+(?:[,:}\]]|\Z)")
_BLANK: Final = re.compile(r"\s*+")
_MAX_FENCES: Final = 50
"""A reply with more of them is hostile; its fences are not opened one by one."""
_MAX_ROUNDS: Final = 200
_MAX_DEPTH: Final = 200


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that ``text`` is; ``None`` when it is anything else, ``NaN`` or a number too large included."""
    try:
        value = json.loads(text, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refused(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refused(digits)


def extract(text: str) -> str:
    """The part of a reply that is meant as JSON: what a code fence holds, else from the first ``{`` to the last ``}``.

    Reasoning before the answer is passed over. A reply without either comes back trimmed. A text that is JSON already
    is left alone, whatever its strings hold; fences in fences are opened until nothing is left to open.
    """
    while True:
        inner = _extract_once(text)
        if len(inner) >= len(text):
            return inner
        text = inner


def _extract_once(text: str) -> str:
    body = after_leading_thought(text.strip(" \t\r\n\ufeff"))
    if parse_exactly(body) is not None:
        return body
    fences = list(_FENCE.finditer(body))
    if 0 < len(fences) <= _MAX_FENCES and not body.startswith("{"):
        whole = [block for block in _blocks(body, fences) if block.startswith("{") and parse_object(block) is not None]
        if len(whole) == 1:
            return whole[0]
        inside = body[fences[0].end() :]
        closing = inside.rfind("```")
        return (inside if closing < 0 else inside[:closing]).strip()
    first, last = body.find("{"), body.rfind("}")
    return body[first : last + 1] if 0 <= first < last else body


def _blocks(body: str, fences: list[re.Match[str]]) -> Iterator[str]:
    """What stands between two fence lines."""
    for opening, closing in itertools.pairwise(fences):
        yield body[opening.end() : closing.start()].strip()


def collapse_line_ends(text: str) -> str:
    """``text`` with every raw line end (and other control character) inside a string as a blank; outside they stay."""
    return _TOKEN.sub(
        lambda token: _CONTROL.sub(" ", token.group()) if token.group().startswith('"') else token.group(), text
    )


def mend_structure(text: str) -> str:
    """``text`` with missing closing quotes set and bare expressions quoted, if that makes it a JSON object.

    Otherwise, and when it is one already, it is returned as it came: half a repair helps nobody.
    """
    if parse_object(text) is not None:
        return text
    mended = _quote_bare_values(_close_quotes(text))
    return mended if parse_object(mended) is not None else text


def _close_quotes(text: str) -> str:
    """``{"type":"string}`` gets its quote: a short word that runs into a bracket or comma, where the string that
    results otherwise is not followed by anything JSON knows."""
    for _ in range(_MAX_ROUNDS):
        for token in _TOKEN.finditer(text):
            if not token.group().startswith('"') or _followed_well(text, token):
                continue
            unclosed = _UNCLOSED.match(text, token.start())
            if unclosed is not None:
                end = unclosed.end(1)
                text = f'{text[:end]}"{text[end:]}'
                break
        else:
            break
    return text


def _followed_well(text: str, token: re.Match[str]) -> bool:
    closed = len(token.group()) > 1 and token.group().endswith('"')
    return closed and _SEPARATOR.match(text, token.end()) is not None


def _quote_bare_values(text: str) -> str:
    parts: list[str] = []
    at = 0
    for start in _member_values(text):
        if start < at or text[start : start + 1] in ('"', "{", "[", ""):
            continue
        end = _bare_end(text, start)
        value = text[start:end].rstrip(" \t\r\n,")
        # A comment behind a literal is no expression, and what "//" begins is one in no language here.
        if end == start or _LITERAL.match(_COMMENT.sub("", value).strip()) or "//" in value:
            continue
        parts += [text[at:start], json.dumps(value, ensure_ascii=False)]
        at = start + len(value)
    return "".join([*parts, text[at:]])


def _member_values(text: str) -> Iterator[int]:
    """Where the value behind each key starts."""
    after_string = False
    for token in _TOKEN.finditer(text):
        if token.group() == ":" and after_string:
            blank = _BLANK.match(text, token.end())
            yield blank.end() if blank else token.end()
        after_string = token.group().startswith('"')


def _bare_end(text: str, at: int) -> int:
    """Where the bare value at ``at`` ends: at a closing bracket it did not open, or at a comma before the next key."""
    depth = 0
    for token in _BARE_TOKEN.finditer(text, at):
        part = token.group()
        if part in ("(", "[", "{"):
            depth += 1
        elif part in (")", "]", "}"):
            if not depth:
                return token.start()
            depth -= 1
        elif part == "," and not depth and _NEXT_KEY.match(text, token.end()):
            return token.start()
    return at


@dataclass(slots=True)
class _Frame:
    """One open object or array."""

    array: bool
    path: Path
    key: str | int
    last_end: int
    keys: list[str] = field(default_factory=list)
    awaiting_value: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A string value: its path, and ``text[start:end]`` of the document with its quotes."""

    path: Path
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Member:
    """A whole object: its path, its keys, and where its last member (or its opening brace) ends."""

    path: Path
    keys: tuple[str, ...]
    last_end: int


def walk(text: str) -> Iterator[Text | Member]:
    """Every string value and every object of a JSON text, the objects when they close.

    Of a text that is no JSON, what can be recognised: the keys are right as far as its strings are. Nothing is told of
    what is nested more than 200 levels deep.
    """
    stack: list[_Frame] = []
    for token in _TOKEN.finditer(text):
        part = token.group()
        top = stack[-1] if stack else None
        if part in ("{", "["):
            if len(stack) >= _MAX_DEPTH:
                return
            path = (*top.path, top.key) if top else ()
            stack.append(_Frame(part == "[", path, 0 if part == "[" else "", token.end()))
        elif part in ("}", "]"):
            if top is None:
                continue
            stack.pop()
            if not top.array:
                yield Member(top.path, tuple(top.keys), top.last_end)
            _value_ended(stack, token.end())
        elif part == ",":
            if top is not None:
                top.awaiting_value = False
                if isinstance(top.key, int):
                    top.key += 1
        elif part == ":":
            if top is not None:
                top.awaiting_value = True
        elif part.startswith('"') and top is not None and not top.array and not top.awaiting_value:
            top.key = decoded(part)
            top.keys.append(top.key)
        else:
            if part.startswith('"'):
                yield Text((*top.path, top.key) if top else (), token.start(), token.end())
            _value_ended(stack, token.end())


def _value_ended(stack: list[_Frame], end: int) -> None:
    if stack:
        stack[-1].last_end = end


def decoded(literal: str) -> str:
    """The text of a JSON string literal; the literal itself when it is not a valid one."""
    try:
        return str(json.loads(literal, strict=False))
    except ValueError:
        return literal


def encoded(text: str) -> str:
    """``text`` as a JSON string literal, readable where that is possible (an unpaired surrogate is not)."""
    readable = text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
    return json.dumps(text, ensure_ascii=not readable)


def brace_depth(text: str) -> int:
    """How many braces outside strings stay open at the end of ``text``."""
    braces = [token.group() for token in _TOKEN.finditer(text) if token.group() in ("{", "}")]
    return braces.count("{") - braces.count("}")
