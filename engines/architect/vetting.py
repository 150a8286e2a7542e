"""Everything a design must pass before its recipe is stored. All that is wrong is told at once, to be corrected."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from engines.architect.shapes import Chapters, Design, DesignRefused, Research, read_design
from engines.architect.templates import ENTRY, NOW, path_problem, sample_variables, template_problem
from engines.architect.writer import TAG, recipe_text
from engines.errors import EngineError, RecipeError
from engines.marvin.calls import ENGINE_NAME
from engines.recipes.cascade import RecipeSource, resolve
from engines.recipes.model import Recipe, normalise_name, parse_recipe, recipe_key
from engines.recipes.params import check_recipe_params
from engines.recipes.render import render_prompt
from engines.structured.text import quote

PROJECT_LAYER = "project"


def vetted_recipe(
    given: Mapping[str, Any], sources: Sequence[RecipeSource], param_names: Collection[str]
) -> tuple[Recipe, str]:
    """The recipe that the design ``given`` describes, and its text. Raises :class:`DesignRefused`.

    sources: the project's cascade, for the recipes it may call and the names that are taken. param_names: what the
    engine of plans reads.
    """
    design = read_design(given)
    problems = [*_name_problems(design, sources), *_callee_problems(design, sources), *_template_problems(design)]
    if problems:
        raise DesignRefused(tuple(problems))
    name = normalise_name(design.shape.name)
    text = recipe_text(design, name)
    try:
        recipe = parse_recipe(name, text, f"{name}.yaml")
        check_recipe_params(recipe, param_names)
        # What a process would be told, tried once: a template that compiles may still fail on its filters.
        render_prompt(recipe.prompt_prefix, sample_variables(recipe.params), name="promptPrefix")
    except EngineError as error:
        raise DesignRefused((f"the recipe made of this does not work: {error.message}",)) from None
    return recipe, text


def _name_problems(design: Design, sources: Sequence[RecipeSource]) -> Iterator[str]:
    try:
        name = normalise_name(design.shape.name)
    except RecipeError as error:
        yield f"params.name: {error.message}"
        return
    for source in sources:
        found = source.read(name)
        if found is None:
            continue
        if source.layer != PROJECT_LAYER:
            yield f"params.name: there is a recipe {name!r} already ({found[1]}): choose another name"
        elif not _written_here(name, *found):
            yield f"params.name: the project has a recipe {name!r} that somebody wrote by hand: choose another name"
        return


def _written_here(name: str, text: str, label: str) -> bool:
    try:
        return TAG in parse_recipe(name, text, label).tags
    except RecipeError:
        return False


def _callee_problems(design: Design, sources: Sequence[RecipeSource]) -> Iterator[str]:
    shape = design.shape
    names = [recipe_key(name) for name in shape.available_recipes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"params.availableRecipes: {quote(name)} stands there twice"
    if isinstance(shape, Research) and not names:
        yield "params.availableRecipes: is empty: research needs at least one recipe that can look things up"
    for name in dict.fromkeys(names):
        try:
            found = resolve(name, sources)
        except RecipeError as error:
            yield f"params.availableRecipes: {error.message}"
            continue
        if found.engine == ENGINE_NAME:
            yield f"params.availableRecipes: {name!r} is a plan itself, and plans do not call plans"
        elif found.internal:
            yield f"params.availableRecipes: {name!r} is used by engines only"


def _template_problems(design: Design) -> Iterator[str]:
    shape = design.shape
    for field, text in shape.prompts():
        if problem := template_problem(text):
            yield f"params.{field}: {problem}"
    for field, text in shape.paths():
        if problem := path_problem(text):
            yield f"params.{field}: {problem}"
    if isinstance(shape, Chapters):
        problem = template_problem(shape.chapter_prompt_tpl, NOW | ENTRY)
        if problem is None and "item." not in shape.chapter_prompt_tpl:
            problem = "must say {{ item.text }}, or every chapter would have the same task"
        if problem is not None:
            yield f"params.chapterPromptTpl: {problem}"
