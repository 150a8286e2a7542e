"""The tool ``current_time``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engines.structured.text import quote
from engines.tools.base import ToolContext, ToolFailed, ToolResult


class CurrentTime:
    """Date and time, in UTC or in a named time zone."""

    name = "current_time"
    description = "Tells the current date, weekday and time, in UTC or in the given time zone."
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {"timezone": {"type": "string", "description": "For instance Europe/Vienna; UTC if left out"}},
        "additionalProperties": False,
    }

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        name = str(arguments.get("timezone") or "UTC").strip()
        try:
            zone = UTC if name.upper() == "UTC" else ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ToolFailed(f"there is no time zone {quote(name)}") from None
        return ToolResult(text=self._now().astimezone(zone).strftime("%A, %Y-%m-%d %H:%M:%S ") + name)
