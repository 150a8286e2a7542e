"""The tools of an installation by name: those that come along, and its own by entry points.

An installation adds a tool with an entry point of the group ``vancetope.tools`` that names a tool, or a function or
class without arguments that makes one (:class:`engines.tools.base.Tool`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from engines.errors import EngineError, InvalidSchema
from engines.llm.base import ToolCall, ToolSpec
from engines.structured.schema import CompiledSchema, compile_schema
from engines.structured.text import quote, quote_all, shorten
from engines.tools.base import Tool, ToolContext, ToolFailed, ToolResult, cut
from engines.tools.clock import CurrentTime
from engines.tools.docs import DocList, DocRead, DocWrite
from engines.tools.guidance import DomainGuidance
from engines.tools.jsonata import EvalJsonata
from engines.tools.page import clean
from engines.tools.pauses import Pauses
from engines.tools.recipe_write import RecipeWrite
from engines.tools.recipes import RecipeDescribe, RecipeList
from engines.tools.valem_check import ValemCheck
from engines.tools.web_fetch import WebFetch
from engines.tools.web_search import WebSearch
from engines.valem.jsonata.evaluation import Evaluator

log = logging.getLogger(__name__)

GROUP: Final = "vancetope.tools"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class ToolsError(EngineError):
    """A tool cannot be registered. The message names it and says why."""


class Registry:
    """Tools by name. Never changed after it is made; safe to share between threads."""

    def __init__(self, tools: Iterable[Tool], *, internal: Iterable[Tool] = ()) -> None:
        """internal: tools of certain engines; :meth:`specs` leaves them out."""
        own = tuple(internal)
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, CompiledSchema] = {}
        self._internal = frozenset(tool.name for tool in own)
        for tool in (*tools, *own):
            if not _NAME.match(tool.name):
                raise ToolsError(f"{quote(tool.name)} is no tool name: letters, digits, _ and -, at most 64")
            if tool.name in self._tools:
                raise ToolsError(f"there are two tools {tool.name!r}")
            try:
                self._schemas[tool.name] = compile_schema(tool.parameters)
            except InvalidSchema as error:
                raise ToolsError(f"the parameters of the tool {tool.name!r}: {error.message}") from None
            self._tools[tool.name] = tool

    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told of each tool that is there for everybody, in the order of registration."""
        return tuple(
            ToolSpec(
                name=tool.name,
                description=tool.description,
                parameters=tool.parameters,
                by_name_only=bool(getattr(tool, "by_name_only", False)),
            )
            for tool in self._tools.values()
            if tool.name not in self._internal
        )

    @property
    def internal(self) -> frozenset[str]:
        """The tools of engines. They are pure, so what they said need not be kept to be had again."""
        return self._internal

    def run(self, call: ToolCall, allowed: Collection[str], context: ToolContext) -> ToolResult:
        """The result of one call; never raises. A name outside ``allowed``, arguments that do not fit and exceptions of
        the tool become texts the model can read."""
        tool = self._tools.get(call.name) if call.name in allowed else None
        if tool is None:
            known = [name for name in self._tools if name in allowed]
            return _failed(f"there is no tool {quote(call.name)}; there are {quote_all(known, 40) or 'none'}")
        if call.raw is not None:
            return _failed(f"the arguments are no JSON object: {quote(call.raw, 200)}. Call it again with one.")
        schema = self._schemas[call.name]
        violations = schema.validate(call.arguments)
        if violations:
            return _failed(f"the arguments do not fit: {'; '.join(str(each) for each in violations[:5])}")
        try:
            arguments: dict[str, Any] = schema.normalise(call.arguments)
            found = tool.run(arguments, context)
            text = cut(clean(str(found.text)), context.max_chars) or "(the tool gave an empty result)"
            return ToolResult(text=text, ok=found.ok, documents=tuple(found.documents))
        except ToolFailed as error:
            return _failed(shorten(clean(error.message), 1_000))
        except Exception as error:
            log.warning("tool failed", exc_info=error, extra={"tool": call.name})
            return _failed(f"the tool failed: {type(error).__name__}: {shorten(clean(str(error)), 300)}")


def _failed(message: str) -> ToolResult:
    return ToolResult(text=f"[tool error] {message}", ok=False)


def bundled_tools(
    *,
    search_url: str | None = None,
    search_key: str | None = None,
    search_key_header: str = "Authorization",
    pauses: Pauses | None = None,
    evaluator: Evaluator | None = None,
) -> tuple[Tool, ...]:
    """The tools that come along. ``web_search`` is one of them when there is a service to ask, ``eval_jsonata`` when
    there is an evaluator for expressions of strangers."""
    search = (
        [WebSearch(search_url, api_key=search_key, key_header=search_key_header, pauses=pauses)] if search_url else []
    )
    documents = (DocList(), DocRead(), DocWrite())
    evaluation = [EvalJsonata(evaluator)] if evaluator is not None else []
    others = (WebFetch(), CurrentTime(), *documents, RecipeList(), RecipeDescribe())
    return (*search, *others, *evaluation, RecipeWrite())


def internal_tools(evaluator: Evaluator) -> tuple[Tool, ...]:
    """The tools of engines: those they call themselves, and those they offer by themselves."""
    return (ValemCheck(evaluator), DomainGuidance())


def installed_tools(found: Iterable[EntryPoint] | None = None) -> Iterator[Tool]:
    """The installation's own. Raises :class:`ToolsError` naming the entry point that cannot be used."""
    for point in entry_points(group=GROUP) if found is None else found:
        try:
            loaded = point.load()
            tool = loaded if isinstance(loaded, Tool) and not isinstance(loaded, type) else loaded()
        except Exception as error:
            raise ToolsError(f"entry point {point.name!r} ({point.value}) cannot be loaded: {error}") from error
        if not isinstance(tool, Tool):
            raise ToolsError(f"entry point {point.name!r} ({point.value}) is no tool: see engines.tools.base.Tool")
        yield tool
