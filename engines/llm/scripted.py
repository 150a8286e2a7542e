"""Answers from a file or from memory, instead of from a model: tests, offline demos, benchmarks.

A script is data::

    rules:                              # the first rule whose `when` holds answers
      - when: {contains: "capital of"}  # all conditions must hold; see Condition
        reply: {json: {city: Paris}}
      - when: {last: "boom"}
        error: {kind: overloaded, retry_after: 3}
      - when: {schema: plan}
        replies:                        # one after the other; the last one stays
          - {text: "not json"}
          - {json: {ok: true}}
    default: {sample: true}             # a smallest value of the requested schema, or some text

``replies`` go by the number of assistant messages in the conversation, so several worker processes, or one that was
killed and started again, give the same answers. ``by: count`` counts matches within this process instead.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engines.errors import EngineError
from engines.llm.base import (
    CancelToken,
    ChunkSink,
    ErrorKind,
    LlmError,
    LlmReply,
    LlmRequest,
    Message,
    StopKind,
    StructuredPath,
    ToolCall,
    Usage,
)
from engines.llm.catalogue import Candidate, Catalogue
from engines.llm.sample import sample_value

_CHARACTERS_PER_TOKEN = 4


class ScriptError(EngineError):
    """A script cannot be used: the message says where and why."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Condition(_Strict):
    """What a conversation must be like. Texts are looked for in all messages, ``last`` in the last one only."""

    contains: tuple[str, ...] | str = ()
    lacks: tuple[str, ...] | str = ()
    last: str | None = None
    regex: str | None = None
    model: str | None = None
    """A substring of the requested model (``default:fast``)."""
    schema_name: str | None = Field(default=None, alias="schema")
    path: StructuredPath | None = None
    tools: bool | None = None
    turn: int | None = None
    """How many assistant messages the conversation has."""

    def holds(self, request: LlmRequest, conversation: str, turn: int) -> bool:
        if self.turn is not None and self.turn != turn:
            return False
        if self.model is not None and self.model not in request.model:
            return False
        if self.schema_name is not None and (request.schema is None or self.schema_name != request.schema_name):
            return False
        if self.path is not None and self.path != _path(request):
            return False
        if self.tools is not None and self.tools != bool(request.tools):
            return False
        return self._texts_hold(request.messages, conversation)

    def _texts_hold(self, messages: tuple[Message, ...], conversation: str) -> bool:
        if self.last is not None and (not messages or self.last not in messages[-1].content):
            return False
        if not all(text in conversation for text in _texts(self.contains)):
            return False
        if any(text in conversation for text in _texts(self.lacks)):
            return False
        return self.regex is None or re.search(self.regex, conversation) is not None


class ScriptedUsage(_Strict):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class ScriptedToolCall(_Strict):
    id: str = ""
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ScriptedAnswer(_Strict):
    """One answer: a text, a JSON value, chunks, tool calls or a sample; or an error. Optionally late."""

    text: str | None = None
    json_value: Any = Field(default=None, alias="json")
    chunks: tuple[str, ...] = ()
    tool_calls: tuple[ScriptedToolCall, ...] = ()
    sample: bool = False
    error: ErrorKind | None = None
    message: str = ""
    retry_after: float | None = None
    status: int | None = None
    parameter: str | None = None
    partial_text: str = ""
    reached_inference: bool = False
    stop: StopKind = StopKind.END
    stop_reason: str = "stop"
    usage: ScriptedUsage | None = None
    cost_usd: float | None = None
    delay: float = 0.0


class ScriptedRule(_Strict):
    when: Condition = Condition()
    reply: ScriptedAnswer | None = None
    error: Mapping[str, Any] | None = None
    replies: tuple[ScriptedAnswer, ...] = ()
    by: Literal["turn", "count"] = "turn"

    @model_validator(mode="after")
    def _one_kind(self) -> ScriptedRule:
        if sum((self.reply is not None, self.error is not None, bool(self.replies))) != 1:
            raise ValueError("a rule has exactly one of reply, error and replies")
        self.answers()
        return self

    def answers(self) -> tuple[ScriptedAnswer, ...]:
        if self.replies:
            return self.replies
        if self.error is not None:
            fields = dict(self.error)
            return (ScriptedAnswer(error=fields.pop("kind", None) or ErrorKind.TRANSPORT, **fields),)
        return (self.reply,) if self.reply is not None else ()


