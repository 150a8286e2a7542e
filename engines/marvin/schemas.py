"""The JSON Schema of each phase's answer, as the model and its provider see it.

Closed and without free-form objects, so that providers with a strict mode can hold the model to it. What is accepted
from a model that was not held to anything is wider: see :mod:`engines.marvin.tolerance`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from engines.marvin.words import Criticality, InputType, Phase, PostChildrenAction, ScopeAction, TaskKind, Verdict
from models.records import ChildMode

Schema = dict[str, Any]


def schema_for(phase: Phase) -> Schema:
    """The schema of ``phase``'s answer, as a copy of the caller's own."""
    return deepcopy(_SCHEMAS[phase])


def _object(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _one_of(words: Any, description: str) -> Schema:
    return {"type": "string", "enum": [word.value for word in words], "description": description}


def _list(items: Schema, description: str) -> Schema:
    return {"type": "array", "items": items, "description": description}


_REASON: Final = _text("Why, in one line.")
_PROBLEM: Final = _text("With BLOCKED_BY_PROBLEM: what is in the way.")

_POST_ACTION: Final = _object(
    ("tool", "args"),
    tool=_text("doc_write"),
    args=_object(
        ("path", "kind", "content"),
        path=_text("Where the document goes, within the project."),
        kind=_text("The document's kind; text for prose."),
        content=_text("What to write. {{ node.result }} stands for the finished result."),
        title=_text("The document's title."),
    ),
)

_PAYLOAD: Final = _object((), options=_list({"type": "string"}, "What the person may choose from."))

_QUESTION: Final = {
    "type": _one_of(InputType, "What kind of answer is wanted."),
    "title": _text("The question in one line."),
    "body": _text("What the person has to know to answer."),
    "criticality": _one_of(Criticality, "How pressing it is."),
    "payload": _PAYLOAD,
}

_TASK_SPEC: Final = _object(
    (),
    executionMode=_one_of(ChildMode, "How its children run."),
    documentRef=_object(("path",), path=_text("EXPAND_FROM_DOC: the document that holds the list.")),
    treeMode={"type": "string", "enum": ["FLAT", "RECURSIVE"], "description": "EXPAND_FROM_DOC on a tree document."},
    childTemplate=_object(
        ("taskKind", "goal"),
        taskKind=_one_of(TaskKind, "What each child is."),
        goal=_text("Each child's goal; {{ item.text }} stands for its entry."),
        taskSpec=_object((), postActions=_list(_POST_ACTION, "Documents each child writes once it is done.")),
    ),
    **_QUESTION,
)

_NEW_TASKS: Final = _list(
    _object(
        ("goal", "taskKind"),
        goal=_text("What the subtask has to achieve, understandable by itself."),
        taskKind=_one_of(TaskKind, "WORKER unless there is a reason."),
        taskSpec=_TASK_SPEC,
    ),
    "With NEEDS_SUBTASKS: the subtasks, in the order they should run.",
)

_DECISION: Final = _object(
    ("action", "reason"),
    action=_one_of(ScopeAction, "The next step."),
    recipeCall=_object(
        ("recipe", "steerContent"),
        recipe=_text("One of the listed recipes."),
        steerContent=_text("The assignment for it, complete: it knows nothing else."),
    ),
    newTasks=_NEW_TASKS,
    userInput=_object(("type", "title"), **_QUESTION),
    problem=_PROBLEM,
    reason=_REASON,
)

_SCHEMAS: Final[dict[Phase, Schema]] = {
    Phase.SCOPE: _DECISION,
    Phase.REFLECT: _DECISION,
    Phase.POST_CHILDREN: _object(
        ("action", "reason"),
        action=_one_of(PostChildrenAction, "The next step."),
        newTasks=_NEW_TASKS,
        problem=_PROBLEM,
        reason=_REASON,
    ),
    Phase.CONCLUDE: _object(
        ("result", "reason"),
        result=_text("The complete answer in Markdown."),
        postActions=_list(_POST_ACTION, "Documents to write once the answer is accepted."),
        reason=_REASON,
    ),
    Phase.VALIDATE: _object(
        ("verdict", "issues", "reason"),
        verdict=_one_of(Verdict, "The judgement."),
        issues=_list({"type": "string"}, "What is wrong, one problem per entry; empty with PASS."),
        hint=_text("What would make it better."),
        reason=_REASON,
    ),
}
