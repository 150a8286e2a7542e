"""Addresses: where a value of a model's document is, such as ``$.items[0].price`` or ``$.items[*].price``.

An address has exactly one spelling. Any other one is refused, with the right one in the message wherever it can be
guessed. Expressions are not addresses and are never looked at here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, Literal

from engines.errors import EngineError
from engines.structured.text import quote

MAX_ADDRESS_CHARS = 1_000
MAX_SEGMENTS = 32


class Wildcard(Enum):
    """``[*]``: every element of an array."""

    EACH = "*"


EACH: Final = Wildcard.EACH
Segment = str | int | Literal[Wildcard.EACH]
"""A property's name, an element's index from zero, or every element."""

_EXAMPLE = "an address looks like $.order.items[0].price"
_NAME = r"[^.\[\]\s'\"`#$](?:[^.\[\]'\"`#]*[^.\[\]\s'\"`#])?"
_STEP = re.compile(rf"\.(?P<name>{_NAME})|\[(?P<index>0|[1-9][0-9]{{0,8}})\]|\[(?P<each>\*)\]")
_LOOSE = re.compile(
    r"""[./]?\[\s*(?:'(?P<single>[^']+)'|"(?P<double>[^"]+)"|(?P<index>[0-9]{1,9})|(?P<each>\*?))\s*\]"""
    r"""|[./]?(?P<word>[^./\[\]]+)|[./](?=[./\[]|\Z)"""
)


class BadAddress(EngineError):
    """A text is no address. ``suggestion`` is the canonical spelling of what seems to be meant, if there is one."""

    def __init__(self, text: str, suggestion: str | None) -> None:
        meant = f"write {suggestion}" if suggestion else f"{_EXAMPLE}, with at most {MAX_SEGMENTS} parts"
        super().__init__(f"{quote(text)} is not a canonical address: {meant}")
        self.text = text
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a document. The root ``$`` has no segments."""

    segments: tuple[Segment, ...] = ()

    def __str__(self) -> str:
        return "$" + "".join(f".{part}" if isinstance(part, str) else f"[{_inside(part)}]" for part in self.segments)

    @property
    def names(self) -> tuple[str, ...]:
        """The property names alone, without indices and ``[*]``: two addresses with the same names meet in arrays."""
        return tuple(part for part in self.segments if isinstance(part, str))

    @property
    def has_wildcard(self) -> bool:
        return EACH in self.segments

    @property
    def parent(self) -> Address:
        """One segment less. The root is its own parent."""
        return Address(self.segments[:-1])

    def ancestors(self) -> tuple[Address, ...]:
        """Every address above this one, the root first."""
        return tuple(Address(self.segments[:length]) for length in range(len(self.segments)))

    def child(self, segment: Segment) -> Address:
        return Address((*self.segments, segment))

    def starts_with(self, other: Address) -> bool:
        """Whether this is ``other`` or below it, segment by segment."""
        return self.segments[: len(other.segments)] == other.segments

    def matches(self, pattern: Address) -> bool:
        """Whether ``pattern`` stands for this address: the same, with ``[*]`` for any index."""
        return len(self.segments) == len(pattern.segments) and self.is_within(pattern)

    def is_within(self, pattern: Address) -> bool:
        """Whether this address, or one above it, matches ``pattern``."""
        if len(self.segments) < len(pattern.segments):
            return False
        return all(
            wanted == part or (wanted is EACH and not isinstance(part, str))
            for part, wanted in zip(self.segments, pattern.segments, strict=False)
        )


ROOT: Final = Address()


@lru_cache(maxsize=4_096)
def parse_address(text: str) -> Address:
    """The address ``text``. Raises :class:`BadAddress`; ``str(parse_address(text)) == text`` for any it accepts."""
    segments = _strict(text)
    if segments is None:
        raise BadAddress(text, suggest(text))
    return Address(segments)


def suggest(text: str) -> str | None:
    """The canonical spelling of what ``text`` seems to mean: ``a.0.b`` becomes ``$.a[0].b``; ``None`` for a riddle."""
    text = text.strip()
    if not text or len(text) > MAX_ADDRESS_CHARS:
        return None
    rest = text.lstrip("$")
    segments: list[Segment] = []
    at = 0
    while at < len(rest):
        match = _LOOSE.match(rest, at)
        if match is None:
            return None
        at = match.end()
        if match["single"] or match["double"]:
            segments.append(match["single"] or match["double"])
        elif match["index"]:
            segments.append(int(match["index"]))
        elif match["each"] is not None:
            segments.append(EACH)
        elif match["word"] and match["word"].strip():
            word = match["word"].strip()
            if word == "*":
                segments.append(EACH)
                continue
            # The first word names a property even when it is a number: there is no array it could be an index of.
            segments.append(int(word) if word.isdecimal() and len(word) < 10 and segments else word)
    found = str(Address(tuple(segments)))
    return found if _strict(found) is not None else None


def related(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one of two name paths (:attr:`Address.names`) is a prefix of the other, or they are the same."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def meta_key(path: str, prop: str) -> str:
    """The key of a meta derivation: ``$.a`` and ``readOnly`` give ``$.a#read_only``."""
    return f"{path}#{re.sub('([A-Z])', lambda match: '_' + match[1].lower(), prop)}"


def _strict(text: str) -> tuple[Segment, ...] | None:
    if not text.startswith("$") or len(text) > MAX_ADDRESS_CHARS:
        return None
    segments: list[Segment] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match["name"] is not None:
            if match["name"].isdecimal() or match["name"] == "*":
                return None
            segments.append(match["name"])
        elif match["index"] is not None:
            segments.append(int(match["index"]))
        else:
            segments.append(EACH)
    return tuple(segments) if len(segments) <= MAX_SEGMENTS else None


def _inside(segment: int | Wildcard) -> str:
    return "*" if isinstance(segment, Wildcard) else str(segment)
