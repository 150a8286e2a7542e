"""Records in Markdown: bullets with comma-separated cells, or a pipe table."""

from __future__ import annotations

import re

from engines.documents.errors import DocumentError, Problem
from engines.documents.lines import LineKind, scan
from engines.documents.model import Row

OVERFLOW = "_overflow"
"""The key under which surplus cells stand in the canonical form; no field may have this name."""

_DIVIDER = re.compile(r":?-+:?\Z")
_PIPE = re.compile(r"(?<!\\)\|")


def schema_of(names: list[str]) -> tuple[str, ...]:
    """The field names in order, trimmed, each once. Raises :class:`DocumentError` if none is left."""
    schema = tuple(dict.fromkeys(name for raw in names if (name := raw.strip())))
    if not schema:
        raise DocumentError(
            Problem.NO_SCHEMA, "the records document has no schema: name its fields, e.g. schema: city, note"
        )
    if OVERFLOW in schema:
        raise DocumentError(Problem.NO_SCHEMA, f"a field of records cannot be called {OVERFLOW}")
    return schema


def read_records(body: str, schema_text: str | None) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Schema and rows. ``schema_text``: the header's comma-separated names, if it has any."""
    schema = schema_of(schema_text.split(",")) if schema_text and schema_text.strip() else None
    if body.lstrip().startswith("|"):
        return _read_table(body, schema)
    if schema is None:
        schema = schema_of([])
    cells = (
        split_cells(line.text) for line in scan(body) if line.kind is LineKind.BULLET and line.indent == 0 and line.text
    )
    return schema, tuple(_row(schema, found) for found in cells)


def split_cells(text: str) -> list[str]:
    """The comma-separated cells of one line. A cell that begins with ``"`` runs to the next single ``"``."""
    cells: list[str] = []
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        quoted = ""
        if text[position : position + 1] == '"':
            quoted, position = _quoted(text, position + 1)
        end = text.find(",", position)
        end = len(text) if end < 0 else end
        cells.append(quoted + text[position:end].rstrip())
        if end == len(text):
            return cells
        position = end + 1


def _quoted(text: str, position: int) -> tuple[str, int]:
    """The quoted text from ``position`` on and where it ends; without a closing quote, all the rest."""
    parts: list[str] = []
    while True:
        end = text.find('"', position)
        if end < 0:
            return "".join([*parts, text[position:]]), len(text)
        parts.append(text[position:end])
        if text[end + 1 : end + 2] != '"':
            return "".join(parts), end + 1
        parts.append('"')
        position = end + 2


def _row(schema: tuple[str, ...], cells: list[str]) -> Row:
    """Cells by position. A comma at the end of a full row begins no further cell."""
    padded = [*cells, *[""] * (len(schema) - len(cells))]
    return Row(values=dict(zip(schema, padded, strict=False)), overflow=_overflow(cells[len(schema) :]))


def _overflow(cells: list[str]) -> tuple[str, ...]:
    while cells and not cells[-1]:
        cells = cells[:-1]
    return tuple(cells)


def _read_table(body: str, schema: tuple[str, ...] | None) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    rows: list[list[str]] = []
    for line in body.lstrip().split("\n"):
        text = line.strip()
        if not text.startswith("|"):
            break
        rows.append(_table_cells(text))
    divided = len(rows) > 1 and _is_divider(rows[1])
    titles = rows[0]
    if schema is None:
        schema = schema_of(titles)
    elif not divided and tuple(titles) != schema:
        # Fields are named in the header of the document, and nothing marks this row as a row of titles.
        rows.insert(0, [])
        titles = list(schema)
    data = rows[2 if divided else 1 :]
    if not set(schema).issubset(titles):
        return schema, tuple(_row(schema, cells) for cells in data)
    columns = {title: titles.index(title) for title in schema}
    return schema, tuple(_titled_row(columns, cells) for cells in data)


def _titled_row(columns: dict[str, int], cells: list[str]) -> Row:
    """Cells by the title of their column, so that columns may stand in another order than in the schema."""
    used = set(columns.values())
    values = {title: cells[column] if column < len(cells) else "" for title, column in columns.items()}
    return Row(values=values, overflow=_overflow([cell for n, cell in enumerate(cells) if n not in used]))


def _table_cells(text: str) -> list[str]:
    parts = _PIPE.split(text)[1:]
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return [part.strip().replace("\\|", "|") for part in parts]


def _is_divider(cells: list[str]) -> bool:
    return any(cells) and all(_DIVIDER.match(cell) for cell in cells)
