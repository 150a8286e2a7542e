"""Drafts: rows 136 (slug), 148 to 150."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.documents.drafts import ROOT_POSITION, Draft, DraftNode, PhaseLine, child_position, draft_of, draft_path
from engines.documents.errors import BadPath
from engines.documents.paths import check_writable, normalise_path
from engines.recipes.yamltext import YamlText

NODE = DraftNode(
    process_id="0199-ab",
    position_path="0-1-2",
    node_id="17",
    goal='Write: "A" \u2028 & {{ node.result }}\n--- \x7f\ud800',
    task_kind="WORKER",
    status="DONE",
    current_phase="VALIDATE",
    result="# Result\n---\n{{ x }}",
    counters={"reflectIter": 1, "validateIter": 2, "concludeRetries": 1},
    history=(PhaseLine(phase="SCOPE", iteration=0, model="openai:gpt"), PhaseLine(phase="CONCLUDE", iteration=1)),
)


TIME = "2026-11-30T12:00:00Z"


def committed(draft: Draft) -> str:
    """The draft with the time the commit puts in."""
    return draft.content[: draft.time_at] + TIME + draft.content[draft.time_at :]


def front(content: str) -> dict[str, object]:
    head, _, _ = content.removeprefix("---\n").partition("\n---\n")
    data = YamlText(head, "draft").data
    assert isinstance(data, dict)
    return data


def test_the_path() -> None:
    assert draft_path("p-1", "0-1-2", "Ä B!") == "_marvin-drafts/p-1/0-1-2__b.md"
    assert draft_path("p-1", "0", "!?") == "_marvin-drafts/p-1/0__untitled.md"
    long = draft_path("p-1", "0", "word " * 40).removeprefix("_marvin-drafts/p-1/0__").removesuffix(".md")
    assert len(long) <= 60
    assert long.endswith("word")


@pytest.mark.parametrize(
    ("process", "position"),
    [("", "0"), ("../x", "0"), ("p", ""), ("p", "0/1"), ("p", "0-"), ("p\n", "0"), ("p", "0\n")],
)
def test_ids_that_are_none(process: str, position: str) -> None:
    with pytest.raises(ValueError, match="no draft path"):
        draft_path(process, position, "x")


@given(st.text(), st.lists(st.lists(st.integers(0, 10**12), min_size=1, max_size=3), max_size=4))
def test_every_draft_path_is_a_normal_path_only_engines_write(goal: str, keys: list[list[int]]) -> None:
    position = ROOT_POSITION
    for key in keys:
        position = child_position(position, key)
    path = draft_path("p-1", position, goal)
    assert normalise_path(path) == path
    with pytest.raises(BadPath, match="reserved"):
        check_writable(path)


def test_positions_never_move() -> None:
    second = child_position(child_position(ROOT_POSITION, (1,)), (2,))
    assert second == "0-1-2"
    inserted = child_position("0-1", (1, 1))  # behind (1,), before (2,)
    assert inserted == "0-1-1.1"
    assert inserted != child_position("0-1-1", (1,))
    for key in ((), (-1,)):
        with pytest.raises(ValueError, match="order key"):
            child_position("0", key)


def test_positions_end_at_32_levels() -> None:
    position = ROOT_POSITION
    for _ in range(31):
        position = child_position(position, (0,))
    with pytest.raises(ValueError, match="32 levels"):
        child_position(position, (0,))


def test_the_content_shows_the_node_as_it_is_stored() -> None:
    draft = draft_of(NODE)
    assert draft is not None
    assert draft.path == "_marvin-drafts/0199-ab/0-1-2__write-a-node-result.md"
    assert draft.title == 'Write: "A" & {{ node.result }} --- \x7f\ufffd'
    assert draft.content.startswith("---\nnodeId: ")
    assert draft.content.endswith("\n---\n\n# Result\n---\n{{ x }}")
    assert front(committed(draft)) == {
        "nodeId": "17",
        "processId": "0199-ab",
        "position": "0-1-2",
        "goal": NODE.goal.replace("\ud800", "\ufffd"),
        "taskKind": "WORKER",
        "status": "DONE",
        "currentPhase": "VALIDATE",
        "reflectIter": 1,
        "validateIter": 2,
        "concludeRetries": 1,
        "completedAt": "2026-11-30T12:00:00Z",
        "phaseHistory": [
            {"phase": "SCOPE", "iteration": 0, "model": "openai:gpt"},
            {"phase": "CONCLUDE", "iteration": 1},
        ],
    }


@given(st.text())
def test_any_goal_stays_inside_its_front_matter_field(goal: str) -> None:
    draft = draft_of(replace(NODE, goal=goal, result="x"))
    assert draft is not None
    stored = "".join(
        "\ufffd" if character == "\0" or "\ud800" <= character <= "\udfff" else character for character in goal
    )
    found = front(committed(draft))
    assert found["completedAt"] == TIME
    assert found["goal"] == stored
    assert len(found) == 12


def test_a_long_history_is_cut_and_says_so() -> None:
    history = tuple(PhaseLine(phase="REFLECT", iteration=n) for n in range(60))
    draft = draft_of(replace(NODE, history=history, audit_warning="accepted at the cap"))
    assert draft is not None
    found = front(draft.content)
    assert found["phaseHistoryOmitted"] == 10
    assert found["phaseHistory"][-1] == {"phase": "REFLECT", "iteration": 59}  # type: ignore[index]
    assert found["validatorAuditWarning"] == "accepted at the cap"
    bare = draft_of(replace(NODE, history=()))
    assert bare is not None
    assert front(bare.content)["phaseHistory"] == []


@pytest.mark.parametrize(
    "node",
    [
        replace(NODE, status="FAILED"),
        replace(NODE, status="SKIPPED"),
        replace(NODE, task_kind="USER_INPUT"),
        replace(NODE, task_kind="EXPAND_FROM_DOC"),
        replace(NODE, result=None),
        replace(NODE, result=" \n"),
    ],
)
def test_no_draft_without_a_result(node: DraftNode) -> None:
    assert draft_of(node) is None


def test_a_rerun_overwrites() -> None:
    first, second = draft_of(NODE), draft_of(replace(NODE, result="better", counters={"validateIter": 2}))
    assert first is not None
    assert second is not None
    assert first.path == second.path
    assert first.content != second.content


def test_a_result_the_database_cannot_hold() -> None:
    draft = draft_of(replace(NODE, result="a\0b\ud800"))
    assert draft is not None
    assert draft.content.endswith("a\ufffdb\ufffd")
