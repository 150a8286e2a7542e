"""The recipes a process may call, stored inside its own recipe at submission: what runs is what was there then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engines.recipes.model import Recipe

_KEY: Final = "snapshots"
_UNUSABLE: Final = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """A recipe that may be called, with what its engine says of a new process."""

    recipe: Recipe
    first_phase: str
    root_kind: str = "ROOT"


def stored_recipe(
    recipe: Recipe, callees: Mapping[str, Callee], unusable: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """``recipe`` as it is stored with a process, together with ``callees`` by name.

    unusable: recipes that were named and cannot be called, with the reason.
    """
    stored = _dumped(recipe)
    if unusable:
        stored[_UNUSABLE] = dict(unusable)
    if callees:
        stored[_KEY] = {
            name: {"recipe": _dumped(callee.recipe), "firstPhase": callee.first_phase, "rootKind": callee.root_kind}
            for name, callee in callees.items()
        }
    return stored


def read_stored(stored: Mapping[str, Any]) -> tuple[Recipe, dict[str, Callee]]:
    """The recipe and the callees of :func:`stored_recipe`."""
    own = {key: value for key, value in stored.items() if key not in (_KEY, _UNUSABLE)}
    callees = {
        name: Callee(
            recipe=Recipe.model_validate(entry["recipe"]),
            first_phase=entry["firstPhase"],
            root_kind=entry["rootKind"],
        )
        for name, entry in stored.get(_KEY, {}).items()
    }
    return Recipe.model_validate(own), callees


def why_unusable(stored: Mapping[str, Any], name: str) -> str | None:
    """Why the recipe ``name`` could not be stored with :func:`stored_recipe`; ``None`` when nobody said."""
    reason = stored.get(_UNUSABLE, {}).get(name)
    return reason if isinstance(reason, str) else None


def dumped(callee: Callee) -> dict[str, Any]:
    """The callee's recipe as it is stored with the called process."""
    return _dumped(callee.recipe)


def _dumped(recipe: Recipe) -> dict[str, Any]:
    return recipe.model_dump(mode="json", by_alias=True)
