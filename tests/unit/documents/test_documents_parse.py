"""What is accepted as a document, what is refused and why, and the canonical form. Rows 116, 122 to 129, F11."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.documents.errors import DocumentError, Problem
from engines.documents.model import (
    Branch,
    Document,
    Item,
    ListDocument,
    RecordsDocument,
    Row,
    TextDocument,
    TreeDocument,
)
from engines.documents.parse import MAX_CHARS, canonical, parse_document, render_document

JSON, YAML = "application/json", "application/yaml"


def problem_of(text: str, mime: str | None = None) -> tuple[Problem, str]:
    with pytest.raises(DocumentError) as caught:
        parse_document(text, mime)
    return caught.value.problem, caught.value.message


def texts(text: str) -> list[str]:
    document = parse_document(text)
    assert isinstance(document, ListDocument)
    return [item.text for item in document.items]


@pytest.mark.parametrize(
    "mime", [None, "", "text/markdown", "text/x-markdown", "TEXT/Markdown; charset=utf-8", " text/markdown ;a=b;c"]
)
def test_markdown_types(mime: str | None) -> None:
    assert parse_document("---\nkind: list\n---\n- a", mime) == ListDocument(items=(Item(text="a"),))


@pytest.mark.parametrize("mime", [YAML, "text/yaml", "text/x-yaml", "application/x-yaml", "text/YAML;x=y"])
def test_yaml_types(mime: str) -> None:
    assert parse_document("$meta: {kind: list}\nitems: [a]", mime) == ListDocument(items=(Item(text="a"),))


@pytest.mark.parametrize("mime", ["text/plain", "application/pdf", "text/html", "markdown", "application/vnd.x+json"])
def test_other_types_are_refused_by_name(mime: str) -> None:
    problem, message = problem_of("---\nkind: list\n---\n", mime)
    assert problem is Problem.UNSUPPORTED_MIME
    assert mime in message


@pytest.mark.parametrize(
    ("text", "mime", "problem", "part"),
    [
        ("---\nkind: graph\n---\n", None, Problem.GRAPH, "graph"),
        ('{"$meta": {"kind": "Graph"}}', JSON, Problem.GRAPH, "graph"),
        ("---\nkind: sheet\n---\n", None, Problem.UNKNOWN_KIND, '"sheet"'),
        ('{"$meta": {"kind": "sheet"}}', JSON, Problem.UNKNOWN_KIND, '"sheet"'),
        ("- a\n- b", None, Problem.NO_KIND, "kind: list"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", None, Problem.NO_KIND, "no kind"),
        ("---\ntitle: x\n---\n- a", None, Problem.NO_KIND, "no kind"),
        ("---\nkind:\n---\n- a", None, Problem.NO_KIND, "no kind"),
        ("---\nkind: list\n- a", None, Problem.NO_KIND, "not closed"),
        ("intro\n---\nkind: list\n---\n- a", None, Problem.NO_KIND, "no kind"),
        ('{"items": ["a"]}', JSON, Problem.NO_KIND, "$meta"),
        ('{"kind": "list", "items": ["a"]}', JSON, Problem.NO_KIND, "$meta"),
        ('{"$meta": "list"}', JSON, Problem.NO_KIND, "$meta"),
        ('{"$meta": {"kind": ["list"]}}', JSON, Problem.NO_KIND, "$meta"),
        ("", None, Problem.EMPTY, "empty"),
        (" \n\n\t", JSON, Problem.EMPTY, "empty"),
        ("\ufeff", YAML, Problem.EMPTY, "empty"),
        ("{", JSON, Problem.MALFORMED, "JSON"),
        ("[]", JSON, Problem.MALFORMED, "top level"),
        ('{"$meta": {"kind": "list"}, "a": NaN}', JSON, Problem.MALFORMED, "NaN"),
        ('{"$meta": {"kind": "list"}, "a": 1e999}', JSON, Problem.MALFORMED, "too big"),
        ('{"$meta": {"kind": "list"}, "a": 1, "a": 2}', JSON, Problem.MALFORMED, "twice"),
        ('{"$meta": {"kind": "list"}, "items": ["\\u0000"]}', JSON, Problem.MALFORMED, "U+0000"),
        ('{"$meta": {"kind": "list"}, "\\ud800": 1}', JSON, Problem.MALFORMED, "U+D800"),
        ('{"$meta": {"kind": "list"}, "items": "a"}', JSON, Problem.MALFORMED, "items must be a list"),
        ("a: [", YAML, Problem.MALFORMED, "YAML"),
        ("- a", YAML, Problem.MALFORMED, "top level"),
        ("a: 1\na: 2", YAML, Problem.MALFORMED, "twice"),
        ("a: &x [1]\nb: *x", YAML, Problem.MALFORMED, "aliases"),
        ("---\nkind: list\nkind: tree\n---\n", None, Problem.MALFORMED, "twice"),
        ("---\nkind: list\n---\n- \0", None, Problem.MALFORMED, "U+0000"),
        ("---\nkind: records\n---\n- a, b", None, Problem.NO_SCHEMA, "schema"),
        ("---\nkind: records\nschema: ' , ,'\n---\n- a, b", None, Problem.NO_SCHEMA, "schema"),
        ("---\nkind: records\n---\n||\n|-|\n|a|", None, Problem.NO_SCHEMA, "schema"),
        ("---\nkind: records\nschema: a, _overflow\n---\n- a", None, Problem.NO_SCHEMA, "_overflow"),
        ('{"$meta": {"kind": "records"}, "items": [{"a": 1}]}', JSON, Problem.NO_SCHEMA, "schema"),
        ('{"$meta": {"kind": "records"}, "schema": {"a": 1}}', JSON, Problem.NO_SCHEMA, "list"),
        ('{"a": ' + "[" * 5000 + "]" * 5000 + "}", JSON, Problem.TOO_DEEP, "nested"),
        ('{"$meta": {"kind": "list"}, "a": ' + "[" * 200 + "]" * 200 + "}", JSON, Problem.TOO_DEEP, "nested"),
        ("---\nkind: tree\n---\n" + "\n".join("  " * n + "- x" for n in range(40)), None, Problem.TOO_DEEP, "levels"),
        ("---\nkind: list\n---\n" + "x" * MAX_CHARS, None, Problem.TOO_LARGE, "longer"),
        ("---\nkind: list\n" + "# x\n" * 20_000 + "---\n- a", None, Problem.NO_KIND, "not closed"),
    ],
)
def test_refused_with_a_reason(text: str, mime: str | None, problem: Problem, part: str) -> None:
    found, message = problem_of(text, mime)
    assert found is problem
    assert part in message


def test_a_json_tree_that_is_too_deep() -> None:
    node: dict[str, Any] = {"text": "x"}
    for _ in range(35):
        node = {"text": "x", "children": [node]}
    problem, message = problem_of(json.dumps({"$meta": {"kind": "tree"}, "items": [node]}), JSON)
    assert problem is Problem.TOO_DEEP
    assert "levels" in message


def test_the_header_decides_the_kind() -> None:
    body = "- a\n  - b\n"
    assert isinstance(parse_document(f"---\nkind: list\n---\n{body}"), ListDocument)
    assert isinstance(parse_document(f"---\nkind: TREE \n---\n{body}"), TreeDocument)
    text = parse_document(f"---\nkind: text\nby: me\n---\n{body}")
    assert text == TextDocument(text=body, extra={"by": "me"})


def test_header_lines() -> None:
    document = parse_document(
        '\n---\nkind: list\n\n# note: x\n  nested: x\n- item\nurl: http://x/y\na:b\nq: "it\'s"\n---'
    )
    assert document == ListDocument(items=(), extra={"url": "http://x/y", "q": "it's"})


def test_a_header_field_cannot_take_the_place_of_the_body() -> None:
    document = parse_document("---\nkind: list\nitems: 3\n$meta: x\nrows: 2\n---\n- a")
    assert document == ListDocument(items=(Item(text="a"),), extra={"rows": "2"})


def test_entries_under_another_name_and_null() -> None:
    document = parse_document('{"$meta": {"kind": "records"}, "schema": "a", "items": null, "rows": [{"a": 1}]}', JSON)
    assert canonical(document) == {"$meta": {"kind": "records"}, "schema": ["a"], "items": [{"a": "1"}]}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("- a\r\n* b\r\n+ c\r1) d", ["a", "b", "c", "d"]),
        ("1. a\n\n1. b\n\ntext\n\n1. c", ["a", "b", "c"]),
        ("- a\n\n```\n- not an item\n```\n\n- b", ["a", "b"]),
        ("- ```\n- not an item\n  ```\n- b", ["```\n- not an item\n  ```", "b"]),
        ("- a\n  - nested\n\t- nested\n    - nested\n- b", ["a\n- nested\n- nested\n- nested", "b"]),
        ("- [ ] x\n- [x] y", ["[ ] x", "[x] y"]),
        ("-\n- \n-  \t\n- a", ["a"]),
        ("---\n- a\n***\n- - -\n- b", ["a", "b"]),
        ("Text.\n\n2024\n-a\n1.5 litres\n1234567890. no\n", []),
        ("- ``` inline ```\n- b", ["``` inline ```", "b"]),
        ("~~~~\n- x\n~~~\n- y\n~~~~~\n- a", ["a"]),
    ],
)
def test_f11_the_right_items(body: str, found: list[str]) -> None:
    expected = [text.replace("\n  ```", "\n```") for text in found]
    assert texts(f"---\nkind: list\n---\n{body}") == expected


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "line", ["```x", "~~~~ x", "- ```x", "-", "- a", "- " + "-" * 40 + "x", "      x", " " * 200 + ":", "|" * 50]
)
def test_long_documents_are_read_in_time(line: str) -> None:
    lines = "\n".join([line] * (150_000 // (len(line) + 1)))
    for kind in ("list", "tree", "records\nschema: a"):
        parse_document(f"---\nkind: {kind}\n---\n{lines}")
    problem_of(f"---\nkind: list\n{lines}")


NAMES = st.text("abcdefg_ äß☃", min_size=1, max_size=6).map(str.strip).filter(bool)
STRINGS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=5,
)


def extras(*taken: str) -> st.SearchStrategy[dict[str, Any]]:
    names = NAMES.filter(lambda name: name not in (*taken, "_overflow"))
    return st.dictionaries(names, VALUES, max_size=3)


ITEMS = st.builds(Item, text=STRINGS, extra=extras("text"))
BRANCHES = st.recursive(
    st.builds(Branch, text=STRINGS, extra=extras("text", "children")),
    lambda inner: st.builds(
        Branch, text=STRINGS, children=st.lists(inner, max_size=3).map(tuple), extra=extras("text", "children")
    ),
    max_leaves=6,
)


@st.composite
def records(draw: st.DrawFn) -> RecordsDocument:
    schema = tuple(draw(st.lists(NAMES.filter(lambda name: name != "_overflow"), min_size=1, max_size=4, unique=True)))
    row = st.builds(
        Row,
        values=st.fixed_dictionaries(dict.fromkeys(schema, STRINGS)),
        extra=extras(*schema),
        overflow=st.lists(STRINGS, max_size=2).map(tuple),
    )
    return RecordsDocument(schema=schema, rows=tuple(draw(st.lists(row, max_size=3))), extra=draw(extras("schema")))


DOCUMENTS: st.SearchStrategy[Document] = st.one_of(
    st.builds(ListDocument, items=st.lists(ITEMS, max_size=4).map(tuple), extra=extras()),
    st.builds(TreeDocument, roots=st.lists(BRANCHES, max_size=3).map(tuple), extra=extras()),
    records(),
    st.builds(TextDocument, text=STRINGS, extra=extras("text")),
)


@given(DOCUMENTS)
def test_the_canonical_form_reads_back_as_the_same_document(document: Document) -> None:
    written = render_document(document)
    assert parse_document(written, JSON) == document
    assert next(iter(json.loads(written))) == "$meta"


PIECES = ["- ", "* ", "1) ", "  ", "\t", "\n", "\n", "```", "~~~", "a", "b,", '"', "|", "---", "root((x))", ":", "\r"]
MARKDOWN = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map("".join)


@given(st.sampled_from(["list", "tree", "records\nschema: a, b", "records", "text"]), MARKDOWN)
def test_any_markdown_is_read_or_refused_and_reads_back(kind: str, body: str) -> None:
    try:
        document = parse_document(f"---\nkind: {kind}\n---\n{body}")
    except DocumentError as error:
        if error.problem not in (Problem.MALFORMED, Problem.NO_SCHEMA):
            raise
        return
    assert parse_document(render_document(document), JSON) == document


@given(st.text(max_size=60), st.sampled_from([None, JSON, YAML]))
def test_any_text_is_a_document_or_a_document_error(text: str, mime: str | None) -> None:
    with suppress(DocumentError):
        parse_document(text, mime)
