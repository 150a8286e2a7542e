"""Claims, leases and heartbeats: who may have a turn, and what the database's clock says about it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest
from factory import age, claim, claimed, expire_lease, make_node, make_process, row, rows
from processes import eventually
from rig import in_threads, other_session

from models.records import Lease, Limits
from models.store.claim import Claim, claim_turn, extend_leases, postpone_turn
from models.store.database import Database
from models.store.processes import stop, suspend
from models.store.sweep import take_back_expired


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_size=20)
    yield database
    database.dispose()


def waiting_for_a_lock(database: Database) -> bool:
    return bool(
        rows(
            database,
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
    )


def beat(database: Database, found: Claim, *, owner: str = "worker:1") -> str:
    return extend_leases(database, [found.lease], owner=owner, lease_seconds=30.0)[found.lease]


@pytest.mark.parametrize("status", ["INIT", "RUNNING", "BLOCKED"])
def test_a_due_turn_of_an_open_process_is_claimed(database: Database, status: str) -> None:
    process = make_process(database, status)
    node = make_node(database, process)
    found = claim(database, node)
    assert found is not None
    assert found.lease.process_id == process
    assert (found.view.node.status, found.view.node.losses) == ("RUNNING", 0)
    assert row(database, "processes", process)["status"] == "RUNNING"
    assert row(database, "processes", process)["started_at"] is not None


@pytest.mark.parametrize("status", ["SUSPENDED", "CLOSED"])
def test_nothing_of_a_suspended_or_closed_process_is_claimed(database: Database, status: str) -> None:
    node = make_node(database, make_process(database, status))
    assert claim(database, node) is None


@pytest.mark.parametrize(
    "state", ["delayed", "queued_behind", "leased", "parked", "awaiting", "done", "failed", "skipped"]
)
def test_a_node_that_is_not_due_or_not_free_is_not_claimed(database: Database, state: str) -> None:
    node = make_node(database, make_process(database), state)
    before = row(database, "nodes", node)
    assert claim(database, node) is None
    assert row(database, "nodes", node) == before


def test_another_turn_number_or_an_unknown_node_is_nobodys_error(database: Database) -> None:
    node = make_node(database, make_process(database))
    assert claim(database, node, turn=2) is None
    assert claim(database, node, turn=0) is None
    assert claim(database, node + 1, turn=1) is None


def test_the_due_time_decides_to_the_moment(database: Database) -> None:
    node = make_node(database, make_process(database), "delayed")
    age(database, node, 3590)
    assert claim(database, node) is None
    age(database, node, 10)
    assert claim(database, node) is not None


def test_an_expired_lease_is_taken_over_and_counted_as_a_loss(database: Database) -> None:
    node = make_node(database, make_process(database))
    first = claimed(database, node)
    assert claim(database, node, owner="worker:2") is None
    expire_lease(database, node)
    second = claimed(database, node, owner="worker:2")
    assert second.lease.fence > first.lease.fence
    assert second.view.node.losses == 1
    assert row(database, "nodes", node)["lease_owner"] == "worker:2"


def test_of_many_claims_at_once_one_succeeds(database: Database) -> None:
    node = make_node(database, make_process(database, "INIT"))
    found = in_threads(16, lambda index: claim(database, node, turn=1, owner=f"worker:{index}"))
    (won,) = [each for each in found if each is not None]
    assert row(database, "nodes", node)["fence"] == won.lease.fence


def test_the_view_carries_the_last_messages_and_the_called_processes(database: Database) -> None:
    process = make_process(database, steps=[{"say": "x"}])
    node = make_node(database, process, cursor='{"at": 1}')
    for text in ("one", "two", "three"):
        rows(
            database,
            "INSERT INTO messages (process_id, node_id, role, kind, content)"
            " VALUES (%(p)s, %(n)s, 'user', 'prompt', %(t)s)",
            p=process, n=node, t=text,
        )  # fmt: skip
    make_process(database, "CLOSED", parent_node=node)
    rows(database, "UPDATE nodes SET spawned_calls = 1 WHERE id = %(id)s", id=node)
    found = claim_turn(database, node, 1, owner="w", lease_seconds=30, history=2, nonce="n")
    assert found is not None
    assert [message.content for message in found.view.messages] == ["two", "three"]
    assert found.view.node.cursor == {"at": 1}
    assert found.view.process.params == {"steps": [{"say": "x"}]}
    (call,) = found.view.calls
    assert (call.closed, call.result, call.cursor_key) == (True, {"success": True, "attempts": 1}, "0:0")
    expire_lease(database, node)
    without = claim_turn(database, node, 1, owner="w", lease_seconds=30, history=0, nonce="n")
    assert without is not None
    assert without.view.messages == ()


def test_overdue_is_the_roots_deadline_also_for_sub_processes(database: Database) -> None:
    root = make_process(database, limits=Limits(deadline_seconds=-1))
    caller = make_node(database, root, "parked")
    inner = make_node(database, make_process(database, parent_node=caller))
    assert claimed(database, inner).view.process.overdue
    later = make_node(database, make_process(database, limits=Limits(deadline_seconds=60)))
    assert not claimed(database, later).view.process.overdue


def test_a_suspension_that_overtakes_a_claim_is_not_undone(database: Database, database_url: str) -> None:
    process = make_process(database, "INIT")
    node = make_node(database, process)
    with other_session(database_url) as session, session.transaction():
        session.execute("SELECT 1 FROM nodes WHERE id = %s FOR UPDATE", [node])
        found: list[Claim | None] = []
        thread = threading.Thread(target=lambda: found.append(claim(database, node, turn=1)))
        thread.start()
        eventually(lambda: waiting_for_a_lock(database), "the claim waits for the node")
        assert suspend(database, process)
    thread.join(20)
    assert row(database, "processes", process)["status"] == "SUSPENDED"


def test_a_claim_never_waits_for_the_process(database: Database, database_url: str) -> None:
    # A stop locks the process first and its nodes then: a claim that waited here could meet it in a deadlock.
    process = make_process(database, "INIT")
    node = make_node(database, process)
    with other_session(database_url) as session, session.transaction():
        session.execute("SELECT 1 FROM processes WHERE id = %s FOR NO KEY UPDATE", [process])
        assert claim(database, node) is not None
    assert row(database, "processes", process)["status"] == "INIT"


# -- heartbeats --------------------------------------------------------------------------------------------------------


def lease_left(database: Database, node: int) -> float:
    found = rows(
        database, "SELECT extract(epoch FROM lease_expires_at - now())::float8 FROM nodes WHERE id = %(id)s", id=node
    )
    return float(found[0][0])


def test_a_heartbeat_extends_all_leases_of_a_worker(database: Database) -> None:
    process = make_process(database)
    claims = [claimed(database, make_node(database, process, parent=None)) for _ in range(3)]
    for found in claims:
        age(database, found.lease.node_id, 25)
    states = extend_leases(database, [each.lease for each in claims], owner="worker:1", lease_seconds=30.0)
    assert set(states.values()) == {"held"}
    assert all(lease_left(database, each.lease.node_id) > 20 for each in claims)


def test_a_heartbeat_learns_what_was_lost(database: Database) -> None:
    process = make_process(database)
    node = make_node(database, process)
    found = claimed(database, node)
    assert beat(database, found) == "held"
    expire_lease(database, node)
    other = claimed(database, node, owner="worker:2")
    assert beat(database, found) == "lost"
    assert row(database, "nodes", node)["lease_owner"] == "worker:2"
    stop(database, process, lambda closing: {"success": False})
    assert beat(database, other, owner="worker:2") == "lost"
    unknown = Lease(node_id=10**9, turn=1, fence=1, process_id=UUID(int=0), root_id=UUID(int=0))
    assert extend_leases(database, [unknown], owner="w", lease_seconds=30.0) == {unknown: "lost"}


def test_a_heartbeat_learns_of_the_deadline(database: Database) -> None:
    node = make_node(database, make_process(database, limits=Limits(deadline_seconds=3600)))
    found = claimed(database, node)
    assert beat(database, found) == "held"
    rows(database, "UPDATE processes SET deadline_at = now() - interval '1 ms'")
    assert beat(database, found) == "overdue"


def test_a_worker_that_was_only_late_gets_its_lease_back(database: Database) -> None:
    # Nobody has claimed since the sweeper took it back: the running call may go on, and no second one is made.
    node = make_node(database, make_process(database))
    found = claimed(database, node)
    expire_lease(database, node)
    assert len(take_back_expired(database, batch=10)) == 1
    assert beat(database, found) == "held"
    assert claim(database, node, owner="worker:2") is None


def test_a_heartbeat_never_waits_for_a_locked_node(database: Database, database_url: str) -> None:
    process = make_process(database)
    held, locked = claimed(database, make_node(database, process)), claimed(database, make_node(database, process))
    age(database, held.lease.node_id, 25)
    with other_session(database_url) as session, session.transaction():
        session.execute("SELECT 1 FROM nodes WHERE id = %s FOR UPDATE", [locked.lease.node_id])
        states = extend_leases(database, [held.lease, locked.lease], owner="worker:1", lease_seconds=30.0)
    assert set(states.values()) == {"held"}
    assert lease_left(database, held.lease.node_id) > 20


# -- giving a turn back ------------------------------------------------------------------------------------------------


def test_a_postponed_turn_is_due_later_and_nobodys_failure(database: Database) -> None:
    node = make_node(database, make_process(database))
    assert postpone_turn(database, claimed(database, node), delay_seconds=60)
    assert claim(database, node) is None
    age(database, node, 60)
    again = claimed(database, node)
    assert (again.lease.turn, again.view.node.losses) == (1, 0)


def test_a_heartbeat_under_way_does_not_lease_a_postponed_turn_again(database: Database) -> None:
    node = make_node(database, make_process(database))
    found = claimed(database, node)
    assert postpone_turn(database, found, delay_seconds=0)
    assert beat(database, found) == "lost"
    assert row(database, "nodes", node)["lease_expires_at"] is None
    assert claim(database, node, owner="worker:2") is not None


def test_a_turn_that_was_lost_is_not_postponed(database: Database) -> None:
    node = make_node(database, make_process(database))
    found = claimed(database, node)
    expire_lease(database, node)
    other = claimed(database, node, owner="worker:2")
    assert not postpone_turn(database, found, delay_seconds=60)
    assert beat(database, other, owner="worker:2") == "held"
