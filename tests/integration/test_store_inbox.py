"""The inbox's sweeps: each question expires once, and BLOCKED means that only people are waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from factory import make_node, make_process, row, rows, value
from rig import in_threads

from models.records import ItemStatus
from models.store import inbox
from models.store.database import Database
from models.store.inbox import Outcome


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_size=6, name="vancetope-test")
    yield database
    database.dispose()


def ask(database: Database, node: int, *, ttl: float = 60.0) -> int:
    found: int = value(
        database,
        "INSERT INTO inbox_items (tenant, project, process_id, node_id, originator, type, criticality, title,"
        " body, payload, expires_at)"
        " SELECT 'default', 'default', process_id, id, 'engine:x', 'FEEDBACK', 'NORMAL', 't', '', '{}',"
        " now() + make_interval(secs => %(ttl)s) FROM nodes WHERE id = %(node)s RETURNING id",
        node=node, ttl=ttl,
    )  # fmt: skip
    return found


def test_sweepers_at_the_same_time_expire_each_question_once(database: Database) -> None:
    nodes = [make_node(database, make_process(database), "parked") for _ in range(12)]
    items = [ask(database, node, ttl=-1.0) for node in nodes]
    ask(database, make_node(database, make_process(database), "parked"), ttl=60.0)

    def sweep(_: int) -> list[int]:
        return [turn.node_id for _ in range(6) for turn in inbox.expire(database, batch=5)]

    seen = [node for each in in_threads(3, sweep) for node in each]
    assert sorted(seen) == sorted(nodes)
    assert {(item := inbox.get(database, each)) and item.status for each in items} == {ItemStatus.EXPIRED}
    assert row(database, "nodes", nodes[0])["due_at"] is not None


def test_a_process_is_blocked_only_while_nothing_else_is_at_work(database: Database) -> None:
    process = make_process(database)
    root = make_node(database, process, "awaiting")
    ask(database, make_node(database, process, "parked", parent=root, order=0))
    other = make_node(database, process, "delayed", parent=root, order=1)
    assert inbox.block_waiting(database, batch=10) == 0
    rows(database, "UPDATE nodes SET due_at = NULL, next_hint_at = NULL WHERE id = %(id)s", id=other)
    assert inbox.block_waiting(database, batch=10) == 1
    assert row(database, "processes", process)["status"] == "BLOCKED"
    assert inbox.block_waiting(database, batch=10) == 0


def test_an_answer_to_a_suspended_process_waits_for_its_resume(database: Database) -> None:
    process = make_process(database, "SUSPENDED")
    item = ask(database, make_node(database, process, "parked"))
    assert inbox.answer(database, item, {"outcome": "UNDECIDABLE", "reason": "x"}, by="ada").outcome is Outcome.STORED
    assert row(database, "processes", process)["status"] == "SUSPENDED"
