"""The order of a recording: what was visible decides, numbers of transactions wrap around."""

from __future__ import annotations

import pytest

from tasks.replay.timeline import Snapshot, _whole


@pytest.mark.parametrize(
    ("text", "seen", "unseen"),
    [
        ("100:100:", [1, 99], [100, 101]),
        ("90:100:90,95", [89, 91, 99], [90, 95, 100]),
    ],
)
def test_a_snapshot_knows_what_it_sees(text: str, seen: list[int], unseen: list[int]) -> None:
    snapshot = Snapshot.parse(text)
    assert [snapshot.has(each) for each in seen] == [True] * len(seen)
    assert [snapshot.has(each) for each in unseen] == [False] * len(unseen)


@pytest.mark.parametrize("number", [1_000, 2**32 - 1, 2**32 + 3, 2**32 + 5, 3 * 2**32 + 17])
def test_the_lower_half_of_a_number_is_made_whole_by_one_nearby(number: int) -> None:
    for near in (number - 900, number, number + 900):
        assert _whole(number % 2**32, near=near) == number


def test_what_is_not_known_stays_unknown() -> None:
    assert _whole(0, near=5_000) == 0
    assert _whole(17, near=0) == 0