class _ScriptFile(_Strict):
    rules: tuple[ScriptedRule, ...] = ()
    default: ScriptedAnswer | None = None


class Script:
    """Rules, and a queue that goes before them. Thread-safe. ``requests`` keeps the last requests for a test."""

    def __init__(
        self, rules: Iterable[ScriptedRule] = (), *, default: ScriptedAnswer | None = None, keep: int = 0
    ) -> None:
        self._rules = [(rule.when, rule.answers(), rule.by) for rule in rules]
        self._default = default
        self._lock = threading.Lock()
        self._queue: list[ScriptedAnswer] = []
        self._counts: dict[int, int] = {}
        self._keep = keep
        self.requests: list[LlmRequest] = []
        # Joining the conversation is the costly part: left out when no rule looks at it.
        self._reads_text = any(when.contains or when.lacks or when.regex for when, _, _ in self._rules)

    @classmethod
    def load(cls, path: Path) -> Script:
        """From a YAML or JSON file."""
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ScriptError(f"{path}: cannot be read: {error}") from None
        return cls.from_data(data, origin=str(path))

    @classmethod
    def from_data(cls, data: Any, *, origin: str = "script", keep: int = 0) -> Script:
        try:
            script = _ScriptFile.model_validate(data)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False)
            text = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in problems)
            raise ScriptError(f"{origin}: {text}") from None
        return cls(script.rules, default=script.default, keep=keep)

    @classmethod
    def of(cls, *answers: Any, keep: int = 1_000) -> Script:
        """Answers from memory, one after the other: texts, JSON values, errors or :class:`ScriptedAnswer`."""
        script = cls(keep=keep)
        script.add(*answers)
        return script

    def add(self, *answers: Any) -> None:
        with self._lock:
            self._queue.extend(_answer(answer) for answer in answers)

    def next(self, request: LlmRequest) -> ScriptedAnswer:
        """The answer to ``request``. Raises ``bad_request`` when nothing in the script fits."""
        conversation = "\n".join(message.content for message in request.messages) if self._reads_text else ""
        turn = sum(message.role == "assistant" for message in request.messages)
        if self._keep or self._queue:
            with self._lock:
                if self._keep:
                    self.requests.append(request)
                    del self.requests[: -self._keep]
                if self._queue:
                    return self._queue.pop(0)
        for index, (when, answers, by) in enumerate(self._rules):
            if when.holds(request, conversation, turn):
                return answers[min(turn if by == "turn" else self._count(index), len(answers) - 1)]
        if self._default is not None:
            return self._default
        last = request.messages[-1].content[:200] if request.messages else ""
        raise LlmError(ErrorKind.BAD_REQUEST, f"the script has no answer to: {last}", provider="scripted")

    def _count(self, index: int) -> int:
        with self._lock:
            seen = self._counts.get(index, 0)
            self._counts[index] = seen + 1
            return seen


