"""What the sweeper finds and what it leaves alone: rows just inside and just outside; batches; two sweepers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from factory import age, claim, claimed, expire_lease, make_node, make_process, row, rows, value
from rig import in_threads, other_session

from models.records import Limits, Turn
from models.store import sweep
from models.store.commit import HINT_GRACE_SECONDS
from models.store.database import Database, Row

Repair = Callable[[Database, int], list[Turn]]


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_size=8)
    yield database
    database.dispose()


def take_back(database: Database, batch: int = 100) -> list[Turn]:
    return sweep.take_back_expired(database, batch=batch)


def republish(database: Database, batch: int = 100) -> list[Turn]:
    return sweep.republish_due(database, batch=batch)


def republish_lost(database: Database, batch: int = 100) -> list[Turn]:
    return sweep.republish_lost(database, ["probe"], batch=batch, age_seconds=2.0)


def reactivate(database: Database, batch: int = 100) -> list[Turn]:
    return sweep.reactivate_parents(database, batch=batch)


def wake_callers(database: Database, batch: int = 100) -> list[Turn]:
    return sweep.wake_callers(database, batch=batch)


def wake_overdue(database: Database, batch: int = 100) -> list[Turn]:
    return sweep.wake_overdue(database, batch=batch)


def ids(turns: list[Turn]) -> list[int]:
    return [turn.node_id for turn in turns]


# -- a row that each repair must find ----------------------------------------------------------------------------------


def expired(database: Database, process: UUID) -> int:
    node = make_node(database, process, "leased")
    expire_lease(database, node)
    return node


def unheard(database: Database, process: UUID) -> int:
    node = make_node(database, process)
    age(database, node, HINT_GRACE_SECONDS + 1)
    return node


def childless(database: Database, process: UUID) -> int:
    # The counter is wrong: only a bug or a person at the tables can do that, and the sweeper mends it.
    parent = make_node(database, process, "awaiting", open_children=1)
    make_node(database, process, "done", parent=parent)
    return parent


def called_in_vain(database: Database, process: UUID) -> int:
    caller = make_node(database, process, "parked", open_calls=1, spawned_calls=1)
    make_process(database, "CLOSED", parent_node=caller)
    return caller


def late(database: Database, process: UUID) -> int:
    rows(database, "UPDATE processes SET deadline_at = now() - interval '1 ms' WHERE id = %(id)s", id=process)
    return make_node(database, process, "parked")


REPAIRS: dict[str, tuple[Repair, Callable[[Database, UUID], int]]] = {
    "expired leases": (take_back, expired),
    "unheard hints": (republish, unheard),
    "lost hints": (republish_lost, unheard),
    "parents": (reactivate, childless),
    "callers": (wake_callers, called_in_vain),
    "overdue": (wake_overdue, late),
}


@pytest.fixture(params=REPAIRS)
def repair(request: pytest.FixtureRequest) -> tuple[Repair, Callable[[Database, UUID], int]]:
    return REPAIRS[request.param]


Repairs = tuple[Repair, Callable[[Database, UUID], int]]


def test_each_repair_finds_its_row_once_and_makes_it_claimable(database: Database, repair: Repairs) -> None:
    sweep_once, make = repair
    process = make_process(database, engine="probe", priority=0)
    node = make(database, process)
    (turn,) = sweep_once(database, 100)
    assert turn == Turn(node_id=node, turn=1, engine="probe", priority=0)
    assert sweep_once(database, 100) == []
    assert claim(database, node) is not None


@pytest.mark.parametrize("status", ["SUSPENDED", "CLOSED"])
def test_no_turn_of_a_process_that_must_not_run_is_published(database: Database, repair: Repairs, status: str) -> None:
    sweep_once, make = repair
    make(database, make_process(database, status))
    assert sweep_once(database, 100) == []


def test_a_batch_is_kept_and_the_rest_follows(database: Database, repair: Repairs) -> None:
    sweep_once, make = repair
    made = {make(database, make_process(database)) for _ in range(5)}
    seen: list[int] = []
    for expected in (2, 2, 1, 0):
        found = ids(sweep_once(database, 2))
        assert len(found) == expected
        seen += found
    assert sorted(seen) == sorted(made)


def test_sweepers_at_the_same_time_do_each_row_once(database: Database, repair: Repairs) -> None:
    # C10: two beats, or a slow sweep that meets the next.
    sweep_once, make = repair
    process = make_process(database)
    made = {make(database, process) for _ in range(40)}

    def sweep_all(_: int) -> list[int]:
        found: list[int] = []
        # Until nothing is left, and no longer: a hint that is seconds old may rightly be given again.
        while batch := ids(sweep_once(database, 7)):
            found += batch
        return found

    seen = [node for each in in_threads(3, sweep_all) for node in each]
    assert sorted(seen) == sorted(made)


def test_a_locked_row_is_left_for_the_next_sweep_and_keeps_nobody_waiting(
    database: Database, database_url: str, repair: Repairs
) -> None:
    sweep_once, make = repair
    locked, free = make(database, make_process(database)), make(database, make_process(database))
    with other_session(database_url) as session, session.transaction():
        session.execute("SELECT 1 FROM nodes WHERE id = %s FOR UPDATE", [locked])
        assert ids(sweep_once(database, 100)) == [free]
    assert ids(sweep_once(database, 100)) == [locked]


def test_one_bad_row_stops_nothing(database: Database, repair: Repairs, caplog: pytest.LogCaptureFixture) -> None:
    sweep_once, make = repair
    made = [make(database, make_process(database)) for _ in range(4)]
    bad = made[1]
    rows(
        database,
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF NEW.id = {bad} THEN RAISE EXCEPTION 'bad row'; END IF; RETURN NEW; END $$""",
    )
    rows(database, "CREATE TRIGGER refuse BEFORE UPDATE ON nodes FOR EACH ROW EXECUTE FUNCTION refuse()")
    assert sorted(ids(sweep_once(database, 100))) == sorted(set(made) - {bad})
    assert sweep_once(database, 100) == []
    assert "row by row" in caplog.text


