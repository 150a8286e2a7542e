"""The tool ``web_fetch``: a public web page as text."""

from __future__ import annotations

from typing import Any, Final

from engines.tools.base import ToolContext, ToolFailed, ToolResult, cut
from engines.tools.http import Fetcher
from engines.tools.page import is_textual, readable

_MAX_SECONDS: Final = 30.0


class WebFetch:
    """Fetches public addresses only (:mod:`engines.tools.guard`); says when the page was cut."""

    name = "web_fetch"
    description = (
        "Fetches one web page by GET and returns it as plain text, links in square brackets behind their words. Only"
        " public http and https addresses. Long pages are cut: use start to read on."
    )
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "The whole address, with http:// or https://"},
            "start": {"type": "integer", "minimum": 0, "description": "Leave out this many characters of the text"},
        },
        "required": ["url"],
        "additionalProperties": False,
    }

    def __init__(self, fetcher: Fetcher | None = None) -> None:
        self._fetcher = fetcher or Fetcher()

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        url = str(arguments["url"]).strip()
        page = self._fetcher.get(url, seconds=min(_MAX_SECONDS, context.seconds), cancel=context.cancel)
        head = f"{page.url} (HTTP {page.status}, {page.content_type or 'no type given'})"
        if not is_textual(page.content_type, page.body):
            raise ToolFailed(f"{head} is no text: {len(page.body):,} bytes that cannot be shown")
        text = readable(page.content_type, page.body, page.url)
        start = int(arguments.get("start") or 0)
        shown = text[start:]
        if not shown:
            shown = (
                "[there is no text]" if not text else f"[nothing from {start:,} on: it has {len(text):,} characters]"
            )
        if page.why_cut:
            head += f"\n[truncated: {page.why_cut}]"
        body = cut(shown, context.max_chars - len(head) - 2, "the text from there on" if start else "the text")
        return ToolResult(text=f"{head}\n\n{body}", ok=page.status < 400)
