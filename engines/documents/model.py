"""What a document holds once it is read, whatever syntax it was written in. Frozen values, compared by content."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Extra = dict[str, Any]
"""Keys the format gives no meaning to, kept as they were: plain JSON values."""


class Kind(StrEnum):
    """What the header of a document may say it is. A graph is known, and known not to be readable here."""

    LIST = "list"
    TREE = "tree"
    RECORDS = "records"
    TEXT = "text"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An entry of a list."""

    text: str
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """An entry of a tree, with everything below it."""

    text: str
    children: tuple[Branch, ...] = ()
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A record. ``values`` has every field of the schema; ``overflow`` holds cells beyond it."""

    values: dict[str, str]
    extra: Extra = field(default_factory=dict)
    overflow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDocument:
    items: tuple[Item, ...]
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDocument:
    roots: tuple[Branch, ...]
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDocument:
    """``schema`` names the fields in order: at least one, no name twice."""

    schema: tuple[str, ...]
    rows: tuple[Row, ...]
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDocument:
    """Free text, to be read and not fanned out."""

    text: str
    extra: Extra = field(default_factory=dict)


Document = ListDocument | TreeDocument | RecordsDocument | TextDocument