# -- just inside, just outside -----------------------------------------------------------------------------------------


def test_a_lease_is_taken_back_only_when_it_has_run_out(database: Database) -> None:
    process = make_process(database)
    inside, outside = make_node(database, process, "leased"), make_node(database, process, "leased")
    age(database, inside, 28)
    age(database, outside, 31)
    assert ids(take_back(database)) == [outside]
    after = row(database, "nodes", outside)
    assert (after["losses"], after["lease_owner"], after["turn"]) == (1, None, 1)
    assert row(database, "nodes", inside)["losses"] == 0


def test_a_suspended_process_loses_its_lease_quietly_and_goes_on_after_the_resume(database: Database) -> None:
    node = expired(database, make_process(database, "SUSPENDED"))
    assert take_back(database) == []
    after = row(database, "nodes", node)
    assert (after["losses"], after["lease_expires_at"]) == (1, None)
    assert after["due_at"] is not None


def test_losses_are_counted_up_to_the_poison_guards(database: Database) -> None:
    process = make_process(database)
    node = make_node(database, process)
    for losses in range(1, sweep.HARD_LOSSES + 1):
        assert sweep.poisoned_processes(database, batch=10) == []
        claimed(database, node)
        expire_lease(database, node)
        assert len(take_back(database)) == 1
        assert row(database, "nodes", node)["losses"] == losses
    assert sweep.poisoned_processes(database, batch=10) == [process]


@pytest.mark.parametrize("state", ["leased", "done"])
def test_a_poisoned_node_that_is_running_or_settled_is_left_alone(database: Database, state: str) -> None:
    make_node(database, make_process(database), state, losses=sweep.HARD_LOSSES)
    assert sweep.poisoned_processes(database, batch=10) == []


@pytest.mark.parametrize("status", ["SUSPENDED", "CLOSED"])
def test_poison_in_a_process_that_does_not_run_waits(database: Database, status: str) -> None:
    make_node(database, make_process(database, status), losses=sweep.HARD_LOSSES)
    assert sweep.poisoned_processes(database, batch=10) == []


def test_a_process_with_several_poisoned_nodes_is_named_once(database: Database) -> None:
    process = make_process(database)
    for _ in range(3):
        make_node(database, process, losses=sweep.HARD_LOSSES)
    assert sweep.poisoned_processes(database, batch=10) == [process]


def test_a_hint_is_repeated_after_twice_as_long_each_time_up_to_a_bound(database: Database) -> None:
    node = make_node(database, make_process(database))
    assert republish(database) == []
    gaps = []
    for _ in range(9):
        rows(database, "UPDATE nodes SET next_hint_at = now() WHERE id = %(id)s", id=node)
        assert ids(republish(database)) == [node]
        gaps.append(value(database, "SELECT extract(epoch FROM next_hint_at - now())::float8 FROM nodes"))
    expected = [min(HINT_GRACE_SECONDS * 2**n, 300.0) for n in range(9)]
    assert gaps == pytest.approx(expected, abs=1.0)


