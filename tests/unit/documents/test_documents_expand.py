"""Fanning out: rows 110 to 121, 129, F4 (two stages), F11 (counts and caps)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.documents.actions import ActionContext, Rendered, run_actions
from engines.documents.errors import DocumentError, Problem
from engines.documents.expand import MAX_GOAL_CHARS, ChildPlan, ExpandContext, expand
from engines.documents.model import Document, Item, ListDocument, RecordsDocument, Row, TextDocument
from engines.documents.parse import parse_document
from engines.documents.spec import DocumentRef, TreeMode, read_expand_spec
from engines.errors import InvalidParams, TemplateError

CONTEXT = ExpandContext(
    parent_goal="Write the book",
    max_children=200,
    root_name="outline.md",
    root_title="Outline",
    root_path="b/outline.md",
)
LIST = parse_document("---\nkind: list\n---\n- Roads\n- Rails\n")
TREE = parse_document("---\nkind: tree\n---\n- A\n  - A1\n    - A1a\n  - A2\n- B\n")
RECORDS = parse_document("---\nkind: records\nschema: city, note\n---\n- Graz, green, surplus\n- Linz\n")
EMPTY = parse_document("---\nkind: list\n---\n")


def planned(document: Document, template: Any, context: ExpandContext = CONTEXT, **more: Any) -> tuple[ChildPlan, ...]:
    spec = read_expand_spec({"documentRef": {"path": "b/outline.md"}, "childTemplate": template, **more})
    return expand(document, spec, context)


def goals(document: Document, goal: str, **more: Any) -> list[str]:
    return [child.goal for child in planned(document, {"goal": goal}, **more)]


def test_one_child_for_each_item_with_its_index() -> None:
    children = planned(LIST, {"goal": "{{ index }}/{{ index1 }}: {{ item.text }}"})
    assert [child.goal for child in children] == ["0/1: Roads", "1/2: Rails"]
    assert {child.kind for child in children} == {"WORKER"}


def test_the_surroundings_are_known() -> None:
    goal = "{{ parent.goal }}|{{ root.title }}|{{ root.name }}|{{ root.path }}"
    assert goals(LIST, goal)[0] == "Write the book|Outline|outline.md|b/outline.md"


def test_the_title_may_come_from_the_header() -> None:
    document = parse_document("---\nkind: list\ntitle: From the header\n---\n- a")
    context = ExpandContext(parent_goal="", max_children=9)
    assert planned(document, {"goal": "{{ root.title }}"}, context)[0].goal == "From the header"


def test_extra_keys_of_an_item_are_variables() -> None:
    document = ListDocument(items=(Item(text="a", extra={"owner": "Ada", "tags": ["x"]}),))
    assert goals(document, "{{ item.owner }} {{ item.tags }} {{ item.text }}") == ['Ada ["x"] a']


def test_an_empty_document_gives_no_children_unless_that_is_a_failure() -> None:
    assert planned(EMPTY, {"goal": "x"}, failOnEmpty=False) == ()
    with pytest.raises(DocumentError, match=r'path "b/outline.md".*has no entries') as caught:
        planned(EMPTY, {"goal": "x"}, failOnEmpty=True)
    assert caught.value.problem is Problem.EMPTY


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("item.nothing", "nothing"),
        ("itme.text", "itme"),
        ("record.city", "city"),
        ("root.nothing", "nothing"),
        ("index2", "index2"),
    ],
)
def test_a_missing_variable_is_empty_or_named(variable: str, name: str) -> None:
    goal = f"a{{{{ {variable} }}}}b"
    assert goals(LIST, goal) == ["ab", "ab"]
    with pytest.raises(TemplateError) as caught:
        goals(LIST, goal, failOnMissingField=True)
    assert caught.value.message == f"childTemplate.goal, line 1: '{name}' is not defined (entry 1 of the document)"


def test_a_missing_variable_in_a_post_action_is_found_now() -> None:
    template = {"goal": "x", "taskSpec": {"postActions": [{"args": {"path": "{{ itme.text }}{{ node.goal }}"}}]}}
    assert planned(LIST, template)[0].task_spec["postActions"] == [{"args": {"path": "{{ node.goal }}"}}]
    with pytest.raises(TemplateError, match=r"postActions\[0\].args.path, line 1: 'itme' is not defined"):
        planned(LIST, template, failOnMissingField=True)


def shape(children: tuple[ChildPlan, ...]) -> list[Any]:
    return [(child.goal, shape(child.children)) for child in children]


def test_a_tree_nests_or_stays_flat() -> None:
    template = {"goal": "{{ parent.goal }}>{{ index1 }}{{ item.text }}"}
    context = ExpandContext(parent_goal="P", max_children=5)
    nested = [
        ("P>1A", [("P>1A>1A1", [("P>1A>1A1>1A1a", [])]), ("P>1A>2A2", [])]),
        ("P>2B", []),
    ]
    assert shape(planned(TREE, template, context)) == nested
    assert shape(planned(TREE, template, context, treeMode="recursive ")) == nested
    assert shape(planned(TREE, template, context, treeMode="FLAT")) == [("P>1A", []), ("P>2B", [])]
    assert [child.goal[-2:] for child in planned(TREE, template)[0].walk()] == ["1A", "A1", "1a", "A2"]


def test_records_fields_without_overflow() -> None:
    assert goals(RECORDS, "{{ record.city }}:{{ record['note'] }}:{{ record._overflow }}") == ["Graz:green:", "Linz::"]
    extra = RecordsDocument(schema=("a",), rows=(Row(values={"a": "1"}, extra={"b": 2, "a b": None}),))
    assert goals(extra, "{{ record.a }}{{ record.b }}{{ record['a b'] }}", failOnMissingField=True) == ["12"]


def test_a_text_cannot_be_fanned_out() -> None:
    with pytest.raises(DocumentError, match="is a text") as caught:
        planned(TextDocument(text="- a\n- b"), {"goal": "x"})
    assert caught.value.problem is Problem.NOT_EXPANDABLE


def test_nested_maps_and_lists_are_filled_in_and_engine_keys_dropped() -> None:
    template = {
        "taskKind": "user_input ",
        "goal": "Ask",
        "_phaseHint": "VALIDATE",
        "recipeParams": {"city": "{{ item.text }}", "_x": 1},
        "executionMode": "PARALLEL",
        "title": "outer",
        "taskSpec": {
            "_pendingPostActions": [{"tool": "doc_write"}],
            "title": "{{ item.text }}?",
            "payload": {"options": ["{{ item.text | upper }}", 3, None, {"deep": "{{ index1 }}", "_no": "x"}]},
        },
    }
    child = planned(LIST, template)[0]
    assert child == ChildPlan(
        kind="USER_INPUT",
        goal="Ask",
        task_spec={
            "params": {"city": "Roads"},
            "executionMode": "PARALLEL",
            "title": "Roads?",
            "payload": {"options": ["ROADS", 3, None, {"deep": "1"}]},
        },
    )


def test_f4_what_belongs_to_later_stays() -> None:
    kept = "{{ node.result }} {{ process.id | slug }} {% if node.goal %}{{ result.goal }}{% endif %}"
    template = {
        "goal": kept,
        "taskSpec": {"note": kept, "postActions": [{"tool": "doc_write", "args": {"content": kept}}]},
    }
    child = planned(LIST, template, failOnMissingField=True)[0]
    assert child.goal == kept
    assert child.task_spec == {"note": kept, "postActions": [{"tool": "doc_write", "args": {"content": kept}}]}


ACTION = {
    "tool": "doc_write",
    "args": {"path": "c/{{ index1 }}.md", "kind": "text", "content": "# {{ item.text }}\n{{ node.result }}"},
}


def finished(child: ChildPlan, result: str = "RESULT {{ 7*7 }}") -> Rendered:
    context = ActionContext(node_result=result, node_goal=child.goal, process_id="P1", process_goal="G")
    (outcome,) = run_actions(child.task_spec["postActions"], context)
    assert isinstance(outcome.outcome, Rendered), outcome
    return outcome.outcome


def test_f4_item_text_is_never_a_template() -> None:
    document = ListDocument(items=(Item(text="Intro {{ process.id }} {{ node.goal }} {% if"),))
    (child,) = planned(document, {"goal": "Write: {{ item.text }}", "taskSpec": {"postActions": [ACTION]}})
    assert child.goal == "Write: Intro {{ process.id }} {{ node.goal }} {% if"
    written = finished(child)
    assert written.path == "c/1.md"
    assert written.content == "# Intro {{ process.id }} {{ node.goal }} {% if\nRESULT {{ 7*7 }}"


def test_f4_what_is_final_now_holds_the_item_as_it_is() -> None:
    document = ListDocument(items=(Item(text="{{ node.goal }} {% if "),))
    (child,) = planned(document, {"goal": "x", "taskSpec": {"payload": ["<{{ item.text }}>"]}})
    assert child.task_spec == {"payload": ["<{{ node.goal }} {% if >"]}


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30))
def test_any_item_survives_both_stages(text: str) -> None:
    (child,) = planned(
        ListDocument(items=(Item(text=text),)), {"goal": "<{{ item.text }}>", "taskSpec": {"postActions": [ACTION]}}
    )
    assert child.goal == f"<{text}>"
    assert finished(child, "R").content == f"# {text}\nR"


def test_the_template_of_an_inner_document_waits_for_its_own_items() -> None:
    inner = {"goal": "{{ item.text }} {{ nonsense", "_x": 1}
    template = {"taskKind": "EXPAND_FROM_DOC", "documentRef": "c/{{ item.text | slug }}.md", "childTemplate": inner}
    child = planned(LIST, template, failOnMissingField=True)[0]
    assert child.task_spec == {"documentRef": "c/roads.md", "childTemplate": {"goal": "{{ item.text }} {{ nonsense"}}


def test_a_template_that_mixes_the_stages_says_so() -> None:
    with pytest.raises(TemplateError, match=r"mixes item.*with node"):
        goals(LIST, "{{ item.text ~ node.result }}")
    with pytest.raises(TemplateError, match=r"childTemplate.taskSpec.a\[1\].b, line 2"):
        planned(LIST, {"goal": "", "taskSpec": {"a": [1, {"b": "x\n{{ item."}]}})


def test_f11_too_many_entries_are_refused_before_anything_is_rendered() -> None:
    many = parse_document("---\nkind: list\n---\n" + "- x\n" * 5000)
    with pytest.raises(DocumentError, match=r"gives 5000 children and only 200 fit") as caught:
        planned(many, {"goal": "{{ item. }}"})
    assert caught.value.problem is Problem.TOO_MANY
    four = ExpandContext(parent_goal="", max_children=4)
    with pytest.raises(DocumentError, match="gives 5 children and only 4"):
        planned(TREE, {"goal": "x"}, four)
    assert len(planned(TREE, {"goal": "x"}, four, treeMode="FLAT")) == 2


def test_goals_and_texts_have_a_limit() -> None:
    with pytest.raises(DocumentError, match="entry 1 of the document gives a goal of more than") as caught:
        planned(ListDocument(items=(Item(text="x" * (MAX_GOAL_CHARS + 1)),)), {"goal": "{{ item.text }}"})
    assert caught.value.problem is Problem.TOO_LARGE
    big = ListDocument(items=(Item(text="x" * 900_000),) * 6)
    with pytest.raises(DocumentError, match="longer than 5000000 characters together"):
        planned(big, {"goal": "x", "taskSpec": {"note": "{{ item.text }}"}})


def test_a_goal_that_doubles_at_every_level_is_stopped() -> None:
    document = parse_document("---\nkind: tree\n---\n" + "\n".join("  " * n + "- x" for n in range(30)))
    with pytest.raises(DocumentError, match=r"entry 1\.1"):
        planned(document, {"goal": "{{ parent.goal }}{{ parent.goal }}"})


def test_an_expensive_template_is_stopped() -> None:
    loops = "{% for a in item.text %}{% for b in item.text %}{% endfor %}{% endfor %}"
    with pytest.raises(TemplateError, match="steps"):
        goals(ListDocument(items=(Item(text="x" * 200),)), loops)


@pytest.mark.parametrize(
    ("change", "field", "part"),
    [
        ({"childTemplate": None}, "childTemplate", "object"),
        ({"childTemplate": "Write {{ item.text }}"}, "childTemplate", "object"),
        ({"childTemplate": {"taskKind": "AGGREGATE"}}, "childTemplate.taskKind", "WORKER, EXPAND_FROM_DOC, USER_INPUT"),
        ({"childTemplate": {"taskKind": 5}}, "childTemplate.taskKind", "5"),
        ({"childTemplate": {"goal": ["x"]}}, "childTemplate.goal", "text"),
        ({"childTemplate": {"taskSpec": []}}, "childTemplate.taskSpec", "object"),
        ({"childTemplate": {"taskSpec": {"a": ["x"] * 101}}}, "childTemplate", "more than 100 texts"),
        ({"treeMode": "DEEP"}, "treeMode", "FLAT"),
        ({"failOnEmpty": "maybe"}, "failOnEmpty", "true or false"),
        ({"failOnMissingField": 1}, "failOnMissingField", "true or false"),
        ({"documentRef": None}, "documentRef", "by path, id or name"),
        ({"documentRef": {"path": " "}}, "documentRef", "by path, id or name"),
        ({"documentRef": {"path": "../x"}}, "documentRef.path", "leads out"),
        ({"documentRef": {"name": "/etc/x"}}, "documentRef.name", "absolute"),
        ({"documentRef": {"id": 7}}, "documentRef.id", "text"),
    ],
)
def test_a_wrong_task_spec_names_the_field(change: dict[str, Any], field: str, part: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_expand_spec({"documentRef": "x.md", "childTemplate": {"goal": "x"}, **change})
    assert caught.value.field == field
    assert part in caught.value.message


def test_a_template_that_is_nested_without_end() -> None:
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"a": deep}
    with pytest.raises(InvalidParams, match="levels deep"):
        read_expand_spec({"documentRef": "x.md", "childTemplate": {"taskSpec": deep}})


def test_a_task_spec_as_models_write_it() -> None:
    spec = read_expand_spec(
        {
            "documentRef": {"id": " ", "path": "./a//b.md", "name": "c"},
            "childTemplate": {"taskKind": ""},
            "treeMode": " flat ",
            "failOnEmpty": "True",
        }
    )
    assert spec.document == DocumentRef(path="a/b.md")
    assert (spec.child.kind, spec.child.goal, spec.child.task_spec) == ("WORKER", "", {})
    assert (spec.tree_mode, spec.fail_on_empty, spec.fail_on_missing_field) == (TreeMode.FLAT, True, False)
    assert read_expand_spec({"documentRef": {"id": "42", "path": "x"}, "childTemplate": {}}).document == DocumentRef(
        id="42"
    )
    assert str(DocumentRef(name="x.md")) == 'name "x.md"'


def test_a_missing_goal_is_an_empty_goal() -> None:
    assert planned(LIST, {"taskSpec": {}})[0].goal == ""
