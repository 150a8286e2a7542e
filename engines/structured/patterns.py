"""``pattern`` keywords: compiled once, matched under a time limit, never able to pin a worker.

JSON Schema patterns are ECMA-262 regular expressions, unanchored. The ``regex`` package matches them, as it can be
stopped; what reads differently there is rewritten first: ``$`` is the very end of the text, a brace that is no
quantifier is a literal brace (``regex`` would read fuzzy matching into it), ``\\u{...}`` and ``\\k<name>`` have other
spellings, classes are ASCII.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import lru_cache

import regex  # type: ignore[import-untyped]

MAX_PATTERN_CHARS = 1_000
MAX_REPEAT_WEIGHT = 5_000
"""Atoms a pattern may stand for once its least repetitions are written out: the engine really writes them out, and
``((a{1000}){1000}){1000}`` would take all the memory there is at compile time, where no time limit helps."""
MATCH_SECONDS = 0.15
"""The longest one match may take."""
VALUE_SECONDS = 0.4
"""The longest all matches of one reply may take together."""

_PROPERTY = re.compile(r"\\[pP]\{")
"""Unicode properties mean nothing under the ASCII flag; a pattern that uses them gets Unicode digits and words, too."""
_QUANTIFIER = re.compile(r"\{(\d+)(,(\d*))?\}")
_LONG_ESCAPE = re.compile(
    r"\\(?:[pP]\{[^{}]{1,60}\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{([0-9A-Fa-f]{1,6})\}|k<(\w{1,60})>|c([A-Za-z]))"
)


class BadPattern(ValueError):
    """The pattern cannot be used. The message says why, in words for the schema's author."""


class PatternTimeout(Exception):
    """The match was stopped by its time limit."""


@dataclass(slots=True)
class MatchClock:
    """The matching time left for one reply. One per validation; not shared between threads."""

    seconds_left: float = VALUE_SECONDS


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled ``pattern``; ``source`` is what the schema says."""

    source: str
    compiled: regex.Pattern[str]

    def found_in(self, text: str, clock: MatchClock) -> bool:
        """Whether ``text`` holds a match. Raises :class:`PatternTimeout`, at once when ``clock`` has nothing left."""
        if clock.seconds_left <= 0:
            raise PatternTimeout
        started = time.monotonic()
        try:
            return self.compiled.search(text, timeout=min(MATCH_SECONDS, clock.seconds_left)) is not None
        except (TimeoutError, MemoryError) as stopped:
            raise PatternTimeout from stopped
        finally:
            clock.seconds_left -= time.monotonic() - started


@lru_cache(maxsize=1_024)
def compile_pattern(source: str) -> Pattern:
    """The pattern ready to match. Raises :class:`BadPattern`."""
    if len(source) > MAX_PATTERN_CHARS:
        raise BadPattern(f"is longer than {MAX_PATTERN_CHARS} characters")
    translated = _Translation(source).run()
    try:
        return Pattern(source, regex.compile(translated, regex.UNICODE if _PROPERTY.search(source) else regex.ASCII))
    except regex.error as error:
        raise BadPattern(f"is not a valid regular expression: {error}") from error
    except (RecursionError, MemoryError, OverflowError, ValueError, IndexError, KeyError) as error:
        raise BadPattern("is not a regular expression that can be compiled") from error


class _Translation:
    """One pass over a pattern: writes the ``regex`` spelling and weighs the repetitions."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.out: list[str] = []
        self.group_weights = [0]
        self.atom_weight = 0

    def run(self) -> str:
        while self.at < len(self.source):
            self._step(self.source[self.at])
        if self._weight() > MAX_REPEAT_WEIGHT:
            self._too_heavy()
        return "".join(self.out)

    def _step(self, char: str) -> None:
        match char:
            case "\\":
                self._take(*self._escape())
            case "[":
                self._take(*self._char_class())
            case "{":
                self._brace()
            case "$":
                self._take(r"\Z", 1)
            case "(":
                self.group_weights.append(0)
                self._emit(char, 1)
            case ")":
                self._close_group()
            case "|":
                self._end_atom()
                self._emit(char, 1)
            case "*" | "+" | "?" | "^":
                self._emit(char, 1)
            case _:
                self._take(char, 1)

    def _emit(self, text: str, length: int) -> None:
        self.out.append(text)
        self.at += length

    def _take(self, text: str, length: int) -> None:
        """One more atom."""
        self._end_atom()
        self.atom_weight = 1
        self._emit(text, length)

    def _end_atom(self) -> None:
        self.group_weights[-1] += self.atom_weight
        self.atom_weight = 0

    def _close_group(self) -> None:
        self._end_atom()
        # An unmatched parenthesis is left for the compiler to report.
        self.atom_weight = self.group_weights.pop() if len(self.group_weights) > 1 else 0
        self._emit(")", 1)

    def _brace(self) -> None:
        quantifier = _QUANTIFIER.match(self.source, self.at)
        if quantifier is None:
            self._take(r"\{", 1)
            return
        if len(quantifier.group()) > 20:
            self._too_heavy()
        self.atom_weight *= max(1, int(quantifier.group(1)))
        self._emit(quantifier.group(), len(quantifier.group()))
        if self._weight() > MAX_REPEAT_WEIGHT:
            self._too_heavy()

    def _weight(self) -> int:
        return sum(self.group_weights) + self.atom_weight

    def _too_heavy(self) -> None:
        raise BadPattern(
            f"repeats too much: its least repetitions may stand for {MAX_REPEAT_WEIGHT:,} characters at most"
        )

    def _escape(self) -> tuple[str, int]:
        """The escape at the current place in the other spelling, and its length in the source."""
        long = _LONG_ESCAPE.match(self.source, self.at)
        if long is None:
            return self.source[self.at : self.at + 2], 2
        code_point, name, control = long.groups()
        if code_point is not None:
            if int(code_point, 16) > 0x10FFFF:
                raise BadPattern(f"names a character that does not exist: {long.group()}")
            return rf"\U{int(code_point, 16):08x}", len(long.group())
        if name is not None:
            return f"(?P={name})", len(long.group())
        if control is not None:
            return rf"\x{ord(control) % 32:02x}", len(long.group())
        return long.group(), len(long.group())

    def _char_class(self) -> tuple[str, int]:
        """The bracketed class at the current place: ``[`` inside it is a literal, as in ECMA-262."""
        start, out = self.at, ["["]
        self.at += 1
        if self.source.startswith("^", self.at):
            out.append("^")
            self.at += 1
        if self.source.startswith("]", self.at):
            raise BadPattern("has an empty character class")
        while self.at < len(self.source) and self.source[self.at] != "]":
            if self.source[self.at] == "\\":
                text, length = self._escape()
            else:
                char = self.source[self.at]
                text, length = (f"\\{char}" if char in "[&|~" else char), 1
            out.append(text)
            self.at += length
        if self.at >= len(self.source):
            raise BadPattern("has a character class that is not closed")
        length, self.at = self.at + 1 - start, start
        return "".join(out) + "]", length
