"""The commit: every shape of its statement, all or nothing, and what happens when several arrive at once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from factory import (
    broken_invariants,
    claim,
    claimed,
    deadlocks,
    expire_lease,
    make_node,
    make_process,
    root_node,
    row,
    rows,
    value,
)
from processes import eventually
from rig import RecordingDatabase, in_threads, is_commit, other_session

from models.records import CallRecord, ChildMode, CloseReason, Limits, NodeStatus, Reason
from models.store.claim import Claim, postpone_turn, reserve_budget
from models.store.clean import Cleaner, NotStorable
from models.store.commit import BadTransition, Committed, StaleTurn, commit_turn
from models.store.database import Database
from models.store.processes import stop
from models.transition import (
    AppendMessage,
    CloseProcess,
    Effect,
    NewChild,
    PhaseNote,
    SpawnChildren,
    SpawnProcess,
    Transition,
    WriteArtifact,
    advance,
    fail,
    fan_out,
    finish,
    park,
)

NOTE = PhaseNote(phase="STEP", iteration=1, output={"n": 1})
CALL = CallRecord(
    provider="scripted", model="m", attempt=1, error_kind=None, stop_reason="stop", structured_path=None,
    input_tokens=10, output_tokens=5, cache_read_tokens=2, cache_write_tokens=1, cost_usd=0.25, latency_ms=7,
    reached_inference=True,
)  # fmt: skip
TABLES = ("processes", "nodes", "artifacts", "phase_records", "llm_calls", "messages", "results", "process_inputs")


@pytest.fixture
def database(database_url: str) -> Iterator[RecordingDatabase]:
    database = RecordingDatabase(database_url, pool_size=20)
    yield database
    database.dispose()


def close(reason: CloseReason = CloseReason.DONE) -> CloseProcess:
    return CloseProcess(reason=reason, result={"success": True, "attempts": 1}, message="done")


def children(number: int, mode: ChildMode = ChildMode.PARALLEL, *, first: int = 0) -> SpawnChildren:
    each = (NewChild(order_key=(first + n,), kind="CHILD", goal=f"g{n}", phase="STEP") for n in range(number))
    return SpawnChildren(children=tuple(each), mode=mode)


def called(engine: str = "probe") -> SpawnProcess:
    return SpawnProcess(
        id=uuid4(), key="0:0", engine=engine, recipe_name="r", recipe={"a": 1}, params={"b": [1]}, goal="g",
        first_phase="STEP", cursor={"at": 0},
    )  # fmt: skip


def going_on(effects: tuple[Effect, ...] = ()) -> Transition:
    return advance("STEP", {"at": 1}, note=NOTE, effects=effects)


def commit(database: Database, found: Claim, step: Transition, call: CallRecord | None = None) -> Committed:
    return commit_turn(database, found, step, call=call, elapsed_seconds=0.1)


def contents(database: Database) -> dict[str, list[Any]]:
    return {name: rows(database, f"SELECT to_jsonb(t)::text FROM {name} t ORDER BY 1") for name in TABLES}


# -- every shape -------------------------------------------------------------------------------------------------------

Places = Callable[[Database, Limits], int]


def in_root(database: Database, limits: Limits) -> int:
    return make_node(database, make_process(database, limits=limits))


def child_in_root(database: Database, limits: Limits) -> int:
    parent = make_node(database, make_process(database, limits=limits), "awaiting", child_mode="SEQUENTIAL")
    node = make_node(database, row_process(database, parent), parent=parent, order=0)
    make_node(database, row_process(database, parent), "queued_behind", parent=parent, order=1)
    return node


def in_sub_process(database: Database, limits: Limits) -> int:
    caller = make_node(database, make_process(database, limits=limits), "parked")
    return make_node(database, make_process(database, parent_node=caller))


def child_in_sub_process(database: Database, limits: Limits) -> int:
    top = row_process(database, in_sub_process(database, limits))
    parent = root_node(database, top)
    rows(
        database,
        "UPDATE nodes SET status = 'DONE', awaiting_post_children = true, child_mode = 'PARALLEL', due_at = NULL,"
        " next_hint_at = NULL WHERE id = %(id)s",
        id=parent,
    )
    return make_node(database, top, parent=parent)


def row_process(database: Database, node: int) -> UUID:
    return UUID(row(database, "nodes", node)["process_id"])


PLACES: dict[str, Places] = {
    "root": in_root, "child": child_in_root, "called": in_sub_process, "child of called": child_in_sub_process,
}  # fmt: skip
KINDS = ("advance", "fan_out", "call", "park", "finish", "fail")


def transition_of(kind: str, effects: tuple[Effect, ...], *, is_root_node: bool) -> Transition:
    ending = (*effects, close()) if is_root_node else effects
    match kind:
        case "advance":
            return going_on(effects)
        case "fan_out":
            return fan_out("STEP", {}, note=NOTE, children=children(2), effects=effects)
        case "call":
            return park("STEP", {}, note=NOTE, reason=Reason.CALLED, effects=(*effects, called()))
        case "park":
            return park("STEP", {}, note=NOTE, reason=Reason.ASKED, effects=effects, timeout_seconds=60)
        case "finish":
            return finish("STEP", {}, note=NOTE, effects=ending)
        case _:
            return fail("STEP", {}, note=NOTE, failure="why", effects=ending)


EXPECTED_STATUS = {
    "advance": NodeStatus.RUNNING, "fan_out": NodeStatus.DONE, "call": NodeStatus.WAITING, "park": NodeStatus.WAITING,
    "finish": NodeStatus.DONE, "fail": NodeStatus.FAILED,
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("counted", [False, True])
def test_every_shape_of_the_statement_writes_all_it_should(
    database: RecordingDatabase, place: str, counted: bool
) -> None:
    limits = Limits(max_calls=100) if counted else Limits()
    flags = itertools.product((False, True), repeat=3)
    for kind, (messages, artifacts, ledger) in itertools.product(KINDS, flags):
        node = PLACES[place](database, limits)
        found = claimed(database, node)
        if counted and ledger:
            reserved = reserve_budget(database, found, tokens=100, cost_usd=1.0)
            assert reserved is not None
            found = Claim(lease=found.lease, view=found.view, reserved=reserved)
        effects: list[Effect] = []
        effects += [AppendMessage(role="user", kind="prompt", content=text) for text in "ab"] if messages else []
        effects += [WriteArtifact(key="k", content="c")] if artifacts else []
        is_root_node = found.view.node.parent_id is None
        step = transition_of(kind, tuple(effects), is_root_node=is_root_node)
        committed = commit(database, found, step, CALL if ledger else None)

        after = row(database, "nodes", node)
        closes = is_root_node and kind in ("finish", "fail")
        assert committed.closed == closes
        assert (after["status"], after["turn"], after["lease_owner"]) == (EXPECTED_STATUS[kind], 2, None)
        assert (after["settled_at"] is not None) == (kind in ("finish", "fail"))
        assert committed.next_turn == (committed.due[0] if kind == "advance" else None)
        texts = [
            each[0] for each in rows(database, "SELECT kind FROM messages WHERE node_id = %(n)s ORDER BY id", n=node)
        ]
        assert texts == (["prompt"] * 2 if messages else []) + (["result"] if closes else [])
        for table, wanted in (("artifacts", artifacts), ("llm_calls", ledger), ("phase_records", True)):
            assert value(database, f"SELECT count(*) FROM {table} WHERE node_id = %(n)s", n=node) == int(wanted)
        root = row(database, "processes", found.lease.root_id)
        assert root["used_calls"] == int(counted and ledger)
        assert root["used_tokens"] == (18 if counted and ledger else 0)
        assert (root["reserved_calls"], root["reserved_tokens"], root["reserved_cost_usd"]) == (0, 0, 0)
    assert broken_invariants(database) == {}
    used = {sql for sql in database.sent if is_commit(sql)}
    # Finishing and failing are one shape, and so are advancing and parking; closing always has a message.
    assert len(used) == (4 * 8 if place.startswith("child") else 3 * 8 + 4)


def test_messages_keep_their_order_and_artifacts_are_replaced(database: RecordingDatabase) -> None:
    node = in_root(database, Limits())
    first = tuple(AppendMessage(role="user", kind="k", content=str(n)) for n in range(20))
    commit(database, claimed(database, node), going_on((*first, WriteArtifact(key="doc", content="one"))))
    commit(database, claimed(database, node), going_on((WriteArtifact(key="doc", content="two"),)))
    assert [each[0] for each in rows(database, "SELECT content FROM messages ORDER BY id")] == [
        str(n) for n in range(20)
    ]
    assert rows(database, "SELECT key, content FROM artifacts") == [("doc", "two")]


def test_a_called_process_inherits_what_its_caller_has(database: RecordingDatabase) -> None:
    process = make_process(database, tenant="t", project="p", priority=0)
    node = make_node(database, process)
    sub = called("other")
    committed = commit(
        database, claimed(database, node), park("S", {}, note=NOTE, reason=Reason.CALLED, effects=(sub,))
    )
    (turn,) = committed.due
    assert (turn.engine, turn.priority) == ("other", 0)
    stored = row(database, "processes", sub.id)
    assert (stored["root_id"], stored["parent_node_id"]) == (str(process), node)
    assert (stored["tenant"], stored["project"], stored["priority"], stored["status"]) == ("t", "p", 0, "INIT")
    view = claimed(database, turn.node_id).view
    assert (view.process.params, view.process.recipe, view.node.cursor) == ({"b": [1]}, {"a": 1}, {"at": 0})


# -- all or nothing ----------------------------------------------------------------------------------------------------


def full_step() -> Transition:
    effects = (AppendMessage(role="user", kind="k", content="c"), WriteArtifact(key="k", content="c"))
    return fan_out("STEP", {}, note=NOTE, children=children(3), effects=effects)


@pytest.mark.parametrize("how", ["taken over", "stopped", "committed", "postponed", "parent closed"])
def test_a_late_commit_raises_and_writes_nothing(database: RecordingDatabase, how: str) -> None:
    node = in_sub_process(database, Limits())
    found = claimed(database, node)
    process, parent = found.lease.process_id, found.lease.root_id
    match how:
        case "taken over":
            expire_lease(database, node)
            claimed(database, node, owner="worker:2")
        case "stopped":
            stop(database, process, lambda closing: {"success": False})
        case "parent closed":
            stop(database, parent, lambda closing: {"success": False})
        case "committed":
            commit(database, found, going_on())
        case "postponed":
            postpone_turn(database, found, delay_seconds=0)
    before = contents(database)
    for step in (full_step(), finish("S", {}, note=NOTE, effects=(close(),)), going_on()):
        with pytest.raises(StaleTurn):
            commit(database, found, step, CALL)
    assert contents(database) == before
    assert broken_invariants(database) == {}


def test_a_late_commit_is_accepted_when_nobody_has_claimed_since(database: RecordingDatabase) -> None:
    node = in_root(database, Limits())
    found = claimed(database, node)
    expire_lease(database, node)
    assert commit(database, found, going_on()).next_turn is not None


def test_of_the_same_commit_sent_many_times_at_once_one_lands(database: RecordingDatabase) -> None:
    node = in_root(database, Limits())
    found = claimed(database, node)

    def attempt(_: int) -> bool:
        try:
            commit(database, found, full_step(), CALL)
        except StaleTurn:
            return False
        return True

    assert sum(in_threads(8, attempt)) == 1
    assert value(database, "SELECT count(*) FROM nodes WHERE parent_id = %(n)s", n=node) == 3
    assert value(database, "SELECT count(*) FROM llm_calls") == 1
    assert broken_invariants(database) == {}


@pytest.mark.parametrize(
    "step",
    [
        finish("S", {}, note=NOTE, effects=()),
        fail("S", {}, note=NOTE, failure="x"),
        going_on((close(),)),
        going_on((children(2),)),
        going_on((called(),)),
        finish("S", {}, note=NOTE, effects=(close(), called())),
        fan_out("S", {}, note=NOTE, children=children(0)),
        replace(advance("S", {}, note=NOTE), delay_seconds=None),
        going_on((AppendMessage(role="nobody", kind="k", content="c"),)),
        fan_out("S", {}, note=NOTE, children=SpawnChildren(children=children(1).children * 2, mode=ChildMode.PARALLEL)),
        advance("S", {}, note=NOTE, delay_seconds=float("inf")),
        finish("S", {}, note=NOTE, effects=(close(), close())),
    ],
    ids=[
        "settled root without result", "failed root without result", "closes but goes on", "children nobody awaits",
        "calls but goes on", "calls but ends", "awaits no children", "never due", "unknown role", "two equal children",
        "due at infinity", "two results",
    ],
)  # fmt: skip
def test_a_transition_that_would_strand_its_process_is_refused(database: RecordingDatabase, step: Transition) -> None:
    found = claimed(database, in_root(database, Limits()))
    before = contents(database)
    with pytest.raises(BadTransition):
        commit(database, found, step)
    assert contents(database) == before


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_no_json_has_is_refused_everywhere(database: RecordingDatabase, bad: object) -> None:
    found = claimed(database, in_root(database, Limits()))
    before = contents(database)
    result = CloseProcess(reason=CloseReason.DONE, result={"x": bad}, message="")
    steps = (
        advance("S", {"x": bad}, note=NOTE),
        advance("S", {}, note=PhaseNote(phase="S", iteration=1, output=[bad])),
        finish("S", {}, note=NOTE, effects=(result,)),
        going_on().with_transport({"x": bad}),
    )
    for step in steps:
        with pytest.raises(NotStorable):
            commit(database, found, step)
    assert contents(database) == before


# -- fan-in ------------------------------------------------------------------------------------------------------------


def settle(database: Database, node: int) -> Committed:
    return commit(database, claimed(database, node), finish("S", {}, note=NOTE, effects=()))


def test_children_that_finish_at_once_wake_their_parent_once(database: RecordingDatabase) -> None:
    process = make_process(database)
    parent = make_node(database, process)
    commit(database, claimed(database, parent), fan_out("P", {}, note=NOTE, children=children(12)))
    nodes = [each[0] for each in rows(database, "SELECT id FROM nodes WHERE parent_id = %(p)s", p=parent)]
    committed = in_threads(12, lambda index: settle(database, nodes[index]))
    woken = [turn for each in committed for turn in each.due]
    assert [(turn.node_id, turn.turn) for turn in woken] == [(parent, 2)]
    after = row(database, "nodes", parent)
    assert (after["open_children"], after["awaiting_post_children"]) == (0, True)
    assert claim(database, parent) is not None
    assert (broken_invariants(database), deadlocks(database)) == ({}, 0)


def test_sequential_children_run_one_after_the_other_and_failures_do_not_stop_them(database: RecordingDatabase) -> None:
    parent = make_node(database, make_process(database))
    spawn = children(3, ChildMode.SEQUENTIAL)
    first = commit(database, claimed(database, parent), fan_out("P", {}, note=NOTE, children=spawn))
    order = [
        each[0] for each in rows(database, "SELECT id FROM nodes WHERE parent_id = %(p)s ORDER BY order_key", p=parent)
    ]
    assert [turn.node_id for turn in first.due] == order[:1]
    assert claim(database, order[1]) is None
    second = commit(database, claimed(database, order[0]), fail("S", {}, note=NOTE, failure="x"))
    assert [turn.node_id for turn in second.due] == order[1:2]
    third = settle(database, order[1])
    assert [turn.node_id for turn in third.due] == order[2:]
    assert claim(database, parent) is None
    last = settle(database, order[2])
    assert [turn.node_id for turn in last.due] == [parent]
    assert broken_invariants(database) == {}


def test_a_child_that_fans_out_keeps_its_parent_waiting(database: RecordingDatabase) -> None:
    # D15: DONE and awaiting is not settled.
    parent = make_node(database, make_process(database))
    commit(database, claimed(database, parent), fan_out("P", {}, note=NOTE, children=children(1)))
    child = value(database, "SELECT id FROM nodes WHERE parent_id = %(p)s", p=parent)
    commit(database, claimed(database, child), fan_out("P", {}, note=NOTE, children=children(1)))
    grandchild = value(database, "SELECT id FROM nodes WHERE parent_id = %(p)s", p=child)
    assert [turn.node_id for turn in settle(database, grandchild).due] == [child]
    assert claim(database, parent) is None
    assert [turn.node_id for turn in settle(database, child).due] == [parent]


def test_a_node_may_fan_out_again(database: RecordingDatabase) -> None:
    parent = make_node(database, make_process(database))
    for first in (0, 10):
        commit(database, claimed(database, parent), fan_out("P", {}, note=NOTE, children=children(2, first=first)))
        for (node,) in rows(database, "SELECT id FROM nodes WHERE parent_id = %(p)s AND settled_at IS NULL", p=parent):
            last = settle(database, node)
        assert [turn.node_id for turn in last.due] == [parent]
    assert broken_invariants(database) == {}


# -- sub-processes -----------------------------------------------------------------------------------------------------


def call_two(database: Database) -> tuple[int, list[int]]:
    caller = make_node(database, make_process(database))
    effects = (called("other"), called("other"))
    committed = commit(
        database,
        claimed(database, caller),
        park("W", {}, note=NOTE, reason=Reason.CALLED, effects=effects, timeout_seconds=60),
    )
    return caller, [turn.node_id for turn in committed.due]


def end(database: Database, node: int) -> Committed:
    return commit(database, claimed(database, node), finish("S", {}, note=NOTE, effects=(close(),)))


def test_sub_processes_that_close_at_once_wake_their_caller_once(database: RecordingDatabase) -> None:
    caller, inner = call_two(database)
    committed = in_threads(2, lambda index: end(database, inner[index]))
    woken = [turn for each in committed for turn in each.due]
    assert [(turn.node_id, turn.turn, turn.engine) for turn in woken] == [(caller, 2, "probe")]
    view = claimed(database, caller).view
    assert [call.closed for call in view.calls] == [True, True]
    assert (broken_invariants(database), deadlocks(database)) == ({}, 0)


def test_a_caller_that_waits_again_while_its_last_call_closes_is_woken_all_the_same(
    database: RecordingDatabase,
) -> None:
    caller, inner = call_two(database)
    end(database, inner[0])
    rows(database, "UPDATE nodes SET due_at = now() WHERE id = %(id)s", id=caller)
    early = claimed(database, caller)
    assert [call.closed for call in early.view.calls].count(False) == 1
    assert end(database, inner[1]).due == ()
    commit(database, early, park("W", {}, note=NOTE, reason=Reason.CALLED, effects=()))
    assert claim(database, caller) is not None
    assert broken_invariants(database) == {}


def test_a_caller_that_gave_up_is_not_disturbed(database: RecordingDatabase) -> None:
    caller, inner = call_two(database)
    rows(database, "UPDATE nodes SET due_at = now() WHERE id = %(id)s", id=caller)
    commit(database, claimed(database, caller), fail("S", {}, note=NOTE, failure="late", effects=(close(),)))
    before = row(database, "nodes", caller)
    assert end(database, inner[0]).due == ()
    after = row(database, "nodes", caller)
    assert (after["turn"], after["due_at"], after["status"]) == (before["turn"], None, "FAILED")


# -- races with a stop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [False, True])
def test_a_commit_cannot_overtake_a_stop(database: RecordingDatabase, ending: bool) -> None:
    node = in_root(database, Limits())
    found = claimed(database, node)
    step = finish("S", {}, note=NOTE, effects=(close(),)) if ending else full_step()
    outcome: list[str] = []

    def late() -> None:
        try:
            commit(database, found, step, CALL)
            outcome.append("landed")
        except StaleTurn:
            outcome.append("stale")

    thread = threading.Thread(target=late)

    def wrapper(_: Any) -> dict[str, Any]:
        # The stop holds its locks now; the commit arrives.
        thread.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        eventually(lambda: rows(database, waiting), "the commit waits for the stop")
        return {"success": False, "error": "stopped"}

    stop(database, found.lease.process_id, wrapper)
    thread.join(20)
    assert outcome == ["stale"]
    assert value(database, "SELECT wrapper ->> 'error' FROM results") == "stopped"
    assert value(database, "SELECT count(*) FROM llm_calls") == 0
    assert broken_invariants(database) == {}


def test_a_stop_waits_for_a_commit_under_way_and_closes_what_it_made(
    database: RecordingDatabase, database_url: str
) -> None:
    node = in_root(database, Limits())
    found = claimed(database, node)
    with other_session(database_url) as session, session.transaction():
        session.execute("SELECT 1 FROM nodes WHERE id = %s FOR UPDATE", [node])
        committing = threading.Thread(target=lambda: commit(database, found, full_step()))
        committing.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        eventually(lambda: value(database, waiting) == 1, "the commit waits")
        stopping = threading.Thread(target=lambda: stop(database, found.lease.process_id, lambda c: {"success": False}))
        stopping.start()
        eventually(lambda: value(database, waiting) == 2, "the stop waits")
    committing.join(20)
    stopping.join(20)
    assert value(database, "SELECT count(*) FROM nodes WHERE parent_id = %(n)s AND status = 'SKIPPED'", n=node) == 3
    assert (broken_invariants(database), deadlocks(database)) == ({}, 0)


def test_a_commit_that_others_queue_behind_waits_for_the_disk_without_its_locks(database: RecordingDatabase) -> None:
    limits = Limits(max_calls=5)
    for place, waits_apart in ((in_root, False), (child_in_root, True), (in_sub_process, True)):
        found = claimed(database, place(database, limits))
        database.sent.clear()
        commit(database, found, going_on())
        sent, *after = database.sent
        assert is_commit(sent)
        assert ("'synchronous_commit', 'off'" in sent) is waits_apart
        assert ["pg_logical_emit_message" in each for each in after] == [True] * waits_apart


def test_a_commit_that_moves_only_its_own_node_is_one_statement_in_a_tree_too(database: RecordingDatabase) -> None:
    found = claimed(database, child_in_root(database, Limits()))
    database.sent.clear()
    commit(database, found, going_on())
    (sent,) = database.sent
    assert "synchronous_commit" not in sent


def test_after_a_flush_everything_before_it_is_on_disk(database: RecordingDatabase) -> None:
    node = child_in_root(database, Limits())
    relaxed = "WITH r AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
    rows(database, f"{relaxed} UPDATE nodes SET goal = 'x' FROM r WHERE id = %(id)s", id=node)
    written = value(database, "SELECT pg_current_wal_insert_lsn()::text")
    database.flush()
    assert value(database, "SELECT pg_current_wal_flush_lsn() >= %(written)s::pg_lsn", written=written)


def test_a_commit_writes_out_only_what_its_shape_names(
    database: RecordingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumped: list[Any] = []
    dump = Cleaner.json
    monkeypatch.setattr(Cleaner, "json", lambda self, value: dumped.append(value) or dump(self, value))
    found = claimed(database, in_root(database, Limits()))
    commit(database, found, going_on())
    assert dumped == [{"at": 1}, {}, {"n": 1}]
    dumped.clear()
    said = AppendMessage(role="assistant", kind="note", content="m")
    commit(database, claimed(database, found.lease.node_id), going_on((said,)))
    assert dumped == [{"at": 1}, {}, {"n": 1}, [{"role": "assistant", "kind": "note", "content": "m"}]]
