"""How deep values may be nested: far less than what Python's recursion, and the engine's, can follow."""

from __future__ import annotations

from typing import Any, Final

MAX_LEVELS: Final = 100
"""Objects and arrays inside each other."""


def is_too_deep(value: Any, levels: int = MAX_LEVELS) -> bool:
    """Whether a JSON value has more than ``levels`` objects and arrays inside each other. Works at any depth."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [item for item in layer if isinstance(item, dict | list)]
        if not layer:
            return False
        layer = [below for item in layer for below in (item.values() if isinstance(item, dict) else item)]
    return True
