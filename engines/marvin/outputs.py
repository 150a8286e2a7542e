"""What a phase call answers: one frozen model per phase, and the way from a model's raw text to it.

``parse_output`` is tolerant about form (see :mod:`engines.marvin.tolerance`) and strict about sense: an unknown action
or verdict, a missing part that the action needs, two different answers or a key given twice are errors that say what
would be right.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from engines.errors import EngineError
from engines.marvin.schemas import schema_for
from engines.marvin.tolerance import canonical, post_actions, text_or_none, token_key, user_input, with_known_token
from engines.marvin.words import (
    Criticality,
    InputType,
    Phase,
    PostChildrenAction,
    ReflectAction,
    ScopeAction,
    TaskKind,
    Verdict,
)
from engines.structured.checks import Violation
from engines.structured.correction import correction_text
from engines.structured.reading import read_reply
from engines.structured.schema import CompiledSchema, compile_schema
from engines.structured.text import describe

__all__ = [
    "ConcludeOutput",
    "NewTask",
    "PhaseOutput",
    "PhaseParseError",
    "PostAction",
    "PostChildrenOutput",
    "RecipeCall",
    "ReflectOutput",
    "ScopeOutput",
    "UserInput",
    "ValidateOutput",
    "parse_output",
    "post_actions_of",
    "schema_for",
    "user_input_of",
]


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="ignore", frozen=True, alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True
    )


class RecipeCall(_Part):
    """A recipe to run, and the assignment it gets."""

    recipe: str
    steer_content: str


class NewTask(_Part):
    """A child to be created. ``task_spec`` holds no key that begins with an underscore."""

    goal: str
    task_kind: TaskKind = TaskKind.WORKER
    task_spec: dict[str, Any] = Field(default_factory=dict)


class UserInput(_Part):
    """A question to a person. At least one of ``title``, ``body`` and ``payload`` says something."""

    type: InputType = InputType.FEEDBACK
    title: str = ""
    body: str = ""
    criticality: Criticality = Criticality.NORMAL
    payload: dict[str, Any] = Field(default_factory=dict)


class PostAction(_Part):
    """Something the engine does once the result is accepted; ``args`` are templates, not rendered yet."""

    tool: str
    args: dict[str, Any] = Field(default_factory=dict)


_TASKS: Final = f"at least one task with a goal, and as taskKind one of {', '.join(TaskKind)} (with NEEDS_SUBTASKS)"
_NEEDS: Final[dict[str, tuple[str, str, str]]] = {
    ScopeAction.CALL_RECIPE: (
        "recipe_call",
        "recipeCall",
        "an object with the texts recipe and steerContent (with CALL_RECIPE)",
    ),
    ScopeAction.NEEDS_SUBTASKS: ("new_tasks", "newTasks", _TASKS),
    ScopeAction.NEEDS_USER_INPUT: (
        "user_input",
        "userInput",
        "an object with a title or a body (with NEEDS_USER_INPUT)",
    ),
    ScopeAction.BLOCKED_BY_PROBLEM: ("problem", "problem", "what is in the way, as text (with BLOCKED_BY_PROBLEM)"),
}
"""What each action needs: attribute, property, description."""


class _Decision(_Part):
    """What SCOPE, REFLECT and POST_CHILDREN have in common."""

    new_tasks: tuple[NewTask, ...] = ()
    problem: str | None = None
    reason: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        attribute, key, expected = _NEEDS.get(str(getattr(self, "action", "")), ("", "", ""))
        if attribute and not getattr(self, attribute):
            raise PydanticCustomError("incomplete", "{expected}", {"key": key, "expected": expected})
        return self


class ScopeOutput(_Decision):
    """The first decision about a goal."""

    phase: Literal[Phase.SCOPE] = Phase.SCOPE
    action: ScopeAction
    recipe_call: RecipeCall | None = None
    user_input: UserInput | None = None


class ReflectOutput(_Decision):
    """The decision after a recipe's reply, or after a review that asked for more data."""

    phase: Literal[Phase.REFLECT] = Phase.REFLECT
    action: ReflectAction
    recipe_call: RecipeCall | None = None
    user_input: UserInput | None = None


