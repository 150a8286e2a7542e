"""Post-actions: rows 132 to 134 and 136, F2 and F3 in content, F6 and F7 through templates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.documents.actions import (
    MAX_ACTIONS,
    ActionContext,
    DocWrite,
    Refused,
    Rendered,
    read_action,
    render_action,
    run_actions,
)
from engines.documents.paths import normalise_path

CONTEXT = ActionContext(
    node_result="# Report\n{{ process.id }}",
    node_goal="Ä B!",
    process_id="P1",
    process_goal="The goal",
    process_params={"topic": "tides"},
)
ARGS = {"path": "a/b.md", "kind": "text", "content": "{{ node.result }}"}


def write(**change: Any) -> dict[str, Any]:
    return {"tool": "doc_write", "args": {**ARGS, **change}}


def outcome(raw: Any) -> Rendered | Refused:
    (result,) = run_actions([raw], CONTEXT)
    return result.outcome


def refusal(raw: Any) -> Refused:
    found = outcome(raw)
    assert isinstance(found, Refused), found
    return found


def document(raw: Any) -> Rendered:
    found = outcome(raw)
    assert isinstance(found, Rendered), found
    return found


def test_the_example_of_the_specification() -> None:
    assert document(write(path="research/nuclear-power/report.md")) == Rendered(
        path="research/nuclear-power/report.md", kind="text", content="# Report\n{{ process.id }}", title=None
    )


@pytest.mark.parametrize(
    "raw",
    [
        {"toolName": "doc_write", "params": ARGS},
        {"tool": " ", "toolName": "Doc_Write ", "args": None, "params": ARGS},
        {"tool": "doc_write", **ARGS},
        {"tool": "doc_write", "args": {**ARGS, "title": None, "unknown": 1, "_x": 2}},
    ],
)
def test_other_ways_to_write_the_same(raw: Any) -> None:
    assert read_action(raw) == DocWrite(**ARGS)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ node.goal | slug }}", "b"),
        ("{{ node.goal }}", "Ä B!"),
        ("{{ node.summary }}", "# Report\n{{ process.id }}"),
        ("{{ result.result }}", "# Report\n{{ process.id }}"),
        ("{{ process.goal }} {{ process.id }} {{ process.params.topic }}", "The goal P1 tides"),
        ("a {{ node.nothing }}", "a "),
        ("{{ node.result ~ node.goal }}", "# Report\n{{ process.id }}Ä B!"),
    ],
)
def test_what_templates_may_name(template: str, text: str) -> None:
    assert document(write(content=template)).content == text


def test_a_summary_of_its_own_comes_first() -> None:
    context = ActionContext(node_result="R", node_goal="G", process_id="P", process_goal="PG", node_summary="S")
    found = render_action(DocWrite(path="a", kind="text", content="{{ node.summary }}"), context)
    assert found == Rendered(path="a", kind="text", content="S")


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1).filter(str.strip))
def test_a_result_is_never_rendered_again(result: str) -> None:
    context = ActionContext(node_result=result, node_goal="G", process_id="P", process_goal="PG")
    found = render_action(DocWrite(path="a", kind="text", content="{{ node.result }}"), context)
    assert found == Rendered(path="a", kind="text", content=result)


@pytest.mark.parametrize("name", ["path", "kind", "content"])
@pytest.mark.parametrize("value", [None, "", "  ", 5, ["x"]])
def test_path_kind_and_content_are_required(name: str, value: Any) -> None:
    found = refusal(write(**{name: value}))
    assert not found.skipped
    assert name in found.reason
    args = {key: text for key, text in ARGS.items() if key != name}
    assert f"{name} is missing" in refusal({"tool": "doc_write", "args": args}).reason


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"tool": "doc_delete", "args": ARGS}, 'unknown tool "doc_delete"'),
        ({"tool": "x" * 9000}, "unknown tool"),
        ({"args": ARGS}, "names no tool"),
        ({"tool": 5, "args": ARGS}, "names no tool"),
        ("doc_write", "names no tool"),
        (None, "names no tool"),
    ],
)
def test_an_unknown_tool_is_skipped(raw: Any, reason: str) -> None:
    found = refusal(raw)
    assert found.skipped
    assert reason in found.reason
    assert len(found.reason) < 300


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"path": "_vance/x"}, "reserved"),
        ({"path": "{{ '_van' ~ 'ce' }}/x"}, "reserved"),
        ({"path": "notes/{{ '..' }}/{{ '..' }}/x"}, "leads out"),
        ({"path": "a/{{ node.result }}"}, "control character"),
        ({"path": "{{ node.nothing }}"}, "empty"),
        ({"path": "{{ 'x' * 3 }}"}, "numbers"),
        ({"path": "{% for a in node.result %}{% for b in node.result %}{{ 'x' * 1 }}{% endfor %}{% endfor %}"}, "path"),
        ({"kind": "{{ node.result }}"}, "no kind of document"),
        ({"kind": "../x"}, "no kind of document"),
        ({"content": "{{ node.nothing }} \n"}, "content is empty"),
        ({"content": "{{ node."}, "line 1"),
        ({"content": "{{ ''.__class__.__mro__ }}"}, "not allowed"),
        ({"content": "{{ ''|attr('__class__') }}"}, "no filter"),
        ({"content": "{{ cycler.__init__.__globals__.os }}"}, "not allowed"),
        ({"content": "{{ 'x'.ljust(500000000)|length }}"}, "calls are not allowed"),
        ({"content": "a\0b"}, "U+0000"),
        ({"content": "{{ node.goal }}", "title": "\ud800"}, "U+D800"),
        ({"title": "{{ node."}, "title"),
        ({"title": 5}, "title must be a text"),
    ],
)
def test_what_fails_after_filling_in(change: dict[str, str], reason: str) -> None:
    found = refusal(write(**change))
    assert not found.skipped
    assert reason in found.reason


def test_content_has_a_limit() -> None:
    context = ActionContext(node_result="x" * 3_000_000, node_goal="G", process_id="P", process_goal="PG")
    assert isinstance(render_action(DocWrite(**ARGS), context), Rendered)
    doubled = render_action(DocWrite(path="a", kind="text", content="{{ node.result }}" * 2), context)
    assert isinstance(doubled, Refused)
    assert "5000000 bytes" in doubled.reason
    plain = render_action(DocWrite(path="a", kind="text", content="x" * 5_000_001), context)
    assert isinstance(plain, Refused)


def test_arguments_that_are_no_object() -> None:
    assert "must be an object" in refusal({"tool": "doc_write", "args": ["a.md"]}).reason


def test_paths_kinds_and_titles_are_normalised() -> None:
    found = document(write(path="./a\\{{ node.goal | slug }}.md", kind=" Text ", title=" A\n  {{ process.goal }} "))
    assert (found.path, found.kind, found.title) == ("a/b.md", "text", "A The goal")
    assert len(document(write(title="t" * 500)).title or "") == 200


def test_one_failure_does_not_stop_the_next() -> None:
    raw = [write(path="../x"), {"tool": "mail"}, write(path="ok.md"), None, write(path="ok.md", content="second")]
    results = run_actions(raw, CONTEXT)
    assert [result.position for result in results] == [0, 1, 2, 3, 4]
    assert [result.tool for result in results] == ["doc_write", "mail", "doc_write", "", "doc_write"]
    kinds = [
        "skipped" if isinstance(r.outcome, Refused) and r.outcome.skipped else type(r.outcome).__name__ for r in results
    ]
    assert kinds == ["Refused", "skipped", "Rendered", "skipped", "Rendered"]


def test_what_is_no_list() -> None:
    assert run_actions(None, CONTEXT) == run_actions([], CONTEXT) == ()
    for raw in ({"tool": "doc_write"}, "doc_write", 5):
        (result,) = run_actions(raw, CONTEXT)
        assert result.outcome == Refused(reason="postActions must be a list")


def test_a_node_has_a_bounded_number_of_actions() -> None:
    results = run_actions([write()] * (MAX_ACTIONS + 2), CONTEXT)
    assert [isinstance(result.outcome, Rendered) for result in results] == [True] * MAX_ACTIONS + [False] * 2
    assert results[-1].outcome == Refused(reason="a node may have 20 post-actions", skipped=True)


JUNK = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["{{ node.result }}", "{% if", "doc_write", "../a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["tool", "args", "path", "kind", "content", "title", "x"]), inner, max_size=6)
    ),
    max_leaves=12,
)


@given(JUNK)
def test_no_action_ever_raises_and_every_document_has_a_good_path(raw: Any) -> None:
    for result in run_actions(raw, CONTEXT):
        if isinstance(result.outcome, Rendered):
            assert normalise_path(result.outcome.path) == result.outcome.path
        else:
            assert result.outcome.reason
