"""The words of Marvin: phases, kinds of tasks, and what a model may choose in each phase."""

from __future__ import annotations

from enum import StrEnum

from engines.inbox.words import Criticality, InputType

__all__ = [
    "Criticality",
    "InputType",
    "Phase",
    "PostChildrenAction",
    "ReflectAction",
    "ScopeAction",
    "TaskKind",
    "Verdict",
]


class Phase(StrEnum):
    """Where a worker node is. A node starts in SCOPE and ends from any phase."""

    SCOPE = "SCOPE"
    REFLECT = "REFLECT"
    POST_CHILDREN = "POST_CHILDREN"
    CONCLUDE = "CONCLUDE"
    VALIDATE = "VALIDATE"


class TaskKind(StrEnum):
    """What a node is."""

    WORKER = "WORKER"
    """Goes through the phases."""
    EXPAND_FROM_DOC = "EXPAND_FROM_DOC"
    """One child for each entry of a document; no model call."""
    USER_INPUT = "USER_INPUT"
    """Waits for a person's answer."""


class ScopeAction(StrEnum):
    """What SCOPE decides. REFLECT chooses among the same."""

    CALL_RECIPE = "CALL_RECIPE"
    PROCEED_TO_CONCLUDE = "PROCEED_TO_CONCLUDE"
    NEEDS_SUBTASKS = "NEEDS_SUBTASKS"
    NEEDS_USER_INPUT = "NEEDS_USER_INPUT"
    BLOCKED_BY_PROBLEM = "BLOCKED_BY_PROBLEM"


ReflectAction = ScopeAction


class PostChildrenAction(StrEnum):
    """What POST_CHILDREN decides."""

    PROCEED_TO_CONCLUDE = "PROCEED_TO_CONCLUDE"
    NEEDS_SUBTASKS = "NEEDS_SUBTASKS"
    BLOCKED_BY_PROBLEM = "BLOCKED_BY_PROBLEM"


class Verdict(StrEnum):
    """What VALIDATE says of a candidate."""

    PASS = "PASS"
    RETRY_CONCLUDE = "RETRY_CONCLUDE"
    NEED_MORE_DATA = "NEED_MORE_DATA"
    HARD_FAIL = "HARD_FAIL"
