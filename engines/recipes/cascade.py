"""Which recipe a name means: the first source that has it wins whole, nothing is merged.

A source may also hold prompts by themselves: ``prompts/<recipe>-system.md`` stands in for the recipe's ``promptPrefix``,
``prompts/<recipe>-<key>.md`` for one of its ``prompts``. They count for recipes of their own source and of later ones.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

import engines
from engines.errors import RecipeError, TemplateError, UnknownRecipe
from engines.recipes.model import Recipe, normalise_name, parse_recipe, recipe_key
from engines.recipes.render import LATER_NAMES, check_template

TENANT_PROJECT = "_tenant"
"""The project whose recipes hold for a whole tenant: second in the cascade."""
SYSTEM_PART = "system"
"""The part of a prompt's name that means the recipe's ``promptPrefix``."""
QUESTION_PARAMS = frozenset(
    {"prompt", "modelId", "domainDescription", "spec", "expectedVersion", "evolutionRequest", "includeView"}
)
"""Parameters that are the question itself: no lock drops them."""


class RecipeSource(Protocol):
    """One layer of the cascade: a project's documents, the tenant's, a folder, the bundled recipes."""

    @property
    def layer(self) -> str:
        """Which layer it is, in one word for lists: ``project``, ``tenant``, ``folder``, ``bundled``."""
        ...

    def read(self, name: str) -> tuple[str, str] | None:
        """The recipe's text and a label for messages (a path, a document), or ``None``. ``name`` is normalised."""
        ...

    def read_prompts(self, name: str, parts: Sequence[str]) -> Mapping[str, tuple[str, str]]:
        """The texts of ``prompts/<name>-<part>.md`` that are there, with labels for messages, by part."""
        ...

    def names(self) -> Collection[str]:
        """The names of all recipes of this layer, normalised; one that is no recipe's name as it is written."""
        ...


class FolderRecipes:
    """The recipes of one folder: ``<name>.yaml``, in any spelling of the name, and ``prompts/<name>-<part>.md``."""

    def __init__(self, path: Path, *, layer: str = "folder", label: str | None = None) -> None:
        """label: stands for the folder in messages; its path if left out."""
        self.layer = layer
        self._path = path
        self._label = str(path) if label is None else label

    def read(self, name: str) -> tuple[str, str] | None:
        wanted = normalise_name(name)
        files = sorted(file.name for file in self._path.glob("*.yaml") if recipe_key(file.stem) == wanted)
        if len(files) > 1:
            raise RecipeError(f"{self._label}: {' and '.join(files)} are both the recipe {wanted!r}: keep one")
        return self._read(files[0]) if files else None

    def read_prompts(self, name: str, parts: Sequence[str]) -> Mapping[str, tuple[str, str]]:
        found = {part: self._read(f"prompts/{name}-{part}.md") for part in parts}
        return {part: hit for part, hit in found.items() if hit is not None}

    def names(self) -> Collection[str]:
        return sorted({recipe_key(file.stem) for file in self._path.glob("*.yaml")})

    def _read(self, relative: str) -> tuple[str, str] | None:
        label = f"{self._label}/{relative}"
        try:
            return (self._path / relative).read_text(encoding="utf-8"), label
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"{label}: cannot be read: {error}") from None


class BundledRecipes(FolderRecipes):
    """The recipes that come with the application: the last layer."""

    def __init__(self) -> None:
        super().__init__(bundled_path(), layer="bundled", label="bundled: recipes")


def bundled_path() -> Path:
    """The ``recipes`` folder beside the packages, in a checkout as well as in an image."""
    return Path(engines.__file__).resolve().parent.parent / "recipes"


def resolve(name: str, sources: Sequence[RecipeSource]) -> Recipe:
    """The recipe ``name`` from the first of ``sources`` that has it (project, tenant, bundled: in this order).

    A broken recipe in an earlier source is an error, not a reason to fall back to a later one.
    """
    return _resolve(name, sources)[0]


