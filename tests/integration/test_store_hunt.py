"""Everything at once on the same trees, at random: no deadlock, no lost counter, every process closed exactly once.

The trees call sub-processes three deep, fan out, share budgets; workers lose leases and come back; people stop,
suspend and resume; two sweepers sweep. A seed decides what each thread does, and the tables are judged at the end.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from factory import PROBE, broken_invariants, deadlocks, new_process, rows, value
from rig import in_threads

from models.records import CallRecord, ChildMode, CloseReason, Limits, Reason
from models.store import processes, sweep
from models.store.claim import Claim, claim_turn, extend_leases, postpone_turn, reserve_budget
from models.store.commit import StaleTurn, commit_turn
from models.store.database import Database
from models.store.processes import Closing
from models.transition import (
    AppendMessage,
    CloseProcess,
    Effect,
    NewChild,
    PhaseNote,
    SpawnChildren,
    SpawnProcess,
    Transition,
    advance,
    fail,
    fan_out,
    finish,
    park,
)

WORKERS = 8
ROUNDS = 150
LEASE = 0.1
NOTE = PhaseNote(phase="S", iteration=1)
CALL = CallRecord(
    provider="p", model="m", attempt=1, error_kind=None, stop_reason="stop", structured_path=None, input_tokens=3,
    output_tokens=1, cache_read_tokens=0, cache_write_tokens=0, cost_usd=0.001, latency_ms=1, reached_inference=True,
)  # fmt: skip


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_size=24, pool_timeout=60)
    yield database
    database.dispose()


def wrapper(closing: Closing) -> dict[str, Any]:
    return PROBE.wrapper(closing.cursor, error="stopped", message="m")


def decide(found: Claim, dice: random.Random, *, ending: bool) -> Transition:
    """A random legal transition; ``ending`` only settles."""
    view = found.view
    depth = view.node.depth
    said: tuple[Effect, ...] = (AppendMessage(role="assistant", kind="k", content="x"),)
    if any(not call.closed for call in view.calls):
        return park("S", {}, note=NOTE, reason=Reason.CALLED, effects=(), timeout_seconds=0.05)
    roll = 1.0 if ending else dice.random()
    if roll < 0.25:
        return advance("S", {}, note=NOTE, effects=said, delay_seconds=dice.choice((0.0, 0.0, 0.01)))
    if roll < 0.45 and depth < 2:
        first = view.node.turn * 10
        children = tuple(
            NewChild(order_key=(first + n,), kind="C", goal="", phase="S") for n in range(dice.randint(1, 3))
        )
        spawn = SpawnChildren(children=children, mode=dice.choice(tuple(ChildMode)))
        return fan_out("S", {}, note=NOTE, children=spawn)
    if roll < 0.6 and view.process.params["depth"] < 3:
        called = tuple(
            SpawnProcess(
                id=uuid4(), key=f"{view.node.turn}:{n}", engine="probe", recipe_name="r", recipe={},
                params={"depth": view.process.params["depth"] + 1}, goal="", first_phase="S",
            )
            for n in range(dice.randint(1, 2))
        )  # fmt: skip
        return park("S", {}, note=NOTE, reason=Reason.CALLED, effects=called, timeout_seconds=dice.choice((None, 0.02)))
    if view.node.parent_id is not None:
        return dice.choice((finish("S", {}, note=NOTE, effects=said), fail("S", {}, note=NOTE, failure="f")))
    close = CloseProcess(reason=CloseReason.DONE, result={"success": True}, message="done")
    return finish("S", {}, note=NOTE, effects=(*said, close))


def work(database: Database, dice: random.Random, owner: str, *, ending: bool) -> bool:
    """One random due turn, from claim to commit, with the accidents that happen to workers."""
    due = rows(
        database,
        "SELECT n.id, n.turn FROM nodes n JOIN processes p ON p.id = n.process_id"
        " WHERE n.due_at <= now() AND (n.lease_expires_at IS NULL OR n.lease_expires_at < now())"
        " AND p.status IN ('INIT', 'RUNNING') ORDER BY random() LIMIT 1",
    )
    if not due:
        return False
    node, turn = due[0]
    found = claim_turn(database, node, turn, owner=owner, lease_seconds=LEASE, history=2, nonce="n")
    if found is None:
        return True
    call: CallRecord | None = None
    if found.view.process.limits_counted and dice.random() < 0.7:
        reserved = reserve_budget(database, found, tokens=10, cost_usd=0.01)
        if reserved is not None:
            found = replace(found, reserved=reserved)
            call = CALL
    accident = 1.0 if ending else dice.random()
    if accident < 0.08:
        return True  # died: the lease has to run out
    if accident < 0.16:
        rows(
            database,
            "UPDATE nodes SET lease_expires_at = now() - interval '1 ms'"
            " WHERE id = %(id)s AND lease_owner IS NOT NULL AND settled_at IS NULL",
            id=node,
        )  # paused; others may take over before the commit below
    elif accident < 0.22:
        postpone_turn(database, found, delay_seconds=0.01)
        return True
    extend_leases(database, [found.lease], owner=owner, lease_seconds=LEASE)
    with suppress(StaleTurn):
        commit_turn(database, found, decide(found, dice, ending=ending), call=call, elapsed_seconds=0.0)
    return True


def meddle(database: Database, dice: random.Random, known: list[UUID]) -> None:
    """A person or a sweeper."""
    some = rows(database, "SELECT id FROM processes WHERE status <> 'CLOSED' ORDER BY random() LIMIT 1")
    target = some[0][0] if some else dice.choice(known)
    match dice.randint(0, 9):
        case 0 if dice.random() < 0.15:
            processes.stop(database, target, wrapper)
        case 1:
            processes.suspend(database, target, abort_running=dice.random() < 0.5)
        case 2 | 3 | 4:
            held = rows(database, "SELECT id FROM processes WHERE status = 'SUSPENDED' ORDER BY random() LIMIT 1")
            processes.resume(database, held[0][0] if held else target)
        case 5:
            sweep.take_back_expired(database, batch=5)
        case 6:
            sweep.reactivate_parents(database, batch=5)
            sweep.wake_callers(database, batch=5)
        case 7:
            sweep.republish_due(database, batch=5)
            sweep.republish_lost(database, ["probe"], batch=5, age_seconds=0.01)
        case 8:
            sweep.wake_overdue(database, batch=5)
        case _:
            late = processes.undelivered(database, batch=5)
            processes.mark_delivered(database, [each.process_id for each in late])


def finish_everything(database: Database, dice: random.Random) -> None:
    """What is left ends by itself, given turns and sweeps."""
    deadline = time.monotonic() + 60
    while value(database, "SELECT count(*) FROM processes WHERE status <> 'CLOSED'"):
        assert time.monotonic() < deadline, rows(
            database, "SELECT to_jsonb(n) - 'cursor' FROM nodes n WHERE settled_at IS NULL LIMIT 5"
        )
        for (process,) in rows(database, "SELECT id FROM processes WHERE status = 'SUSPENDED'"):
            processes.resume(database, process)
        rows(database, "UPDATE nodes SET lease_expires_at = now() - interval '1 ms' WHERE lease_owner IS NOT NULL")
        sweep.take_back_expired(database, batch=1000)
        in_threads(4, lambda index: [work(database, random.Random(index), f"w{index}", ending=True) for _ in range(20)])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_at_random_everything_at_once(database: Database, seed: int) -> None:
    limits = (
        Limits(),
        Limits(max_calls=50, deadline_seconds=3600),
        Limits(max_tokens=500),
        Limits(deadline_seconds=0.3),
    )
    known: list[UUID] = []

    def submit_more(dice: random.Random) -> None:
        batch = [new_process(limits=dice.choice(limits), params={"depth": 0}) for _ in range(2)]
        processes.submit(database, batch)
        known.extend(process.id for process in batch)

    submit_more(random.Random(seed))
    stop = threading.Event()

    def act(index: int) -> None:
        dice = random.Random(seed * 100 + index)
        for _ in range(ROUNDS):
            if index < WORKERS:
                if not work(database, dice, f"w{index}", ending=False) and len(known) < 200:
                    submit_more(dice)
            else:
                meddle(database, dice, known)
            if stop.is_set():
                return

    try:
        in_threads(WORKERS + 3, act)
    finally:
        stop.set()
    assert deadlocks(database) == 0
    assert broken_invariants(database) == {}
    finish_everything(database, random.Random(seed))
    assert deadlocks(database) == 0
    assert broken_invariants(database) == {}
    assert value(database, "SELECT count(*) FROM phase_records") > ROUNDS
    assert value(database, "SELECT count(*) FROM results") == value(database, "SELECT count(*) FROM processes")
    spent = (
        "SELECT count(*), coalesce(sum(input_tokens + output_tokens), 0)::bigint FROM llm_calls WHERE root_id = %(r)s"
    )
    for process in known:
        ((calls, tokens),) = rows(database, spent, r=process)
        ((used_calls, used_tokens, held, counted, max_calls, max_tokens),) = rows(
            database,
            "SELECT used_calls, used_tokens, reserved_calls, coalesce(max_calls, max_tokens) IS NOT NULL, max_calls,"
            " max_tokens FROM processes WHERE id = %(id)s",
            id=process,
        )
        if counted:
            assert (used_calls, used_tokens, held) == (calls, tokens, 0)
            assert max_calls is None or used_calls <= max_calls
            assert max_tokens is None or used_tokens <= max_tokens
