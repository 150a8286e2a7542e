"""The documents and the task that the README shows are read as it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from engines.documents.expand import ExpandContext, expand
from engines.documents.model import Branch, ListDocument, RecordsDocument, TreeDocument
from engines.documents.parse import parse_document
from engines.documents.spec import read_expand_spec

README = (Path(__file__).resolve().parents[3] / "engines/documents/README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
MARKDOWN = [text for syntax, text in BLOCKS if syntax == "markdown"]
JSON = [text for syntax, text in BLOCKS if syntax == "json"]


def test_the_documented_documents_have_the_documented_entries() -> None:
    chapters, outline, cities = (parse_document(text) for text in MARKDOWN)
    assert isinstance(chapters, ListDocument)
    assert [item.text for item in chapters.items] == ["Water supply\nincluding wells", "Roads"]
    assert chapters.extra == {"title": "The book"}
    assert isinstance(outline, TreeDocument)
    assert outline.roots == (
        Branch(text="Plan", children=(Branch(text="Budget"), Branch(text="Staff"))),
        Branch(text="Build"),
    )
    assert isinstance(cities, RecordsDocument)
    assert [row.values for row in cities.rows] == [
        {"city": "Graz", "note": "small, green"},
        {"city": "Linz", "note": ""},
    ]
    listed = parse_document(JSON[0], "application/json")
    assert isinstance(listed, ListDocument)
    assert [(item.text, item.extra) for item in listed.items] == [("Water supply", {}), ("Roads", {"author": "Ada"})]


def test_the_documented_task_fans_the_documented_list_out() -> None:
    task = json.loads(JSON[1])
    spec = read_expand_spec(task["taskSpec"])
    plans = expand(parse_document(MARKDOWN[0]), spec, ExpandContext(parent_goal=task["goal"], max_children=10))
    assert [plan.goal for plan in plans] == ["Write chapter 1: Water supply\nincluding wells", "Write chapter 2: Roads"]
    assert plans[1].task_spec["postActions"][0]["args"]["path"] == "chapters/roads.md"
    assert "node.result" in plans[1].task_spec["postActions"][0]["args"]["content"]
