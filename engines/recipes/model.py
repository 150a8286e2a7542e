"""What a recipe is, and how its YAML becomes one."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from engines.errors import RecipeError, TemplateError
from engines.recipes.render import LATER_NAMES, check_template
from engines.recipes.yamltext import Path, YamlText

MAX_NAME_CHARS = 100


class PromptMode(StrEnum):
    """How a recipe's prompt meets the engine's own."""

    APPEND = "APPEND"
    """The engine's prompt, then the recipe's."""
    OVERWRITE = "OVERWRITE"
    """The recipe's prompt alone."""


def _not_blank(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise ValueError("must not be blank")
    return value


def _engine_name(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_not_blank)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, serialize_by_alias=True)


class Example(_Part):
    """One worked example: what a user says, what the engine should answer (an object for structured engines)."""

    input: Text
    output: JsonValue


class Limits(_Part):
    """Budget defaults of a process started with this recipe; a caller may lower them. ``None``: the installation's."""

    max_calls: int | None = Field(default=None, ge=1, le=2_000_000_000)
    max_tokens: int | None = Field(default=None, ge=1, le=10**15)
    max_cost_usd: float | None = Field(default=None, gt=0, le=1e7)
    deadline_seconds: float | None = Field(default=None, gt=0, le=315_360_000)


class Triggers(_Part):
    """When an engine may pick this recipe by itself."""

    keywords: tuple[Text, ...] = ()


class Recipe(_Part):
    """A named way to run an engine: its parameters, prompts, schema, examples and limits.

    Keys in the file are these fields in camelCase; ``json_schema`` is written ``schema``. ``name``, ``source`` and
    ``warnings`` come from where and how it was read, never from the file. Not to be changed: readers share it.
    """

    name: str
    source: str
    """Where it was read from, for messages."""
    warnings: tuple[str, ...] = ()
    """What is legal but surely not meant."""

    description: Text
    """The first line is what planners and lists show, so it should say what the recipe is for."""
    engine: Annotated[Text, BeforeValidator(_engine_name)]
    title: str | None = None
    params: dict[str, JsonValue] = Field(default_factory=dict)
    prompt_prefix: str = ""
    """A template; see ``engines.recipes.prompt.prompt_variables`` for what it may use."""
    prompt_mode: Annotated[PromptMode, BeforeValidator(_upper)] = PromptMode.APPEND
    prompts: dict[str, str] = Field(default_factory=dict)
    """Further templates by the name the engine asks for (one per phase, say)."""
    json_schema: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    """The default of the ``schema`` parameter."""
    examples: tuple[Example, ...] = ()
    limits: Limits = Limits()
    tags: tuple[Text, ...] = ()
    listed: bool = True
    """Shown in lists and offered to planners."""
    internal: bool = False
    """Started by engines only, never by a caller."""
    locked: bool = False
    """A caller's parameters are dropped, except the question itself."""
    triggers: Triggers = Triggers()
    allowed_tools: tuple[Text, ...] | None = None
    """``None``: what the engine offers by itself; empty: none."""
    allowed_tools_add: tuple[Text, ...] = ()
    allowed_tools_remove: tuple[Text, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.description.strip().splitlines()[0].strip()


_FROM_OUTSIDE = frozenset({"name", "source", "warnings"})
PROMPT_KEYS = ("promptPrefix", "promptMode", "prompts", "examples", "limits")
"""Keys of a recipe that have no effect under its ``params``."""


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items() if name not in _FROM_OUTSIDE]


_VALID_KEYS: dict[str, list[str]] = {
    "": _keys(Recipe),
    "limits": _keys(Limits),
    "triggers": _keys(Triggers),
    "examples": _keys(Example),
}


def normalise_name(name: str) -> str:
    """The one spelling of a recipe's name: lower case, trimmed, runs of white space as one hyphen."""
    plain = unicodedata.normalize("NFKC", name)
    result = "-".join(plain.lower().split())
    if not result:
        raise RecipeError("a recipe needs a name")
    if len(result) > MAX_NAME_CHARS or not (result[0].isalnum() or result[0] == "_"):
        raise RecipeError(f"{result[:40]!r} is no recipe name: at most {MAX_NAME_CHARS} characters, a letter first")
    wrong = next((c for c in result if not (c.isalnum() or c in "-_.")), None)
    if wrong is not None:
        raise RecipeError(f"{result!r} is no recipe name: {wrong!r} is not allowed (letters, digits, - _ .)")
    return result


