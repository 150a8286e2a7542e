"""How values, property names and positions are written for a reader: always one line, always bounded.

Everything shown comes from a caller's schema or a model's reply, so it is data: quoted as JSON, unprintable characters
escaped, long text cut in the middle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

SHOWN_VALUE = 80
SHOWN_POINTER = 200
SHOWN_CHOICES = 12


def child(pointer: str, key: str | int) -> str:
    """The JSON pointer of ``key`` below ``pointer`` (RFC 6901)."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def one_line(text: str) -> str:
    """``text`` with every unprintable character (line ends, controls, bidi marks, surrogates) as a ``\\u`` escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def shorten(text: str, limit: int) -> str:
    """``text`` of at most ``limit`` characters: the middle of a longer one becomes an ellipsis."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    tail = limit - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :] if tail else ''}"


def quote(text: str, limit: int = SHOWN_VALUE) -> str:
    """``text`` as a JSON string on one line, of at most ``limit`` characters (before escaping) plus quotes."""
    return one_line(json.dumps(shorten(text, limit), ensure_ascii=False))


def quote_all(names: Iterable[str], limit: int = SHOWN_CHOICES) -> str:
    """``"a", "b"``; more than ``limit`` names end in a count of the rest."""
    known = list(names)
    shown = ", ".join(quote(name, 40) for name in known[:limit])
    return shown if len(known) <= limit else f"{shown} and {len(known) - limit} more"


def show_pointer(pointer: str) -> str:
    return shorten(one_line(pointer), SHOWN_POINTER) if pointer else "(top level)"


def show_literal(value: object) -> str:
    """A schema's literal (``const``, an ``enum`` member, a bound) as short JSON."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, dict | list):
        return shorten(one_line(json.dumps(value, ensure_ascii=False)), SHOWN_VALUE)
    return _number(value) if isinstance(value, int | float) and not isinstance(value, bool) else json.dumps(value)


def describe(value: object) -> str:
    """What a value is, in words: ``string "abc"``, ``integer 3``, ``array of 2 items``, ``object with keys "a"``."""
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean {json.dumps(value)}"
        case str():
            return f"string {quote(value)}"
        case int():
            return f"integer {_number(value)}"
        case float():
            return f"number {_number(value)}"
        case list():
            return f"array of {len(value)} item{'' if len(value) == 1 else 's'}"
        case dict():
            return f"object with keys {quote_all(value, 6)}" if value else "empty object"
        case _:
            return one_line(type(value).__name__)


def _number(value: int | float) -> str:
    if isinstance(value, float):
        return json.dumps(value)
    # str() of an int refuses more than 4,300 digits; bit_length is safe for any size.
    return shorten(str(value), SHOWN_VALUE) if value.bit_length() < 10_000 else "of thousands of digits"
