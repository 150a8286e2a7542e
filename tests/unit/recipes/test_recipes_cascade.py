"""Project, tenant, bundled: the first hit wins whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from engines.errors import RecipeError
from engines.recipes.cascade import (
    BundledRecipes,
    FolderRecipes,
    bundled_path,
    check_engine,
    effective_params,
    list_recipes,
    resolve,
)
from engines.recipes.model import parse_recipe


class Documents:
    def __init__(self, label: str, *, prompts: Mapping[str, str] | None = None, **recipes: str) -> None:
        self.label = self.layer = label
        self.recipes = {name.replace("_", "-"): text for name, text in recipes.items()}
        self.prompts = dict(prompts or {})

    def read(self, name: str) -> tuple[str, str] | None:
        text = self.recipes.get(name)
        return None if text is None else (text, f"{self.label}/{name}.yaml")

    def read_prompts(self, name: str, parts: Sequence[str]) -> Mapping[str, tuple[str, str]]:
        files = {part: f"{name}-{part}" for part in parts}
        return {
            part: (self.prompts[file], f"{self.label}/prompts/{file}.md")
            for part, file in files.items()
            if file in self.prompts
        }

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
    assert resolve("jeltz", [BundledRecipes()]).source == "bundled: recipes/jeltz.yaml"


def test_a_folder_names_its_files_by_their_paths(tmp_path: Path) -> None:
    folder = FolderRecipes(tmp_path)
    (tmp_path / "x.yaml").write_text(text("mine"), encoding="utf-8")
    (tmp_path / "latin.yaml").write_bytes(b"description: \xe4")
    assert folder.read("X") == (text("mine"), f"{tmp_path}/x.yaml")
    assert folder.read("y") is None
    assert FolderRecipes(tmp_path / "nowhere").names() == []
    with pytest.raises(RecipeError, match=r"latin.yaml: cannot be read"):
        folder.read("latin")
    with pytest.raises(RecipeError, match="no recipe name"):
        folder.read("../x")


def test_a_files_name_may_be_written_in_any_way_but_once(tmp_path: Path) -> None:
    folder = FolderRecipes(tmp_path)
    (tmp_path / "Got Talent.yaml").write_text(text("found"), encoding="utf-8")
    (tmp_path / "what?.yaml").write_text(text("never found"), encoding="utf-8")
    assert folder.names() == ["got-talent", "what?"]
    assert resolve("got-talent", [folder]).description == "found"
    (broken,) = [each for each in list_recipes([folder]) if each.error]
    assert (broken.name, "'?' is not allowed" in str(broken.error)) == ("what?", True)
    (tmp_path / "got-talent.yaml").write_text(text("another"), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"Got Talent.yaml and got-talent.yaml are both the recipe 'got-talent'"):
        resolve("got-talent", [folder])


WITH_PROMPTS = text("bundled", "promptPrefix: own\nprompts: {SCOPE: own scope, CONCLUDE: own end}\n")


def test_a_prompt_by_itself_replaces_that_of_a_recipe_of_its_own_or_a_later_source() -> None:
    bundled = Documents("bundled", worker=WITH_PROMPTS)
    tenant = Documents("tenant", prompts={"worker-system": "tenant's", "worker-scope": "tenant's scope"})
    project = Documents("project", prompts={"worker-scope": "project's scope", "other-system": "x"})
    recipe = resolve("worker", [project, tenant, bundled])
    assert (recipe.prompt_prefix, recipe.prompts) == (
        "tenant's",
        {"SCOPE": "project's scope", "CONCLUDE": "own end"},
    )
    for label in ("bundled/worker.yaml", "tenant/prompts/worker-system.md", "project/prompts/worker-scope.md"):
        assert label in recipe.source


def test_a_prompt_of_a_later_source_does_not_reach_an_earlier_recipe() -> None:
    project = Documents("project", worker=text("project", "promptPrefix: own\n"))
    recipe = resolve("worker", [project, Documents("tenant", prompts={"worker-system": "tenant's"})])
    assert (recipe.prompt_prefix, recipe.source) == ("own", "project/worker.yaml")


def test_a_broken_prompt_is_named() -> None:
    tenant = Documents("tenant", prompts={"worker-system": "a\n{% if %}"})
    with pytest.raises(RecipeError, match=r"tenant/prompts/worker-system.md, line 2: "):
        resolve("worker", [tenant, Documents("bundled", worker=WITH_PROMPTS)])


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