def recipe_key(name: str) -> str:
    """``name`` as recipes are found by it; a text that is no recipe's name, trimmed and in lower case."""
    try:
        return normalise_name(name)
    except RecipeError:
        return name.strip().lower()


@lru_cache(maxsize=256)
def parse_recipe(name: str, text: str, source: str) -> Recipe:
    """The recipe in ``text``. Raises :class:`RecipeError` that names file, line, what is wrong and what would be right.

    Parsing is remembered: a worker sees the same few texts all day, and a recipe is never changed after parsing.
    """
    document = YamlText(text, source)
    data = document.data
    if not isinstance(data, dict):
        raise RecipeError(f"{source}: a recipe is a mapping with at least 'description' and 'engine'")
    data.pop("name", None)
    _check_keys(document, data)
    try:
        recipe = Recipe.model_validate(
            data | {"name": normalise_name(name), "source": source, "warnings": _warnings(document, data)}
        )
    except ValidationError as error:
        problems = [_problem(document, found["loc"], found["msg"], found["type"]) for found in error.errors()]
        raise RecipeError("; ".join(problems[:10])) from None
    _check_schema(document, recipe)
    _check_templates(document, recipe)
    return recipe


def _check_keys(document: YamlText, data: dict[str, Any]) -> None:
    problems = [_unknown(document, (key,)) for key in data if key not in _VALID_KEYS[""]]
    if problems:
        raise RecipeError("; ".join(problems[:10]))


def _problem(document: YamlText, location: Iterable[str | int], message: str, kind: str) -> str:
    path = tuple(location)
    if kind == "extra_forbidden":
        return _unknown(document, path)
    dotted = ".".join(str(part) for part in path)
    if kind == "missing":
        return f"{document.where(path[:-1])}: {dotted!r} is missing"
    return f"{document.where(path)}: {dotted!r}: {message.removeprefix('Value error, ')}"


def _unknown(document: YamlText, path: Path) -> str:
    valid = _VALID_KEYS[str(path[0]) if len(path) > 1 else ""]
    key = str(path[-1])
    within = f" in {path[0]!r}" if len(path) > 1 else ""
    plain = {option.lower(): option for option in valid}
    near = get_close_matches(key.lower().replace("_", "").replace("-", ""), plain, n=1)
    hint = f"did you mean {plain[near[0]]!r}?" if near else f"valid keys: {', '.join(valid)}"
    return f"{document.where(path)}: unknown key {key!r}{within}: {hint}"


def _warnings(document: YamlText, data: dict[str, Any]) -> tuple[str, ...]:
    params = data.get("params")
    misplaced = [key for key in PROMPT_KEYS if isinstance(params, dict) and key in params]
    return tuple(
        f"{document.where(('params', key))}: {key!r} under 'params' has no effect: move it to the top level"
        for key in misplaced
    )


def _check_schema(document: YamlText, recipe: Recipe) -> None:
    schema = recipe.json_schema
    if schema is None:
        return
    if "schema" in recipe.params:
        raise RecipeError(
            f"{document.where(('params', 'schema'))}: the schema stands here and at the top level: keep one"
        )
    if schema.get("type") != "object":
        raise RecipeError(f"{document.where(('schema',))}: 'schema': its 'type' must be 'object'")


def _check_templates(document: YamlText, recipe: Recipe) -> None:
    templates: list[tuple[Path, str]] = [(("promptPrefix",), recipe.prompt_prefix)]
    templates += [(("prompts", key), text) for key, text in recipe.prompts.items()]
    for path, text in templates:
        begin = document.text_lines.get(path, 1)
        try:
            check_template(text, ".".join(map(str, path)), keep=LATER_NAMES)
        except TemplateError as error:
            raise RecipeError(f"{document.source} (its text begins at line {begin}): {error.message}") from None
