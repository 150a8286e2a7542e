"""Following a job costs one row at each look, however large its tree is; its figures are read rarely."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from factory import make_node, make_process
from rig import NO_REDIS, RecordingDatabase

from models.store import read
from models.store.processes import stop
from tasks.cli import follow
from tasks.cli.follow import Follower
from tasks.cli.watch import FIGURES_SECONDS, SILENCE_SECONDS, Figures


@pytest.fixture
def database(database_url: str) -> Iterator[RecordingDatabase]:
    made = RecordingDatabase(database_url)
    yield made
    made.dispose()


@pytest.fixture
def other(database_url: str) -> Iterator[RecordingDatabase]:
    """Somebody else's connection: what it does is not the follower's."""
    made = RecordingDatabase(database_url)
    yield made
    made.dispose()


def close(database: RecordingDatabase, process: UUID) -> None:
    assert stop(database, process, lambda _: {"success": False, "attempts": 0, "error": "stopped"})


def about_the_whole_tree(database: RecordingDatabase) -> list[str]:
    """The statements so far that count nodes or add up the ledger."""
    return [sql for sql in database.sent if "nodes" in sql or "llm_calls" in sql]


@pytest.mark.parametrize("has_redis", [True, False])
def test_a_follower_reads_one_row_at_each_look(
    database: RecordingDatabase,
    other: RecordingDatabase,
    redis_url: str,
    has_redis: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(follow, "TICK_SECONDS", 0.01)
    process = make_process(other)
    make_node(other, process, "leased")
    seen: list[str] = []
    with Follower(database, redis_url if has_redis else NO_REDIS, process) as follower:
        assert follower.live is has_redis
        for _ in follower.events(30):
            assert follower.state is not None
            seen.append(follower.state["status"])
            if len(database.sent) == 5:
                close(other, process)
    assert (seen[0], seen[-1]) == ("RUNNING", "CLOSED")
    assert follower.state["close_reason"] == "STOPPED"
    assert about_the_whole_tree(database) == []
    assert len(database.sent) >= 6
    assert len(set(database.sent)) == 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_figures_are_read_after_a_change_at_a_bounded_rate_and_at_the_end(
    database: RecordingDatabase, other: RecordingDatabase
) -> None:
    process = make_process(other)
    make_node(other, process, "leased")
    known = read.status(other, process)
    assert known is not None
    clock = Clock()
    figures = Figures(database, process, known, clock=clock)
    running: dict[str, Any] = {"status": "RUNNING", "close_reason": None}
    turn = {"kind": "turn", "node": 1}

    def readings() -> int:
        return len(about_the_whole_tree(database))

    # A storm of turns and pieces of text costs one reading in so many seconds.
    for _ in range(128):
        clock.now += FIGURES_SECONDS / 64
        figures.see(turn, running)
        figures.see({"kind": "chunk", "text": "…"}, running)
    assert readings() == 2
    # Where nothing is told, the figures are looked at less often still.
    for _ in range(128):
        clock.now += SILENCE_SECONDS / 64
        figures.see(None, running)
    assert readings() == 4
    # What the row says is shown at once, and the end with its figures.
    figures.see(None, {"status": "BLOCKED", "close_reason": None})
    assert figures.known["status"] == "BLOCKED"
    assert readings() == 4
    close(other, process)
    figures.see(None, {"status": "CLOSED", "close_reason": "STOPPED"})
    assert (readings(), figures.known["nodes"]) == (5, {"SKIPPED": 1})
    figures.see(None, {"status": "CLOSED", "close_reason": "STOPPED"})
    assert readings() == 5
