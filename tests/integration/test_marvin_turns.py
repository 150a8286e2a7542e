"""Marvin end to end on the real store and runner, with a scripted model. Numbers: rows of ``design/marvin.md``."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from factory import claimed, expire_lease, make_everything_due, root_node, row, rows, value
from plans import (
    WEB_RESEARCH,
    Play,
    Stage,
    call,
    closed_plan,
    nodes_of,
    straight,
    submit_plan,
    subtasks,
    user_text,
)

from engines.llm.base import ErrorKind, LlmError, LlmRequest
from models.store import documents, processes, read
from models.store.database import DatabaseUnavailable
from models.store.plan import CHILDREN_READ, load_plan
from models.store.processes import Closing
from models.store.sweep import orphaned_processes, reactivate_parents, take_back_expired, wake_overdue
from tasks.submission import SubmissionError

GOAL = "Research nuclear power and write a report."


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "web-research.yaml").write_text(WEB_RESEARCH)
    return folder


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    stage = Stage(database_url)
    yield stage
    stage.close()


def test_section_19_five_calls_two_recipe_calls_one_file(stage: Stage, recipes: Path) -> None:
    answers = iter([
        call("web-research", "Research Nuclear Power History"),
        {"text": "First reactors 1942."},
        call("web-research", "Research Tech Status"),
        {"text": "SMRs are certified."},
        {"action": "PROCEED_TO_CONCLUDE", "reason": "sufficient material"},
        {
            "result": "# Nuclear Power Report\nAll of it.",
            "postActions": [{
                "tool": "doc_write",
                "args": {"path": "research/nuclear-power/report.md", "kind": "text", "content": "{{ node.result }}"},
            }],
            "reason": "done",
        },
        {"verdict": "PASS", "issues": [], "reason": "complete and well-structured"},
    ])  # fmt: skip
    rig, model = stage(lambda *_: next(answers))
    process = submit_plan(rig, GOAL, recipes=recipes, submitter="ada", availableRecipes=["web-research"])
    rig.drain()
    wrapper = closed_plan(rig, process)

    assert rows(rig.database, "SELECT DISTINCT owner FROM processes") == [("ada",)]
    assert wrapper["result"] == "# Nuclear Power Report\nAll of it."
    assert wrapper["documents"] == ["research/nuclear-power/report.md"]
    phases = [phase for phase, _ in model.asked]
    assert phases == ["SCOPE", "ANSWER", "REFLECT", "ANSWER", "REFLECT", "CONCLUDE", "VALIDATE"]
    assert [goal for phase, goal in model.asked if phase == "ANSWER"] == [
        "Research Nuclear Power History", "Research Tech Status",
    ]  # fmt: skip

    scope, second_reflect, conclude = (user_text(model.requests[at]) for at in (0, 4, 5))
    assert "- web-research: Looks things up." in scope
    assert "ROOT (running) — Research nuclear power and write a report. [YOU ARE HERE]" in scope
    for text in (second_reflect, conclude):  # 58, 59
        assert text.count("Result of CALL_RECIPE('web-research'):") == 2
        assert "First reactors 1942." in text
        assert "SMRs are certified." in text
    assert "iteration 2 of 3" in second_reflect

    calls = read.calls(rig.database, process)
    assert len(calls) == 7
    assert value(rig.database, "SELECT count(*) FROM processes WHERE parent_node_id IS NOT NULL") == 2  # 86
    written = documents.get(rig.database, "default", "default", "research/nuclear-power/report.md")
    assert written is not None
    assert (written.version, written.content) == (1, wrapper["result"])
    history = [(each["phase"], each["iteration"], each["reason"]) for each in read.phase_history(rig.database, process)]
    assert history == [
        ("SCOPE", 1, "CALLED"), ("REFLECT", 1, "CALLED"), ("REFLECT", 2, "ADVANCED"), ("CONCLUDE", 1, "ADVANCED"),
        ("VALIDATE", 1, "CONCLUDED"),
    ]  # fmt: skip
    kinds = [each["kind"] for each in read.messages(rig.database, process)]
    assert kinds == ["prompt", "recipe_reply", "recipe_reply", "result"]  # 87


def test_a_blank_goal_is_refused_and_nothing_is_stored(stage: Stage) -> None:  # 29
    rig, _ = stage(lambda *_: None)
    with pytest.raises(SubmissionError, match="goal: is blank"):
        submit_plan(rig, "  ")
    assert value(rig.database, "SELECT count(*) FROM processes") == 0


def tree(tasks: dict[str, Any], **other: Any) -> Play:
    """A model that splits the goals of ``tasks``, answers those of ``other`` so, and does the rest itself."""

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if phase == "SCOPE" and goal in tasks:
            return tasks[goal]
        if (goal, phase) in other.get("special", {}):
            return other["special"][goal, phase]
        return straight(f"result of {goal}")(phase)

    return play


@pytest.mark.parametrize("mode", ["SEQUENTIAL", "PARALLEL"])
def test_subtasks_one_of_which_fails(stage: Stage, mode: str) -> None:
    special = {("B", "SCOPE"): {"action": "BLOCKED_BY_PROBLEM", "problem": "no source", "reason": "x"}}
    play = tree({GOAL: subtasks("A", "B", "C"), "C": subtasks("C1", "C2")}, special=special)
    rig, model = stage(play)
    process = submit_plan(rig, GOAL, defaultExecutionMode=mode)
    rig.run_next()
    due = value(rig.database, "SELECT count(*) FROM nodes WHERE parent_id IS NOT NULL AND due_at IS NOT NULL")
    assert due == (3 if mode == "PARALLEL" else 1)
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert nodes_of(rig, process) == [
        ("A", "WORKER", "DONE"), ("B", "WORKER", "FAILED"), ("C", "WORKER", "DONE"),
        ("C1", "WORKER", "DONE"), ("C2", "WORKER", "DONE"),
    ]  # fmt: skip
    assert wrapper["result"] == f"result of {GOAL}\n\n## Subtasks that failed\n\n- #2 B: no source"  # 137
    assert (wrapper["failedChildren"], wrapper["nodeCount"]) == (1, 6)
    asked = [(phase, goal) for phase, goal in model.asked if phase in ("SCOPE", "POST_CHILDREN")]
    assert asked.index(("POST_CHILDREN", "C")) > max(asked.index(("SCOPE", goal)) for goal in ("C1", "C2"))
    assert asked[-1] == ("POST_CHILDREN", GOAL)  # 93: only after the whole subtree
    if mode == "SEQUENTIAL":
        assert [goal for phase, goal in asked if phase == "SCOPE"] == [GOAL, "A", "B", "C", "C1", "C2"]  # 37
    told = user_text(model.requests[model.asked.index(("POST_CHILDREN", GOAL))])
    assert "result of A" in told
    assert "Reason: no source" in told  # 65
    assert "#3 (DONE) — C" in told
    drafts = [each.path for each in documents.list_documents(rig.database, "default", "default")]
    folder = f"_marvin-drafts/{process}"
    assert drafts == [
        f"{folder}/0-0__a.md", f"{folder}/0-2-0__c1.md", f"{folder}/0-2-1__c2.md", f"{folder}/0-2__c.md",
        f"{folder}/0__research-nuclear-power-and-write-a-report.md",
    ]  # fmt: skip
    draft = documents.get(rig.database, "default", "default", drafts[0])
    assert draft is not None
    assert 'phaseHistory:\n  - {phase: "SCOPE", iteration: 1' in draft.content
    assert draft.content.endswith("result of A")
    settled = value(rig.database, "SELECT settled_at FROM nodes WHERE goal = 'A'")
    completed = re.search('completedAt: "(.*)"', draft.content)
    assert completed is not None
    # The time of the commit that settled the node, to the second.
    assert datetime.fromisoformat(completed[1]) == settled.replace(microsecond=0)
    stored = value(rig.database, "SELECT content FROM document_versions WHERE document_id = %(id)s", id=draft.id)
    assert stored == draft.content


def test_children_of_a_sequential_parent_run_one_at_a_time(stage: Stage) -> None:  # 38
    rig, _ = stage(tree({GOAL: subtasks(*"ABCDE")}))
    process = submit_plan(rig, GOAL)
    seen = 0
    while rig.publisher.turns:
        rig.run_next()
        open_now = value(
            rig.database,
            "SELECT count(*) FROM nodes WHERE parent_id IS NOT NULL AND due_at IS NOT NULL AND settled_at IS NULL",
        )
        seen = max(seen, open_now)
    assert seen == 1
    closed_plan(rig, process)


def test_a_second_round_of_children_comes_after_the_first(stage: Stage) -> None:  # 89
    rounds = iter([subtasks("C"), {"action": "PROCEED_TO_CONCLUDE", "reason": "enough"}])

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if goal == GOAL and phase == "SCOPE":
            return subtasks("A", "B")
        if goal == GOAL and phase == "POST_CHILDREN":
            return next(rounds)
        return straight()(phase)

    rig, model = stage(play)
    process = submit_plan(rig, GOAL)
    rig.drain()
    closed_plan(rig, process)
    keys = rows(rig.database, "SELECT goal, order_key FROM nodes WHERE parent_id IS NOT NULL ORDER BY order_key")
    assert keys == [("A", [0]), ("B", [1]), ("C", [2])]
    assert "#3 (DONE) — C" in user_text(model.requests[-1])


def test_a_blocked_root_fails_its_process_with_the_reason(stage: Stage) -> None:  # 46, 139
    rig, _ = stage(lambda *_: {"action": "BLOCKED_BY_PROBLEM", "problem": "nobody may know", "reason": "x"})
    process = submit_plan(rig, GOAL)
    rig.drain()
    wrapper = closed_plan(rig, process, "FAILED")
    assert (wrapper["error"], wrapper["message"]) == ("blocked", "nobody may know")
    assert "partial" not in wrapper


def test_a_root_that_fails_after_its_children_hands_back_what_they_had(stage: Stage) -> None:  # 138
    special = {
        ("B", "SCOPE"): {"action": "BLOCKED_BY_PROBLEM", "problem": "no source", "reason": "x"},
        (GOAL, "VALIDATE"): {"verdict": "HARD_FAIL", "issues": ["wrong"], "reason": "it would do harm"},
    }
    rig, _ = stage(tree({GOAL: subtasks("A", "B")}, special=special))
    process = submit_plan(rig, GOAL)
    rig.drain()
    wrapper = closed_plan(rig, process, "FAILED")
    assert wrapper["error"] == "rejected"
    assert wrapper["message"].startswith("it would do harm")  # 69
    assert wrapper["partial"].startswith("1 of 2 succeeded\n\n## #1 A\n\nresult of A\n\n## #2 B\n\nFAILED: no source")


def test_a_budget_spent_in_the_middle_of_the_tree_still_concludes(stage: Stage) -> None:
    rig, model = stage(tree({GOAL: subtasks("A", "B", "C")}))
    process = submit_plan(rig, GOAL, limits={"maxCalls": 5})
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert len(model.asked) == 5
    assert wrapper["forced"] is True
    assert "budget" in wrapper["warning"]
    assert "result of A" in wrapper["result"]
    assert [status for _, _, status in nodes_of(rig, process)] == ["DONE", "FAILED", "FAILED"]


def test_the_model_is_corrected_and_no_phase_counter_moves(stage: Stage) -> None:  # 53, 54
    answers = iter(["no json", {"action": "JUMP"}])

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        return next(answers, None) or straight()(phase)

    rig, model = stage(play)
    process = submit_plan(rig, GOAL)
    rig.drain()
    closed_plan(rig, process)
    assert [phase for phase, _ in model.asked] == ["SCOPE", "SCOPE", "SCOPE", "CONCLUDE", "VALIDATE"]
    reasons = [each["reason"] for each in read.phase_history(rig.database, process)]
    assert reasons == ["CORRECTED", "CORRECTED", "ADVANCED", "ADVANCED", "CONCLUDED"]
    assert "JUMP" in model.requests[2].messages[-1].content  # 48


def test_answers_that_stay_unreadable_fail_the_node(stage: Stage) -> None:  # 53
    rig, model = stage(lambda *_: "no json")
    process = submit_plan(rig, GOAL)
    rig.drain()
    wrapper = closed_plan(rig, process, "FAILED")
    assert len(model.asked) == 3
    assert wrapper["error"] == "parse_failed"
    assert wrapper["message"].startswith("SCOPE parse failed")


def test_a_provider_that_refuses_fails_the_node_and_its_parent_goes_on(stage: Stage) -> None:  # 56
    special = {("A", "CONCLUDE"): LlmError(ErrorKind.BAD_REQUEST, "too large")}
    rig, _ = stage(tree({GOAL: subtasks("A", "B")}, special=special))
    process = submit_plan(rig, GOAL)
    rig.drain(skip_delays=True)
    wrapper = closed_plan(rig, process)
    assert "- #1 A: CONCLUDE call failed: bad_request: too large" in wrapper["result"]


def test_a_prompt_too_long_for_the_model_is_shortened_once(stage: Stage) -> None:
    window = 30_000

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if sum(len(message.content) for message in request.messages) > window:
            return LlmError(ErrorKind.CONTEXT_TOO_LONG, "prompt is too long")
        if phase == "SCOPE" and goal == GOAL:
            return subtasks(*(f"part {number} of the work" for number in range(12)))
        return straight(f"{goal}: " + "long " * 1_000)(phase)

    rig, model = stage(play)
    process = submit_plan(rig, GOAL)
    rig.drain()
    closed_plan(rig, process)
    own = [(phase, user_text(request)) for (phase, goal), request in zip(model.asked, model.requests, strict=True)
           if goal == GOAL]  # fmt: skip
    assert [phase for phase, _ in own] == ["SCOPE", "POST_CHILDREN", "POST_CHILDREN", "CONCLUDE", "VALIDATE"]
    long, short = own[1][1], own[2][1]
    assert len(short) < window < len(long)
    assert "[YOU ARE HERE]" in short
    for number in range(12):
        assert f"Goal: part {number} of the work" in short, "cut, not left out"
    assert "[truncated at" in short
    reasons = [(each["phase"], each["reason"]) for each in read.phase_history(rig.database, process)]
    assert reasons.count(("POST_CHILDREN", "CORRECTED")) == 1
    kinds = [call["error_kind"] for call in read.calls(rig.database, process)]
    assert kinds.count("context_too_long") == 1
    assert [each["kind"] for each in read.messages(rig.database, process)] == ["prompt", "result"]


def test_a_prompt_that_stays_too_long_is_a_clear_failure_after_two_calls(stage: Stage) -> None:
    rig, model = stage(lambda *_: LlmError(ErrorKind.CONTEXT_TOO_LONG, "2,048 tokens at most"))
    process = submit_plan(rig, GOAL)
    rig.drain()
    wrapper = closed_plan(rig, process, "FAILED")
    assert len(model.asked) == 2
    assert wrapper["error"] == "llm_error"
    said = "SCOPE call failed, with the shortened prompt too: context_too_long: 2,048 tokens at most"
    assert wrapper["message"] == said
    assert [each["kind"] for each in read.messages(rig.database, process)] == ["prompt", "result"]


@pytest.mark.parametrize(
    ("recipe", "marker"),
    [
        ("outline", "refused: it is not among the recipes of this plan"),  # 77
        ("nowhere", "refused: there is no such recipe"),  # 78
        ("marvin-worker", "refused: it runs the engine marvin"),  # 79
        ("Marvin", "refused: it runs the engine marvin"),  # 80
    ],
)
def test_a_refused_call_is_a_marker_and_spawns_nothing(stage: Stage, recipes: Path, recipe: str, marker: str) -> None:
    answers = iter([call(recipe, "do it")])
    rig, model = stage(lambda phase, goal, request: next(answers, None) or straight()(phase))
    whitelist = ["web-research", "nowhere", "marvin-worker", "marvin"]
    process = submit_plan(rig, GOAL, recipes=recipes, availableRecipes=whitelist)
    rig.drain()
    closed_plan(rig, process)
    assert [phase for phase, _ in model.asked] == ["SCOPE", "REFLECT", "CONCLUDE", "VALIDATE"]
    assert marker in user_text(model.requests[1])
    assert "iteration 1 of 3" in user_text(model.requests[1])
    assert value(rig.database, "SELECT count(*) FROM processes") == 1


def test_a_called_recipe_that_fails_is_a_marker(stage: Stage, recipes: Path) -> None:  # 83
    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if phase == "ANSWER":
            return LlmError(ErrorKind.BAD_REQUEST, "no")
        return call("web-research", "look") if phase == "SCOPE" else straight()(phase)

    rig, model = stage(play)
    process = submit_plan(rig, GOAL, recipes=recipes, availableRecipes="web-research")
    rig.drain(skip_delays=True)
    closed_plan(rig, process)
    assert "[recipe call 'web-research': ended as FAILED: bad_request: no]" in user_text(model.requests[-2])


def test_a_recipe_call_that_takes_too_long_is_a_marker(stage: Stage, recipes: Path) -> None:  # 82
    rig, model = stage(lambda phase, goal, _: call("web-research", "look") if phase == "SCOPE" else straight()(phase))
    process = submit_plan(rig, GOAL, recipes=recipes, availableRecipes=["web-research"], recipeCallTimeoutSeconds=7)
    rig.run_next()
    root = row(rig.database, "nodes", root_node(rig.database, process))
    assert (root["status"], root["open_calls"]) == ("WAITING", 1)
    rig.publisher.turns.clear()  # the callee's worker is stuck
    make_everything_due(rig.database)
    rig.runner.run("marvin", root["id"], root["turn"])
    rig.drain()
    closed_plan(rig, process)
    assert "[recipe call 'web-research': gave no reply within 7 seconds]" in user_text(model.requests[1])


def test_a_call_nobody_waits_for_any_more_is_found_once_its_caller_is_settled(stage: Stage, recipes: Path) -> None:
    rig, _ = stage(lambda phase, goal, _: call("web-research", "look") if phase == "SCOPE" else straight()(phase))
    process = submit_plan(rig, GOAL, recipes=recipes, availableRecipes=["web-research"])
    rig.run_next()
    rig.publisher.turns.clear()
    assert orphaned_processes(rig.database, batch=10) == []
    make_everything_due(rig.database)
    root = row(rig.database, "nodes", root_node(rig.database, process))
    rig.runner.run("marvin", root["id"], root["turn"])
    rig.drain()
    called = value(rig.database, "SELECT id FROM processes WHERE parent_node_id IS NOT NULL")
    assert orphaned_processes(rig.database, batch=10) == [called]


def test_a_worker_lost_between_turns_duplicates_nothing(stage: Stage, recipes: Path) -> None:  # 135, 158
    action = {"tool": "doc_write", "args": {"path": "out.md", "kind": "text", "content": "{{ node.result }}"}}
    script = {
        (GOAL, "SCOPE"): subtasks("A", "B"),
        ("A", "SCOPE"): call("web-research", "look"),
        ("look", "ANSWER"): {"text": "found"},
        (GOAL, "CONCLUDE"): {"result": "all", "postActions": [action], "reason": "x"},
    }
    lost: Counter[str] = Counter()
    rig, model = stage(lambda phase, goal, _: script.get((goal, phase)) or straight(goal)(phase))
    process = submit_plan(rig, GOAL, recipes=recipes, availableRecipes=["web-research"])
    while rig.publisher.turns:
        turn = rig.publisher.turns[0]
        node = row(rig.database, "nodes", turn.node_id)
        # Each turn loses its first worker after the claim, and its message comes twice.
        if node["losses"] == 0 and node["turn"] == turn.turn and node["settled_at"] is None:
            claimed(rig.database, turn.node_id)
            lost[node["phase"]] += 1
            expire_lease(rig.database, turn.node_id)
            rig.publisher.publish(take_back_expired(rig.database, batch=10))
            rig.publisher.publish([turn])
        rig.run_next()
    closed_plan(rig, process)
    assert lost["CONCLUDE"] == 3
    assert [goal for goal, _, _ in nodes_of(rig, process)] == ["A", "B"]
    assert value(rig.database, "SELECT count(*) FROM processes") == 2
    versions = rows(rig.database, "SELECT d.path, d.version FROM documents d JOIN document_versions v"
                                  " ON v.document_id = d.id")  # fmt: skip
    assert len(versions) == 4
    assert {version for _, version in versions} == {1}
    per_node = Counter(model.asked)
    assert set(per_node.values()) == {1}


def test_a_second_process_gives_a_document_its_next_version(stage: Stage) -> None:  # 131
    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        args = {"path": "a/./report.md", "kind": "text", "content": "{{ node.result }}", "title": "On {{ node.goal }}"}
        return straight(f"about {goal}", postActions=[{"tool": "doc_write", "args": args}])(phase)

    rig, _ = stage(play)
    for goal in ("one", "two"):
        process = submit_plan(rig, goal)
        rig.drain()
        closed_plan(rig, process)
    newest = documents.get(rig.database, "default", "default", "a/report.md")
    assert newest is not None
    assert (newest.version, newest.content, newest.title) == (2, "about two", "On two")
    first = documents.get(rig.database, "default", "default", "a/report.md", version=1)
    assert first is not None
    assert (first.content, first.title) == ("about one", "On one")


def test_post_actions_that_cannot_be_carried_out_leave_the_node_done(stage: Stage) -> None:  # 132, 133, 134
    actions = [
        {"tool": "shell", "args": {"command": "rm"}},
        {"tool": "doc_write", "args": {"path": "_Vance/x.md", "kind": "text", "content": "x"}},
        {"tool": "doc_write", "args": {"path": "good.md", "kind": "text", "content": "{{ node.result }}"}},
    ]
    rig, _ = stage(lambda phase, *_: straight("{{ process.id }}", postActions=actions)(phase))
    process = submit_plan(rig, GOAL)
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert wrapper["documents"] == ["good.md"]
    written = documents.get(rig.database, "default", "default", "good.md")
    assert written is not None
    assert written.content == "{{ process.id }}"  # 136: a result is never rendered
    problems = read.phase_history(rig.database, process)[-1]["output"]["postActionProblems"]
    assert len(problems) == 2
    assert "reserved" in problems[1]


def test_the_tree_is_never_larger_than_its_limit(stage: Stage) -> None:  # 95
    rig, model = stage(tree({GOAL: subtasks(*"ABCDEFG")}))
    process = submit_plan(rig, GOAL, maxTreeNodes=4)
    rig.drain()
    assert closed_plan(rig, process)["nodeCount"] == 4
    assert "4 subtasks were not created" in user_text(model.requests[model.asked.index(("POST_CHILDREN", GOAL))])


@pytest.mark.parametrize("database_away", [False, True])
def test_two_nodes_at_once_do_not_grow_the_tree_over_its_limit(stage: Stage, database_away: bool) -> None:  # 95
    def gone_for_a_moment(sql: str) -> None:
        if sql.lstrip().startswith("WITH RECURSIVE path"):
            rig.database.hooks.remove(gone_for_a_moment)
            raise DatabaseUnavailable("restarting")

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if phase == "SCOPE" and goal == GOAL:
            return subtasks("A", "B")
        if phase == "SCOPE" and goal in ("A", "B"):
            if goal == "A":
                # While A's model thinks, B takes the room that A has seen.
                other = value(rig.database, "SELECT id FROM nodes WHERE goal = 'B'")
                assert rig.runner.run("marvin", other, 1) == 1
                if database_away:
                    rig.database.hooks.append(gone_for_a_moment)
            return subtasks(*(f"{goal}{number}" for number in range(3)))
        return straight(f"result of {goal}")(phase)

    rig, model = stage(play)
    process = submit_plan(rig, GOAL, maxTreeNodes=6, defaultExecutionMode="PARALLEL")
    rig.drain()
    assert closed_plan(rig, process)["nodeCount"] == 6
    assert [goal for goal, _, _ in nodes_of(rig, process)] == ["A", "B", "B0", "B1", "B2"]
    assert model.asked.count(("SCOPE", "A")) == 1  # decided again, not asked again
    assert "because the tree is full" in user_text(model.requests[model.asked.index(("CONCLUDE", "A"))])
    assert len(read.calls(rig.database, process)) == len(model.asked)


def test_no_more_children_than_wanted_work_at_once(stage: Stage) -> None:
    rig, _ = stage(tree({GOAL: subtasks(*"ABCDEFGHIJKL")}), pool_size=8)
    process = submit_plan(rig, GOAL, defaultExecutionMode="PARALLEL", maxParallelNodes=3)
    rig.run_next()
    running = "SELECT count(*) FROM nodes WHERE parent_id IS NOT NULL AND due_at IS NOT NULL"
    most: list[int] = []

    def look(*_: Any) -> None:
        most.append(value(rig.database, running))

    rig.client.during = look
    rig.drain_in_threads(6, until=lambda: rig.result(process) is not None, timeout=60)
    closed_plan(rig, process)
    # Siblings that settle at the same moment wake one each, not the same one twice.
    assert max(most) == 3
    assert Counter(most)[3] >= 12


def test_the_plan_of_a_wide_tree_is_bounded(stage: Stage) -> None:  # 152
    goals = [f"subtask number {number} with a goal of some length to fill the picture" for number in range(300)]
    rig, model = stage(tree({GOAL: subtasks(*goals)}))
    process = submit_plan(rig, GOAL, maxTreeNodes=1_000, defaultExecutionMode="PARALLEL", maxParallelNodes=1_000)
    rig.run_next()
    middle = value(rig.database, "SELECT id FROM nodes WHERE goal = %(goal)s", goal=goals[150])
    plan = load_plan(rig.database, process, middle)
    assert len(plan.rows) == 1 + 1 + 80
    assert plan.node_count == 301
    rig.runner.run("marvin", middle, 1)
    text = user_text(model.requests[-1])
    shown = text[text.index("┌─ LIVE PLAN") : text.index("end of plan")]
    assert len(shown) < 4_000
    assert "#151 (running)" in shown
    assert "[YOU ARE HERE]" in shown
    assert "subtasks" in shown.splitlines()[1]  # 154: the rest is counted


def test_children_beyond_those_that_are_read_are_counted_too(stage: Stage) -> None:
    rig, _ = stage(tree({GOAL: subtasks(*(f"subtask {number}" for number in range(CHILDREN_READ + 200)))}))
    process = submit_plan(rig, GOAL, maxTreeNodes=5_000, defaultExecutionMode="PARALLEL")
    rig.run_next()
    # All at once, as running them would leave them: every other one has failed.
    rows(
        rig.database,
        "UPDATE nodes SET status = CASE WHEN id % 2 = 0 THEN 'DONE' ELSE 'FAILED' END, settled_at = now(),"
        " due_at = NULL, next_hint_at = NULL, waits_for_place = false,"
        " failure = CASE WHEN id % 2 = 0 THEN NULL ELSE 'lost' END"
        " WHERE parent_id IS NOT NULL",
    )
    rows(rig.database, "UPDATE nodes SET open_children = 0 WHERE parent_id IS NULL")
    rig.publisher.publish(reactivate_parents(rig.database, batch=10))
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert (wrapper["failedChildren"], wrapper["nodeCount"]) == ((CHILDREN_READ + 200) // 2, CHILDREN_READ + 201)


def test_the_prompt_of_the_processes_recipe_reaches_the_root_only(stage: Stage, tmp_path: Path) -> None:  # 145
    (tmp_path / "marvin.yaml").write_text(
        "description: own\nengine: marvin\n"
        "promptPrefix: 'Be brief about {{ process.goal }}, write {{ node.result }}.'\n"
    )
    rig, model = stage(tree({GOAL: subtasks("A")}))
    process = submit_plan(rig, GOAL, recipes=tmp_path)
    rig.drain()
    closed_plan(rig, process)
    told = {key: user_text(request) for key, request in zip(model.asked, model.requests, strict=True)}
    assert f"Be brief about {GOAL}, write {{{{ node.result }}}}." in told["SCOPE", GOAL]
    assert "Be brief" not in told["SCOPE", "A"]
    assert f"The goal of the whole plan: {GOAL}" in told["SCOPE", "A"]


def test_results_are_json_that_others_can_read(stage: Stage) -> None:
    rig, _ = stage(tree({}))
    process = submit_plan(rig, GOAL)
    rig.drain()
    wrapper = closed_plan(rig, process)
    assert json.loads(json.dumps(wrapper)) == wrapper
    assert list(wrapper)[:2] == ["success", "result"]


def test_stop_in_the_middle_of_a_tree_closes_everything_once(stage: Stage, recipes: Path) -> None:  # 32
    script = {(GOAL, "SCOPE"): subtasks("A", "B"), ("A", "SCOPE"): call("web-research", "look")}
    rig, model = stage(lambda phase, goal, _: script.get((goal, phase)) or straight(goal)(phase))
    process = submit_plan(rig, GOAL, recipes=recipes, availableRecipes=["web-research"])
    rig.run_next()
    rig.run_next()

    def wrapper(closing: Closing) -> dict[str, Any]:
        return rig.engines[closing.engine].wrapper(closing.cursor, error="stopped", message="stopped on request")

    closed = processes.stop(rig.database, process, wrapper)
    assert len(closed) == 2
    rig.drain()
    assert len(model.asked) == 2
    assert rig.result(process) == {"success": False, "error": "stopped", "message": "stopped on request"}
    assert [status for _, _, status in nodes_of(rig, process)] == ["SKIPPED", "SKIPPED"]
    assert processes.stop(rig.database, process, wrapper) == ()


def test_a_suspended_plan_goes_on_where_it_was(stage: Stage) -> None:  # 157
    rig, model = stage(tree({GOAL: subtasks("A", "B")}))
    process = submit_plan(rig, GOAL)

    def suspend(request: LlmRequest, _: Any) -> None:
        if len(model.asked) == 2:
            processes.suspend(rig.database, process)

    rig.client.during = suspend
    rig.drain()
    assert len(model.asked) == 3, "the call under way was kept, no other one made"
    rig.client.during = None
    rig.publisher.publish(processes.resume(rig.database, process) or [])
    rig.drain()
    closed_plan(rig, process)
    assert set(Counter(model.asked).values()) == {1}


def test_a_plan_past_its_deadline_concludes_with_what_it_has(stage: Stage, recipes: Path) -> None:
    script = {(GOAL, "SCOPE"): subtasks("A", "B", "C"), ("B", "SCOPE"): call("web-research", "look")}
    rig, model = stage(lambda phase, goal, _: script.get((goal, phase)) or straight(f"result of {goal}")(phase))
    process = submit_plan(
        rig, GOAL, recipes=recipes, availableRecipes=["web-research"], limits={"deadlineSeconds": 3600}
    )
    while ("SCOPE", "B") not in model.asked:
        rig.run_next()
    rig.publisher.turns.clear()  # the callee's worker is stuck
    rows(rig.database, "UPDATE processes SET deadline_at = now() WHERE deadline_at IS NOT NULL")
    for _ in range(20):
        rig.publisher.publish(wake_overdue(rig.database, batch=10))
        rig.drain()
    asked = len(model.asked)
    wrapper = closed_plan(rig, process)
    assert "deadline" in wrapper["warning"]
    assert "result of A" in wrapper["result"]
    assert [status for _, _, status in nodes_of(rig, process)] == ["DONE", "FAILED", "FAILED"]
    assert asked == len(model.asked) == 5


def test_the_goal_enters_the_history_once_whatever_happens_to_the_first_call(stage: Stage) -> None:
    answers = iter([ErrorKind.OVERLOADED, "no json"])
    rig, _ = stage(lambda phase, *_: next(answers, None) or straight()(phase))
    process = submit_plan(rig, GOAL)
    rig.drain(skip_delays=True)
    closed_plan(rig, process)
    assert [each["kind"] for each in read.messages(rig.database, process)] == ["prompt", "result"]
