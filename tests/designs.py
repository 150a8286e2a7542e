"""Designs of plan recipes as the architect hands them in: one of each template, all in order."""

from __future__ import annotations

import copy
from typing import Any

_REASONS: dict[str, Any] = {"justifications": ["the wish names two sides"], "shapeRationale": "It falls into sides."}
_DESIGNS: dict[str, dict[str, Any]] = {
    "research-aggregate-write": {
        "name": "Subject Report",
        "description": "Looks at a subject from two sides and writes a report.",
        "language": "en",
        "availableRecipes": ["web-research"],
        "aspects": [
            {"role": "a historian", "goal": 'Find out how {{ process.goal }} came about, "firsts" included.'},
            {"role": "an engineer", "goal": "Find out how {{ process.goal }} works."},
        ],
        "synthesisPrompt": "Write a report on {{ process.goal }}.\nFirst history, then technology.",
        "outputPathTpl": "reports/{{ process.goal | slug }}.md",
        "outputTitleTpl": "On {{ process.goal }}",
        "reportLengthWords": 800,
    },
    "doc-driven-chapters": {
        "name": "handbook",
        "description": "Writes a handbook chapter by chapter.",
        "language": "en",
        "availableRecipes": [],
        "outlinePrompt": "Outline a handbook on {{ process.goal }} in two entries.",
        "outlinePath": "books/{{ process.goal | slug }}/outline.md",
        "chaptersDir": "books/{{ process.goal | slug }}/chapters/",
        "chapterPromptTpl": "Write chapter {{ index1 }}, {{ item.text }}, of the handbook on {{ process.goal }}",
        "consolidate": True,
        "consolidatePrompt": "Write an introduction.",
        "finalPath": "books/{{ process.goal | slug }}/introduction.md",
    },
    "decide-with-user-input": {
        "name": "choose-supplier",
        "description": "Asks two people's worth of questions and decides.",
        "language": "en",
        "availableRecipes": [],
        "questions": [
            {"title": "Which supplier?", "body": "For {{ process.goal }}.", "type": "DECISION", "options": ["A", "B"]},
            {"title": "Anything else?", "body": "Say what matters."},
        ],
        "decisionPrompt": "Decide by the answers.",
        "outputPathTpl": "decisions/{{ process.goal | slug }}.md",
    },
}
TEMPLATES = tuple(_DESIGNS)


def design(template: str, /, *without: str, **changes: Any) -> dict[str, Any]:
    """A good design of ``template``, with fields of ``params`` changed or left out."""
    params = {**copy.deepcopy(_DESIGNS[template]), **changes}
    return {"templateId": template, "params": {k: v for k, v in params.items() if k not in without}, **_REASONS}
