"""How stored values are shown to people. Everything from models and users is hostile: see :func:`plain`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from tasks.jsonable import jsonable

# Besides C0 and C1: what turns the direction of writing, hides, or is no character at all.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufffe\uffff]"
)


def plain(text: str) -> str:
    """``text`` with its control characters made visible and harmless: ``\\x1b`` is shown as ``␛``."""
    return _UNSEEN.sub(lambda match: _picture(ord(match[0])), text.replace("\r\n", "\n"))


def _picture(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def when(value: datetime | None) -> str:
    """A point in time, UTC, to the second."""
    return "" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def lasted(since: datetime | None, until: datetime | None = None) -> str:
    """How long something took, or has taken so far."""
    if since is None:
        return ""
    value = max(0.0, ((until or datetime.now(UTC)) - since).total_seconds())
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def money(value: Decimal | float | None) -> str:
    """US dollars with as many places as small sums need."""
    if value is None:
        return ""
    amount = float(value)
    if not amount:
        return "$0"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.6f}".rstrip("0").rstrip(".")


def number(value: Decimal | float | None) -> str:
    """A count with thousands separated."""
    return "" if value is None else f"{int(value):,}"


def as_json(value: Any, limit: int = 20_000) -> str:
    """Indented JSON, its beginning if there is more than ``limit`` characters."""
    return cut(json.dumps(jsonable(value), ensure_ascii=False, indent=2), limit)


def cut(text: str, limit: int) -> str:
    """The beginning of ``text``, and how much more there is."""
    return text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} more characters"


def brief(text: str, limit: int = 120) -> str:
    """The beginning of ``text`` on one line."""
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
