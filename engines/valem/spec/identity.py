"""Ids and versions of specs: their form."""

from __future__ import annotations

import re
from typing import Final

MAX_ID_CHARS: Final = 200
_SEGMENT: Final = r"[A-Za-z][A-Za-z0-9_-]*"
_ID: Final = re.compile(rf"(?:{_SEGMENT}(?:\.{_SEGMENT})*/)?{_SEGMENT}\Z")
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_VERSION: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?\Z")


def is_id(text: str) -> bool:
    """Whether ``text`` is ``[namespace/]name``; the namespace may have dots, each part begins with a letter."""
    return len(text) <= MAX_ID_CHARS and _ID.match(text) is not None


def is_version(text: str) -> bool:
    """Whether ``text`` is three numbers without leading zeros, perhaps with a pre-release behind them."""
    return _VERSION.match(text) is not None


def is_coordinate(text: str) -> bool:
    """``id@version``: another spec, or a layer of a library, in one version."""
    name, mark, version = text.rpartition("@")
    return bool(mark) and is_id(name) and is_version(version)
