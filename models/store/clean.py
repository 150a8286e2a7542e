"""The write edge: what PostgreSQL cannot hold is replaced or refused here and nowhere else.

U+0000 and lone surrogates become U+FFFD (both counted); NaN and the infinities are refused: no JSON text has them.
"""

from __future__ import annotations

import json
import re
from typing import Any

REPLACEMENT = "\ufffd"
_DIRTY_TEXT = re.compile("[\x00\ud800-\udfff]")
# A dumped NUL is the six characters backslash u 0 0 0 0; a hit may be an escaped backslash before "u0000", so a hit
# only sends the value down the slow path, which looks at the strings themselves.
_DIRTY_JSON = re.compile("\\\\u0000|[\ud800-\udfff]")


class NotStorable(ValueError):
    """The value holds NaN, Infinity or something JSON has no form for."""


class Cleaner:
    """Prepares the values of one write and counts the characters it had to replace."""

    __slots__ = ("replaced",)

    def __init__(self) -> None:
        self.replaced = 0

    def text(self, value: str) -> str:
        """``value`` without NUL and lone surrogates."""
        cleaned, count = _DIRTY_TEXT.subn(REPLACEMENT, value)
        self.replaced += count
        return cleaned

    def json(self, value: Any) -> str:
        """``value`` as JSON text that ``jsonb`` accepts. Raises :class:`NotStorable`."""
        dumped = _dump(value)
        if _DIRTY_JSON.search(dumped) is None:
            return dumped
        return _dump(self._walk(value))

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key) if isinstance(key, str) else key: self._walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(item) for item in value]
        return value


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as error:
        raise NotStorable(f"cannot be stored as JSON: {error}") from error