def _resolve(name: str, sources: Sequence[RecipeSource]) -> tuple[Recipe, str]:
    """The recipe and the layer it comes from."""
    wanted = normalise_name(name)
    for place, source in enumerate(sources):
        found = source.read(wanted)
        if found is not None:
            return _with_prompts(parse_recipe(wanted, *found), sources[: place + 1]), source.layer
    known = sorted({each for source in sources for each in source.names()})
    near = get_close_matches(wanted, known, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(known) or 'none'}"
    raise UnknownRecipe(f"there is no recipe {wanted!r}: {hint}")


def _with_prompts(recipe: Recipe, sources: Sequence[RecipeSource]) -> Recipe:
    """``recipe`` with the prompts that ``sources`` hold for it by themselves."""
    parts = (SYSTEM_PART, *(key.lower() for key in recipe.prompts))
    found: dict[str, tuple[str, str]] = {}
    for source in reversed(sources):
        found.update(source.read_prompts(recipe.name, parts))
    if not found:
        return recipe
    for prompt, label in found.values():
        try:
            check_template(prompt, label, keep=LATER_NAMES)
        except TemplateError as error:
            raise RecipeError(error.message) from None
    prompts = {key: found[key.lower()][0] if key.lower() in found else text for key, text in recipe.prompts.items()}
    prefix = found[SYSTEM_PART][0] if SYSTEM_PART in found else recipe.prompt_prefix
    whence = f"{recipe.source} with {', '.join(label for _, label in found.values())}"
    return recipe.model_copy(update={"prompt_prefix": prefix, "prompts": prompts, "source": whence})


@dataclass(frozen=True, slots=True)
class Listing:
    """One line of a list of recipes: ``recipe`` and its ``layer``, or the ``error`` that keeps it from being used."""

    name: str
    recipe: Recipe | None
    error: str | None = None
    layer: str | None = None


def list_recipes(sources: Sequence[RecipeSource]) -> tuple[Listing, ...]:
    """Every name of the cascade with the recipe it means, by name. Unlisted and internal ones are included."""
    result: list[Listing] = []
    for name in sorted({name for source in sources for name in source.names()}):
        try:
            recipe, layer = _resolve(name, sources)
            result.append(Listing(name, recipe, layer=layer))
        except RecipeError as error:
            result.append(Listing(name, None, error.message))
    return tuple(result)


def check_engine(recipe: Recipe, engines_known: Collection[str]) -> None:
    """Raises :class:`RecipeError` when the recipe names an engine that does not exist here."""
    if recipe.engine in engines_known:
        return
    near = get_close_matches(recipe.engine, engines_known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(engines_known))}"
    raise RecipeError(f"{recipe.source}: there is no engine {recipe.engine!r}: {hint}")


@dataclass(frozen=True, slots=True)
class EffectiveParams:
    """What a process runs with, and what the caller should hear about it."""

    params: dict[str, Any]
    warnings: tuple[str, ...] = ()


def effective_params(
    recipe: Recipe, caller_params: Mapping[str, Any], *, question: Collection[str] = QUESTION_PARAMS
) -> EffectiveParams:
    """The recipe's schema and params, overridden by the caller's, key by key.

    A ``locked`` recipe drops the caller's params, with a warning that names them; those in ``question`` are what is
    asked, not how, and stay. The result shares nothing with the recipe or the caller.
    """
    base: dict[str, Any] = dict(recipe.params)
    if recipe.json_schema is not None:
        base["schema"] = recipe.json_schema
    given = dict(caller_params)
    warnings = list(recipe.warnings)
    if recipe.locked:
        dropped = sorted(key for key in given if key not in question)
        given = {key: value for key, value in given.items() if key in question}
        if dropped:
            warnings.append(f"recipe {recipe.name!r} is locked: dropped {', '.join(dropped)}")
    return EffectiveParams(copy.deepcopy(base | given), tuple(warnings))
