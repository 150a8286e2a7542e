"""The tool ``get_domain_guidance``: advice on shapes of models that are easily got wrong. Offered by valem only."""

from __future__ import annotations

from typing import Any

from engines.tools.base import ToolContext, ToolResult, cut
from engines.valem.offer import guidance_tool
from engines.valem.prompts.guidance import guidance


class DomainGuidance:
    """Answers from a table, without network."""

    def __init__(self) -> None:
        spec = guidance_tool()
        self.name = spec.name
        self.description = spec.description
        self.parameters = spec.parameters

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=cut(guidance(arguments["topics"]), context.max_chars, "the advice"))
