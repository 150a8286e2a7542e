"""Valem's recipes: what they say is what the engine does without being told, and what its README says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engines.recipes.cascade import BundledRecipes, effective_params, resolve
from engines.valem import engine
from engines.valem.params import read_params

README = (Path(engine.__file__).parent / "README.md").read_text(encoding="utf-8")
NEEDED: dict[str, dict[str, Any]] = {"valem-generate": {}, "valem-evolve": {"modelId": "loan"}}


@pytest.mark.parametrize("name", NEEDED)
def test_a_recipes_parameters_are_the_defaults(name: str) -> None:
    recipe = resolve(name, [BundledRecipes()])
    assert (recipe.engine, recipe.warnings) == ("valem", ())
    given = effective_params(recipe, NEEDED[name]).params
    bare = {"task": given["task"]} | NEEDED[name]
    assert read_params(given, "words") == read_params(bare, "words")


@pytest.mark.parametrize("name", NEEDED)
def test_the_readme_says_the_same_defaults(name: str) -> None:
    recipe = resolve(name, [BundledRecipes()])
    told = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*?) \|", README, re.MULTILINE))
    shown = {True: "true", False: "no"}
    for key, default in recipe.params.items():
        if key not in ("task", "includeView"):
            assert told[key].strip("`") == str(shown[default] if isinstance(default, bool) else default), key


def test_a_locked_recipe_still_takes_what_is_asked() -> None:
    recipe = resolve("valem-evolve", [BundledRecipes()])
    asked = {"modelId": "loan", "evolutionRequest": "Add a fee.", "expectedVersion": 3, "includeView": True}
    locked = effective_params(recipe.model_copy(update={"locked": True}), asked | {"maxRetries": 9})
    params = read_params(locked.params, "")
    assert (params.model_id, params.text, params.expected, params.include_view) == ("loan", "Add a fee.", 3, True)
    assert params.limits.retries == 3
