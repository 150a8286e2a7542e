"""Parameters that nobody reads because their name is misspelt.

A recipe may use parameters of its own in its templates, so an unknown name is no error by itself. One that is nearly the
name of a parameter the engine reads, and that no template reads, is: it would be ignored without a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

from engines.errors import InvalidParams, RecipeError
from engines.recipes.model import PROMPT_KEYS, Recipe

_NEAR: Final = 0.8
_READ: Final = re.compile(r"""params\s*(?:\.\s*(\w+)|\[\s*['"]([^'"]+)['"]\s*\])""")


def check_params(given: Iterable[str], recipe: Recipe, known: Collection[str]) -> None:
    """Raises :class:`InvalidParams` for the first of a caller's parameters that is nearly one of ``known``."""
    _check(given, known, {*recipe.params, *_read_by(recipe)})


def check_recipe_params(recipe: Recipe, known: Collection[str]) -> None:
    """Raises :class:`RecipeError` when a parameter of the recipe itself is nearly one of ``known``."""
    try:
        _check(recipe.params, known, {*PROMPT_KEYS, *_read_by(recipe)})
    except InvalidParams as error:
        raise RecipeError(f"{recipe.source}: params.{error.message}") from None


def _check(given: Iterable[str], known: Collection[str], other: Collection[str]) -> None:
    plain = {_plain(name): name for name in known}
    for name in given:
        if name in known or name in other:
            continue
        near = get_close_matches(_plain(name), plain, n=1, cutoff=_NEAR)
        if near:
            raise InvalidParams(name, f"nothing reads this parameter: did you mean {plain[near[0]]!r}?")


def _read_by(recipe: Recipe) -> set[str]:
    """The parameters that the recipe's templates name."""
    texts = (recipe.prompt_prefix, *recipe.prompts.values())
    return {dotted or quoted for text in texts for dotted, quoted in _READ.findall(text)}


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
