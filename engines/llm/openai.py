"""The chat-completions wire: OpenAI itself and every server that speaks like it.

The only module besides ``openai_batch`` that imports the ``openai`` SDK; the client loads it on first use.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import PurePath
from typing import Any, cast

import httpx2
import openai
from openai.types.chat import ChatCompletionChunk
from openai.types.completion_usage import CompletionUsage

from engines.llm import failures
from engines.llm.base import ErrorKind, LlmError, Message, StopKind, StructuredPath, ToolSpec, Usage
from engines.llm.pool import http_client
from engines.llm.wire import Call, Progress, ToolPieces, unfinished

# At DEBUG the SDK logs whole requests: prompts belong in nobody's log.
logging.getLogger("openai").setLevel(logging.INFO)

_STOPS = {
    "stop": StopKind.END,
    "length": StopKind.LENGTH,
    "tool_calls": StopKind.TOOL_USE,
    "function_call": StopKind.TOOL_USE,
}
_NO_AMBIENT = {
    # Else the SDK adds them from its environment variables, to whatever server this is.
    "OpenAI-Organization": openai.Omit(),
    "OpenAI-Project": openai.Omit(),
}
_EFFORTS = ((2_048, "low"), (8_192, "medium"))


class OpenAIWire:
    """One SDK client with its connection pool. See :class:`engines.llm.wire.Wire`."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str | None,
        timeout: httpx2.Timeout,
        secrets: tuple[str, ...] = (),
        headers: dict[str, str] | None = None,
        trust_env: bool = True,
    ) -> None:
        self._secrets = secrets
        # Explicit keys, even placeholders, keep the SDK from sending those of its own environment variables elsewhere.
        self._client = openai.AsyncOpenAI(
            api_key=api_key or "none",
            admin_api_key="",
            base_url=base_url,
            timeout=timeout,
            max_retries=0,
            default_headers=cast(Any, {**_NO_AMBIENT, **(headers or {})}),
            http_client=http_client(timeout, trust_env=trust_env),
        )

    @property
    def sdk(self) -> openai.AsyncOpenAI:
        return self._client

    async def run(self, call: Call, progress: Progress) -> None:
        body = build_body(call)
        progress.output_limit = call.max_output
        stream: Any = await self._client.chat.completions.create(**body)
        calls: dict[int, ToolPieces] = {}
        try:
            async for chunk in _chunks(stream):
                _absorb(chunk, progress, calls, stream_arguments=_by_tool(call))
        except (httpx2.HTTPError, openai.APIConnectionError, ValueError):
            # The answer was already declared complete: what broke afterwards is only the farewell.
            if progress.stop_reason is None:
                raise
        finally:
            await stream.close()
        _conclude(call, progress, calls)

    def failure(self, error: BaseException, call: Call) -> LlmError | None:
        path = call.native.path if call.native else None
        quoted = [message.content for message in call.messages]
        return map_error(error, path=path, secrets=self._secrets, quoted=quoted)

    async def close(self) -> None:
        await self._client.close()


async def _chunks(stream: Any) -> AsyncIterator[ChatCompletionChunk]:
    """The chunks of an answer; a server that does not stream answers in one piece, which is made into one chunk."""
    if not stream.response.headers.get("content-type", "").startswith("application/json"):
        async for chunk in stream:
            yield chunk
        return
    yield _one_chunk(json.loads(await stream.response.aread()))


def _one_chunk(whole: dict[str, Any]) -> ChatCompletionChunk:
    choices = []
    for choice in whole.get("choices") or ():
        message = dict(choice.get("message") or {})
        message["tool_calls"] = [{**tool, "index": i} for i, tool in enumerate(message.get("tool_calls") or ())]
        choices.append({"index": 0, "delta": message, "finish_reason": choice.get("finish_reason")})
    return ChatCompletionChunk.construct(**{**whole, "choices": choices})


def absorb_whole(whole: dict[str, Any], call: Call, progress: Progress) -> None:
    """Take in a completion that came in one piece."""
    calls: dict[int, ToolPieces] = {}
    _absorb(_one_chunk(whole), progress, calls, stream_arguments=False)
    _conclude(call, progress, calls)


