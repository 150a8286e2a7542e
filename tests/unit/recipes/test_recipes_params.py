"""Parameters whose names are misspelt are refused; a recipe's own are not."""

from __future__ import annotations

import pytest

from engines.errors import InvalidParams, RecipeError
from engines.ford.engine import Ford
from engines.jeltz.engine import Jeltz
from engines.marvin.engine import Marvin
from engines.recipes.cascade import BundledRecipes, resolve
from engines.recipes.model import Recipe, parse_recipe
from engines.recipes.params import check_params, check_recipe_params
from engines.valem.engine import Valem

ENGINES = {engine.name: engine for engine in (Jeltz(), Ford(), Marvin(), Valem())}


def recipe_of(extra: str = "") -> Recipe:
    return parse_recipe("r", f"description: x\nengine: jeltz\n{extra}", "r.yaml")


@pytest.mark.parametrize(
    ("engine", "given", "meant"),
    [
        ("jeltz", "maxAttemps", "maxAttempts"),
        ("jeltz", "max_attempts", "maxAttempts"),
        ("jeltz", "promt", "prompt"),
        ("jeltz", "shcema", "schema"),
        ("ford", "maxRoundtrips", "maxRoundTrips"),
        ("valem", "maxRetrys", "maxRetries"),
        ("valem", "domain_description", "domainDescription"),
        ("marvin", "availableRecipe", "availableRecipes"),
        ("marvin", "maxTreeNode", "maxTreeNodes"),
        ("marvin", "recipeCallTimeout_seconds", "recipeCallTimeoutSeconds"),
    ],
)
def test_a_near_miss_is_refused_with_the_name_that_was_meant(engine: str, given: str, meant: str) -> None:
    with pytest.raises(InvalidParams, match=rf"{given}: nothing reads this parameter: did you mean '{meant}'"):
        check_params([given], recipe_of(), ENGINES[engine].param_names)


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_every_name_an_engine_reads_passes(name: str) -> None:
    known = ENGINES[name].param_names
    check_params(known, recipe_of(), known)


def test_parameters_of_a_recipes_own_pass() -> None:
    known = ENGINES["jeltz"].param_names
    check_params(["topic", "audience"], recipe_of(), known)
    check_params(["models"], recipe_of("params: {models: 3}\n"), known)
    check_params(["models", "prompts"], recipe_of("promptPrefix: '{{ params.models }} {{ params[\"prompts\"] }}'\n"), known)


def test_a_recipe_with_a_misspelt_parameter_is_broken() -> None:
    known = ENGINES["jeltz"].param_names
    with pytest.raises(RecipeError, match=r"r.yaml: params.maxAttemps: .*did you mean 'maxAttempts'"):
        check_recipe_params(recipe_of("params: {maxAttemps: 3}\n"), known)
    check_recipe_params(recipe_of("params: {promptPrefix: warned about already}\n"), known)


@pytest.mark.parametrize("name", BundledRecipes().names())
def test_bundled_recipes_pass(name: str) -> None:
    recipe = resolve(name, [BundledRecipes()])
    check_recipe_params(recipe, ENGINES[recipe.engine].param_names)
