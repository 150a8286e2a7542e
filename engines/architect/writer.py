"""From a checked design to the text of a recipe. Pure: the same design gives the same text."""

from __future__ import annotations

import json
from typing import Any, Final, assert_never

import yaml

from engines.architect.shapes import Chapters, Decision, Design, Question, Research, Shape
from engines.architect.templates import protected
from engines.inbox.words import Criticality

TAG: Final = "architect"
"""Marks a recipe that was written here, and may be written again."""
_RESULT: Final = "{{ node.result }}"
_LIST_HEADER: Final = "---\nkind: list\n---\n"
_TOP: Final = """\
You are the top of a plan whose shape is settled. Keep to the steps below, even where another way seems possible; the
goal of the process fills them with its subject.
"""
_LANGUAGE: Final = "Everything is written in this language: {{ lang }}.\n"
_ONWARD: Final = """\
## When you are in POST_CHILDREN

Choose PROCEED_TO_CONCLUDE. A task that failed is no reason to add others: the conclusion says what is missing.
"""


def recipe_text(design: Design, name: str) -> str:
    """The YAML of the recipe ``name`` (normalised)."""
    shape = design.shape
    match shape:
        case Research():
            steps, params = _research(shape), {"maxTreeDepth": 1, **_PARALLEL}
        case Chapters():
            steps, params = _chapters(shape), {"maxTreeDepth": 2}
        case Decision():
            steps, params = _decision(shape), {"maxTreeDepth": 1, **_PARALLEL}
        case Shape():
            raise TypeError(f"no recipe is written for {type(shape).__name__}")
        case _:
            assert_never(shape)
    recipe: dict[str, Any] = {
        "title": name.replace("-", " ").capitalize(),
        "description": f"{shape.description}\n",
        "engine": "marvin",
        "params": {"availableRecipes": list(shape.available_recipes), "lang": shape.language, **params},
        "promptPrefix": "\n".join((_TOP, *steps, _LANGUAGE)),
        "tags": ["planning", TAG],
    }
    comments = [f"Shape: {design.template_id}. {design.shape_rationale}", *design.justifications]
    head = "".join(f"# {' '.join(comment.split())}\n" for comment in comments)
    return head + yaml.dump(recipe, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


_PARALLEL: Final[dict[str, Any]] = {"defaultExecutionModePerKind": {"WORKER": "PARALLEL"}}
"""The children of the top do not wait for each other."""


def _research(shape: Research) -> list[str]:
    goals = [{"goal": f"As {aspect.role}: {aspect.goal}", "taskKind": "WORKER"} for aspect in shape.aspects]
    conclusion = [shape.synthesis_prompt]
    if shape.report_length_words is not None:
        conclusion.append(f"The text has about {shape.report_length_words} words.")
    title = shape.output_title_tpl
    return [_split(goals), _ONWARD, _conclusion("\n".join(conclusion), _write(shape.output_path_tpl, title=title))]


def _chapters(shape: Chapters) -> list[str]:
    outline = (
        f"{shape.outline_prompt}\nThe result is the outline and nothing else: one line for each chapter, each beginning"
        " with '- ', without indented lines."
    )
    chapter_path = f"{shape.chapters_dir.rstrip('/')}/{{{{ index1 }}}}-{{{{ item.text | slug }}}}.md"
    tasks: list[dict[str, Any]] = [
        {
            "goal": outline,
            "taskKind": "WORKER",
            "taskSpec": {"postActions": [_write(shape.outline_path, kind="list", content=_LIST_HEADER + _RESULT)]},
        },
        {
            "goal": "Write the chapters of the outline",
            "taskKind": "EXPAND_FROM_DOC",
            "taskSpec": {
                "documentRef": {"path": shape.outline_path},
                "treeMode": "FLAT",
                "failOnEmpty": True,
                "childTemplate": {
                    "taskKind": "WORKER",
                    "goal": shape.chapter_prompt_tpl,
                    "taskSpec": {"postActions": [_write(chapter_path)]},
                },
            },
        },
    ]
    if shape.consolidate and shape.consolidate_prompt is not None and shape.final_path is not None:
        conclusion = _conclusion(shape.consolidate_prompt, _write(shape.final_path))
    else:
        conclusion = _conclusion("Say in a few sentences which chapters there are and which are missing.", None)
    return [_split(tasks), _ONWARD, conclusion]


def _decision(shape: Decision) -> list[str]:
    tasks = [
        {"goal": question.title, "taskKind": "USER_INPUT", "taskSpec": _asked(question)} for question in shape.questions
    ]
    closing = f"{shape.decision_prompt}\nA question that nobody answered stays open: say so instead of guessing."
    return [_split(tasks), _ONWARD, _conclusion(closing, _write(shape.output_path_tpl))]


def _asked(question: Question) -> dict[str, Any]:
    spec: dict[str, Any] = {"type": question.type.value, "title": question.title, "body": question.body}
    if question.criticality is not Criticality.NORMAL:
        spec["criticality"] = question.criticality.value
    return spec | ({"payload": {"options": list(question.options)}} if question.options else {})


def _write(path: str, *, kind: str = "text", content: str = _RESULT, title: str | None = None) -> dict[str, Any]:
    args = {"path": path, "kind": kind, "content": content} | ({"title": title} if title else {})
    return {"tool": "doc_write", "args": args}


def _split(tasks: list[dict[str, Any]]) -> str:
    return (
        "## When you are in SCOPE\n\nChoose NEEDS_SUBTASKS with exactly this list as `newTasks`, word for word:\n\n"
        f"{_shown(tasks)}\n"
    )


def _conclusion(prompt: str, action: dict[str, Any] | None) -> str:
    text = f"## When you are in CONCLUDE\n\n{protected(prompt)}\n"
    if action is None:
        return text
    return f"{text}\nAsk for one document, with exactly this as `postActions`:\n\n{_shown([action])}\n"


def _shown(value: list[dict[str, Any]]) -> str:
    return protected(json.dumps(value, ensure_ascii=False, indent=2))


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks; no anchors, which recipes do not allow."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