def _conclude(call: Call, progress: Progress, calls: dict[int, ToolPieces]) -> None:
    progress.tool_calls = [pieces.finish(index) for index, pieces in sorted(calls.items()) if pieces.name]
    if progress.stop_reason is None:
        raise unfinished("a finish_reason came")
    progress.stop = _STOPS.get(progress.stop_reason, StopKind.OTHER)
    if progress.stop_reason.startswith("content_filter"):
        progress.verdict = ErrorKind.CONTENT_FILTER
    elif progress.refusal:
        progress.verdict = ErrorKind.REFUSAL
    if progress.tool_calls and progress.stop is StopKind.END:
        progress.stop = StopKind.TOOL_USE  # some servers say "stop" after tool calls
    _settle_structured(call, progress, calls)


def _absorb(
    chunk: ChatCompletionChunk, progress: Progress, calls: dict[int, ToolPieces], *, stream_arguments: bool
) -> None:
    # llama.cpp calls a model by the path of its file.
    progress.model = PurePath(chunk.model).name if chunk.model and chunk.model.startswith("/") else chunk.model or ""
    if chunk.usage is not None:
        progress.usage = _usage(chunk.usage)
    # `choices` is empty on the usage chunk and null on some servers.
    for choice in chunk.choices or ():
        delta = choice.delta
        if delta is not None:
            progress.reached = True
            progress.add_text(delta.content or "")
            if delta.refusal:
                progress.refusal.append(delta.refusal)
            for piece in delta.tool_calls or ():
                _absorb_tool(piece, calls)
                if stream_arguments and piece.function is not None:
                    progress.show(piece.function.arguments or "")
        if choice.finish_reason:
            progress.stop_reason = choice.finish_reason


def _absorb_tool(piece: Any, calls: dict[int, ToolPieces]) -> None:
    index = piece.index if piece.index is not None else len(calls)
    call = calls.setdefault(index, ToolPieces())
    call.id = piece.id or call.id
    if piece.function is not None:
        call.name = piece.function.name or call.name
        call.arguments.append(piece.function.arguments or "")


def _settle_structured(call: Call, progress: Progress, calls: dict[int, ToolPieces]) -> None:
    """On the forced-tool rung the arguments, exactly as streamed, are the answer: they become the text."""
    if call.native is None or not _by_tool(call):
        return
    for pieces in calls.values():
        if pieces.name == call.native.name:
            progress.text[:] = pieces.arguments
            progress.tool_calls = []
            if progress.stop is StopKind.TOOL_USE:
                progress.stop = StopKind.END
            return


def _by_tool(call: Call) -> bool:
    native = call.native
    return native is not None and native.path is StructuredPath.LOOSE and call.candidate.spec.loose_style == "tool"


def _usage(usage: CompletionUsage) -> Usage:
    details = usage.prompt_tokens_details
    read = (details.cached_tokens or 0) if details else 0
    write = (details.cache_write_tokens or 0) if details else 0
    prompt = usage.prompt_tokens or 0
    return Usage(
        input_tokens=max(0, prompt - read - write),
        output_tokens=usage.completion_tokens or 0,
        cache_read_tokens=read,
        cache_write_tokens=write,
    )


# --- the request ---------------------------------------------------------------------------------------------------


def build_body(call: Call) -> dict[str, Any]:
    """The request body. Nothing the catalogue or an earlier refusal rules out is in it."""
    spec = call.candidate.spec
    body: dict[str, Any] = {
        "model": call.candidate.model,
        "messages": build_messages(call.messages, spec.system_role, several=spec.several_system_messages),
        "stream": True,
    }
    if call.candidate.provider.stream_usage:
        body["stream_options"] = {"include_usage": True}
    _limit(call, body)
    if call.temperature is not None:
        body["temperature"] = call.temperature
    tools = [_tool(tool) for tool in call.tools]
    if call.native is not None:
        if _by_tool(call):
            answer = ToolSpec(name=call.native.name, description="Give the answer.", parameters=call.native.schema)
            tools.append(_tool(answer))
            if spec.forced_tool_choice == "always" and not call.tools:
                body["tool_choice"] = {"type": "function", "function": {"name": call.native.name}}
        else:
            strict = call.native.path is StructuredPath.STRICT
            shape = {"name": call.native.name, "schema": call.native.schema, "strict": strict}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
    if tools:
        body["tools"] = tools
    wanted = call.wanted_tool
    if wanted is not None and spec.forced_tool_choice == "always":
        body["tool_choice"] = {"type": "function", "function": {"name": wanted}}
    elif tools and call.tool_choice == "none":
        body["tool_choice"] = "none"
    effort = _effort(call, tools=bool(tools))
    if effort is not None:
        body["reasoning_effort"] = effort
    for name in call.without:
        body.pop(name, None)
    return body


