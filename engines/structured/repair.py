"""A parser for JSON as models misspell it, limited to mistakes that leave no doubt about the value.

Mended: trailing commas, single-quoted strings whose end is certain, unquoted keys, Python's ``True`` / ``False`` /
``None``, comments, raw control characters in strings. Everything else, above all missing ends, missing commas and
quotes inside strings, is :class:`NotRepairable`: guessing there would change what the model said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

MAX_DEPTH = 150

_BLANK: Final = re.compile(r"(?:\s++|//[^\n]*+|/\*.*?\*/|\#[^\n]*+)*+", re.DOTALL)
_DOUBLE: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SINGLE: Final = re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL)
_WORD: Final = re.compile(r"-?[A-Za-z_$][\w$]*+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*+)(\.\d++)?([eE][+-]?\d++)?(?![\w.])")
_WORDS: Final = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None,
    "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"),
}  # fmt: skip

Pairs = list[tuple[str, Any]]


class NotRepairable(ValueError):
    """The text at this place is no JSON whose value is beyond doubt."""


def parse_loosely(
    text: str,
    at: int,
    make_object: Callable[[Pairs], dict[str, Any]],
    make_integer: Callable[[str], int | float],
    make_real: Callable[[str], float],
) -> tuple[Any, int]:
    """The value that starts at ``at``, and where it ends. Raises :class:`NotRepairable`."""
    parser = _Parser(text, make_object, make_integer, make_real)
    value = parser.value(at, 0)
    return value, parser.at


class _Parser:
    def __init__(
        self,
        text: str,
        make_object: Callable[[Pairs], dict[str, Any]],
        make_integer: Callable[[str], int | float],
        make_real: Callable[[str], float],
    ) -> None:
        self.text = text
        self.at = 0
        self.make_object = make_object
        self.make_integer = make_integer
        self.make_real = make_real

    def value(self, at: int, depth: int) -> Any:
        """The value at ``at``; leaves ``self.at`` behind it."""
        if depth > MAX_DEPTH:
            raise NotRepairable
        char = self.text[at : at + 1]
        if char == "{":
            return self._object(at + 1, depth + 1)
        if char == "[":
            return self._array(at + 1, depth + 1)
        if char in ('"', "'"):
            return self._string(at)
        number = _NUMBER.match(self.text, at)
        if number is not None:
            self.at = number.end()
            whole = number.group(1) is None and number.group(2) is None
            return self.make_integer(number.group()) if whole else self.make_real(number.group())
        word = _WORD.match(self.text, at)
        if word is None or word.group() not in _WORDS:
            raise NotRepairable
        self.at = word.end()
        return _WORDS[word.group()]

    def _object(self, at: int, depth: int) -> dict[str, Any]:
        pairs: Pairs = []
        at = self._skip(at)
        while not self.text.startswith("}", at):
            key = self._key(at)
            at = self._skip(self.at)
            if not self.text.startswith(":", at):
                raise NotRepairable
            value = self.value(self._skip(at + 1), depth)
            pairs.append((key, value))
            at = self._separator("}")
        self.at = at + 1
        return self.make_object(pairs)

    def _array(self, at: int, depth: int) -> list[Any]:
        items: list[Any] = []
        at = self._skip(at)
        while not self.text.startswith("]", at):
            items.append(self.value(at, depth))
            at = self._separator("]")
        self.at = at + 1
        return items

    def _separator(self, closing: str) -> int:
        """Past the comma after a member (a trailing one, too), or at the closing bracket."""
        at = self._skip(self.at)
        if self.text.startswith(",", at):
            return self._skip(at + 1)
        if self.text.startswith(closing, at):
            return at
        raise NotRepairable

    def _skip(self, at: int) -> int:
        blank = _BLANK.match(self.text, at)
        return blank.end() if blank else at

    def _key(self, at: int) -> str:
        if self.text.startswith(('"', "'"), at):
            return self._string(at)
        word = _WORD.match(self.text, at)
        # A bare True or null as a key would be a word or a string, nobody knows.
        if word is None or word.group() in _WORDS or word.group().startswith("-"):
            raise NotRepairable
        self.at = word.end()
        return word.group()

    def _string(self, at: int) -> str:
        if self.text[at] == '"':
            found = _DOUBLE.match(self.text, at)
            body = found.group() if found else ""
        else:
            found = _SINGLE.match(self.text, at)
            # An apostrophe inside ends the string too early; what follows is no separator then, so nothing is accepted.
            body = f'"{_requoted(found.group(1))}"' if found else ""
        if found is None:
            raise NotRepairable
        self.at = found.end()
        try:
            text = json.loads(body, strict=False)
        except ValueError as error:
            raise NotRepairable from error
        return str(text)


def _requoted(body: str) -> str:
    """The inside of a single-quoted string as the inside of a double-quoted one."""
    return re.sub(
        r"\\.|\"", lambda part: {"\\'": "'", '"': '\\"'}.get(part.group(), part.group()), body, flags=re.DOTALL
    )
