"""What lies between the client and a provider module: one call, fully decided, and what came back of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from engines.llm.base import ErrorKind, LlmError, Message, StopKind, StructuredPath, ToolCall, ToolSpec, Usage
from engines.llm.catalogue import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """The provider's own way to hold a reply to a schema, on this call."""

    path: StructuredPath
    name: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One provider call with every choice made: a provider module only translates it.

    max_output: the answer's limit. thinking_tokens: ``None`` leaves thinking as the model has it, 0 switches it off
    where that is possible. tool_choice: ``auto``, ``none`` or the name of one of ``tools``. without: parameters never
    to be sent.
    """

    candidate: Candidate
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    native: Native | None = None
    temperature: float | None = None
    max_output: int
    thinking_tokens: int | None = None
    without: frozenset[str] = frozenset()

    @property
    def wanted_tool(self) -> str | None:
        """The offered tool that the caller wants to be called; ``None`` when the choice is the model's."""
        return next((tool.name for tool in self.tools if tool.name == self.tool_choice), None)


@dataclass(slots=True)
class Progress:
    """What has arrived of a call so far. Lives outside the call, so that an aborted one still tells what it got."""

    on_text: Callable[[str], None] | None = None
    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    usage: Usage | None = None
    reached: bool = False
    stop_reason: str | None = None
    stop: StopKind | None = None
    verdict: ErrorKind | None = None
    """Set when the provider's stop reason means that there is no answer (refusal, content filter, window full)."""
    tool_calls: list[ToolCall] = field(default_factory=list)
    model: str = ""
    output_limit: int | None = None
    closed: bool = False

    def add_text(self, piece: str) -> None:
        self.reached = True
        if not piece or self.closed:
            return
        self.text.append(piece)
        self.show(piece)

    def show(self, piece: str) -> None:
        """Let the caller's sink see a piece as it arrives."""
        if piece and not self.closed and self.on_text is not None:
            self.on_text(piece)

    @property
    def whole_text(self) -> str:
        return "".join(self.text)


class Wire(Protocol):
    """A provider module's connection to one (provider, base URL). Used on the event loop only, except ``failure``."""

    async def run(self, call: Call, progress: Progress) -> None:
        """Carry out the call, filling ``progress``. Raises whatever the SDK raises; never retries."""
        ...

    def failure(self, error: BaseException, call: Call) -> LlmError | None:
        """The :class:`LlmError` for an exception of this wire; ``None`` for an exception that is a bug of ours."""
        ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class ToolPieces:
    """One tool call under construction: providers stream its arguments in pieces."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def finish(self, index: int) -> ToolCall:
        return parse_call(self.id or f"call_{index}", self.name, "".join(self.arguments))


def parse_call(call_id: str, name: str, raw: str) -> ToolCall:
    """A tool call from its argument text; text that is no JSON object is kept in ``raw`` for the engine to correct."""
    try:
        arguments = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return ToolCall(id=call_id, name=name, arguments=arguments)
    return ToolCall(id=call_id, name=name, arguments={}, raw=raw)


def unfinished(what: str) -> LlmError:
    """The stream ended without the provider's word that the answer is over: the rest was lost on the way."""
    return LlmError(ErrorKind.TRANSPORT, f"the stream ended before {what}")
