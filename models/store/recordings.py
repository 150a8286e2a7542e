"""How a recording lies in its phase record: compressed JSON. What is in one: ``tasks.recording``."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

_LEVEL = 3


def packed(recording: Mapping[str, Any]) -> bytes:
    """As it is stored."""
    text = json.dumps(recording, ensure_ascii=False, separators=(",", ":"))
    return zlib.compress(text.encode("utf-8", "replace"), _LEVEL)


def unpacked(stored: bytes) -> dict[str, Any]:
    """The recording of :func:`packed`."""
    found: dict[str, Any] = json.loads(zlib.decompress(stored))
    return found
