"""How a recording lies in its phase record: compressed JSON. What is in one: ``tasks.recording``."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

_LEVEL = 3


def packed(recording: Mapping[str, Any]) -> bytes:
    """As it is stored."""
    return zlib.compress(json_text(recording).encode(), _LEVEL)


def json_text(value: object, *, default: Callable[[object], str] | None = None) -> str:
    """JSON that UTF-8 can carry: where a model wrote half a surrogate pair, everything beyond ASCII is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=default)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, separators=(",", ":"), default=default)
    return text


def unpacked(stored: bytes) -> dict[str, Any]:
    """The recording of :func:`packed`."""
    found: dict[str, Any] = json.loads(zlib.decompress(stored))
    return found