def _limit(call: Call, body: dict[str, Any]) -> None:
    """The output limit under the name this model knows; a refused name gives way to the other one, never to none."""
    name: str = call.candidate.spec.max_tokens_parameter
    other = "max_tokens" if name == "max_completion_tokens" else "max_completion_tokens"
    if name in call.without:
        name = other
    body[name] = call.max_output


def _effort(call: Call, *, tools: bool) -> str | None:
    spec = call.candidate.spec
    if spec.thinking != "effort":
        return None
    if tools and spec.tools == "without_thinking":
        return spec.thinking_off
    if call.thinking_tokens is None:
        return None
    if call.thinking_tokens <= 0:
        return spec.thinking_off
    return next((effort for limit, effort in _EFFORTS if call.thinking_tokens <= limit), "high")


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def build_messages(messages: Iterable[Message], system_role: str, *, several: bool = False) -> list[dict[str, Any]]:
    """Chat messages; neighbouring system messages become one, because many chat templates allow only one.

    several: a system message that asks for a cache mark stays a message of its own: the provider caches prefixes by
    itself, and what changes from call to call must not grow into it.
    """
    built: list[dict[str, Any]] = []
    closed = False
    for message in messages:
        if message.role == "system":
            if built and built[-1]["role"] == system_role and not (several and (closed or message.cache)):
                built[-1]["content"] += "\n\n" + message.content
            else:
                built.append({"role": system_role, "content": message.content})
            closed = message.cache
        elif message.role == "tool":
            built.append({"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.content})
        elif message.tool_calls:
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                }
                for call in message.tool_calls
            ]
            built.append({"role": "assistant", "content": message.content or None, "tool_calls": calls})
        else:
            built.append({"role": message.role, "content": message.content})
    return built


# --- errors --------------------------------------------------------------------------------------------------------


def map_error(
    error: BaseException,
    *,
    path: StructuredPath | None = None,
    secrets: Iterable[str] = (),
    quoted: Iterable[str] = (),
) -> LlmError | None:
    """The :class:`LlmError` for any exception of the SDK or of the HTTP client below it; ``None`` for anything else."""
    if isinstance(error, LlmError):
        return error
    if failures.never_sent(error):
        path = None
    kind: ErrorKind | None = None
    complaint = failures.Complaint(message=str(error) or type(error).__name__)
    if isinstance(error, openai.APIStatusError | openai.APIResponseValidationError):
        complaint = _complaint(error)
        if isinstance(error, openai.APIResponseValidationError):
            kind = ErrorKind.TRANSPORT
    elif isinstance(error, openai.APITimeoutError):
        kind = ErrorKind.TIMEOUT
    elif isinstance(error, openai.APIConnectionError):
        kind = (failures.transport_kind(error.__cause__) if error.__cause__ else None) or ErrorKind.TRANSPORT
        complaint = failures.Complaint(message=f"{error.message} {error.__cause__ or ''}".strip())
    elif isinstance(error, openai.APIError):  # an error event inside a stream
        complaint = _complaint(error)
    elif isinstance(error, openai.LengthFinishReasonError):
        kind = ErrorKind.EMPTY
    elif isinstance(error, openai.ContentFilterFinishReasonError):
        kind = ErrorKind.CONTENT_FILTER
    elif isinstance(error, openai.WebSocketConnectionClosedError | openai.WebSocketQueueFullError):
        kind = ErrorKind.TRANSPORT
    elif isinstance(error, openai.OpenAIError):  # credentials, misuse of the SDK: this set-up cannot work
        kind = ErrorKind.NOT_CONFIGURED
    elif isinstance(error, openai.InvalidWebhookSignatureError):
        kind = ErrorKind.AUTH
    else:
        kind = failures.transport_kind(error)
        if kind is None:
            return None
    return failures.build(complaint, path=path, kind=kind, secrets=secrets, quoted=quoted)


def _complaint(error: openai.APIError) -> failures.Complaint:
    found: Any = error.body[0] if isinstance(error.body, list) and error.body else error.body  # Gemini sends a list
    body = found if isinstance(found, dict) else {}
    nested = body.get("error")
    if isinstance(nested, dict):
        body = nested
    response = getattr(error, "response", None)
    status = response.status_code if response is not None else None
    code = str(error.code or body.get("code") or "")
    if status is None and code.isdigit() and len(code) == 3:
        status = int(code)  # OpenRouter and others put the HTTP status into a stream's error event
    return failures.Complaint(
        message=str(body.get("message") or error.message),
        status=status,
        code=code,
        type=str(body.get("type") or ""),
        parameter=str(body["param"]) if body.get("param") else None,
        headers=response.headers if response is not None else None,
    )
