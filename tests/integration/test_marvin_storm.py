"""Random models, several workers that die, on the real store: every plan ends, and everything in it once."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factory import deadlocks, expire_lease, rows, value
from plans import WEB_RESEARCH, Stage, broken_plan_invariants, submit_plan

from engines.inbox.answers import parse_answer
from engines.inbox.words import InputType
from engines.llm.base import ErrorKind, LlmError, LlmRequest
from models.records import InboxItem
from models.store import documents, inbox, read
from models.store.sweep import reactivate_parents, republish_due, start_waiting, take_back_expired, wake_callers

KINDS = ("WORKER", "WORKER", "WORKER", "EXPAND_FROM_DOC", "USER_INPUT")


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    stage = Stage(database_url)
    yield stage
    stage.close()


def whims(seed: int) -> Any:
    """A model that does anything a model may do, and much that it may not; the same for the same question."""

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        said = "".join(message.content for message in request.messages)
        dice = random.Random(zlib.crc32(f"{seed}{phase}{said}".encode()))
        if phase == "SCOPE" and goal.startswith("goal"):
            return {"action": "NEEDS_SUBTASKS", "newTasks": [_task(dice) for _ in range(5)], "reason": "so"}
        if dice.random() < 0.06:
            return dice.choice(["no json", "", '{"action": "JUMP"}', LlmError(ErrorKind.BAD_REQUEST, "no"), {"a": 1}])
        if phase == "ANSWER":
            return {"text": goal[:40]}
        if phase == "VALIDATE":
            verdicts = ("PASS", "PASS", "PASS", "RETRY_CONCLUDE", "NEED_MORE_DATA", "HARD_FAIL")
            return {"verdict": dice.choice(verdicts), "issues": ["meh"], "reason": "so"}
        if phase == "CONCLUDE":
            path = f"out/{dice.randrange(4)}.md"
            action = {"tool": "doc_write", "args": {"path": path, "kind": "text", "content": "{{ node.goal }}"}}
            return {"result": f"# {goal}", "postActions": [action] * dice.randrange(3), "reason": "so"}
        action = dice.choice(["PROCEED_TO_CONCLUDE", "NEEDS_SUBTASKS", "NEEDS_SUBTASKS", "CALL_RECIPE", "BLOCKED"])
        if phase == "POST_CHILDREN" and action == "CALL_RECIPE":
            action = "PROCEED_TO_CONCLUDE"
        if action == "BLOCKED":
            return {"action": "BLOCKED_BY_PROBLEM", "problem": "no way", "reason": "so"}
        return {
            "action": action,
            "recipeCall": {
                "recipe": dice.choice(["web-research", "marvin", "x"]),
                "steerContent": f"look {dice.random()}",
            },
            "newTasks": [_task(dice) for _ in range(dice.randrange(1, 5))],
            "reason": "so",
        }

    return play


def _task(dice: random.Random) -> dict[str, Any]:
    kind = dice.choice(KINDS)
    spec: dict[str, Any] = {"executionMode": dice.choice(["PARALLEL", "SEQUENTIAL"])}
    if kind == "EXPAND_FROM_DOC":
        template = {"goal": "{{ item.text }} " + str(dice.randrange(100))}
        spec |= {"documentRef": {"path": dice.choice(["list.md", "none.md"])}, "childTemplate": template}
    return {"goal": f"task {dice.randrange(1_000_000)}", "taskKind": kind, "taskSpec": spec}


def answer_to(item: InboxItem) -> dict[str, Any]:
    """What the inbox keeps of a person's answer, checked as every face checks it."""
    raw = {"outcome": "UNDECIDABLE", "reason": "cannot say"} if item.id % 2 else {"text": "yes"}
    return parse_answer(InputType(item.type), item.payload, raw).to_json()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_the_model_does_and_however_workers_die_a_plan_ends(stage: Stage, tmp_path: Path, seed: int) -> None:
    (tmp_path / "web-research.yaml").write_text(WEB_RESEARCH)
    dice = random.Random(seed)
    rig, model = stage(whims(seed), pool_size=10)
    documents.put(rig.database, "default", "default", "list.md", "---\nkind: tree\n---\n- a\n  - b\n  - c\n- d\n")
    plans = [
        submit_plan(
            rig, f"goal {number}", recipes=tmp_path, availableRecipes=["web-research", "marvin"], maxTreeNodes=40,
            defaultExecutionMode=dice.choice(["PARALLEL", "SEQUENTIAL"]), maxParallelNodes=3, maxTreeDepth=3,
            limits={"maxCalls": dice.choice([25, 200])},
        )
        for number in range(2)
    ]  # fmt: skip

    def crash(request: LlmRequest, _: Any) -> None:
        # A worker that hangs until its lease is gone; another one does the turn meanwhile.
        if dice.random() < 0.05:
            leased = rows(rig.database, "SELECT id FROM nodes WHERE lease_owner IS NOT NULL")
            if leased:
                expire_lease(rig.database, dice.choice(leased)[0])

    def done() -> bool:
        for sweep in (take_back_expired, reactivate_parents, start_waiting, wake_callers, republish_due):
            rig.publisher.publish(sweep(rig.database, batch=100))
        for item in inbox.items(rig.database, "default", "default"):
            # A person answers some and waves the others away.
            if item.id % 3:
                resolution = inbox.answer(rig.database, item.id, answer_to(item), by="ada")
            else:
                resolution = inbox.dismiss(rig.database, item.id, by="ada")
            rig.publisher.publish(resolution.due)
        return all(rig.result(plan) is not None for plan in plans)

    rig.client.during = crash
    rig.drain_in_threads(6, until=done, timeout=100)
    for plan in plans:
        wrapper = rig.result(plan)
        assert wrapper is not None
        assert wrapper["nodeCount"] <= 40
        found = read.status(rig.database, plan)
        assert found is not None
        assert found["close_reason"] == ("DONE" if wrapper["success"] else "FAILED")
    assert broken_plan_invariants(rig.database) == {}
    assert rows(rig.database, "SELECT node_id, output FROM phase_records WHERE reason = 'CRASHED'") == []
    assert deadlocks(rig.database) == 0
    assert value(rig.database, "SELECT count(*) FROM nodes WHERE parent_id IS NOT NULL") > 10
    assert model.asked
