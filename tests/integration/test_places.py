"""How many nodes of a process are at work at once: places, who gives one back, and who gets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest
from factory import (
    Step,
    broken_invariants,
    deadlocks,
    make_everything_due,
    make_node,
    make_process,
    root_node,
    row,
    rows,
    value,
)
from plans import Stage, closed_plan, straight, submit_plan, subtasks
from processes import eventually
from rig import Rig, other_session

from models.store import inbox, processes
from models.store.commit_sql import WORKING
from models.store.sweep import start_waiting
from tasks.sweeper import Sweeper

AT_WORK = f"SELECT count(*) FROM nodes WHERE {WORKING}"
WAITING = "SELECT count(*) FROM nodes WHERE waits_for_place"


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url, pool_size=8) as rig:
        yield rig


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    stage = Stage(database_url)
    yield stage
    stage.close()


def wide(rig: Rig, width: int, *each: list[Step], mode: str = "PARALLEL") -> UUID:
    """A process whose root has fanned out into ``each``."""
    process = rig.submit({"fan_out": len(each), "each": list(each), "width": width, "mode": mode}, {"finish": "all"})
    rig.run_next()
    return process


def states(rig: Rig) -> str:
    """A letter for each node below the root, by depth and order: w at work, p parked, q waits for a place, d done …"""
    found = rows(
        rig.database,
        f"""SELECT CASE WHEN waits_for_place THEN 'q' WHEN settled_at IS NOT NULL THEN 'd'
                        WHEN {WORKING} THEN 'w' WHEN status = 'WAITING' THEN 'p'
                        WHEN awaiting_post_children THEN 'a' ELSE 'n' END
              FROM nodes WHERE parent_id IS NOT NULL ORDER BY depth, parent_id, order_key""",
    )
    return "".join(each[0] for each in found)


PARK: list[Step] = [{"park": None}, {"finish": "answered"}]
WORK: list[Step] = [{"say": "working"}, {"finish": "done"}]


def test_who_waits_for_a_person_gives_the_place_to_the_next_in_the_same_commit(rig: Rig) -> None:
    wide(rig, 2, PARK, WORK, WORK, WORK)
    assert states(rig) == "wwqq"
    sent = len(rig.database.sent)
    rig.run_next()
    assert len(rig.database.sent) - sent == 3, "a claim, a commit, and the wait for the disk"
    assert states(rig) == "pwwq"
    started = rig.publisher.turns[-1]
    assert row(rig.database, "nodes", started.node_id)["goal"] == "child 2"
    rig.drain()
    assert states(rig) == "pddd"
    assert broken_invariants(rig.database) == {}


def test_who_waits_for_a_sub_process_gives_its_place_back(rig: Rig) -> None:
    call: list[Step] = [{"call": [{"park": None}, {"finish": "inner"}], "timeout": 900}, {"finish": "outer"}]
    process = wide(rig, 1, call, WORK, WORK)
    rig.drain()
    assert states(rig) == "pdd"
    make_everything_due(rig.database)
    rig.publish_due()
    rig.drain(skip_delays=True)
    assert rig.status(process) == "CLOSED"
    assert broken_invariants(rig.database) == {}


def test_who_is_woken_goes_on_at_once_and_the_next_one_waits_until_the_number_fits(rig: Rig) -> None:
    wide(rig, 1, PARK, WORK, WORK)
    rig.run_next()
    assert states(rig) == "pwq"
    # The first is woken, while the second is at work: one above the number.
    first = value(rig.database, "SELECT id FROM nodes WHERE goal = 'child 0'")
    rows(rig.database, "UPDATE nodes SET due_at = now(), next_hint_at = now() WHERE id = %(id)s", id=first)
    assert states(rig) == "wwq"
    second = value(rig.database, "SELECT id FROM nodes WHERE goal = 'child 1'")
    for turn in (1, 2):
        rig.runner.run("probe", second, turn)
    assert states(rig) == "wdq", "nobody new while somebody is above"
    assert start_waiting(rig.database, batch=10) == []
    rig.runner.run("probe", first, 2)
    assert states(rig) == "ddw"


def test_the_number_is_the_processs_and_not_each_fan_outs(rig: Rig) -> None:
    below: list[Step] = [{"fan_out": 4, "steps": WORK, "width": 3}, {"finish": "x"}]
    process = wide(rig, 3, below, below, below, WORK)
    most = 0
    while rig.publisher.turns:
        rig.run_next()
        most = max(most, value(rig.database, AT_WORK))
    assert most == 3
    assert rig.status(process) == "CLOSED"
    assert broken_invariants(rig.database) == {}


def test_what_is_begun_is_finished_before_more_is_begun(rig: Rig) -> None:
    below: list[Step] = [{"fan_out": 3, "steps": WORK, "width": 2}, {"finish": "x"}]
    wide(rig, 2, below, WORK, WORK, WORK)
    rig.run_next()
    # The place of the child that fanned out went to its own first child, the next one goes to the second.
    assert states(rig) == "awqqwqq"
    second = value(rig.database, "SELECT id FROM nodes WHERE goal = 'child 1' AND depth = 1")
    for turn in (1, 2):
        rig.runner.run("probe", second, turn)
    assert states(rig) == "adqqwwq"


def test_a_sequential_branch_keeps_one_place_from_node_to_node(rig: Rig) -> None:
    line: list[Step] = [{"fan_out": 3, "steps": WORK, "mode": "SEQUENTIAL", "width": 2}, {"finish": "x"}]
    process = wide(rig, 2, line, WORK, WORK, line)
    most = 0
    while rig.publisher.turns:
        rig.run_next()
        most = max(most, value(rig.database, AT_WORK))
    assert most == 2
    assert rig.status(process) == "CLOSED"


def test_two_fan_outs_at_the_same_moment_do_not_fill_the_same_places(rig: Rig, database_url: str) -> None:
    below: list[Step] = [{"fan_out": 9, "steps": WORK, "width": 8}, {"finish": "x"}]
    process = wide(rig, 8, below, below)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with other_session(database_url) as session, session.transaction():
        # Both statements have begun, and have seen each other's node at work, before either may write.
        session.execute("SELECT 1 FROM processes WHERE id = %s FOR UPDATE", [process])
        threads = [threading.Thread(target=rig.run_next) for _ in range(2)]
        for thread in threads:
            thread.start()
        eventually(lambda: value(rig.database, waiting) == 2, "both commits wait")
    for thread in threads:
        thread.join(20)
    assert 8 <= value(rig.database, AT_WORK) <= 9 - 1, states(rig)
    most = 0
    while rig.publisher.turns:
        rig.run_next()
        most = max(most, value(rig.database, AT_WORK))
        rig.publisher.publish(start_waiting(rig.database, batch=100))
    assert most == 8
    assert rig.status(process) == "CLOSED"
    assert (broken_invariants(rig.database), deadlocks(rig.database)) == ({}, 0)


def test_many_workers_at_once_keep_the_number_in_a_growing_tree(rig: Rig) -> None:
    leaf: list[Step] = [{"ask": "what?"}, {"finish": "leaf"}]
    branch: list[Step] = [{"ask": "how?"}, {"fan_out": 4, "steps": leaf, "width": 3}, {"finish": "branch"}]
    rig.script.add(*["so"] * 200)
    seen: list[int] = []
    rig.client.during = lambda *_: seen.append(value(rig.database, AT_WORK))
    process = wide(rig, 3, *[branch] * 6)

    def done() -> bool:
        rig.publisher.publish(start_waiting(rig.database, batch=100))
        return rig.result(process) is not None

    rig.drain_in_threads(6, until=done, timeout=60)
    # Parents that come back are above the number: they have waited long enough. Here none of them asks a model.
    assert max(seen) <= 3 + 1
    assert seen.count(3) > 10
    assert (broken_invariants(rig.database), deadlocks(rig.database)) == ({}, 0)


def test_the_sweeper_starts_what_waits_where_there_is_a_place(rig: Rig) -> None:
    process = make_process(rig.database, max_parallel=2)
    parent = make_node(rig.database, process, "awaiting")
    for order in range(4):
        make_node(rig.database, process, parent=parent, order=order)
    rows(rig.database, "UPDATE nodes SET waits_for_place = true, due_at = NULL, next_hint_at = NULL WHERE depth = 1")
    assert [turn.turn for turn in start_waiting(rig.database, batch=100)] == [1, 1]
    assert states(rig) == "wwqq"
    assert start_waiting(rig.database, batch=100) == []
    rows(rig.database, "UPDATE processes SET status = 'SUSPENDED', max_parallel = 3")
    assert start_waiting(rig.database, batch=100) == []
    rows(rig.database, "UPDATE processes SET status = 'RUNNING'")
    assert len(start_waiting(rig.database, batch=100)) == 1
    sweeper = Sweeper(
        database=rig.database, client=rig.redis, engines=rig.engines, publisher=rig.publisher,  # type: ignore[arg-type]
        deliverer=lambda _: None, batch=100,  # type: ignore[arg-type]
    )  # fmt: skip
    rows(rig.database, "UPDATE processes SET max_parallel = 4")
    assert sweeper.sweep()["waiting_started"] == 1
    assert states(rig) == "wwww"


def test_one_sweep_serves_every_process_that_waits(rig: Rig) -> None:
    for _ in range(3):
        wide(rig, 1, WORK, WORK)
        rig.publisher.turns.clear()
    rows(rig.database, "UPDATE processes SET max_parallel = 2 WHERE id <> (SELECT id FROM processes LIMIT 1)")
    woken = start_waiting(rig.database, batch=10)
    assert len({turn.node_id for turn in woken}) == 2
    assert value(rig.database, WAITING) == 1


def test_two_sweeps_and_a_commit_at_once_start_no_more_than_there_are_places(rig: Rig, database_url: str) -> None:
    wide(rig, 2, WORK, WORK, WORK, WORK)
    rows(rig.database, "UPDATE processes SET max_parallel = 3")
    with other_session(database_url) as session, session.transaction():
        session.execute("SELECT 1 FROM processes FOR UPDATE")
        assert start_waiting(rig.database, batch=10) == [], "never waits"
    assert len(start_waiting(rig.database, batch=10)) == 1
    assert value(rig.database, AT_WORK) == 3


def test_a_stop_ends_those_that_wait_too(rig: Rig) -> None:
    process = wide(rig, 1, WORK, WORK, WORK)
    processes.stop(rig.database, process, lambda _: {"success": False, "error": "stopped"})
    assert states(rig) == "ddd"
    assert start_waiting(rig.database, batch=10) == []
    assert broken_invariants(rig.database) == {}


def test_the_last_branch_at_work_that_ends_leaves_the_process_blocked(stage: Stage) -> None:
    question = {"goal": "Which?", "taskKind": "USER_INPUT"}
    rig, _ = stage(lambda phase, goal, _: subtasks(question, "A", "B") if (phase, goal) == ("SCOPE", "all")
                   else straight()(phase))  # fmt: skip
    process = submit_plan(rig, "all", defaultExecutionMode="PARALLEL", maxParallelNodes=2)
    seen = []
    while rig.publisher.turns:
        rig.run_next()
        seen.append(rig.status(process))
    # Without a sweep: by the commit of whichever was the last.
    assert states(rig) == "pdd"
    assert seen[-1] == "BLOCKED"
    assert set(seen[:-1]) == {"RUNNING"}
    (item,) = inbox.items(rig.database, "default", "default")
    rig.publisher.publish(
        inbox.answer(rig.database, item.id, {"outcome": "DECIDED", "value": {"text": "x"}}, by="a").due
    )
    rig.run_next()
    assert rig.status(process) == "RUNNING"
    rig.drain()
    closed_plan(rig, process)


def test_a_process_with_a_counted_budget_is_blocked_and_counted_by_the_same_commit(stage: Stage) -> None:
    question = {"goal": "Which?", "taskKind": "USER_INPUT"}
    rig, model = stage(lambda phase, goal, _: subtasks(question, "A") if (phase, goal) == ("SCOPE", "all")
                       else straight()(phase))  # fmt: skip
    process = submit_plan(rig, "all", defaultExecutionMode="PARALLEL", limits={"maxCalls": 50})
    rig.drain()
    found = row(rig.database, "processes", process)
    assert (found["status"], found["used_calls"], found["reserved_calls"]) == ("BLOCKED", len(model.asked), 0)


def test_a_process_is_not_blocked_while_somebody_waits_for_a_place_or_a_sub_process(rig: Rig) -> None:
    call: list[Step] = [{"call": [{"park": None}]}, {"finish": "outer"}]
    process = wide(rig, 2, PARK, call)
    rig.drain()
    node = value(rig.database, "SELECT id FROM nodes WHERE goal = 'child 0'")
    rows(
        rig.database,
        "INSERT INTO inbox_items (tenant, project, process_id, node_id, originator, type, criticality, title,"
        " body, payload,"
        " expires_at) VALUES ('default', 'default', %(p)s, %(n)s, 'x', 'FEEDBACK', 'NORMAL', 'q', '', '{}',"
        " now() + interval '1 day')",
        p=process, n=node,
    )  # fmt: skip
    assert inbox.block_waiting(rig.database, batch=10) == 0
    assert rig.status(process) == "RUNNING"


@pytest.mark.timeout(120)
def test_a_turn_costs_the_same_however_many_nodes_wait(database_url: str) -> None:
    with Rig(database_url, pool_size=1) as rig:
        few, many = (_rows_read_by_two_turns(rig, waiting) for waiting in (20, 20_000))
    assert many < 5 * max(few, 100), (few, many)


def _rows_read_by_two_turns(rig: Rig, waiting: int) -> int:
    """Index entries and table rows read while a node says something, parks, and hands its place on."""
    process = rig.submit({"fan_out": 2, "steps": [{"say": "x"}, {"park": None}], "width": 2})
    rig.run_next()
    root = root_node(rig.database, process)
    rows(
        rig.database,
        "INSERT INTO nodes (process_id, parent_id, order_key, depth, kind, goal, phase, waits_for_place)"
        " SELECT %(p)s, %(root)s, ARRAY[1000 + n], 1, 'CHILD', '', 'STEP', true FROM generate_series(1, %(n)s) n",
        p=process, root=root, n=waiting,
    )  # fmt: skip
    rows(rig.database, "ANALYZE nodes")
    node = value(rig.database, "SELECT id FROM nodes WHERE parent_id = %(root)s AND goal = 'child 0'", root=root)
    before = _rows_read(rig)
    for turn in (1, 2):
        assert rig.runner.run("probe", node, turn) == 1
    after = _rows_read(rig)
    assert value(rig.database, f"{AT_WORK} AND process_id = %(p)s", p=process) == 2
    rig.publisher.turns.clear()
    return after - before


def _rows_read(rig: Rig) -> int:
    rows(rig.database, "SELECT pg_stat_force_next_flush()")
    return int(
        value(
            rig.database,
            "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)"
            " + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname = 'nodes')",
        )
    )
