"""The three shapes a written plan recipe can have, and what must be known to fill one in.

``research-aggregate-write``
    one worker per aspect looks things up, all at once; the top brings the findings together in one document.
``doc-driven-chapters``
    a first worker stores an outline, one worker per entry of it writes a chapter, the top consolidates if wanted.
``decide-with-user-input``
    people are asked, all questions at once; the top decides on their answers and writes the decision down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from engines.errors import EngineError
from engines.inbox.words import Criticality, InputType
from engines.structured.text import quote, quote_all

MOST: Final = 10
"""Of aspects and of questions."""


class DesignRefused(EngineError):
    """The design cannot become a recipe. ``problems`` names each field at fault and what would be right."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def _trimmed(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


Line = Annotated[str, BeforeValidator(_trimmed), Field(min_length=1, max_length=300)]
Prompt = Annotated[str, BeforeValidator(_trimmed), Field(min_length=1, max_length=8_000)]
Path = Annotated[str, BeforeValidator(_trimmed), Field(min_length=1, max_length=300)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class Aspect(_Part):
    """One part of a subject: who looks at it, and what this worker is to find out."""

    role: Line
    goal: Prompt


class Question(_Part):
    """What one person is asked. Options belong to a DECISION."""

    title: Line
    body: Prompt
    type: Annotated[InputType, BeforeValidator(_upper)] = InputType.FEEDBACK
    criticality: Annotated[Criticality, BeforeValidator(_upper)] = Criticality.NORMAL
    options: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _options_fit(self) -> Question:
        if self.options and self.type is not InputType.DECISION:
            raise PydanticCustomError("options", "options are for type DECISION only")
        if self.type is InputType.DECISION and len(set(self.options)) < 2:
            raise PydanticCustomError("options", "a DECISION needs at least two different options")
        return self


class Shape(_Part):
    """What every recipe needs, whatever its shape."""

    name: Line
    description: Prompt
    language: Line
    available_recipes: tuple[Line, ...] = Field(default=(), max_length=50)

    def prompts(self) -> Iterator[tuple[str, str]]:
        """Field and text of every template for the top of the plan."""
        return iter(())

    def paths(self) -> Iterator[tuple[str, str]]:
        """Field and text of every template that gives a document's path."""
        return iter(())


def _different(parts: Sequence[str]) -> None:
    """A plan leaves out a task that repeats another one, so it must not be written."""
    same = next((place for place, part in enumerate(parts) if part in parts[:place]), None)
    if same is not None:
        message = "number {later} is the same as number {earlier}: every one must be different"
        raise PydanticCustomError("same", message, {"later": same + 1, "earlier": parts.index(parts[same]) + 1})


class Research(Shape):
    aspects: tuple[Aspect, ...] = Field(min_length=1, max_length=MOST)
    synthesis_prompt: Prompt
    output_path_tpl: Path
    output_title_tpl: Line | None = None
    report_length_words: int | None = Field(default=None, ge=50, le=20_000)

    @field_validator("aspects")
    @classmethod
    def _no_aspect_twice(cls, aspects: tuple[Aspect, ...]) -> tuple[Aspect, ...]:
        _different([aspect.goal for aspect in aspects])
        return aspects

    def prompts(self) -> Iterator[tuple[str, str]]:
        for place, aspect in enumerate(self.aspects):
            yield f"aspects.{place}.role", aspect.role
            yield f"aspects.{place}.goal", aspect.goal
        yield "synthesisPrompt", self.synthesis_prompt
        if self.output_title_tpl is not None:
            yield "outputTitleTpl", self.output_title_tpl

    def paths(self) -> Iterator[tuple[str, str]]:
        yield "outputPathTpl", self.output_path_tpl


class Chapters(Shape):
    outline_prompt: Prompt
    outline_path: Path
    chapters_dir: Path
    chapter_prompt_tpl: Prompt
    """For each entry of the outline; it may say ``{{ item.text }}`` and ``{{ index1 }}``."""
    consolidate: bool
    consolidate_prompt: Prompt | None = None
    final_path: Path | None = None

    @model_validator(mode="after")
    def _consolidation_is_whole(self) -> Chapters:
        wanted = {"consolidatePrompt": self.consolidate_prompt, "finalPath": self.final_path}
        missing = [name for name, value in wanted.items() if value is None]
        if self.consolidate and missing:
            raise PydanticCustomError(
                "consolidate", "{names} must be there when consolidate is true", {"names": " and ".join(missing)}
            )
        return self

    def prompts(self) -> Iterator[tuple[str, str]]:
        yield "outlinePrompt", self.outline_prompt
        if self.consolidate_prompt is not None:
            yield "consolidatePrompt", self.consolidate_prompt

    def paths(self) -> Iterator[tuple[str, str]]:
        yield "outlinePath", self.outline_path
        yield "chaptersDir", self.chapters_dir
        if self.final_path is not None:
            yield "finalPath", self.final_path


class Decision(Shape):
    questions: tuple[Question, ...] = Field(min_length=1, max_length=MOST)
    decision_prompt: Prompt
    output_path_tpl: Path

    @field_validator("questions")
    @classmethod
    def _no_question_twice(cls, questions: tuple[Question, ...]) -> tuple[Question, ...]:
        _different([question.title for question in questions])
        return questions

    def prompts(self) -> Iterator[tuple[str, str]]:
        for place, question in enumerate(self.questions):
            yield f"questions.{place}.title", question.title
            yield f"questions.{place}.body", question.body
            yield from ((f"questions.{place}.options.{at}", text) for at, text in enumerate(question.options))
        yield "decisionPrompt", self.decision_prompt

    def paths(self) -> Iterator[tuple[str, str]]:
        yield "outputPathTpl", self.output_path_tpl


SHAPES: Final[dict[str, type[Shape]]] = {
    "research-aggregate-write": Research,
    "doc-driven-chapters": Chapters,
    "decide-with-user-input": Decision,
}


class Design(_Part):
    """What the architect hands in: a shape, filled in, and the reasons for it."""

    template_id: str
    shape: Shape
    justifications: tuple[str, ...]
    shape_rationale: str


def read_design(given: Mapping[str, Any]) -> Design:
    """``{templateId, params, justifications, shapeRationale}``, each field checked by itself.

    Raises :class:`DesignRefused` with everything that is wrong at once.
    """
    template_id = str(given.get("templateId", "")).strip().lower()
    kind = SHAPES.get(template_id)
    if kind is None:
        near = get_close_matches(template_id, SHAPES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {quote_all(SHAPES)}"
        raise DesignRefused((f"templateId: there is no template {quote(template_id)}: {hint}",))
    problems: list[str] = []
    params = given.get("params")
    shape: Shape | None = None
    if not isinstance(params, Mapping):
        problems.append(f"params: must be an object with the fields of {template_id}")
    else:
        try:
            shape = kind.model_validate(dict(params))
        except ValidationError as error:
            problems += [_problem(kind, found["loc"], found["msg"], found["type"]) for found in error.errors()]
    reasons = given.get("justifications")
    texts = [text for text in reasons if isinstance(text, str)] if isinstance(reasons, list) else []
    justifications = tuple(text.strip() for text in texts if text.strip())
    if not justifications:
        problems.append("justifications: must be a list with at least one reason, as a text")
    rationale = str(given.get("shapeRationale") or "").strip()
    if not rationale:
        problems.append("shapeRationale: must say in a sentence why this template fits the wish")
    if problems or shape is None:
        raise DesignRefused(tuple(problems[:12]))
    return Design.model_construct(
        template_id=template_id, shape=shape, justifications=justifications, shape_rationale=rationale
    )


def _problem(kind: type[Shape], location: tuple[str | int, ...], message: str, error: str) -> str:
    place = ".".join(("params", *map(str, location)))
    if error == "missing":
        return f"{place}: is missing"
    if error == "extra_forbidden":
        known = [field.alias or name for name, field in _fields_at(kind, location).items()]
        near = get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {quote_all(known, 20)}"
        return f"{place}: unknown field: {hint}"
    return f"{place}: {message}"


def _fields_at(kind: type[Shape], location: tuple[str | int, ...]) -> Mapping[str, Any]:
    inner: dict[str, type[BaseModel]] = {"aspects": Aspect, "questions": Question}
    found = inner.get(str(location[0]), kind) if len(location) > 1 else kind
    return found.model_fields
