"""Project, tenant, bundled: the first hit wins whole."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from engines.errors import RecipeError
from engines.recipes.cascade import (
    BundledRecipes,
    bundled_path,
    check_engine,
    effective_params,
    list_recipes,
    resolve,
)
from engines.recipes.model import parse_recipe


class Documents:
    def __init__(self, label: str, **recipes: str) -> None:
        self.label = label
        self.recipes = {name.replace("_", "-"): text for name, text in recipes.items()}

    def read(self, name: str) -> tuple[str, str] | None:
        text = self.recipes.get(name)
        return None if text is None else (text, f"{self.label}/{name}.yaml")

    def names(self) -> Collection[str]:
        return list(self.recipes)


def text(description: str, extra: str = "") -> str:
    return f"description: {description}\nengine: jeltz\n{extra}"


BUNDLED = Documents(
    "bundled", jeltz=text("bundled", "params: {maxAttempts: 3}\ntags: [default]\n"), outline=text("outline")
)
TENANT = Documents("_tenant", jeltz=text("tenant", "params: {maxAttempts: 7}\n"), got_talent=text("found"))
PROJECT = Documents("project", jeltz=text("project"))


@pytest.mark.parametrize(
    ("sources", "description", "params", "tags"),
    [
        ([PROJECT, TENANT, BUNDLED], "project", {}, ()),
        ([Documents("project"), TENANT, BUNDLED], "tenant", {"maxAttempts": 7}, ()),
        ([Documents("project"), Documents("_tenant"), BUNDLED], "bundled", {"maxAttempts": 3}, ("default",)),
    ],
)
def test_first_hit_wins_whole(
    sources: list[Documents], description: str, params: dict[str, int], tags: tuple[str, ...]
) -> None:
    recipe = resolve("jeltz", sources)
    assert (recipe.description, recipe.params, recipe.tags) == (description, params, tags)
    assert recipe.source == f"{'_tenant' if description == 'tenant' else description}/jeltz.yaml"


def test_names_are_found_in_any_spelling() -> None:
    assert resolve(" Got  Talent ", [PROJECT, TENANT]).description == "found"


def test_a_broken_project_recipe_does_not_fall_back() -> None:
    with pytest.raises(RecipeError, match=r"project/jeltz.yaml:1: unknown key 'engin'"):
        resolve("jeltz", [Documents("project", jeltz="engin: x"), BUNDLED])


def test_an_unknown_name_gets_near_ones() -> None:
    with pytest.raises(RecipeError, match=r"no recipe 'outlnie': did you mean 'outline'"):
        resolve("outlnie", [PROJECT, TENANT, BUNDLED])
    with pytest.raises(RecipeError, match=r"no recipe 'zzz': known: got-talent, jeltz, outline"):
        resolve("zzz", [PROJECT, TENANT, BUNDLED])
    with pytest.raises(RecipeError, match="known: none"):
        resolve("zzz", [])


def test_listing_shows_what_each_name_means_and_what_is_broken() -> None:
    listed = list_recipes([Documents("project", bad="nonsense"), TENANT, BUNDLED])
    assert [(entry.name, entry.recipe is not None, entry.error is not None) for entry in listed] == [
        ("bad", False, True),
        ("got-talent", True, False),
        ("jeltz", True, False),
        ("outline", True, False),
    ]
    assert listed[2].recipe is not None
    assert listed[2].recipe.description == "tenant"


def test_unknown_engines_get_near_ones() -> None:
    recipe = parse_recipe("r", "description: x\nengine: jetlz\n", "r.yaml")
    with pytest.raises(RecipeError, match=r"r.yaml: there is no engine 'jetlz': did you mean 'jeltz'"):
        check_engine(recipe, {"jeltz", "ford", "marvin"})
    check_engine(recipe, {"jetlz"})


def test_the_bundled_folder_is_beside_the_packages(tmp_path: Path) -> None:
    assert bundled_path() == Path(__file__).resolve().parents[3] / "recipes"
    assert "jeltz" in BundledRecipes().names()
    (tmp_path / "x.yaml").write_text(text("mine"), encoding="utf-8")
    (tmp_path / "latin.yaml").write_bytes(b"description: \xe4")
    assert BundledRecipes(tmp_path).read("X") == (text("mine"), "recipes/x.yaml")
    assert BundledRecipes(tmp_path).read("y") is None
    assert BundledRecipes(tmp_path / "nowhere").names() == []
    with pytest.raises(RecipeError, match="cannot be read"):
        BundledRecipes(tmp_path).read("latin")
    with pytest.raises(RecipeError, match="no recipe name"):
        BundledRecipes(tmp_path).read("../x")


def test_callers_override_params_key_by_key() -> None:
    recipe = parse_recipe("r", text("x", "params: {model: a, deep: {b: 1}}\nschema: {type: object}\n"), "r.yaml")
    result = effective_params(recipe, {"model": "b", "prompt": "q"})
    assert result.params == {"model": "b", "deep": {"b": 1}, "schema": {"type": "object"}, "prompt": "q"}
    assert result.warnings == ()
    own = {"type": "object", "properties": {}}
    assert effective_params(recipe, {"schema": own}).params["schema"] == own
    result.params["deep"]["b"] = 2
    assert recipe.params["deep"] == {"b": 1}


def test_a_locked_recipe_drops_all_but_the_question_and_says_so() -> None:
    recipe = parse_recipe("r", text("x", "locked: true\nparams: {model: a}\nschema: {type: object}\n"), "r.yaml")
    result = effective_params(recipe, {"model": "b", "prompt": "q", "schema": {"type": "object", "x": 1}})
    assert result.params == {"model": "a", "schema": {"type": "object"}, "prompt": "q"}
    assert result.warnings == ("recipe 'r' is locked: dropped model, schema",)
    assert effective_params(recipe, {"prompt": "q"}).warnings == ()
    spec = effective_params(recipe, {"spec": 1, "model": "b"}, question={"spec"})
    assert (spec.params["spec"], spec.params["model"]) == (1, "a")


def test_warnings_of_the_recipe_reach_the_caller() -> None:
    recipe = parse_recipe("r", text("x", "params: {promptPrefix: hello}\n"), "r.yaml")
    assert effective_params(recipe, {}).warnings == recipe.warnings != ()
