"""``format`` as a hint: a note when a string does not look like what it is said to be. Never a reason to reject."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date, time
from typing import Final

from engines.structured.text import describe, quote, show_pointer

MAX_LOOKED_AT = 2_000
"""A longer string is no date, address or identifier; nothing below looks at it."""

# Linear patterns only: no group that repeats holds another repetition of the same characters.
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z")
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)\Z")
_DURATION = re.compile(r"P(?=.)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)\Z")
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s.]+(\.[^@\s.]+)*\Z")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]+\Z")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\Z")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)\Z")


def format_hint(pointer: str, name: str, text: str) -> str | None:
    """A one-line note when ``text`` does not look like format ``name``; ``None`` for a good or an unknown format."""
    looks_right = _LOOKS.get(name)
    if looks_right is None or (len(text) <= MAX_LOOKED_AT and looks_right(text)):
        return None
    return f"{show_pointer(pointer)}: {describe(text)} does not look like the format {quote(name)}"


def _is_date(text: str) -> bool:
    return _parses(date.fromisoformat, text) if _DATE.match(text) else False


def _is_time(text: str) -> bool:
    # A leap second is right in RFC 3339 and unknown to datetime.
    return _parses(time.fromisoformat, _plain_fraction(text).replace(":60", ":59")) if _TIME.match(text) else False


def _is_date_time(text: str) -> bool:
    day, separator, rest = text[:10], text[10:11], text[11:]
    return separator in ("T", "t", " ") and _is_date(day) and _is_time(rest)


def _plain_fraction(text: str) -> str:
    return re.sub(r"\.\d+", "", text).replace("z", "Z")


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _is_host(text: str) -> bool:
    return len(text) <= 253 and all(_LABEL.match(label) for label in text.split("."))


_LOOKS: Final[dict[str, Callable[[str], bool]]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": _is_date_time,
    "duration": lambda text: bool(_DURATION.match(text)),
    "email": lambda text: bool(_EMAIL.match(text)),
    "hostname": _is_host,
    "ipv4": lambda text: _parses(ipaddress.IPv4Address, text),
    "ipv6": lambda text: _parses(ipaddress.IPv6Address, text),
    "uri": lambda text: bool(_URI.match(text)),
    "uuid": lambda text: bool(_UUID.match(text)),
}
