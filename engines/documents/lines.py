"""Markdown as the document kinds see it: a header, then lines that are bullets, text, code or blank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from engines.documents.errors import DocumentError, Problem
from engines.structured.text import quote

MAX_HEADER_BYTES = 65_536
TAB_COLUMNS = 4

_BULLET = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]+(.*))?\Z")
_RULE = re.compile(r"([-*_])(?:[ \t]*\1){2,}[ \t]*\Z")
_FENCE = re.compile(r"(`{3,}|~{3,})(.*)\Z")


class LineKind(StrEnum):
    BULLET = "bullet"
    TEXT = "text"
    CODE = "code"
    BLANK = "blank"


@dataclass(frozen=True, slots=True)
class Line:
    """One line. ``text`` is what stands behind the indent, and for bullets behind the mark.

    The ``indent`` of code is that of its opening fence: a block belongs as a whole to wherever its first line does.
    """

    kind: LineKind
    indent: int
    text: str


def split_header(text: str) -> tuple[dict[str, str] | None, str]:
    """The flat fields between the leading ``---`` lines, and the body. ``None`` when the text has no header.

    Raises :class:`DocumentError` for a header that is never closed (or not within 64 KiB) and for a field given twice.
    """
    start = text.lstrip("\n \t")
    if start.split("\n", 1)[0].rstrip() != "---":
        return None, text
    fields: dict[str, str] = {}
    lines = start.split("\n")
    size = 0
    for number, line in enumerate(lines[1:], 1):
        size += len(line.encode()) + 1
        if size > MAX_HEADER_BYTES:
            break
        if line.rstrip() == "---":
            return fields, "\n".join(lines[number + 1 :])
        found = _field(line)
        if found is None:
            continue  # blank lines, comments, and whatever is not flat
        if found[0] in fields:
            raise DocumentError(Problem.MALFORMED, f"the header gives {quote(found[0])} twice")
        fields[found[0]] = found[1]
    raise DocumentError(
        Problem.NO_KIND, "the document has no kind: its header begins with --- and is not closed by a second ---"
    )


def _field(line: str) -> tuple[str, str] | None:
    key, colon, value = line.partition(":")
    if not colon or not key.strip() or key[0] in "# \t" or (value and not value[0].isspace()):
        return None
    value = value.strip()
    return key.strip(), _unquoted(value)


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def scan(body: str) -> Iterator[Line]:
    """The lines of ``body``. A fence that is never closed is text: one stray fence must not swallow the entries."""
    lines = body.split("\n")
    hopeless: dict[str, int] = {}
    number = 0
    while number < len(lines):
        line = _line(lines[number])
        number += 1
        end = _closing(lines, number, line, hopeless)
        if end is None:
            yield line
            continue
        yield Line(LineKind.CODE, line.indent, line.text) if line.kind is LineKind.TEXT else line
        indent = line.indent + (2 if line.kind is LineKind.BULLET else 0)
        for code in lines[number : end + 1]:
            yield Line(LineKind.CODE, indent, _dedented(code, indent))
        number = end + 1


def _line(raw: str) -> Line:
    raw = raw.rstrip()
    text = raw.lstrip(" \t")
    if not text:
        return Line(LineKind.BLANK, 0, "")
    lead = raw[: len(raw) - len(text)]
    indent = len(lead) + lead.count("\t") * (TAB_COLUMNS - 1)
    bullet = None if _RULE.match(text) else _BULLET.match(text)
    if bullet:
        return Line(LineKind.BULLET, indent, (bullet[1] or "").strip())
    return Line(LineKind.TEXT, indent, text)


def _opens(text: str) -> re.Match[str] | None:
    found = _FENCE.match(text)
    # "```x```" on one line is inline code.
    return found if found and not (found[1][0] == "`" and "`" in found[2]) else None


def _closing(lines: list[str], start: int, line: Line, hopeless: dict[str, int]) -> int | None:
    """The line that closes the fence ``line`` opens. ``hopeless``: for each mark, the shortest fence known to stay open
    from here on, so that many stray fences do not each search the whole rest."""
    opened = _opens(line.text)
    if not opened:
        return None
    mark = opened[1]
    if len(mark) >= hopeless.get(mark[0], len(mark) + 1):
        return None
    for number in range(start, len(lines)):
        text = lines[number].strip()
        if len(text) >= len(mark) and text == mark[0] * len(text):
            return number
    hopeless[mark[0]] = len(mark)
    return None


def _dedented(raw: str, indent: int) -> str:
    raw = raw.rstrip().replace("\t", " " * TAB_COLUMNS)
    spaces = len(raw) - len(raw.lstrip(" "))
    return raw[min(indent, spaces) :]