class PostChildrenOutput(_Decision):
    """The decision once all children are settled."""

    phase: Literal[Phase.POST_CHILDREN] = Phase.POST_CHILDREN
    action: PostChildrenAction


class ConcludeOutput(_Part):
    """A candidate for the node's result."""

    phase: Literal[Phase.CONCLUDE] = Phase.CONCLUDE
    result: str
    post_actions: tuple[PostAction, ...] = ()
    reason: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.result.strip():
            expected = "the complete answer, not a blank text"
            raise PydanticCustomError("incomplete", "{expected}", {"key": "result", "expected": expected})
        return self


class ValidateOutput(_Part):
    """A judgement of the candidate."""

    phase: Literal[Phase.VALIDATE] = Phase.VALIDATE
    verdict: Verdict
    issues: tuple[str, ...] = ()
    hint: str | None = None
    reason: str | None = None


PhaseOutput = Annotated[
    ScopeOutput | ReflectOutput | PostChildrenOutput | ConcludeOutput | ValidateOutput, Field(discriminator="phase")
]

_OUTPUT: Final[TypeAdapter[PhaseOutput]] = TypeAdapter(PhaseOutput)


class PhaseParseError(EngineError):
    """A phase's answer cannot be used. ``message`` names each wrong field, what was found and what would be right.

    correction: the same as a message for the model. last_invalid: the parsed answer, or its text, shortened.
    """

    def __init__(self, phase: Phase, violations: tuple[Violation, ...], correction: str, last_invalid: Any) -> None:
        super().__init__("; ".join(map(str, violations[:5])))
        self.phase = phase
        self.violations = violations
        self.correction = correction
        self.last_invalid = last_invalid


def parse_output(phase: Phase, text: str, *, truncated: bool = False) -> PhaseOutput:
    """The answer of ``phase`` in a model's raw ``text``. Raises :class:`PhaseParseError`, and nothing else.

    truncated: the provider stopped at its output limit; such a text counts only if it is complete as it stands.
    """
    reading = read_reply(text, _gate(phase), truncated=truncated, restore=lambda value: with_known_token(phase, value))
    if reading.data is None:
        raise _error(phase, reading.violations, reading.last_invalid, truncated)
    raw = with_known_token(phase, reading.data)
    try:
        return _OUTPUT.validate_python(canonical(phase, raw))
    except ValidationError as error:
        violations = tuple(_violation(found, raw) for found in error.errors())
        raise _error(phase, violations, reading.data, truncated) from None


def post_actions_of(raw: Any) -> tuple[PostAction, ...]:
    """The post-actions a task's spec carries (its ``postActions``), with the same tolerance as a model's."""
    return tuple(PostAction.model_validate(action) for action in post_actions(raw))


def user_input_of(goal: str, task_spec: dict[str, Any]) -> UserInput:
    """The question of a USER_INPUT node, from its spec; without a title there the goal is the title."""
    title = text_or_none(task_spec.get("title")) or goal
    question = user_input({**task_spec, "title": title})
    return UserInput(title=title) if question is None else UserInput.model_validate(question)


@cache
def _gate(phase: Phase) -> CompiledSchema:
    """The least an answer must be to count as one: it tells the answer from other objects in the same reply."""
    key = token_key(phase)
    asked: dict[str, Any] = schema_for(phase)["properties"]
    required = key or "result"
    kept = {keyword: asked[required][keyword] for keyword in ("type", "enum") if keyword in asked[required]}
    return compile_schema({"type": "object", "required": [required], "properties": {required: kept}})


def _error(phase: Phase, violations: tuple[Violation, ...], last_invalid: Any, truncated: bool) -> PhaseParseError:
    return PhaseParseError(phase, violations, correction_text(violations, truncated=truncated), last_invalid)


def _violation(error: Any, raw: dict[str, Any]) -> Violation:
    context = error.get("ctx", {})
    if "key" in context:
        key = context["key"]
        return Violation(f"/{key}", describe(raw[key]) if key in raw else "nothing", context["expected"])
    # The discriminator stands first in the location; the rest is a path in the answer.
    pointer = "".join(f"/{part}" for part in error["loc"][1:])
    return Violation(pointer, describe(error.get("input")), error["msg"])
