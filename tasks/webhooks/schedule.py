"""When a delivery that failed is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_MINUTE, _HOUR = 60.0, 3600.0
DELAYS: Final = (
    5.0, 30.0, 2 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR,
    24 * _HOUR,
)  # fmt: skip
"""Seconds between one attempt and the next; after the last one a delivery is given up, a little more than three days
after its event."""
JITTER: Final = 0.2
"""Each delay is up to this part longer or shorter: what failed together does not come back together."""
LONGEST_REST_SECONDS: Final = 24 * _HOUR


def next_delay(
    attempt: int, *, rest_seconds: float | None = None, random: Callable[[], float] = random.random
) -> float | None:
    """Seconds until the attempt after the one with this number (from 1); ``None`` when that was the last one.

    rest_seconds: what the receiver has asked for; it is not tried before.
    """
    if attempt > len(DELAYS):
        return None
    delay = DELAYS[attempt - 1] * (1 + JITTER * (2 * random() - 1))
    return max(delay, rest_seconds or 0.0)


def rest_of(retry_after: str, *, now: datetime | None = None) -> float | None:
    """Seconds that a Retry-After header asks for, a number or an HTTP date; ``None`` when it says nothing we know.

    At most a day, and never negative.
    """
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:12])
    else:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return min(max(seconds, 0.0), LONGEST_REST_SECONDS)
