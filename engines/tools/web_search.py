"""The tool ``web_search``: a JSON search service of the installation (SearXNG, Brave, anything that answers alike)."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any, Final
from urllib.parse import quote_plus

import requests

from engines.tools.base import ToolContext, ToolResult, cut
from engines.tools.page import clean
from engines.tools.pauses import OwnPauses, Pauses

_MAX_BYTES: Final = 1_000_000
_MAX_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 30.0
_MAX_PAUSE_SECONDS: Final = 300.0
_SNIPPET_CHARS: Final = 500
_BUSY: Final = (
    "The search service is rate limited at the moment ({why}). Try again later or answer without it. This says nothing"
    " about whether anything on the subject exists."
)


class WebSearch:
    """Asks the search service. Too many requests, a captcha or an empty list are told as what they are, never as
    "nothing exists"; after one the service is left alone for a while by all who share the pauses, without a request."""

    name = "web_search"
    description = (
        "Searches the web and returns titles, addresses and short extracts. Read a page itself with web_fetch before"
        " you rely on what it says."
    )
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 400, "description": "A few words to search for"},
            "count": {"type": "integer", "minimum": 1, "maximum": 20, "description": "How many results; 8 if left out"},
        },
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        key_header: str = "Authorization",
        pauses: Pauses | None = None,
    ) -> None:
        """url: with ``{query}`` where the words go, for instance ``https://search.example/search?format=json&q={query}``.

        pauses: shared with whoever else asks this service; default: this process's own.
        """
        self._url = url
        self._headers = {"Accept": "application/json", **({key_header: api_key} if api_key else {})}
        self._pauses = pauses or OwnPauses()
        # By address and not by its text, which may hold a key.
        self._service = f"web_search:{hashlib.sha256(url.encode()).hexdigest()[:16]}"

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        left = self._pauses.left(self._service)
        if left > 0:
            return _busy(f"asked again before its pause of {left:.0f} more seconds was over")
        url = self._url.replace("{query}", quote_plus(str(arguments["query"]).strip()))
        seconds = min(_MAX_SECONDS, context.seconds)
        try:
            status, retry_after, body = self._get(url, seconds)
        except requests.RequestException as error:
            return ToolResult(text=f"The search service cannot be reached now: {type(error).__name__}.", ok=False)
        if status in (202, 403, 429, 503):
            return self._pause(f"HTTP {status}", retry_after)
        if status != 200:
            return ToolResult(text=f"The search service failed: HTTP {status}. Answer without it.", ok=False)
        try:
            found = _results(json.loads(body))
        except (ValueError, RecursionError):
            return self._pause("it answered with a page instead of results, probably a captcha", None)
        if not found:
            return self._pause("an empty list, which it also gives when it is asked too much", None)
        return ToolResult(text=_listing(found[: int(arguments.get("count") or 8)], context.max_chars))

    def _get(self, url: str, seconds: float) -> tuple[int, str | None, bytes]:
        ends = time.monotonic() + seconds
        body = bytearray()
        with requests.get(url, headers=self._headers, timeout=seconds, stream=True, allow_redirects=False) as response:
            for piece in response.iter_content(16_384):
                body += piece
                if len(body) > _MAX_BYTES or time.monotonic() > ends:
                    break
            return response.status_code, response.headers.get("Retry-After"), bytes(body)

    def _pause(self, why: str, retry_after: str | None) -> ToolResult:
        asked = float(retry_after) if retry_after and retry_after.strip().isdecimal() else _PAUSE_SECONDS
        self._pauses.pause(self._service, min(asked, _MAX_PAUSE_SECONDS))
        return _busy(why)


def _busy(why: str) -> ToolResult:
    return ToolResult(text=_BUSY.format(why=why), ok=False)


def _results(answer: Any) -> list[dict[str, str]]:
    """``title``, ``url`` and ``text`` of each result, in the shapes search services use. Raises ``ValueError``."""
    if not isinstance(answer, dict):
        raise ValueError("no object")
    inner = answer.get("web")
    places = (answer, inner if isinstance(inner, dict) else {})
    keys = ("results", "items", "organic", "organic_results", "data")
    lists = [place[key] for place in places for key in keys if isinstance(place.get(key), list)]
    if not lists:
        raise ValueError("no list of results")
    found = []
    for entry in lists[0]:
        if isinstance(entry, dict) and (url := _first(entry, "url", "link", "href")):
            text = _first(entry, "content", "snippet", "description", "body", "text")
            found.append({"title": _first(entry, "title", "name"), "url": url, "text": text})
    return found


def _first(entry: dict[str, Any], *keys: str) -> str:
    value = next((entry[key] for key in keys if isinstance(entry.get(key), str) and entry[key].strip()), "")
    return " ".join(clean(value).split())


def _listing(found: list[dict[str, str]], limit: int) -> str:
    lines = [
        f"{at}. {each['title'] or '(no title)'}\n   {each['url'][:500]}\n   {each['text'][:_SNIPPET_CHARS]}".rstrip()
        for at, each in enumerate(found, 1)
    ]
    return cut("\n".join(lines), limit)
