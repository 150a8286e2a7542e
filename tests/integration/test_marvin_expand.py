"""Plans that fan a stored document out, on the real store and runner. Numbers: rows of ``design/marvin.md``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from factory import deadlocks, rows, value
from plans import Stage, closed_plan, nodes_of, straight, submit_plan, subtasks, user_text
from rig import Rig

from engines.llm.base import LlmRequest
from models.store import documents, read

GOAL = "Write a book"
LIST = "---\nkind: list\ntitle: The book\n---\n- Water\n- Roads {{ node.goal }}\n"
TREE = "---\nkind: tree\n---\n- Plan\n  - Budget\n  - Staff\n- Build\n"


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    stage = Stage(database_url)
    yield stage
    stage.close()


def expand_task(
    path: str = "outline.md", goal: str = "Write chapter {{ index1 }}: {{ item.text }}", **spec: Any
) -> Any:
    template = {"taskKind": "WORKER", "goal": goal, **spec.pop("template", {})}
    reference = spec.pop("documentRef", {"path": path})
    return {
        "goal": "All chapters",
        "taskKind": "EXPAND_FROM_DOC",
        "taskSpec": {"documentRef": reference, "childTemplate": template, **spec},
    }


def run(stage: Stage, task: Any, document: str | None = LIST, **params: Any) -> tuple[Rig, Any, Any]:
    """One plan whose root fans out ``task``: the rig, its model and the result."""

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if (phase, goal) == ("SCOPE", GOAL):
            return subtasks(task)
        return straight(f"<{goal}>")(phase)

    rig, model = stage(play)
    if document is not None:
        documents.put(rig.database, "default", "default", "outline.md", document, title="Outline")
    process = submit_plan(rig, GOAL, **params)
    rig.drain()
    return rig, model, closed_plan(rig, process)


def test_a_list_gives_a_child_for_each_item_and_the_root_reads_their_results(stage: Stage) -> None:  # 93, 110
    action = {
        "tool": "doc_write",
        "args": {"path": "ch/{{ item.text | slug }}.md", "kind": "text", "content": "{{ node.result }}"},
    }
    rig, model, wrapper = run(stage, expand_task(template={"taskSpec": {"postActions": [action]}}))
    process = value(rig.database, "SELECT id FROM processes")
    assert nodes_of(rig, process) == [
        ("All chapters", "EXPAND_FROM_DOC", "DONE"),
        ("Write chapter 1: Water", "WORKER", "DONE"),
        ("Write chapter 2: Roads {{ node.goal }}", "WORKER", "DONE"),
    ]
    told = user_text(model.requests[model.asked.index(("POST_CHILDREN", GOAL))])
    assert "2 of 2 succeeded" in told
    assert "‹Write chapter 1: Water›" in told or "<Write chapter 1: Water>" in told
    assert "#1 (DONE) — All chapters" in told
    written = [each.path for each in documents.list_documents(rig.database, "default", "default", prefix="ch/")]
    assert written == ["ch/roads-node-goal.md", "ch/water.md"]  # 130
    chapter = documents.get(rig.database, "default", "default", "ch/water.md")
    assert chapter is not None
    assert chapter.content == "<Write chapter 1: Water>"
    assert wrapper["nodeCount"] == 4
    # No model call for the document itself, and parallel by default.
    assert {goal for _, goal in model.asked} == {
        GOAL,
        "Write chapter 1: Water",
        "Write chapter 2: Roads {{ node.goal }}",
    }
    assert value(rig.database, "SELECT child_mode FROM nodes WHERE kind = 'EXPAND_FROM_DOC'") == "PARALLEL"  # 39


def test_a_tree_nests_and_each_branch_waits_for_its_own(stage: Stage) -> None:  # 114
    rig, model, _ = run(stage, expand_task(goal="{{ item.text }} of {{ parent.goal }}"), TREE)
    goals = rows(
        rig.database,
        "SELECT c.goal, parent.goal FROM nodes c JOIN nodes parent ON parent.id = c.parent_id"
        " WHERE c.depth > 1 ORDER BY c.depth, parent.id, c.order_key",
    )
    plan = "Plan of All chapters"
    assert goals == [
        (plan, "All chapters"), ("Build of All chapters", "All chapters"), (f"Budget of {plan}", plan),
        (f"Staff of {plan}", plan),
    ]  # fmt: skip
    assert ("SCOPE", plan) not in model.asked
    told = user_text(model.requests[model.asked.index(("POST_CHILDREN", plan))])
    assert f"Budget of {plan}" in told
    drafts = [each.path for each in documents.list_documents(rig.database, "default", "default", prefix="_marvin")]
    assert any("/0-0-0-1__staff-of" in path for path in drafts)  # 148


def test_a_tree_can_be_flat(stage: Stage) -> None:  # 114
    rig, _, wrapper = run(stage, expand_task(treeMode="flat", goal="{{ item.text }}"), TREE)
    assert wrapper["nodeCount"] == 4
    assert value(rig.database, "SELECT count(*) FROM nodes WHERE goal IN ('Plan', 'Build')") == 2


@pytest.mark.parametrize(
    ("task", "document", "why"),
    [
        (expand_task(), None, "the document (path \"outline.md\") was not found in this project"),  # 117
        (expand_task(), "- no header\n", "the document has no kind"),  # 116
        (expand_task(), "---\nkind: graph\n---\n", "graph"),  # 116
        (expand_task(failOnEmpty=True), "---\nkind: list\n---\n", "has no entries"),  # 112
        (expand_task(goal="{{ item.author }}", failOnMissingField=True), LIST, "author"),  # 113
        (expand_task(template={"taskKind": "EXPAND_FROM_DOC"}), TREE, "use treeMode FLAT"),
        (expand_task(documentRef={}), LIST, "documentRef"),
    ],
)  # fmt: skip
def test_a_document_that_cannot_be_fanned_out_fails_its_node_only(
    stage: Stage, task: Any, document: str | None, why: str
) -> None:
    _, _, wrapper = run(stage, task, document)
    assert wrapper["failedChildren"] == 1
    assert why.lower() in wrapper["result"].lower()


def test_an_empty_document_is_done_without_children(stage: Stage) -> None:  # 112
    rig, _, wrapper = run(stage, expand_task(), "---\nkind: list\n---\n")
    assert (wrapper["nodeCount"], wrapper["failedChildren"]) == (2, 0)
    history = read.phase_history(rig.database, value(rig.database, "SELECT id FROM processes"))
    assert [each["output"] for each in history if each["phase"] == "EXPAND"] == [{"childCount": 0}]


def test_a_document_larger_than_the_tree_may_be_is_not_cut_in_half(stage: Stage) -> None:
    _, _, wrapper = run(stage, expand_task(), maxTreeNodes=3)
    assert "gives 2 children and only 1 fit" in wrapper["result"]
    assert wrapper["nodeCount"] == 2


@pytest.mark.parametrize(("taken", "created"), [(1, ["Budget"]), (2, [])])
def test_branches_for_which_others_have_taken_the_room_are_left_out_and_named(
    stage: Stage, taken: int, created: list[str]
) -> None:
    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if (phase, goal) == ("SCOPE", GOAL):
            return subtasks(expand_task(goal="{{ item.text }}"))
        if (phase, goal) == ("SCOPE", "Build"):
            return subtasks(*("walls", "roof")[:taken])
        return straight(f"<{goal}>")(phase)

    rig, model = stage(play)
    # There is room for all four entries when the document is read, and Build comes first to ask for more.
    tree = "---\nkind: tree\n---\n- Build\n- Plan\n  - Budget\n  - Staff\n"
    documents.put(rig.database, "default", "default", "outline.md", tree)
    process = submit_plan(rig, GOAL, maxTreeNodes=6)
    rig.drain(limit=100)
    assert closed_plan(rig, process)["nodeCount"] == 6
    goals = [goal for goal, _, _ in nodes_of(rig, process)]
    assert [goal for goal in goals if goal in ("Budget", "Staff")] == created
    told = user_text(model.requests[model.asked.index(("CONCLUDE", "Plan"))])
    assert "were not created, because the tree is full" in told
    assert "Staff" in told
    # Those that were created are read before the conclusion; without any there is nothing to wait for.
    assert (("POST_CHILDREN", "Plan") in model.asked) is bool(created)


def test_documents_are_found_by_id_and_by_name_and_never_elsewhere(stage: Stage) -> None:  # 117, 118
    rig, _, _ = run(stage, expand_task())
    documents.put(rig.database, "default", "default", "deep/er/list.md", LIST)
    documents.put(rig.database, "other", "default", "secret.md", LIST)
    found = documents.find(rig.database, "default", "default", by="name", value="list.md")
    assert found is not None
    assert found.path == "deep/er/list.md"
    foreign = documents.get(rig.database, "other", "default", "secret.md")
    assert foreign is not None
    assert documents.find(rig.database, "default", "default", by="id", value=str(found.id)) == found
    for by, wanted in (("id", str(foreign.id)), ("path", "secret.md"), ("name", "secret.md"), ("id", "no number")):
        assert documents.find(rig.database, "default", "default", by=by, value=wanted) is None
    assert documents.find(rig.database, "default", "default", by="path", value="list.md") is None


def test_parallel_nodes_that_write_the_same_documents_do_not_wait_for_each_other_crosswise(stage: Stage) -> None:
    items = "".join(f"- part {number}\n" for number in range(24))

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if (phase, goal) == ("SCOPE", GOAL):
            return subtasks(expand_task(goal="{{ item.text }}"))
        if phase == "SCOPE" and goal.endswith("3"):
            return subtasks(f"{goal} left", f"{goal} right")
        paths = ["x.md", "y.md", "z.md"]
        if goal.endswith(("1", "4", "7", "right")):
            paths.reverse()
        actions = [
            {"tool": "doc_write", "args": {"path": path, "kind": "text", "content": "{{ node.goal }}"}}
            for path in paths
        ]
        return straight(goal, postActions=actions)(phase)

    rig, _ = stage(play, pool_size=10)
    documents.put(rig.database, "default", "default", "outline.md", f"---\nkind: list\n---\n{items}")
    process = submit_plan(rig, GOAL, defaultExecutionMode="PARALLEL")
    rig.drain_in_threads(8, until=lambda: rig.result(process) is not None, timeout=60)
    wrapper = closed_plan(rig, process)
    writers = wrapper["nodeCount"] - 1  # all but the node that reads the document
    for path in ("x.md", "y.md", "z.md"):
        found = documents.get(rig.database, "default", "default", path)
        assert found is not None
        assert found.version == writers
    stored = value(rig.database, "SELECT count(*) FROM document_versions v JOIN documents d ON d.id = v.document_id"
                                 " WHERE d.path = 'x.md'")  # fmt: skip
    assert stored == writers
    assert deadlocks(rig.database) == 0


def test_results_too_long_to_be_read_whole_say_so_with_their_true_length(stage: Stage) -> None:
    """Thirty children share what is read of results; whoever reads one must know that there is more of it."""
    entries = "".join(f"- entry {number}\n" for number in range(30))

    def play(phase: str, goal: str, request: LlmRequest) -> Any:
        if (phase, goal) == ("SCOPE", GOAL):
            return subtasks(expand_task())
        return straight("x" * 20_000 if goal.startswith("Write chapter") else "short")(phase)

    rig, model = stage(play)
    documents.put(rig.database, "default", "default", "outline.md", f"---\nkind: list\n---\n{entries}", title="Outline")
    process = submit_plan(rig, GOAL, validateMaxIterations=0)
    rig.drain()
    closed_plan(rig, process)
    collected = value(
        rig.database,
        "SELECT content FROM artifacts a JOIN nodes n ON n.id = a.node_id"
        " WHERE n.kind = 'EXPAND_FROM_DOC' AND a.key = 'result'",
    )
    assert collected.count("[truncated at 13,333 of 20,000 characters; the full text is kept in the child node]") == 30
    told = user_text(model.requests[model.asked.index(("POST_CHILDREN", GOAL))])
    assert f"[truncated at 4,000 of {len(collected):,} characters" in told
