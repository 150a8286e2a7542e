"""The other tools, and how a registry runs any of them: never an exception, always a bounded text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from fakes.search import SearchService

from engines.llm.base import ToolCall
from engines.recipes.cascade import BundledRecipes
from engines.tools.base import ToolContext, ToolFailed, ToolResult, cut
from engines.tools.clock import CurrentTime
from engines.tools.pauses import OwnPauses
from engines.tools.registry import Registry, ToolsError, bundled_tools, installed_tools
from engines.tools.web_search import WebSearch
from models.records import StoredDocument
from models.transition import WriteDocument


class Shelf:
    """Two documents."""

    texts = {"notes/a.md": "first\nsecond", "notes/long.md": "x" * 5_000}  # noqa: RUF012

    def get(self, path: str) -> StoredDocument | None:
        if path not in self.texts:
            return None
        return StoredDocument(
            id=1, path=path, version=3, kind="text", title=None, mime="text/markdown", content=self.texts[path]
        )

    def paths(self, prefix: str, limit: int) -> list[tuple[str, str, int]]:
        return [(path, "text", len(text)) for path, text in self.texts.items() if path.startswith(prefix)][:limit]


CONTEXT = ToolContext(seconds=5, max_chars=1_000, documents=Shelf(), recipes=(BundledRecipes(),))
REGISTRY = Registry(bundled_tools(search_url="http://127.0.0.1:1/?q={query}"))
NAMES = [spec.name for spec in REGISTRY.specs()]


def run(name: str, /, allowed: list[str] | None = None, raw: str | None = None, **arguments: Any) -> ToolResult:
    call = ToolCall(id="1", name=name, arguments=arguments, raw=raw)
    return REGISTRY.run(call, NAMES if allowed is None else allowed, CONTEXT)


def test_the_tools_that_come_along() -> None:
    others = ["web_fetch", "current_time", "doc_list", "doc_read", "doc_write"]
    others += ["recipe_list", "recipe_describe", "recipe_write"]
    assert ["web_search", *others] == NAMES
    assert [spec.name for spec in Registry(bundled_tools()).specs()] == others
    for spec in REGISTRY.specs():
        assert spec.description.strip()
        assert spec.parameters["type"] == "object"


def test_what_a_model_gets_wrong_is_told_in_words() -> None:
    assert 'there is no tool "shell"' in run("shell").text
    assert 'there are "web_fetch"' in run("doc_write", ["web_fetch"], path="a.md", content="x").text
    assert "no JSON object" in run("web_fetch", raw='{"url": "http').text
    assert "url" in run("web_fetch").text
    assert "path" in run("doc_read", path=7).text
    assert "refused" not in run("current_time", timezone="Europe/Vienna").text
    for bad in (run("shell"), run("web_fetch"), run("web_fetch", raw="{")):
        assert not bad.ok
        assert bad.text.startswith("[tool error] ")


class Broken:
    name = "broken"
    description = "Fails."
    parameters: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012

    def __init__(self, does: Any = None) -> None:
        self.does = does

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        if isinstance(self.does, Exception):
            raise self.does
        return ToolResult(text=self.does)


@pytest.mark.parametrize(
    "error", [RuntimeError("boom \0"), ToolFailed("boom"), RecursionError("boom"), KeyError("boom")]
)
def test_an_exception_of_a_tool_is_a_text(error: Exception) -> None:
    found = Registry([Broken(error)]).run(ToolCall(id="1", name="broken", arguments={}), ["broken"], CONTEXT)
    assert not found.ok
    assert "boom" in found.text
    assert "\0" not in found.text


def test_a_result_is_cleaned_and_capped() -> None:
    registry = Registry([Broken("a\0b\ud800" + "x" * 9_000)])
    text = registry.run(ToolCall(id="1", name="broken", arguments={}), ["broken"], CONTEXT).text
    assert text.startswith("abxxx")
    assert len(text) <= CONTEXT.max_chars
    assert "truncated" in text
    assert cut("short", 10) == "short"


@pytest.mark.parametrize("tools", [[Broken(), Broken()], [type("T", (Broken,), {"name": "no name"})()]])
def test_tools_that_cannot_be_registered(tools: list[Broken]) -> None:
    with pytest.raises(ToolsError):
        Registry(tools)


def test_entry_points_bring_tools_or_makers_of_tools() -> None:
    here = __name__

    class Point(EntryPoint):
        def load(self) -> Any:
            return {"class": Broken, "instance": Broken("x"), "none": 7}[self.value]

    def point(value: str) -> EntryPoint:
        return Point("mine", value, "vancetope.tools")

    assert [tool.name for tool in installed_tools([point("class"), point("instance")])] == ["broken", "broken"]
    with pytest.raises(ToolsError, match="'mine'"):
        list(installed_tools([point("none")]))
    with pytest.raises(ToolsError, match="no_such"):
        list(installed_tools([EntryPoint("mine", f"{here}.no_such:thing", "vancetope.tools")]))
    assert list(installed_tools()) == []


def test_the_time() -> None:
    tool = CurrentTime(lambda: datetime(2026, 11, 30, 14, 0, tzinfo=UTC))
    assert tool.run({}, CONTEXT).text == "Monday, 2026-11-30 14:00:00 UTC"
    assert tool.run({"timezone": "Europe/Vienna"}, CONTEXT).text == "Monday, 2026-11-30 15:00:00 Europe/Vienna"
    for name in ("Mars/Olympus", "../../etc/passwd", ""):
        if name:
            with pytest.raises(ToolFailed):
                tool.run({"timezone": name}, CONTEXT)


def test_documents_are_listed_and_read() -> None:
    assert run("doc_list").text == "- notes/a.md (text, 12 characters)\n- notes/long.md (text, 5,000 characters)"
    assert run("doc_list", prefix="x/").text == 'There are no documents below "x/".'
    assert run("doc_read", path="./notes//a.md").text == "notes/a.md (text, version 3, 12 characters)\n\nfirst\nsecond"
    assert "truncated" in run("doc_read", path="notes/long.md").text
    assert run("doc_read", path="notes/long.md", start=4_998).text.endswith("\n\nxx")
    assert "there is no document" in run("doc_read", path="other.md").text
    assert not run("doc_read", path="../secret").ok


def test_what_is_written_goes_into_the_commit() -> None:
    found = run("doc_write", path="out/./r.md", content="{{ 7*7 }} text", title=" A  title ")
    assert found.documents == (WriteDocument(path="out/r.md", kind="text", content="{{ 7*7 }} text", title="A title"),)
    for path in ("_vance/a", "recipes/x.yaml", "\uff3fvance/a", "_vance%2fa", "../a", "/a", ""):
        refused = run("doc_write", path=path, content="x")
        assert not refused.ok
        assert refused.documents == ()
    assert not run("doc_write", path="a.md", content="  ").ok
    assert not run("doc_write", path="a.md", content="x", kind="no kind").ok


def test_recipes_are_listed_and_described() -> None:
    listed = run("recipe_list").text
    assert "- outline: " in listed
    assert "marvin-worker" not in listed
    described = run("recipe_describe", name="Outline").text
    assert described.startswith("outline (engine jeltz)")
    assert "maxAttempts: 3" in described
    assert "did you mean 'outline'" in run("recipe_describe", name="outlin").text


@pytest.fixture
def service() -> Iterator[SearchService]:
    service = SearchService()
    yield service
    service.shutdown()
    service.server_close()


def search_tool(service: SearchService, now: list[float]) -> WebSearch:
    url = f"http://127.0.0.1:{service.server_address[1]}/s?q={{query}}"
    return WebSearch(url, api_key="k", key_header="X-Key", pauses=OwnPauses(lambda: now[0]))


@pytest.mark.parametrize("body", [
    b'{"results": [{"title": "T", "url": "http://a.example/", "content": "some  <b>words"}]}',
    b'{"web": {"results": [{"title": "T", "url": "http://a.example/", "description": "some <b>words"}]}}',
    b'{"items": [{"title": "T", "link": "http://a.example/", "snippet": "some <b>words"}, {"no": "url"}, 7]}',
])  # fmt: skip
def test_search_reads_what_services_answer(service: SearchService, body: bytes) -> None:
    service.answer = (200, body, {})
    found = search_tool(service, [0.0]).run({"query": "two words & more"}, CONTEXT)
    assert found.ok
    assert found.text == "1. T\n   http://a.example/\n   some <b>words"
    assert service.asked == [("/s?q=two+words+%26+more", "k")]


@pytest.mark.parametrize(("status", "body"), [
    (202, b"{}"), (429, b""), (403, b""), (503, b""), (200, b"<html>Are you a robot?"), (200, b'{"results": []}'),
    (200, b'{"message": "slow down"}'), (200, b"[" * 100_000),
])  # fmt: skip
def test_e17_a_limit_is_never_told_as_nothing_found(service: SearchService, status: int, body: bytes) -> None:
    now = [0.0]
    tool = search_tool(service, now)
    service.answer = (status, body, {"Retry-After": "40"} if status == 429 else {})
    for _ in range(3):
        found = tool.run({"query": "x"}, CONTEXT)
        assert not found.ok
        assert "rate limited" in found.text
        assert "Try again later or answer without it" in found.text
        assert "nothing about whether anything on the subject exists" in found.text
    assert len(service.asked) == 1, "the service is left alone during its pause"
    now[0] = 41.0
    service.answer = (200, b'{"results": [{"url": "http://a.example/"}]}', {})
    assert tool.run({"query": "x"}, CONTEXT).ok


def test_a_search_service_that_is_away_is_a_text() -> None:
    found = run("web_search", query="x")
    assert not found.ok
    assert "cannot be reached" in found.text
