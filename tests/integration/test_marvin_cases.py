"""Marvin on the real store and runner: what has gone wrong for people with software of this kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from factory import claimed, expire_lease, make_node, make_process, row, rows, value
from plans import WEB_RESEARCH, Stage, call, closed_plan, nodes_of, straight, submit_plan, subtasks, user_text

from engines.llm.base import LlmRequest
from models.ages import Ages
from models.store import documents, inbox, processes, read
from models.store.commit import StaleTurn, commit_turn
from models.store.plan import tree
from models.store.retention import delete_old
from models.store.sweep import (
    reactivate_parents,
    republish_due,
    start_waiting,
    take_back_expired,
    wake_callers,
)
from models.transition import PhaseNote, advance
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare
from tasks.sweeper import Sweeper

GOAL = "Research nuclear power and write a report."


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    stage = Stage(database_url)
    yield stage
    stage.close()


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    (tmp_path / "web-research.yaml").write_text(WEB_RESEARCH)
    return tmp_path


def plays(script: dict[tuple[str, str], Any]) -> Any:
    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        return script.get((goal, phase)) or straight(f"result of {goal}")(phase)

    return play


def test_a_submission_is_one_pending_worker_and_one_wake_up(stage: Stage) -> None:
    rig, _ = stage(plays({}))
    submitted = prepare(parse_submission({"recipe": "marvin", "goal": GOAL}), load_settings({}), rig.engines)
    (turn,) = processes.submit(rig.database, [submitted])
    found = row(rig.database, "nodes", turn.node_id)
    assert (found["kind"], found["status"], found["phase"], found["depth"]) == ("WORKER", "PENDING", "SCOPE", 0)
    assert value(rig.database, "SELECT count(*) FROM nodes") == 1
    assert processes.submit(rig.database, [submitted]) == []


def test_in_a_process_without_nodes_nothing_is_to_be_done(stage: Stage) -> None:
    rig, _ = stage(plays({}))
    process = make_process(rig.database, "RUNNING")
    assert tree(rig.database, process) is None
    for repair in (take_back_expired, reactivate_parents, start_waiting, wake_callers, republish_due):
        assert repair(rig.database, batch=10) == []


def test_a_node_that_is_done_and_awaits_nobody_is_never_woken(stage: Stage) -> None:
    rig, _ = stage(plays({}))
    process = make_process(rig.database, "RUNNING")
    root = make_node(rig.database, process, "awaiting")
    make_node(rig.database, process, "done", parent=root)
    other = make_node(rig.database, process, "done", parent=root, order=1)
    assert [turn.node_id for turn in reactivate_parents(rig.database, batch=10)] == [root]
    assert row(rig.database, "nodes", other)["due_at"] is None


def test_a_called_recipe_runs_as_itself_and_keeps_its_whole_reply(stage: Stage, recipes: Path) -> None:
    whole = "".join(random.Random(1).choices("abcdefgh ", k=2_000_000))
    rig, model = stage(plays({(GOAL, "SCOPE"): call("web-research", "look"), ("look", "ANSWER"): {"text": whole}}))
    process = submit_plan(rig, GOAL, recipes=recipes, availableRecipes=["web-research"], recipeReplyTruncateChars=500)
    rig.drain()
    closed_plan(rig, process)
    asked = next(request for (phase, _), request in zip(model.asked, model.requests, strict=True) if phase == "ANSWER")
    said = "\n".join(message.content for message in asked.messages)
    assert user_text(asked) == "look"
    for word in ("CALL_RECIPE", "NEEDS_SUBTASKS", "LIVE PLAN", GOAL):
        assert word not in said
    reflect = user_text(model.requests[model.asked.index(("REFLECT", GOAL))])
    assert "[truncated at 500 of " in reflect
    assert len(reflect) < 20_000
    called = value(rig.database, "SELECT id FROM processes WHERE parent_node_id IS NOT NULL")
    kept = read.messages(rig.database, called)[-1]
    assert (kept["kind"], whole in kept["content"]) == ("result", True)
    # The reply found its caller, and from the sub-process one finds the node.
    caller = value(rig.database, "SELECT parent_node_id FROM processes WHERE id = %(id)s", id=called)
    assert row(rig.database, "nodes", caller)["process_id"] == str(process)


def test_each_call_leaves_a_record_with_model_tokens_and_time(stage: Stage) -> None:
    rig, _ = stage(plays({(GOAL, "SCOPE"): subtasks("A")}))
    process = submit_plan(rig, GOAL)
    rig.drain()
    closed_plan(rig, process)
    records = read.phase_history(rig.database, process)
    calls = read.calls(rig.database, process)
    assert len(records) == len(calls) == 7
    by_turn = {(each["node_id"], each["turn"]): each for each in calls}
    for record in records:
        paid = by_turn[record["node_id"], record["turn"]]
        assert (record["model"], record["cost_usd"]) == (paid["model"], paid["cost_usd"])
        assert record["tokens"] == paid["input_tokens"] + paid["output_tokens"] > 0
        assert record["started_at"] <= record["created_at"] <= datetime.now(UTC)
        assert record["output"]
    assert {record["iteration"] for record in records} == {1}


def test_a_null_character_in_an_answer_of_a_model_or_a_person_ends_nothing(stage: Stage) -> None:
    question = {"goal": "Which?", "taskKind": "USER_INPUT"}
    script = {
        (GOAL, "SCOPE"): subtasks("A", question),
        ("A", "CONCLUDE"): '{"result": "a\\u0000b", "reason": "x", "k\\u0000": 1}',
    }
    rig, _ = stage(plays(script))
    process = submit_plan(rig, GOAL)
    rig.drain()
    (item,) = inbox.items(rig.database, "default", "default")
    given = {"outcome": "DECIDED", "value": {"text": "c\0d"}}
    rig.publisher.publish(inbox.answer(rig.database, item.id, given, by="a\0da").due)
    rig.drain()
    closed_plan(rig, process)
    found = dict(rows(rig.database, "SELECT n.goal, a.content FROM nodes n JOIN artifacts a ON a.node_id = n.id"
                                    " WHERE a.key = 'result'"))  # fmt: skip
    assert found["A"] == "a\ufffdb"
    assert found["Which?"] == "c\ufffdd"
    assert sum(each["replaced_characters"] for each in read.phase_history(rig.database, process)) >= 1


def test_a_parent_that_loses_its_worker_sees_the_same_failure_and_restarts_no_child(stage: Stage) -> None:
    script = {
        (GOAL, "SCOPE"): subtasks("A", "B"),
        ("B", "SCOPE"): {"action": "BLOCKED_BY_PROBLEM", "problem": "no source", "reason": "x"},
    }
    rig, model = stage(plays(script))
    process = submit_plan(rig, GOAL)
    while ("SCOPE", "B") not in model.asked:
        rig.run_next()
    root = value(rig.database, "SELECT id FROM nodes WHERE parent_id IS NULL")
    claimed(rig.database, root)
    expire_lease(rig.database, root)
    rig.publisher.turns.clear()
    before = rows(rig.database, "SELECT goal, status, turn, failure FROM nodes WHERE parent_id IS NOT NULL ORDER BY 1")
    rig.publisher.publish(take_back_expired(rig.database, batch=10))
    rig.drain()
    closed_plan(rig, process)
    assert "Reason: no source" in user_text(model.requests[model.asked.index(("POST_CHILDREN", GOAL))])
    after = rows(rig.database, "SELECT goal, status, turn, failure FROM nodes WHERE parent_id IS NOT NULL ORDER BY 1")
    assert after == before
    assert model.asked.count(("SCOPE", "A")) == model.asked.count(("SCOPE", "B")) == 1


LIST = "---\nkind: list\n---\n- water\n- roads\n"


def test_a_document_that_changes_while_it_is_fanned_out_gives_its_children_once(stage: Stage) -> None:
    task = {
        "goal": "All chapters", "taskKind": "EXPAND_FROM_DOC",
        "taskSpec": {"documentRef": {"path": "outline.md"}, "childTemplate": {"goal": "On {{ item.text }}"}},
    }  # fmt: skip
    rig, _ = stage(plays({(GOAL, "SCOPE"): subtasks(task)}))
    documents.put(rig.database, "default", "default", "outline.md", LIST)
    process = submit_plan(rig, GOAL)
    rig.run_next()
    node = value(rig.database, "SELECT id FROM nodes WHERE kind = 'EXPAND_FROM_DOC'")
    # A worker has read the list and hangs; the list changes, another worker does the turn, and the first comes back.
    hanging = claimed(rig.database, node)
    expire_lease(rig.database, node)
    documents.put(rig.database, "default", "default", "outline.md", LIST + "- rail\n")
    rig.publisher.turns.clear()
    rig.publisher.publish(take_back_expired(rig.database, batch=10))
    rig.run_next()
    late = advance("EXPAND", {}, note=PhaseNote(phase="EXPAND", iteration=1))
    with pytest.raises(StaleTurn):
        commit_turn(rig.database, hanging, late, call=None, elapsed_seconds=0.0)
    documents.put(rig.database, "default", "default", "outline.md", LIST + "- air\n")
    rig.drain()
    closed_plan(rig, process)
    assert [goal for goal, kind, _ in nodes_of(rig, process) if kind == "WORKER"] == ["On water", "On roads", "On rail"]


def test_what_a_plan_stores_grows_with_its_texts_and_no_faster(stage: Stage) -> None:
    # Texts that do not compress, so that what is stored is what was written.
    dice = random.Random(7)
    text = "".join(chr(dice.randrange(0x4E00, 0x9FA5)) for _ in range(4_000))

    def stored(children: int) -> int:
        rig, _ = stage(plays({(GOAL, "SCOPE"): subtasks(*(f"part {number}" for number in range(children)))}
                             | {(f"part {number}", "CONCLUDE"): {"result": f"{number} {text}", "reason": "x"}
                                for number in range(children)}))  # fmt: skip
        before = size(rig)
        process = submit_plan(rig, GOAL)
        rig.drain()
        closed_plan(rig, process)
        return size(rig) - before

    def size(rig: Any) -> int:
        parts = {
            "artifacts": "content", "documents": "content", "document_versions": "content", "messages": "content",
            "phase_records": "output::text", "nodes": "cursor::text", "results": "wrapper::text",
        }  # fmt: skip
        sums = (f"SELECT coalesce(sum(octet_length({column})), 0) AS n FROM {name}" for name, column in parts.items())
        return int(value(rig.database, f"SELECT sum(n) FROM ({' UNION ALL '.join(sums)}) each"))

    few, many = stored(5), stored(20)
    written = 20 * len(text.encode())
    assert many < 4.2 * few, "in step with the number of nodes"
    # The result, its draft in its only version, and the record of the turn that wrote it.
    assert many < 4.5 * written


def test_old_processes_are_pruned_and_open_ones_never(stage: Stage, recipes: Path) -> None:
    script = {
        (GOAL, "SCOPE"): subtasks("A"), ("A", "SCOPE"): call("web-research", "look"),
        ("look", "ANSWER"): {"text": "found"},
    }  # fmt: skip
    rig, _ = stage(plays(script))
    documents.put(rig.database, "default", "default", "kept.md", "text")
    done = submit_plan(rig, GOAL, recipes=recipes, availableRecipes=["web-research"])
    rig.drain()
    closed_plan(rig, done)
    open_plan = submit_plan(rig, GOAL, recipes=recipes)
    rig.run_next()
    assert row(rig.database, "nodes", value(rig.database, "SELECT max(id) FROM nodes WHERE parent_id IS NULL"))[
        "awaiting_post_children"
    ]
    rows(rig.database, "UPDATE processes SET created_at = created_at - interval '40 days',"
                       " closed_at = closed_at - interval '40 days'")  # fmt: skip
    assert delete_old(rig.database, Ages(keep=30)) == 0, "nobody has been given the result yet"
    processes.mark_delivered(rig.database, [done])
    assert delete_old(rig.database, Ages(keep=60)) == 0
    now = [0.0]
    sweeper = Sweeper(
        database=rig.database, client=rig.redis, engines=rig.engines, publisher=rig.publisher,  # type: ignore[arg-type]
        deliverer=lambda _: None, batch=10, ages=Ages(keep=30), clock=lambda: now[0],  # type: ignore[arg-type]
    )  # fmt: skip
    assert sweeper.sweep()["pruned"] == 1
    assert "pruned" not in sweeper.sweep()
    assert rows(rig.database, "SELECT id FROM processes") == [(open_plan,)]
    left = {name: value(rig.database, f"SELECT count(*) FROM {name}") for name in ("nodes", "results", "llm_calls")}
    assert left == {"nodes": 2, "results": 0, "llm_calls": 1}
    assert documents.get(rig.database, "default", "default", "kept.md") is not None
