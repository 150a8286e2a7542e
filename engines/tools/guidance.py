"""The tool ``get_domain_guidance``: advice on shapes of models that are easily got wrong."""

from __future__ import annotations

from typing import Any, Final

from engines.tools.base import ToolContext, ToolResult, cut
from engines.valem.prompts.guidance import Topics, bundled_topics, guidance


class DomainGuidance:
    """Answers from a table, without network."""

    name = "get_domain_guidance"

    def __init__(self, topics: Topics | None = None) -> None:
        """topics: instead of the bundled ones."""
        self._topics = bundled_topics() if topics is None else topics

    @property
    def description(self) -> str:
        listed = "; ".join(f"{name} ({topic.title.lower()})" for name, topic in self._topics.items())
        return f"Advice on how to model certain things, each with an expression that works. Topics: {listed}."

    @property
    def parameters(self) -> dict[str, Any]:
        topic: Final[dict[str, Any]] = {"type": "string", "enum": list(self._topics)}
        return {
            "type": "object",
            "properties": {"topics": {"type": "array", "items": topic, "minItems": 1, "maxItems": len(self._topics)}},
            "required": ["topics"],
            "additionalProperties": False,
        }

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=cut(guidance(arguments["topics"], self._topics), context.max_chars, "the advice"))
