"""When a webhook that failed is tried again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.webhooks.schedule import DELAYS, JITTER, LONGEST_REST_SECONDS, next_delay, rest_of

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def test_the_delays_grow_and_span_some_days() -> None:
    assert list(DELAYS) == sorted(DELAYS)
    assert DELAYS[0] <= 10
    assert 3 * 86_400 < sum(DELAYS) < 4 * 86_400


@given(st.integers(1, len(DELAYS)), st.floats(0, 1))
def test_each_delay_is_spread_around_its_own(attempt: int, drawn: float) -> None:
    delay = next_delay(attempt, random=lambda: drawn)
    assert delay is not None
    assert DELAYS[attempt - 1] * (1 - JITTER) <= delay <= DELAYS[attempt - 1] * (1 + JITTER) * (1 + 1e-9)


def test_after_the_last_attempt_there_is_none() -> None:
    assert next_delay(len(DELAYS)) is not None
    assert next_delay(len(DELAYS) + 1) is None
    assert next_delay(len(DELAYS) + 7, rest_seconds=60) is None


def test_a_receiver_that_asks_for_longer_gets_longer_and_never_less() -> None:
    assert next_delay(1, rest_seconds=900, random=lambda: 0.5) == 900
    assert next_delay(6, rest_seconds=1, random=lambda: 0.5) == DELAYS[5]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Mon, 30 Nov 2026 12:02:00 GMT", 120.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("99999999999999999999", LONGEST_REST_SECONDS),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_REST_SECONDS),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
    ],
)
def test_what_retry_after_says(header: str, seconds: float | None) -> None:
    assert rest_of(header, now=NOW) == seconds


@given(st.text())
def test_no_header_breaks_it(header: str) -> None:
    found = rest_of(header, now=NOW)
    assert found is None or 0 <= found <= LONGEST_REST_SECONDS
