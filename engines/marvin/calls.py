"""Recipe calls of a worker: which are refused, and what a node reads in place of a reply that never came.

Every refusal and failure is a text in square brackets that takes the place of the reply: the model sees it and decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from engines.marvin.outputs import RecipeCall
from engines.recipes.model import recipe_key
from engines.structured.text import quote_all

ENGINE_NAME = "marvin"
WORKER_RECIPE = "marvin-worker"


def available_recipes(params: Mapping[str, Any]) -> tuple[str, ...]:
    """The whitelist ``availableRecipes``, normalised, each name once; what is no name is left out."""
    given = params.get("availableRecipes")
    names = [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
    return tuple(dict.fromkeys(name for entry in names if isinstance(entry, str) and (name := recipe_key(entry))))


def refusal(
    call: RecipeCall,
    *,
    available: Collection[str],
    engine: str | None,
    own_recipe: str,
    problem: str | None = None,
) -> str | None:
    """Why ``call`` is not made, as the text that takes the reply's place; ``None`` when it may be made.

    available: of :func:`available_recipes`. engine: of the recipe the name resolves to, ``None`` when there is none.
    own_recipe: the recipe of the running process. problem: why the name resolves to none.
    """
    name = recipe_key(call.recipe)
    if name not in available:
        choice = f"available are {quote_all(available)}" if available else "no recipe is available to this plan"
        return _marker(name, f"refused: it is not among the recipes of this plan; {choice}")
    if engine is None:
        return _marker(name, f"refused: {problem or 'there is no such recipe'}")
    if engine.strip().lower() == ENGINE_NAME:
        return _marker(name, f"refused: it runs the engine {ENGINE_NAME}, and plans do not call plans")
    if name == recipe_key(own_recipe):
        return _marker(name, "refused: it is the recipe of this plan itself")
    return None


def reply_text(recipe: str, *, closed: str, text: str | None, message: str = "") -> str:
    """What a node reads of a callee that is closed: its last answer, or a marker when it failed or said nothing.

    closed: the close reason, ``DONE`` for success. message: why it failed, as far as known.
    """
    answer = (text or "").strip()
    if closed == "DONE":
        return answer or _marker(recipe, "gave an empty reply")
    marker = _marker(recipe, f"ended as {closed}{f': {message}' if message.strip() else ''}")
    return f"{marker}\n{answer}" if answer else marker


def timeout_text(recipe: str, seconds: int) -> str:
    """What a node reads of a callee that took too long."""
    return _marker(recipe, f"gave no reply within {seconds} seconds")


def _marker(recipe: str, what: str) -> str:
    shown = " ".join(recipe.split())[:100]
    return f"[recipe call '{shown}': {' '.join(what.split())[:1_000]}]"
