"""What protects a deployment from its callers and itself: bounds, hanging turns, poisonous turns, plain refusals."""

from __future__ import annotations

import logging

import pytest
from factory import make_node, make_process, row, rows
from processes import eventually

from models.records import Lease
from models.store.claim import HARD_LOSSES, claim_turn
from models.store.database import Database
from tasks.heartbeat import Heartbeat
from tasks.settings import SettingsError, load_settings
from tasks.submission import SubmissionError, parse_submission


@pytest.mark.parametrize(
    ("limit", "value"),
    [("maxCalls", 3_000_000_000), ("maxTokens", 10**30), ("maxCostUsd", 1e12), ("deadlineSeconds", 1e300)],
)
def test_limits_that_no_column_holds_are_refused_by_name(limit: str, value: float) -> None:
    with pytest.raises(SubmissionError, match=rf"limits\.{limit}: .*less than or equal"):
        parse_submission({"recipe": "jeltz", "limits": {limit: value}})


@pytest.mark.parametrize(
    ("name", "value"), [("DATABASE_URL", "foo"), ("REDIS_URL", "localhost:6379"), ("REDIS_URL", "redis://")]
)
def test_an_address_that_is_none_is_refused_without_showing_it(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"VANCETOPE_{name}: .*must be an address that begins with"):
        load_settings({f"VANCETOPE_{name}": value})


def test_a_turn_that_keeps_killing_workers_is_not_claimed_again(database_url: str) -> None:
    database = Database(database_url)
    process = make_process(database, "RUNNING")
    node = make_node(database, process)
    rows(database, "UPDATE nodes SET losses = %(losses)s WHERE id = %(id)s", losses=HARD_LOSSES, id=node)
    turn = row(database, "nodes", node)["turn"]

    def claim() -> object:
        return claim_turn(database, node, turn, owner="w", lease_seconds=30, history=0, nonce="")

    assert claim() is None
    rows(database, "UPDATE nodes SET losses = %(losses)s WHERE id = %(id)s", losses=HARD_LOSSES - 1, id=node)
    assert claim() is not None
    database.dispose()


def test_a_turn_that_hangs_is_let_go(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    database = Database(database_url)
    process = make_process(database, "RUNNING")
    node = make_node(database, process)
    turn = row(database, "nodes", node)["turn"]
    claim = claim_turn(database, node, turn, owner="w", lease_seconds=30, history=0, nonce="")
    assert claim is not None
    lease: Lease = claim.lease
    before = row(database, "nodes", node)["lease_expires_at"]
    hanging = Heartbeat(database, lease_seconds=30, longest_seconds=0.0)
    with hanging.hold(lease) as cancel, caplog.at_level(logging.ERROR):
        hanging.beat()
        eventually(cancel.is_set, "the hanging turn is cancelled")
        assert cancel.reason == "lost"
    assert row(database, "nodes", node)["lease_expires_at"] == before
    assert "turn hangs, its lease is given up" in [record.getMessage() for record in caplog.records]
    hanging.close()
    database.dispose()
