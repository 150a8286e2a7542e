"""The tools a process may use: the same ones in every call, because they are the beginning of a cached prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engines.conversation import Called
from engines.llm.base import ToolCall, ToolSpec
from engines.recipes.model import Recipe
from engines.valem.budgets import GUIDANCE
from engines.valem.params import Params
from engines.valem.prompts.guidance import bundled_topics

STANDARD: Final = (GUIDANCE, "eval_jsonata", "web_search", "web_fetch")


@dataclass(frozen=True, slots=True)
class Offer:
    """Tools in the order they are sent."""

    tools: tuple[ToolSpec, ...]
    search_results: int

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)

    def adapted(self, call: Called) -> ToolCall:
        """The call as it is run: a search brings no more results than the process allows."""
        made = call.tool_call
        if made.name != "web_search" or made.raw is not None:
            return made
        count = made.arguments.get("count")
        wanted = count if isinstance(count, int) and not isinstance(count, bool) else self.search_results
        fewer = max(1, min(wanted, self.search_results))
        return ToolCall(id=made.id, name=made.name, arguments={**made.arguments, "count": fewer})


def guidance_tool() -> ToolSpec:
    """The tool by which a model asks for advice on certain shapes."""
    topics = bundled_topics()
    listed = "; ".join(f"{name} ({topic.title})" for name, topic in topics.items())
    named = {"type": "array", "items": {"type": "string", "enum": list(topics)}, "minItems": 1, "maxItems": len(topics)}
    return ToolSpec(
        name=GUIDANCE,
        description=f"Gives advice on modelling certain things, each with an expression that works. Topics: {listed}.",
        parameters={
            "type": "object",
            "properties": {"topics": named},
            "required": ["topics"],
            "additionalProperties": False,
        },
    )


def offer_of(tools: Iterable[ToolSpec], recipe: Recipe, params: Params) -> Offer:
    """Those of the installation that the recipe allows; a tool that may be called zero times is not offered."""
    wanted = set(STANDARD if recipe.allowed_tools is None else recipe.allowed_tools)
    wanted = (wanted | set(recipe.allowed_tools_add)) - set(recipe.allowed_tools_remove)
    kept = (tool for tool in tools if tool.name in wanted and params.calls.get(tool.name, 1) > 0)
    return Offer(tools=tuple(sorted(kept, key=lambda tool: tool.name)), search_results=params.search_results)
