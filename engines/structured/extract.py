"""JSON objects in a model's raw text: found by a real decoder, never by counting braces.

Order of trust: the whole text as JSON; then each place in it where an object (or an array holding objects) starts.
Code fences and prose need no rules of their own, since the decoder says where an object ends; reasoning between
``<think>`` tags is passed over unless there is nothing else.

A place that clearly starts an object but cannot be decoded or repaired hides everything inside it: an inner object must
never pass for the whole answer, nor the beginning of a cut one for its end.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from engines.structured.repair import NotRepairable, parse_loosely
from engines.structured.text import child, quote

MAX_TEXT_CHARS = 4_000_000
MAX_DECODES = 200
"""Places tried in one text: one with more of them is hostile, or no answer."""
MAX_NUMBER_DIGITS = 4_000
"""Python itself refuses to convert longer ones."""

_START: Final = re.compile(r"\{\s*(?:[\"'}/#]|[A-Za-z_]\w*\s*:)|\[\s*[\"'\[{]")
_OBJECT_START: Final = re.compile(
    r"\{\s*(?:\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"|'[^'\n]{0,500}?'|[A-Za-z_]\w*+)\s*:|\[\s*[\[{]", re.DOTALL
)
"""What only JSON looks like: an object with a first key and colon, an array of objects or arrays."""
_TOKEN: Final = re.compile(r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*+(?:\"|\\?\Z)|[{\[]+|[}\]]+", re.DOTALL)
"""Strings (an unclosed one, too) and runs of brackets."""
_THINK: Final = re.compile(r"<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_THINK_END: Final = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One JSON value found in a text.

    problems: ``(pointer, what)`` pairs that make it unusable whatever the schema says (duplicate keys).
    repaired: its spelling was mended (trailing commas, quotes, Python words, ...), never its meaning.
    """

    value: Any
    problems: tuple[tuple[str, str], ...] = ()
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Extraction:
    """candidates: in text order. broken: what could not be read though it may be (part of) the answer, if any."""

    candidates: tuple[Candidate, ...] = ()
    broken: str | None = None


class _Doubled(dict[str, Any]):
    """An object in which ``keys`` occur more than once; lives only until the candidate is built."""

    keys_twice: tuple[str, ...] = ()


def parse_exactly(text: str) -> Candidate | None:
    """``text`` as one JSON value, blanks and a byte order mark around it apart; ``None`` when it is anything else."""
    try:
        return _candidate(_STRICT.decode(_trimmed(text)))
    except (ValueError, RecursionError):
        return None


def complete_json(text: str) -> Candidate | None:
    """Like :func:`parse_exactly`, with leading reasoning and one code fence around the value allowed, and nothing else.

    For a reply whose end was cut off: only what is certainly the whole answer counts.
    """
    body = _trimmed(text)
    exact = parse_exactly(body)
    return exact if exact is not None else parse_exactly(_unfenced(after_leading_thought(body)))


def extract(text: str) -> Extraction:
    """Every JSON object, and array holding objects, that ``text`` offers as an answer. Never raises; bounded work."""
    body = _trimmed(text)
    if len(body) > MAX_TEXT_CHARS:
        return Extraction(broken=f"a reply of more than {MAX_TEXT_CHARS:,} characters")
    whole = parse_exactly(body)
    if whole is not None:
        return Extraction((_decoded_once(whole),))
    answer = after_leading_thought(body)
    if answer is not body:
        found = _scan(answer)
        return (found if found.places or found.broken else _scan(body)).extraction()
    found = _scan(body)
    closing = _THINK_END.search(body)
    if closing and not found.holds(closing.start()):
        # Reasoning whose opening tag was in the prompt.
        after = _scan(body[closing.end() :])
        found = after if after.places else found
    return found.extraction()


def _trimmed(text: str) -> str:
    return text.strip(" \t\r\n\ufeff\u200b")


def after_leading_thought(body: str) -> str:
    """What follows the reasoning that ``body`` starts with; ``body`` itself when it does not start with any."""
    if not _THINK.match(body):
        return body
    closing = _THINK_END.search(body)
    return body[closing.end() :].strip() if closing else body


def _unfenced(body: str) -> str:
    """The inside of the code fence that ``body`` is, closed or not; ``body`` itself when it is none."""
    if not body.startswith(("```", "~~~")):
        return body
    _, _, inside = body.partition("\n")
    return inside.rstrip().rstrip(body[0])


