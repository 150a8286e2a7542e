"""The tool ``recipe_write``: a plan recipe from a design, checked, stored as a document of the project."""

from __future__ import annotations

from typing import Any, Final

from engines.architect.shapes import SHAPES, DesignRefused
from engines.architect.vetting import vetted_recipe
from engines.marvin.engine import Marvin
from engines.tools.base import ToolContext, ToolFailed, ToolResult
from models.transition import WriteDocument


class RecipeWrite:
    """Writes below ``recipes/``, which is closed to everything else a model can do: so it must be allowed by name."""

    name = "recipe_write"
    by_name_only = True
    description = (
        "Makes a recipe for a plan out of one of the templates, checks it and stores it in the project. When something"
        " is wrong nothing is stored and every problem is named: correct them and call again."
    )
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "templateId": {"type": "string", "description": f"One of {', '.join(SHAPES)}"},
            "params": {"type": "object", "description": "The fields of the template"},
            "justifications": {
                "type": "array",
                "items": {"type": "string"},
                "description": "For each choice that could have been made otherwise: what in the wish speaks for it",
            },
            "shapeRationale": {"type": "string", "description": "Why this template and not another, in a sentence"},
        },
        "required": ["templateId", "params", "justifications", "shapeRationale"],
        "additionalProperties": False,
    }

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            recipe, text = vetted_recipe(arguments, context.recipes, Marvin.param_names)
        except DesignRefused as error:
            problems = "\n".join(f"- {problem}" for problem in error.problems)
            raise ToolFailed(f"nothing was stored, because of:\n{problems}") from None
        path = f"recipes/{recipe.name}.yaml"
        written = WriteDocument(path=path, kind="text", content=text, title=recipe.title, mime="application/yaml")
        run = f"vancetope run {recipe.name} --goal ..."
        said = f"The recipe {recipe.name} is checked and stored as {path}. It runs with: {run}"
        return ToolResult(text=said, documents=(written,))
