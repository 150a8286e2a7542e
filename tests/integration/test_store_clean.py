"""What PostgreSQL cannot hold is replaced or refused at the write edge, and what it can hold comes back as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from factory import claimed, new_process, root_node, rows, value

from models.records import CloseReason
from models.store import processes, read
from models.store.clean import Cleaner, NotStorable
from models.store.commit import commit_turn
from models.store.database import Database
from models.transition import AppendMessage, CloseProcess, PhaseNote, WriteArtifact, advance, finish

DIRTY = "a\x00b\ud800c\udfffd"
CLEAN = "a\ufffdb\ufffdc\ufffdd"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.dispose()


def test_nul_and_lone_surrogates_are_replaced_and_counted_everywhere(database: Database) -> None:
    # D1: a run must not die of a character.
    process = new_process(params={DIRTY: [DIRTY]}, goal=DIRTY, recipe={"r": DIRTY}, trace_context={"t": DIRTY})
    processes.submit(database, [process])
    node = root_node(database, process.id)
    found = claimed(database, node)
    assert found.view.process.params[CLEAN] == [CLEAN]
    assert found.view.process.goal == CLEAN
    effects = (AppendMessage(role="user", kind="k", content=DIRTY), WriteArtifact(key=DIRTY, content=DIRTY))
    note = PhaseNote(phase="S", iteration=1, output={DIRTY: DIRTY})
    commit_turn(database, found, advance("S", {DIRTY: DIRTY}, note=note, effects=effects), call=None, elapsed_seconds=0)
    assert value(database, "SELECT content FROM messages") == CLEAN
    assert rows(database, "SELECT key, content FROM artifacts") == [(CLEAN, CLEAN)]
    assert value(database, "SELECT replaced_characters FROM phase_records") == 21
    again = claimed(database, node)
    assert again.view.node.cursor == {CLEAN: CLEAN}
    close = CloseProcess(reason=CloseReason.DONE, result={"data": {DIRTY: DIRTY}}, message=DIRTY)
    commit_turn(database, again, finish("S", {}, note=note, effects=(close,)), call=None, elapsed_seconds=0)
    assert read.result(database, process.id) == {"data": {CLEAN: CLEAN}}


@pytest.mark.parametrize(
    "kept",
    [
        12345678901234567890123,
        -(10**300),
        0.1,
        1e308,
        5e-324,
        1.0,
        "\\u0000",
        "\\\\u0000",
        "\U0001f600 ä \ufffd",
        {"b": 1, "a": [None, True, {}]},
        "x" * 300_000,
    ],
    ids=lambda kept: repr(kept)[:20],
)
def test_everything_else_comes_back_as_it_was(database: Database, kept: Any) -> None:
    # B6: the digits of a big integer survive storage; and an escaped backslash before u0000 is no NUL.
    process = new_process(params={"kept": kept})
    processes.submit(database, [process])
    found = claimed(database, root_node(database, process.id))
    assert json.dumps(found.view.process.params["kept"]) == json.dumps(kept)
    close = CloseProcess(reason=CloseReason.DONE, result={"data": kept}, message="m")
    note = PhaseNote(phase="S", iteration=1, output=kept)
    commit_turn(database, found, finish("S", {}, note=note, effects=(close,)), call=None, elapsed_seconds=0)
    stored = read.result(database, process.id)
    assert json.dumps(stored) == json.dumps({"data": kept})
    assert value(database, "SELECT replaced_characters FROM phase_records") == 0
    # JSONB, unlike the columns of parameters and results, keeps a number's value but not its form (1e308 is 1000…).
    output = value(database, "SELECT output FROM phase_records")
    assert (float(output) if isinstance(kept, float) else output) == kept


def test_the_order_of_a_schemas_properties_survives(database: Database) -> None:
    params = {"schema": {"properties": {"z": 1, "a": 2, "m": 3}}}
    process = new_process(params=params)
    processes.submit(database, [process])
    found = claimed(database, root_node(database, process.id)).view.process.params["schema"]
    assert list(found["properties"]) == ["z", "a", "m"]


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "refused", [float("nan"), float("inf"), -float("inf"), {"a": [float("nan")]}, {1, 2}, b"x", nested(100_000)],
    ids=["nan", "inf", "-inf", "nested nan", "set", "bytes", "too deep"],
)  # fmt: skip
def test_what_no_json_text_has_is_refused(refused: Any) -> None:
    with pytest.raises(NotStorable):
        Cleaner().json(refused)


def test_a_clean_value_is_dumped_once_and_a_dirty_one_is_counted() -> None:
    cleaner = Cleaner()
    assert cleaner.json({"a": "\\u0000", "b": ("t",)}) == '{"a":"\\\\u0000","b":["t"]}'
    assert cleaner.replaced == 0
    assert cleaner.json({"a\x00": ["\x00\x00"], 1: "\ud83d"}) == '{"a\ufffd":["\ufffd\ufffd"],"1":"\ufffd"}'
    assert cleaner.replaced == 4
    assert cleaner.text("plain") == "plain"
