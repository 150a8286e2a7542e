"""The tools ``recipe_list`` and ``recipe_describe``: which recipes this project has and what they do."""

from __future__ import annotations

from typing import Any, Final

from engines.errors import RecipeError
from engines.recipes.cascade import list_recipes, resolve
from engines.tools.base import ToolContext, ToolFailed, ToolResult, cut


class RecipeList:
    """Listed recipes only, one line each."""

    name = "recipe_list"
    description = "Lists the recipes of this project: the name of each and one line on what it is for."
    parameters: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        found = [entry.recipe for entry in list_recipes(context.recipes) if entry.recipe is not None]
        lines = [f"- {recipe.name}: {recipe.summary}" for recipe in found if recipe.listed and not recipe.internal]
        return ToolResult(text=cut("\n".join(lines) or "There are no recipes.", context.max_chars, "the list"))


class RecipeDescribe:
    """Description, engine and parameters; no prompts."""

    name = "recipe_describe"
    description = "Describes one recipe: what it does, the engine it runs on and its parameters with their defaults."
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    }

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            recipe = resolve(str(arguments["name"]), context.recipes)
        except RecipeError as error:
            raise ToolFailed(error.message) from None
        if recipe.internal:
            raise ToolFailed(f"{recipe.name} is used by engines only")
        params = "\n".join(f"- {name}: {value!r}" for name, value in recipe.params.items()) or "- none"
        text = f"{recipe.name} (engine {recipe.engine})\n\n{recipe.description.strip()}\n\nParameters:\n{params}"
        return ToolResult(text=cut(text, context.max_chars))
