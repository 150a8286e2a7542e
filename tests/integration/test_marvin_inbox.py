"""Marvin asks people: on the real store and runner, with a scripted model. Numbers: rows of ``design/marvin.md``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from factory import broken_invariants, claimed, row, rows, value
from plans import WEB_RESEARCH, Stage, call, closed_plan, nodes_of, straight, submit_plan, subtasks, user_text
from rig import Rig, in_threads

from engines.llm.base import LlmRequest
from models.records import InboxItem, ItemStatus
from models.store import inbox, processes, read
from models.store.inbox import Outcome
from models.store.plan import load_plan
from models.store.sweep import republish_due, wake_overdue

GOAL = "Choose a city and plan the trip"
QUESTION = {
    "type": "DECISION", "title": "Which city?", "body": "Both are fine.", "criticality": "CRITICAL",
    "payload": {"options": ["Graz", "Linz"]},
}  # fmt: skip
LINZ = {"outcome": "DECIDED", "value": {"chosen": "Linz"}}


def asks(**changes: Any) -> dict[str, Any]:
    return {"action": "NEEDS_USER_INPUT", "userInput": {**QUESTION, **changes}, "reason": "it is theirs to say"}


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    stage = Stage(database_url)
    yield stage
    stage.close()


def plays(script: dict[tuple[str, str], Any]) -> Any:
    """The answers of ``script`` by goal and phase; everything else goes straight to a conclusion."""

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        return script.get((goal, phase)) or straight(f"result of {goal}")(phase)

    return play


def pending(rig: Rig) -> list[InboxItem]:
    return inbox.items(rig.database, "default", "default")


def reply(rig: Rig, item: InboxItem, given: dict[str, Any] | None = None, by: str = "ada") -> inbox.Resolution:
    resolution = inbox.answer(rig.database, item.id, given or LINZ, by=by)
    rig.publisher.publish(resolution.due)
    return resolution


def artifacts(rig: Rig, node_id: int) -> dict[str, str]:
    return dict(rows(rig.database, "SELECT key, content FROM artifacts WHERE node_id = %(id)s", id=node_id))


def test_a_question_of_the_root_reaches_a_conclusion(stage: Stage) -> None:  # 45, 99, 101, 102, 107, 108
    rig, model = stage(plays({(GOAL, "SCOPE"): asks()}))
    process = submit_plan(rig, GOAL)
    rig.drain()
    (item,) = pending(rig)
    assert (item.process_id, item.tenant, item.project, item.owner) == (process, "default", "default", None)  # 96, 99
    assert (item.type, item.criticality, item.title, item.body) == ("DECISION", "CRITICAL", "Which city?",
                                                                    "Both are fine.")  # fmt: skip
    assert (item.originator, item.tags) == (f"marvin:{process}", ("marvin",))
    assert item.payload == QUESTION["payload"]
    assert (item.expires_at - item.created_at).total_seconds() == 604_800
    node = row(rig.database, "nodes", item.node_id)
    assert (node["kind"], node["status"], node["due_at"], node["lease_owner"]) == ("USER_INPUT", "WAITING", None, None)
    assert rig.status(process) == "BLOCKED"  # 101: by the commit itself
    assert broken_invariants(rig.database) == {}

    assert reply(rig, item).outcome is Outcome.STORED
    rig.run_next()
    assert rig.status(process) == "RUNNING"
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert nodes_of(rig, process) == [("Which city?", "USER_INPUT", "DONE")]
    kept = artifacts(rig, item.node_id)
    assert kept["result"] == "Linz"
    assert json.loads(kept["userAnswer"]) == LINZ
    assert kept["answeredBy"] == "ada"
    assert [phase for phase, _ in model.asked] == ["SCOPE", "POST_CHILDREN", "CONCLUDE", "VALIDATE"]
    for request in model.requests[1:3]:
        told = user_text(request)
        assert "Result: Linz" in told
        assert "Question: Which city?\nAnswer: Linz" in told
        assert "Answer of ada" in told
    assert wrapper["nodeCount"] == 2


@pytest.mark.parametrize("mode", ["SEQUENTIAL", "PARALLEL"])
def test_a_question_below_the_root_is_the_next_sibling(stage: Stage, mode: str) -> None:  # 97, 98, 109
    rig, model = stage(plays({(GOAL, "SCOPE"): subtasks("A", "B", "C"), ("B", "SCOPE"): asks()}))
    process = submit_plan(rig, GOAL, defaultExecutionMode=mode)
    rig.drain()
    (item,) = pending(rig)
    keys = rows(rig.database, "SELECT goal, order_key, depth FROM nodes WHERE parent_id IS NOT NULL ORDER BY order_key")
    assert keys == [("A", [0], 1), ("B", [1], 1), ("Which city?", [1, 1], 1), ("C", [2], 1)]
    asker = value(rig.database, "SELECT id FROM nodes WHERE goal = 'B'")
    assert row(rig.database, "nodes", asker)["status"] == "DONE"
    assert artifacts(rig, asker) == {"awaitingUserInputNode": str(item.node_id)}
    # 38 and 109: a sequential parent waits for the answer, a parallel one's other children do not.
    assert nodes_of(rig, process)[3] == ("C", "WORKER", "PENDING" if mode == "SEQUENTIAL" else "DONE")
    parent = row(rig.database, "nodes", value(rig.database, "SELECT id FROM nodes WHERE parent_id IS NULL"))
    assert parent["open_children"] == (2 if mode == "SEQUENTIAL" else 1)
    assert broken_invariants(rig.database) == {}
    inbox.block_waiting(rig.database, batch=10)
    assert rig.status(process) == "BLOCKED"

    reply(rig, item)
    rig.drain()
    closed_plan(rig, process)
    root = user_text(model.requests[model.asked.index(("POST_CHILDREN", GOAL))])
    assert "Result: Linz" in root  # 108
    if mode == "SEQUENTIAL":
        later = user_text(model.requests[model.asked.index(("SCOPE", "C"))])
        assert "Question: Which city?\nAnswer: Linz" in later


def test_an_asker_keeps_what_its_recipes_had_replied(stage: Stage, tmp_path: Path) -> None:  # 61
    (tmp_path / "web-research.yaml").write_text(WEB_RESEARCH)
    script = {
        (GOAL, "SCOPE"): subtasks("A"), ("A", "SCOPE"): call("web-research", "look"),
        ("look", "ANSWER"): {"text": "Linz has a river."}, ("A", "REFLECT"): asks(),
    }  # fmt: skip
    rig, model = stage(plays(script))
    process = submit_plan(rig, GOAL, recipes=tmp_path, availableRecipes=["web-research"])
    rig.drain()
    reply(rig, pending(rig)[0])
    rig.drain()
    closed_plan(rig, process)
    told = user_text(model.requests[model.asked.index(("POST_CHILDREN", GOAL))])
    assert "Linz has a river." in told
    assert "Result: Linz" in told


def test_a_question_may_be_a_planned_task(stage: Stage) -> None:  # 52, 100
    task = {"goal": "Ask Bob", "taskKind": "USER_INPUT", "taskSpec": {"type": "GUESS", "criticality": "URGENT"}}
    rig, _ = stage(plays({(GOAL, "SCOPE"): subtasks("A", task)}))
    process = submit_plan(rig, GOAL, owner=" bob ")
    rig.drain()
    (item,) = pending(rig)
    assert (item.type, item.criticality, item.title, item.owner) == ("FEEDBACK", "NORMAL", "Ask Bob", "bob")
    assert inbox.items(rig.database, "default", "default", owner="eve") == []
    refused = reply(rig, item, {"outcome": "DECIDED", "value": {"text": "me"}}, by="eve")
    assert (refused.outcome, refused.due) == (Outcome.FOREIGN, ())
    reply(rig, item, {"outcome": "DECIDED", "value": {"text": "go by train"}}, by="bob")
    rig.drain()
    closed_plan(rig, process)
    assert artifacts(rig, item.node_id)["result"] == "go by train"


@pytest.mark.parametrize(("named", "whose"), [({}, "ada"), ({"owner": "bob"}, "bob")])
def test_a_plans_questions_are_its_submitters(stage: Stage, named: dict[str, str], whose: str) -> None:
    rig, _ = stage(plays({(GOAL, "SCOPE"): asks()}))
    process = submit_plan(rig, GOAL, submitter="ada", **named)
    rig.drain()
    (item,) = pending(rig)
    assert item.owner == whose
    assert row(rig.database, "processes", process)["owner"] == "ada"
    assert reply(rig, item, by="eve").outcome is Outcome.FOREIGN
    assert reply(rig, item, by=whose).outcome is Outcome.STORED


@pytest.mark.parametrize("outcome", ["INSUFFICIENT_INFO", "UNDECIDABLE"])
def test_no_decision_fails_the_node_with_the_reason(stage: Stage, outcome: str) -> None:  # 103
    rig, model = stage(plays({(GOAL, "SCOPE"): asks()}))
    process = submit_plan(rig, GOAL)
    rig.drain()
    reply(rig, pending(rig)[0], {"outcome": outcome, "reason": "when is it?"})
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert wrapper["failedChildren"] == 1
    told = user_text(model.requests[1])
    assert f"Reason: {outcome}: when is it?" in told
    assert f"Answer: No decision ({outcome}): when is it?" in told


def test_a_dismissed_question_ends_its_node(stage: Stage) -> None:  # 106
    rig, model = stage(plays({(GOAL, "SCOPE"): asks()}))
    process = submit_plan(rig, GOAL)
    rig.drain()
    (item,) = pending(rig)
    first = inbox.dismiss(rig.database, item.id, by="ada")
    assert first.outcome is Outcome.STORED
    assert first.item is not None
    assert (first.item.status, first.item.answered_by, first.item.resolved_by) == (ItemStatus.DISMISSED, "ada", "USER")
    assert inbox.dismiss(rig.database, item.id, by="ada").outcome is Outcome.SAME
    assert reply(rig, item).outcome is Outcome.CLOSED
    rig.publisher.publish(first.due)
    rig.drain()
    closed_plan(rig, process)
    assert "Reason: the question was dismissed by ada" in user_text(model.requests[1])


def test_a_low_question_with_a_default_asks_nobody(stage: Stage) -> None:  # 105
    question = asks(criticality="low", payload={**QUESTION["payload"], "default": "Graz"})
    rig, model = stage(plays({(GOAL, "SCOPE"): question}))
    process = submit_plan(rig, GOAL)
    rig.drain()
    closed_plan(rig, process)
    assert pending(rig) == []
    (item,) = inbox.items(rig.database, "default", "default", status=None)
    assert (item.status, item.resolved_by, item.answered_by) == (
        ItemStatus.ANSWERED, "AUTO_DEFAULT", "system:auto-default",
    )  # fmt: skip
    assert item.answer == {"outcome": "DECIDED", "value": {"chosen": "Graz"}}
    assert "Answer: Graz" in user_text(model.requests[1])


def _waiting(stage: Stage, **params: Any) -> tuple[Rig, UUID, InboxItem]:
    rig, _ = stage(plays({(GOAL, "SCOPE"): asks()}))
    process = submit_plan(rig, GOAL, **params)
    rig.drain()
    (item,) = pending(rig)
    return rig, process, item


def test_the_same_answer_twice_is_one_wake_up_and_another_is_refused(stage: Stage) -> None:  # 104, D13
    rig, process, item = _waiting(stage)
    first = inbox.answer(rig.database, item.id, LINZ, by="ada")
    again = inbox.answer(rig.database, item.id, LINZ, by="bob")
    other = inbox.answer(rig.database, item.id, {"outcome": "DECIDED", "value": {"chosen": "Graz"}}, by="bob")
    assert [each.outcome for each in (first, again, other)] == [Outcome.STORED, Outcome.SAME, Outcome.OTHER]
    assert [len(each.due) for each in (first, again, other)] == [1, 0, 0]
    assert other.item is not None
    assert (other.item.answer, other.item.answered_by) == (LINZ, "ada")
    assert inbox.dismiss(rig.database, item.id, by="ada").outcome is Outcome.OTHER
    rig.publisher.publish(first.due)
    rig.publisher.publish(first.due)  # and the message comes twice
    rig.drain()
    closed_plan(rig, process)
    reasons = [each["reason"] for each in read.phase_history(rig.database, process) if each["phase"] == "ASK"]
    assert reasons == ["ASKED", "CONCLUDED"]
    # Long after: still the same, still refused.
    assert inbox.answer(rig.database, item.id, LINZ, by="ada").outcome is Outcome.SAME
    assert (
        inbox.answer(rig.database, item.id, {"outcome": "UNDECIDABLE", "reason": "x"}, by="a").outcome is Outcome.OTHER
    )


def test_two_questions_do_not_take_the_same_last_room(stage: Stage) -> None:
    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if (phase, goal) == ("SCOPE", GOAL):
            return subtasks("A", "B")
        if phase == "SCOPE":
            if goal == "A":
                # While A's model thinks, B's question takes the room that A has seen.
                other = value(rig.database, "SELECT id FROM nodes WHERE goal = 'B'")
                assert rig.runner.run("marvin", other, 1) == 1
            return {"action": "NEEDS_USER_INPUT", "reason": "theirs", "userInput": {"title": f"What of {goal}?"}}
        return straight(f"result of {goal}")(phase)

    rig, model = stage(play)
    process = submit_plan(rig, GOAL, maxTreeNodes=4, defaultExecutionMode="PARALLEL")
    rig.drain()
    (item,) = inbox.items(rig.database, "default", "default")
    assert item.title == "What of B?"
    rig.publisher.publish(inbox.dismiss(rig.database, item.id, by="ada").due)
    rig.drain()
    assert closed_plan(rig, process)["nodeCount"] == 4
    assert model.asked.count(("SCOPE", "A")) == 1  # decided again, not asked again
    assert "was not asked, because the tree is full" in user_text(model.requests[model.asked.index(("CONCLUDE", "A"))])


@pytest.mark.parametrize("swept", [False, True])
def test_an_answer_after_its_time_is_refused(stage: Stage, swept: bool) -> None:  # D13
    rig, process, item = _waiting(stage, inboxTtlSeconds=60)
    rows(rig.database, "UPDATE inbox_items SET expires_at = now() + interval '1 s' WHERE id = %(id)s", id=item.id)
    assert inbox.expire(rig.database, batch=10) == []
    rows(rig.database, "UPDATE inbox_items SET expires_at = now() WHERE id = %(id)s", id=item.id)
    if swept:
        rig.publisher.publish(inbox.expire(rig.database, batch=10))
    late = inbox.answer(rig.database, item.id, LINZ, by="ada")
    assert (late.outcome, late.due) == (Outcome.EXPIRED, ())
    if not swept:
        rig.publisher.publish(inbox.expire(rig.database, batch=10))
    assert inbox.expire(rig.database, batch=10) == []
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert "nobody answered within 60 seconds" in wrapper["result"]
    found = inbox.get(rig.database, item.id)
    assert found is not None
    assert (found.status, found.resolved_by, found.answer) == (ItemStatus.EXPIRED, "EXPIRY", None)


def test_an_answer_for_a_stopped_process_is_refused(stage: Stage) -> None:  # D13
    rig, process, item = _waiting(stage)
    processes.stop(
        rig.database, process, lambda _: {"success": False, "error": "stopped", "message": "", "nodeCount": 2}
    )
    found = inbox.get(rig.database, item.id)
    assert found is not None
    assert (found.status, found.resolved_by) == (ItemStatus.DISMISSED, "PROCESS")
    late = inbox.answer(rig.database, item.id, LINZ, by="ada")
    assert (late.outcome, late.due) == (Outcome.CLOSED, ())
    closed_plan(rig, process, "STOPPED")


def test_an_answer_whose_message_is_lost_is_found_by_the_sweeper(stage: Stage) -> None:  # D13
    rig, process, item = _waiting(stage)
    assert inbox.answer(rig.database, item.id, LINZ, by="ada").due  # never published
    rows(rig.database, "UPDATE nodes SET next_hint_at = now() WHERE id = %(id)s", id=item.node_id)
    rig.publisher.publish(republish_due(rig.database, batch=10))
    rig.drain()
    closed_plan(rig, process)


def test_many_answers_at_once_are_one(stage: Stage) -> None:
    rig, process, item = _waiting(stage)

    def give(number: int) -> inbox.Resolution:
        chosen = {"outcome": "DECIDED", "value": {"chosen": "Linz" if number % 2 else "Graz"}}
        return inbox.answer(rig.database, item.id, chosen, by=f"p{number}")

    found = in_threads(4, give)
    stored = [each for each in found if each.outcome is Outcome.STORED]
    assert len(stored) == 1
    assert sorted(each.outcome for each in found) == ["OTHER", "OTHER", "SAME", "STORED"]
    rig.publisher.publish(stored[0].due)
    rig.drain()
    closed_plan(rig, process)


def test_a_deadline_ends_the_wait_and_withdraws_the_question(stage: Stage) -> None:
    rig, process, item = _waiting(stage)
    rows(rig.database, "UPDATE processes SET deadline_at = now() WHERE id = %(id)s", id=process)
    due = wake_overdue(rig.database, batch=10)
    assert [turn.node_id for turn in due] == [item.node_id]
    rig.publisher.publish(due)
    rig.run_next()
    found = inbox.get(rig.database, item.id)
    assert found is not None
    assert found.status is ItemStatus.EXPIRED
    node = row(rig.database, "nodes", item.node_id)
    assert (node["status"], node["failure"]) == ("FAILED", "the deadline of the process has passed")
    assert inbox.answer(rig.database, item.id, LINZ, by="ada").outcome is Outcome.EXPIRED


def test_an_answer_overtakes_a_turn_that_gives_the_question_up(stage: Stage) -> None:
    rig, process, item = _waiting(stage)
    rows(rig.database, "UPDATE nodes SET due_at = now(), next_hint_at = now() WHERE id = %(id)s", id=item.node_id)
    before = claimed(rig.database, item.node_id)
    resolution = reply(rig, item)
    assert resolution.outcome is Outcome.STORED
    assert row(rig.database, "nodes", item.node_id)["fence"] == before.lease.fence + 1
    rig.drain()
    closed_plan(rig, process)
    assert artifacts(rig, item.node_id)["result"] == "Linz"


def test_the_answers_of_a_plan_are_shown_in_their_order_and_bounded(stage: Stage) -> None:
    questions = [{"goal": f"Ask {number}", "taskKind": "USER_INPUT"} for number in range(25)]
    rig, _ = stage(plays({(GOAL, "SCOPE"): subtasks(*questions)}))
    process = submit_plan(rig, GOAL, defaultExecutionMode="PARALLEL", maxParallelNodes=25)
    rig.drain()
    assert len(pending(rig)) == 25
    for item in pending(rig):
        reply(rig, item, {"outcome": "DECIDED", "value": {"text": f"answer to {item.title}"}})
    root = value(rig.database, "SELECT id FROM nodes WHERE parent_id IS NULL")
    shown = load_plan(rig.database, process, root).answers
    assert [item.title for item in shown] == [f"Ask {number}" for number in range(5, 25)]
    rig.drain()
    closed_plan(rig, process)


def test_an_unknown_question(stage: Stage) -> None:
    rig, _ = stage(plays({}))
    assert inbox.answer(rig.database, 4711, LINZ, by="ada").outcome is Outcome.UNKNOWN
    assert inbox.get(rig.database, 4711) is None
