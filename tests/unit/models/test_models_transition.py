"""The words of the domain and the values an engine returns."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from models.records import (
    BROKER_PRIORITY,
    OPEN_PROCESS,
    TERMINAL,
    CallRecord,
    ChildMode,
    CloseReason,
    Limits,
    NodeStatus,
    Priority,
    ProcessStatus,
    Reason,
    is_settled,
)
from models.store.commit_sql import Shape, statement
from models.transition import (
    AppendMessage,
    CloseProcess,
    NewChild,
    PhaseNote,
    SpawnChildren,
    Transition,
    advance,
    fail,
    fan_out,
    finish,
    park,
)

NOTE = PhaseNote(phase="S", iteration=1)
CHILDREN = SpawnChildren(children=(NewChild(order_key=(1,), kind="C", goal="g", phase="S"),), mode=ChildMode.PARALLEL)
SAID = AppendMessage(role="user", kind="k", content="c")
CLOSE = CloseProcess(reason=CloseReason.DONE, result={}, message="m")


@dataclasses.dataclass(frozen=True)
class Case:
    make: Callable[[], Transition]
    status: NodeStatus
    reason: Reason
    settled: bool
    delay: float | None


CASES = {
    "advance": Case(lambda: advance("S", {}, note=NOTE), NodeStatus.RUNNING, Reason.ADVANCED, False, 0.0),
    "advance later": Case(
        lambda: advance("S", {}, note=NOTE, delay_seconds=5.0), NodeStatus.RUNNING, Reason.ADVANCED, False, 5.0
    ),
    "park": Case(
        lambda: park("S", {}, note=NOTE, reason=Reason.ASKED, effects=()), NodeStatus.WAITING, Reason.ASKED, False, None
    ),
    "park for a while": Case(
        lambda: park("S", {}, note=NOTE, reason=Reason.CALLED, effects=(), timeout_seconds=9.0),
        NodeStatus.WAITING, Reason.CALLED, False, 9.0,
    ),
    "fan out": Case(
        lambda: fan_out("S", {}, note=NOTE, children=CHILDREN), NodeStatus.DONE, Reason.FANNED_OUT, False, None
    ),
    "finish": Case(lambda: finish("S", {}, note=NOTE, effects=()), NodeStatus.DONE, Reason.CONCLUDED, True, None),
    "fail": Case(lambda: fail("S", {}, note=NOTE, failure="f"), NodeStatus.FAILED, Reason.FAILED, True, None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_named_constructors(name: str) -> None:
    case = CASES[name]
    made = case.make()
    assert (made.status, made.reason, made.settled, made.delay_seconds) == (
        case.status, case.reason, case.settled, case.delay,
    )  # fmt: skip


def test_a_transition_is_frozen_and_carries_the_runners_notes_in_a_copy() -> None:
    made = advance("S", {"a": 1}, note=NOTE)
    noted = made.with_transport({"failures": 1})
    assert (made.transport, noted.transport) == ({}, {"failures": 1})
    assert dataclasses.replace(noted, transport={}) == made
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.phase = "T"  # type: ignore[misc]


def test_fan_out_keeps_its_other_effects_in_front() -> None:
    assert fan_out("S", {}, note=NOTE, children=CHILDREN, effects=(SAID,)).effects == (SAID, CHILDREN)


@pytest.mark.parametrize("status", NodeStatus)
def test_awaiting_is_never_settled(status: NodeStatus) -> None:
    assert not is_settled(status, True)
    assert is_settled(status, False) == (status in TERMINAL)


def test_open_and_closed_are_all_states_of_a_process() -> None:
    assert {*OPEN_PROCESS, ProcessStatus.CLOSED} == set(ProcessStatus)


def test_the_broker_serves_the_lowest_number_first() -> None:
    # C16
    assert BROKER_PRIORITY[Priority.HIGH] < BROKER_PRIORITY[Priority.NORMAL] < BROKER_PRIORITY[Priority.LOW]


@pytest.mark.parametrize(
    ("limits", "counted"),
    [
        (Limits(), False),
        (Limits(deadline_seconds=1), False),
        (Limits(max_calls=0), True),
        (Limits(max_tokens=1), True),
        (Limits(max_cost_usd=0.1), True),
    ],
)
def test_a_deadline_alone_needs_no_counter(limits: Limits, counted: bool) -> None:
    assert limits.counted == counted


def test_a_calls_tokens_are_all_its_tokens() -> None:
    call = CallRecord(
        provider="p", model="m", attempt=1, error_kind=None, stop_reason="", structured_path=None, input_tokens=1,
        output_tokens=20, cache_read_tokens=300, cache_write_tokens=4_000, cost_usd=None, latency_ms=0,
        reached_inference=True,
    )  # fmt: skip
    assert call.tokens == 4_321


PLAIN = Shape(
    settles=False, has_parent=False, closes=False, has_caller=False, counted=False, is_root=True, messages=False,
    artifacts=False, children=False, processes=False, documents=False, model=False, sibling=False, parks=False,
    asks=False, withdraws=False, ledger=False, keeps=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "lock"),
    [
        ({}, "FOR SHARE"),
        ({"closes": True, "settles": True}, "FOR NO KEY UPDATE"),
        ({"counted": True}, "FOR NO KEY UPDATE"),
        ({"children": True}, "FOR NO KEY UPDATE"),
        ({"sibling": True, "settles": True, "has_parent": True}, "FOR NO KEY UPDATE"),
        ({"asks": True, "parks": True}, "FOR NO KEY UPDATE"),
        ({"parks": True}, "FOR SHARE"),
        ({"settles": True, "has_parent": True}, "FOR SHARE"),
        ({"withdraws": True}, "FOR SHARE"),
        ({"counted": True, "is_root": False}, "FOR SHARE"),
    ],
)
def test_only_a_commit_that_moves_the_process_locks_it_alone(change: dict[str, bool], lock: str) -> None:
    # Commits of one process run side by side unless they write its row.
    sql = statement(dataclasses.replace(PLAIN, **change))
    own = sql[sql.index("p AS MATERIALIZED") : sql.index("moved AS")]
    assert lock in own
    assert ("root AS MATERIALIZED" in sql) == (change == {"counted": True, "is_root": False})


@pytest.mark.parametrize("has_caller", [True, False])
def test_every_write_of_a_commit_hangs_off_the_guarded_update(has_caller: bool) -> None:
    everything = {field.name: True for field in dataclasses.fields(Shape)} | {"has_caller": has_caller}
    text = statement(dataclasses.replace(PLAIN, **everything))
    for part in text.split(" AS (\n  INSERT INTO ")[1:]:
        own = part.split("INSERT INTO")[0]
        assert "moved" in own or "_events e JOIN webhook_endpoints" in own, part
    # What is told, of parts that do: of what was not written nothing is told.
    sources = re.findall(r"(\w+)_events AS MATERIALIZED", text)
    assert sources == ["asked", "withdrawn", *([] if has_caller else ["result"])]
    for source in sources:
        assert "moved" in text.split(f"{source} AS (\n")[1].split(f"{source}_events")[0]
