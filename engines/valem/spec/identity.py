"""Ids and versions of specs: their form."""

from __future__ import annotations

import re
from typing import Final

_SEGMENT: Final = r"[A-Za-z][A-Za-z0-9_-]*"
_ID: Final = re.compile(rf"(?:{_SEGMENT}(?:\.{_SEGMENT})*/)?{_SEGMENT}\Z")
_MAX_ID_CHARS: Final = 200


def is_model_id(text: str) -> bool:
    """Whether ``text`` is ``[namespace/]name``; the namespace may have dots, each part begins with a letter."""
    return len(text) <= _MAX_ID_CHARS and _ID.match(text) is not None