class ScriptedProvider:
    """Carries out calls from a :class:`Script`. No event loop, no thread."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def complete(
        self, request: LlmRequest, candidate: Candidate, *, cancel: CancelToken | None, on_chunk: ChunkSink | None
    ) -> LlmReply:
        started = time.monotonic()
        if cancel is not None and cancel.is_set():
            raise LlmError(ErrorKind.CANCELLED, "the call was cancelled", provider="scripted")
        answer = self.script.next(request)
        if answer.delay > 0:
            _wait(answer.delay, cancel)
        text, calls = _content(answer, request)
        usage = _usage(answer, request, text)
        latency = round((time.monotonic() - started) * 1_000)
        path = _path(request)
        if answer.error is not None:
            raise LlmError(
                answer.error,
                answer.message or answer.error.value,
                retry_after=answer.retry_after,
                status=answer.status,
                provider="scripted",
                model=request.model,
                parameter=answer.parameter,
                path=path,
                partial_text=answer.partial_text,
                usage=usage if answer.usage is not None else None,
                cost_usd=answer.cost_usd,
                latency_ms=latency,
                reached_inference=answer.reached_inference,
            )
        if on_chunk is not None:
            for chunk in answer.chunks or ((text,) if text else ()):
                on_chunk(chunk)
        limit = min(request.max_output_tokens or candidate.spec.default_output, candidate.spec.max_output)
        return LlmReply(
            text=text,
            tool_calls=calls,
            stop=StopKind.TOOL_USE if calls and answer.stop is StopKind.END else answer.stop,
            stop_reason=answer.stop_reason,
            usage=usage,
            provider="scripted",
            model=candidate.model,
            path=path,
            cost_usd=answer.cost_usd,
            latency_ms=latency,
            output_limit=limit,
            output_ceiling=candidate.spec.max_output,
        )


class ScriptedClient(ScriptedProvider):
    """An :class:`engines.llm.base.LlmClient` that answers any model name from a script; for engine tests."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._candidate = Catalogue.load().candidate("scripted", "scripted")

    def complete(  # type: ignore[override]
        self, request: LlmRequest, *, cancel: CancelToken | None = None, on_chunk: ChunkSink | None = None
    ) -> LlmReply:
        return super().complete(request, self._candidate, cancel=cancel, on_chunk=on_chunk)


def _answer(value: Any) -> ScriptedAnswer:
    if isinstance(value, ScriptedAnswer):
        return value
    if isinstance(value, ErrorKind):  # before str, which it is too
        return ScriptedAnswer(error=value)
    if isinstance(value, str):
        return ScriptedAnswer(text=value)
    if isinstance(value, LlmError):
        return ScriptedAnswer(
            error=value.kind,
            message=value.message,
            retry_after=value.retry_after,
            status=value.status,
            parameter=value.parameter,
            partial_text=value.partial_text,
            reached_inference=value.reached_inference,
        )
    return ScriptedAnswer(json=value)


def _content(answer: ScriptedAnswer, request: LlmRequest) -> tuple[str, tuple[ToolCall, ...]]:
    calls = tuple(
        ToolCall(id=call.id or f"call_{index}", name=call.name, arguments=call.arguments)
        for index, call in enumerate(answer.tool_calls)
    )
    if answer.text is not None:
        return answer.text, calls
    if answer.chunks:
        return "".join(answer.chunks), calls
    if answer.sample:
        if request.schema is None:
            return "sample", calls
        return json.dumps(sample_value(request.schema), ensure_ascii=False), calls
    if "json_value" in answer.model_fields_set:
        return json.dumps(answer.json_value, ensure_ascii=False), calls
    return "", calls


def _usage(answer: ScriptedAnswer, request: LlmRequest, text: str) -> Usage:
    """The script's numbers, else an estimate by length, so that budgets have something to count offline."""
    if answer.usage is not None:
        return Usage(
            input_tokens=answer.usage.input_tokens,
            output_tokens=answer.usage.output_tokens,
            cache_read_tokens=answer.usage.cache_read_tokens,
            cache_write_tokens=answer.usage.cache_write_tokens,
        )
    prompt = sum(len(message.content) for message in request.messages)
    return Usage(input_tokens=prompt // _CHARACTERS_PER_TOKEN, output_tokens=-(-len(text) // _CHARACTERS_PER_TOKEN))


def _path(request: LlmRequest) -> StructuredPath | None:
    return request.highest_path if request.schema is not None else None


def _texts(value: tuple[str, ...] | str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _wait(seconds: float, cancel: CancelToken | None) -> None:
    woken = threading.Event()
    unregister = cancel.on_cancel(woken.set) if cancel is not None else None
    try:
        if woken.wait(seconds):
            raise LlmError(ErrorKind.CANCELLED, "the call was cancelled", provider="scripted")
    finally:
        if unregister is not None:
            unregister()
