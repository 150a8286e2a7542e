"""Which recipe a name means: the first source that has it wins whole, nothing is merged."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

import engines
from engines.errors import RecipeError
from engines.recipes.model import Recipe, normalise_name, parse_recipe

TENANT_PROJECT = "_tenant"
"""The project whose recipes hold for a whole tenant: second in the cascade."""
QUESTION_PARAMS = frozenset(
    {"prompt", "modelId", "domainDescription", "spec", "expectedVersion", "evolutionRequest", "includeView"}
)
"""Parameters that are the question itself: no lock drops them."""


class RecipeSource(Protocol):
    """One layer of the cascade: a project's documents, the tenant's, the bundled folder."""

    def read(self, name: str) -> tuple[str, str] | None:
        """The recipe's text and a label for messages (a path, a document), or ``None``. ``name`` is normalised."""
        ...

    def names(self) -> Collection[str]:
        """The normalised names of all recipes of this layer."""
        ...


class BundledRecipes:
    """The recipes that come with the application: ``<name>.yaml`` in one folder."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = bundled_path() if path is None else path

    def read(self, name: str) -> tuple[str, str] | None:
        file = self._path / f"{normalise_name(name)}.yaml"
        try:
            return file.read_text(encoding="utf-8"), f"recipes/{file.name}"
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"{file}: cannot be read: {error}") from None

    def names(self) -> Collection[str]:
        return sorted(file.stem for file in self._path.glob("*.yaml"))


def bundled_path() -> Path:
    """The ``recipes`` folder beside the packages, in a checkout as well as in an image."""
    return Path(engines.__file__).resolve().parent.parent / "recipes"


def resolve(name: str, sources: Sequence[RecipeSource]) -> Recipe:
    """The recipe ``name`` from the first of ``sources`` that has it (project, tenant, bundled: in this order).

    A broken recipe in an earlier source is an error, not a reason to fall back to a later one.
    """
    wanted = normalise_name(name)
    for source in sources:
        found = source.read(wanted)
        if found is not None:
            return parse_recipe(wanted, *found)
    known = sorted({name for source in sources for name in source.names()})
    near = get_close_matches(wanted, known, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(known) or 'none'}"
    raise RecipeError(f"there is no recipe {wanted!r}: {hint}")


@dataclass(frozen=True, slots=True)
class Listing:
    """One line of a list of recipes: ``recipe``, or the ``error`` that keeps it from being used."""

    name: str
    recipe: Recipe | None
    error: str | None = None


def list_recipes(sources: Sequence[RecipeSource]) -> tuple[Listing, ...]:
    """Every name of the cascade with the recipe it means, by name. Unlisted and internal ones are included."""
    result: list[Listing] = []
    for name in sorted({name for source in sources for name in source.names()}):
        try:
            result.append(Listing(name, resolve(name, sources)))
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