def _decoded_once(whole: Candidate) -> Candidate:
    """The value inside a JSON string that holds an object; anything else as it is."""
    if not isinstance(whole.value, str):
        return whole
    inner = parse_exactly(whole.value)
    return inner if inner is not None and isinstance(inner.value, dict | list) else whole


@dataclass(slots=True)
class _Found:
    """What a scan met: readable places, and the stretches where an object starts that cannot be read."""

    text: str
    places: list[tuple[int, int, Candidate]] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    gave_up: bool = False

    @property
    def broken(self) -> bool:
        """Whether what could not be read might be (part of) the answer.

        It might not when it closed before the first readable place and no brace is left over behind it: then it is an
        example such as ``{"n": <number>}``. A stray closing brace would mean that the end was guessed too early and the
        readable place lies inside.
        """
        if self.gave_up or not self.unreadable:
            return self.gave_up
        end = self.unreadable[-1][1]
        if not self.places or self.places[0][0] < end:
            return True
        for start, after, _ in self.places:
            if "}" in self.text[end:start]:
                return True
            end = after
        return "}" in self.text[end:]

    def holds(self, at: int) -> bool:
        """Whether the place ``at`` is part of an object: of a readable one, or of a string in an unreadable one."""
        if any(start < at < end for start, end, _ in self.places):
            return True
        return any(
            token.start() < at < token.end() and token.group().startswith('"')
            for start, end in self.unreadable
            if start < at < end
            for token in _TOKEN.finditer(self.text, start, end)
        )

    def extraction(self) -> Extraction:
        candidates = tuple(candidate for _, _, candidate in self.places)
        if not self.broken:
            return Extraction(candidates)
        if not self.unreadable:
            return Extraction(candidates, "too many places where an object might start")
        return Extraction(
            candidates, f"JSON that is cut off or malformed ({_trouble(self.text, self.unreadable[0][0])})"
        )


def _scan(text: str) -> _Found:
    found = _Found(text)
    at = 0
    for _ in range(MAX_DECODES):
        start = _START.search(text, at)
        if start is None:
            return found
        at = start.start()
        read = _read_at(text, at)
        if read is not None:
            candidate, end = read
            found.places.append((at, end, candidate))
            at = end
        elif _OBJECT_START.match(text, at):
            end = _lexical_end(text, at)
            found.unreadable.append((at, end))
            at = end
        else:
            at += 1
    found.gave_up = True
    return found


def _read_at(text: str, at: int) -> tuple[Candidate, int] | None:
    for decoder, repaired in ((_STRICT, False), (_CONTROLS, True)):
        try:
            value, end = decoder.raw_decode(text, at)
            return _candidate(value, repaired), end
        except RecursionError:
            return None
        except ValueError:
            continue
    if not _OBJECT_START.match(text, at):
        return None
    try:
        value, end = parse_loosely(text, at, _pairs, _integer, _real)
    except (NotRepairable, RecursionError):
        return None
    return _candidate(value, True), end


def _trouble(text: str, at: int) -> str:
    """Why the object at ``at`` cannot be read, with the text around the place."""
    try:
        _CONTROLS.raw_decode(text, at)
    except json.JSONDecodeError as error:
        return f"{error.msg} near {quote(text[max(at, error.pos - 20) : error.pos + 20])}"
    except RecursionError:
        return "nested too deeply"
    return "not one value"


def _lexical_end(text: str, at: int) -> int:
    """Where the unreadable object at ``at`` seems to close; the end of the text when it does not.

    Only used to skip: braces are counted outside strings, and a wrong guess loses a candidate, never invents one.
    """
    depth = 0
    for token in _TOKEN.finditer(text, at):
        run = token.end() - token.start()
        if text[token.start()] in "{[":
            depth += run
        elif text[token.start()] in "}]":
            if depth <= run:
                return token.start() + depth
            depth -= run
    return len(text)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    doubled = _Doubled(found)
    doubled.keys_twice = tuple(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
    return doubled


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_NUMBER_DIGITS else math.copysign(math.inf, -1 if digits[0] == "-" else 1)


def _real(digits: str) -> float:
    return float(digits)


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer)
_CONTROLS: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, strict=False)


def _candidate(value: Any, repaired: bool = False) -> Candidate:
    return Candidate(value, tuple(_doubled_keys(value)), repaired)


def _doubled_keys(value: Any) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        pointer, node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node, _Doubled):
                yield from ((child(pointer, key), f"duplicate key {quote(key)}") for key in node.keys_twice)
            stack.extend((child(pointer, key), node[key]) for key in reversed(node))
        elif isinstance(node, list):
            stack.extend((child(pointer, at), node[at]) for at in range(len(node) - 1, -1, -1))
