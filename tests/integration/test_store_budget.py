"""Budgets of a root process: reserved before a call, settled after it, never exceeded and never leaked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from factory import broken_invariants, claimed, deadlocks, expire_lease, make_node, make_process, rows, value
from processes import eventually
from rig import in_threads, other_session

from models.records import CallRecord, Limits
from models.store.claim import Claim, Reservation, reserve_budget
from models.store.commit import StaleTurn, commit_turn
from models.store.database import Database
from models.store.processes import stop
from models.transition import PhaseNote, advance

NOTE = PhaseNote(phase="S", iteration=1)
STEP = advance("S", {}, note=NOTE)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_size=20)
    yield database
    database.dispose()


def call(tokens: int = 10, cost: float = 0.01, **fields: Any) -> CallRecord:
    base: dict[str, Any] = {
        "provider": "p", "model": "m", "attempt": 1, "error_kind": None, "stop_reason": "stop", "structured_path": None,
        "input_tokens": tokens, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0, "cost_usd": cost,
        "latency_ms": 1, "reached_inference": True,
    }  # fmt: skip
    return CallRecord(**(base | fields))


def reserved(database: Database, claim: Claim, tokens: int = 10, cost: float = 0.01) -> Claim | None:
    found = reserve_budget(database, claim, tokens=tokens, cost_usd=cost)
    return None if found is None else replace(claim, reserved=found)


def settle(database: Database, claim: Claim, record: CallRecord | None) -> None:
    commit_turn(database, claim, STEP, call=record, elapsed_seconds=0.0)


def counters(database: Database) -> tuple[Any, ...]:
    """Used calls, tokens, cost; reserved calls, tokens, cost."""
    return rows(
        database,
        "SELECT used_calls, used_tokens, used_cost_usd, reserved_calls, reserved_tokens, reserved_cost_usd"
        " FROM processes WHERE parent_node_id IS NULL",
    )[0]


@pytest.mark.parametrize(
    ("limits", "fit"),
    [
        (Limits(max_calls=5), 5),
        (Limits(max_tokens=59), 5),
        (Limits(max_tokens=60), 6),
        (Limits(max_cost_usd=0.05), 5),
        (Limits(max_cost_usd=0.0599), 5),
        (Limits(max_calls=9, max_tokens=70, max_cost_usd=0.03), 3),
    ],
)
def test_reservations_at_once_never_exceed_a_limit(database: Database, limits: Limits, fit: int) -> None:
    process = make_process(database, limits=limits)
    claims = [claimed(database, make_node(database, process)) for _ in range(16)]
    found = in_threads(16, lambda index: reserved(database, claims[index]))
    assert sum(each is not None for each in found) == fit
    assert counters(database) == (0, 0, 0, fit, 10 * fit, Decimal("0.01") * fit)
    assert (broken_invariants(database), deadlocks(database)) == ({}, 0)
    for each in found:
        if each is not None:
            settle(database, each, call())
    assert counters(database) == (fit, 10 * fit, Decimal("0.01") * fit, 0, 0, 0)


def test_calls_and_settlements_at_once_leave_exact_counters(database: Database) -> None:
    process = make_process(database, limits=Limits(max_calls=40))
    nodes = [make_node(database, process) for _ in range(8)]

    def turns(index: int) -> int:
        done = 0
        for _ in range(8):
            found = reserved(database, claimed(database, nodes[index]))
            if found is None:
                return done
            settle(database, found, call(tokens=7, cost=0.001))
            done += 1
        return done

    assert sum(in_threads(8, turns)) == 40
    assert counters(database) == (40, 280, Decimal("0.04"), 0, 0, 0)
    assert deadlocks(database) == 0


def test_what_was_not_used_is_given_back(database: Database) -> None:
    process = make_process(database, limits=Limits(max_tokens=100))
    node = make_node(database, process)
    found = reserved(database, claimed(database, node), tokens=100)
    assert found is not None
    assert reserved(database, claimed(database, make_node(database, process)), tokens=1) is None
    settle(database, found, call(tokens=30))
    assert counters(database)[1:5] == (30, Decimal("0.01"), 0, 0)
    assert reserved(database, claimed(database, node), tokens=70) is not None


@pytest.mark.parametrize(
    ("record", "calls", "tokens"),
    [
        (None, 0, 0),
        (call(0, 0.0, error_kind="transport", reached_inference=False), 0, 0),
        (call(25, 0.02, error_kind="truncated", reached_inference=True), 1, 25),
    ],
    ids=["no call", "refused before inference", "failed after inference"],
)
def test_failed_calls_count_when_they_cost_something(
    database: Database, record: CallRecord | None, calls: int, tokens: int
) -> None:
    node = make_node(database, make_process(database, limits=Limits(max_calls=5)))
    found = reserved(database, claimed(database, node))
    assert found is not None
    settle(database, found, record)
    assert counters(database)[:2] == (calls, tokens)
    assert counters(database)[3:] == (0, 0, 0)


def test_a_reservation_is_taken_over_with_its_turn(database: Database) -> None:
    node = make_node(database, make_process(database, limits=Limits(max_calls=1, max_tokens=50)))
    assert reserved(database, claimed(database, node), tokens=50) is not None
    expire_lease(database, node)
    second = claimed(database, node, owner="worker:2")
    assert second.reserved == Reservation(calls=1, tokens=50, cost_usd=0.01)
    again = reserved(database, second, tokens=40, cost=0.02)
    assert again is not None
    assert counters(database)[3:] == (1, 40, Decimal("0.02"))
    settle(database, again, call(tokens=40))
    assert counters(database)[3:] == (0, 0, 0)


def test_who_lost_the_turn_can_neither_reserve_nor_settle(database: Database) -> None:
    node = make_node(database, make_process(database, limits=Limits(max_calls=5)))
    first = claimed(database, node)
    expire_lease(database, node)
    claimed(database, node, owner="worker:2")
    assert reserved(database, first) is None
    assert counters(database)[3:] == (0, 0, 0)
    with pytest.raises(StaleTurn):
        settle(database, first, call())
    assert counters(database)[:3] == (0, 0, 0)


@pytest.mark.parametrize("how", ["taken over", "stopped"])
def test_a_lease_lost_while_the_reservation_waits_leaks_nothing(
    database: Database, database_url: str, how: str
) -> None:
    root = make_process(database, limits=Limits(max_calls=5))
    caller = make_node(database, root, "parked")
    inner = make_process(database, parent_node=caller)
    node = make_node(database, inner)
    first = claimed(database, node)
    outcome: list[Claim | None] = []
    with other_session(database_url) as session, session.transaction():
        session.execute("SELECT 1 FROM processes WHERE id = %s FOR NO KEY UPDATE", [root])
        reserving = threading.Thread(target=lambda: outcome.append(reserved(database, first)))
        reserving.start()
        eventually(lambda: value(database, WAITING) == 1, "the reservation waits for the root")
        if how == "taken over":
            expire_lease(database, node)
            claimed(database, node, owner="worker:2")
        else:
            session.execute("UPDATE nodes SET fence = fence + 1 WHERE id = %s", [node])
    reserving.join(20)
    assert outcome == [None]
    assert counters(database)[3:] == (0, 0, 0)
    assert broken_invariants(database) == {}


def test_money_is_reserved_to_the_micro_dollar_and_given_back_exactly(database: Database) -> None:
    node = make_node(database, make_process(database, limits=Limits(max_cost_usd=1.0)))
    for cost in (0.0000015, 0.1234567891, 1e-9, 0.0, 0.3, 1 / 3):
        found = reserved(database, claimed(database, node), cost=cost)
        assert found is not None
        assert float(counters(database)[5]) >= cost
        assert counters(database)[5] == Decimal(str(found.reserved.cost_usd)).quantize(Decimal("0.000001"))
        settle(database, found, call(cost=0.0))
        assert counters(database)[5] == 0


def test_stopping_a_sub_process_releases_what_it_held(database: Database) -> None:
    root = make_process(database, limits=Limits(max_calls=3))
    caller = make_node(database, root, "parked")
    inner = make_process(database, parent_node=caller)
    sibling = make_process(database, parent_node=caller)
    assert reserved(database, claimed(database, make_node(database, inner))) is not None
    assert reserved(database, claimed(database, make_node(database, sibling))) is not None
    stop(database, inner, lambda closing: {"success": False})
    assert counters(database)[3:] == (1, 10, Decimal("0.01"))
    assert broken_invariants(database) == {}


def test_a_sub_process_spends_from_its_roots_budget(database: Database) -> None:
    root = make_process(database, limits=Limits(max_calls=1))
    inner = make_process(database, parent_node=make_node(database, root, "parked"))
    node = make_node(database, inner)
    found = reserved(database, claimed(database, node))
    assert found is not None
    assert found.view.process.limits_counted
    settle(database, found, call())
    assert counters(database)[:2] == (1, 10)
    assert reserved(database, claimed(database, node)) is None


def test_nothing_is_reserved_on_a_closed_root(database: Database) -> None:
    root = make_process(database, limits=Limits(max_calls=5))
    inner = make_process(database, parent_node=make_node(database, root, "parked"))
    found = claimed(database, make_node(database, inner))
    rows(
        database,
        "UPDATE processes SET status = 'CLOSED', close_reason = 'DONE', closed_at = now() WHERE id = %(id)s",
        id=root,
    )
    assert reserved(database, found) is None