@pytest.mark.parametrize("state", ["delayed", "leased", "parked", "awaiting", "queued_behind", "done"])
def test_what_is_not_due_or_not_free_is_not_published(database: Database, state: str) -> None:
    node = make_node(database, make_process(database), state)
    rows(database, "UPDATE nodes SET next_hint_at = now() WHERE settled_at IS NULL AND id = %(id)s", id=node)
    assert republish(database) == []
    assert republish_lost(database) == []
    assert wake_callers(database) == []
    assert wake_overdue(database) == []
    if state != "awaiting":
        assert reactivate(database) == []


def test_a_delayed_turn_is_published_when_it_is_due(database: Database) -> None:
    # C3: a retry-after of two hours is a row, not a message.
    node = make_node(database, make_process(database), "delayed")
    age(database, node, 3590)
    assert republish(database) == []
    age(database, node, 10)
    assert ids(republish(database)) == [node]


def test_lost_hints_are_those_of_empty_queues_due_for_a_moment(database: Database) -> None:
    fresh, old = make_node(database, make_process(database)), make_node(database, make_process(database))
    other = make_node(database, make_process(database, engine="other"))
    age(database, fresh, 1)
    for node in (old, other):
        age(database, node, 3)
    assert ids(republish_lost(database)) == [old]
    assert sweep.republish_lost(database, [], batch=10, age_seconds=2.0) == []
    assert row(database, "nodes", old)["hints"] == 0


@pytest.mark.parametrize("child", ["due", "delayed", "queued_behind", "leased", "parked", "awaiting"])
def test_a_parent_with_an_open_child_is_not_woken(database: Database, child: str) -> None:
    process = make_process(database)
    parent = make_node(database, process, "awaiting")
    make_node(database, process, "done", parent=parent, order=0)
    make_node(database, process, child, parent=parent, order=1)
    rows(database, "UPDATE nodes SET open_children = 0 WHERE id = %(id)s", id=parent)
    assert parent not in ids(reactivate(database))


def test_a_parent_is_woken_whatever_its_children_came_to(database: Database) -> None:
    # C12, D15: failed and skipped children are finished children.
    process = make_process(database)
    parent = make_node(database, process, "awaiting", open_children=3)
    for order, state in enumerate(("failed", "skipped", "done")):
        make_node(database, process, state, parent=parent, order=order)
    assert ids(reactivate(database)) == [parent]


def test_a_caller_with_an_open_call_is_not_woken(database: Database) -> None:
    caller = make_node(database, make_process(database), "parked")
    make_process(database, "CLOSED", parent_node=caller)
    make_process(database, parent_node=caller)
    assert wake_callers(database) == []


def test_past_the_deadline_waiting_nodes_wake_in_the_whole_tree_but_not_before(database: Database) -> None:
    root = make_process(database, limits=Limits(deadline_seconds=3600))
    caller = make_node(database, root, "parked")
    inner = make_node(database, make_process(database, parent_node=caller), "delayed")
    assert wake_overdue(database) == []
    rows(database, "UPDATE processes SET deadline_at = now() - interval '1 ms' WHERE id = %(id)s", id=root)
    assert sorted(ids(wake_overdue(database))) == [caller, inner]
    assert wake_overdue(database) == []


def test_past_the_deadline_running_calls_and_waiting_siblings_keep_their_place(database: Database) -> None:
    root = make_process(database, limits=Limits(deadline_seconds=-1))
    parent = make_node(database, root, "awaiting")
    make_node(database, root, "leased", parent=parent, order=0)
    make_node(database, root, "queued_behind", parent=parent, order=1)
    assert wake_overdue(database) == []


class Explaining(Database):
    """Has statements carried out and explained instead of answered: ``looked_at`` counts the rows of ``nodes`` read."""

    looked_at = 0.0

    def statement(self, sql: str, params: dict[str, Any]) -> list[Row]:
        todo = [super().statement(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)[0][0][0]["Plan"]]
        while todo:
            step = todo.pop()
            todo += step.get("Plans", ())
            if step.get("Relation Name") == "nodes":
                read = step["Actual Rows"] + step.get("Rows Removed by Filter", 0)
                self.looked_at += read * step["Actual Loops"]
        return []


def test_a_large_tree_is_not_walked_in_search_of_what_is_overdue(database: Database, database_url: str) -> None:
    process = make_process(database, limits=Limits(deadline_seconds=3600))
    parent = make_node(database, process, "awaiting")
    for order in range(100):
        make_node(database, process, "delayed", parent=parent, order=order)
    rows(database, "ANALYZE nodes, processes")
    explaining = Explaining(database_url, pool_size=1)
    try:
        wake_overdue(explaining)
        assert explaining.looked_at < 10
        rows(database, "UPDATE processes SET deadline_at = now() - interval '1 ms'")
        wake_overdue(explaining)
        assert explaining.looked_at >= 100, "the probe itself"
    finally:
        explaining.dispose()
