"""The Anthropic messages wire.

The only module besides ``anthropic_batch`` that imports the ``anthropic`` SDK; the client loads it on first use.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import anthropic
import httpx2

from engines.llm import failures
from engines.llm.anthropic_body import build_body, sends_tool
from engines.llm.base import ErrorKind, LlmError, StopKind, StructuredPath, Usage
from engines.llm.pool import http_client
from engines.llm.wire import Call, Progress, ToolPieces, unfinished

# At DEBUG the SDK logs whole requests: prompts belong in nobody's log.
logging.getLogger("anthropic").setLevel(logging.INFO)

_STOPS = {
    "end_turn": StopKind.END,
    "stop_sequence": StopKind.END,
    "max_tokens": StopKind.LENGTH,
    "tool_use": StopKind.TOOL_USE,
    # pause_turn, stop reasons newer than this code and the verdicts below: OTHER
}
_VERDICTS = {
    "refusal": ErrorKind.REFUSAL,
    # The answer was cut because the conversation fills the window: a larger output limit would not help.
    "model_context_window_exceeded": ErrorKind.CONTEXT_TOO_LONG,
}


class AnthropicWire:
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
        self._client = anthropic.AsyncAnthropic(
            # An explicit key, even a placeholder, keeps the SDK from looking for credentials in files and environment.
            api_key=api_key or "none",
            base_url=base_url,
            timeout=timeout,
            max_retries=0,
            default_headers=headers or None,
            # Spans are ours to make (one trace per process, no prompts in them).
            open_telemetry=False,
            http_client=http_client(timeout, trust_env=trust_env),
        )

    @property
    def sdk(self) -> anthropic.AsyncAnthropic:
        return self._client

    async def run(self, call: Call, progress: Progress) -> None:
        body = build_body(call)
        progress.output_limit = body["max_tokens"]
        stream: Any = await self._client.messages.create(**body)
        blocks: dict[int, ToolPieces] = {}
        answer_tool = call.native.name if call.native is not None and sends_tool(call) else None
        over = False
        try:
            async for event in stream:
                over = _absorb(event, progress, blocks, answer_tool) or over
        except (httpx2.HTTPError, ValueError):
            if not over:
                raise
        finally:
            await stream.close()
        if not over:
            raise unfinished("message_stop came")
        _conclude(progress, blocks, answer_tool)

    def failure(self, error: BaseException, call: Call) -> LlmError | None:
        path = call.native.path if call.native else None
        quoted = [message.content for message in call.messages]
        return map_error(error, path=path, secrets=self._secrets, quoted=quoted)

    async def close(self) -> None:
        await self._client.close()


def _absorb(event: Any, progress: Progress, blocks: dict[int, ToolPieces], answer_tool: str | None) -> bool:
    """Take one event in. True when the message is over: ``message_stop``, or the stop reason just before it."""
    match event.type:
        case "message_start":
            progress.reached = True
            progress.model = event.message.model or progress.model
            progress.usage = _usage(event.message.usage, None)
        case "content_block_start":
            block = event.content_block
            if block.type == "tool_use":
                blocks[event.index] = ToolPieces(id=block.id, name=block.name)
            elif block.type == "text":
                progress.add_text(block.text or "")
        case "content_block_delta":
            delta = event.delta
            if delta.type == "text_delta":
                progress.add_text(delta.text)
            elif delta.type == "input_json_delta" and event.index in blocks:
                blocks[event.index].arguments.append(delta.partial_json)
                if blocks[event.index].name == answer_tool:
                    progress.show(delta.partial_json)
        case "message_delta":
            progress.usage = _usage(event.usage, progress.usage)
            progress.stop_reason = event.delta.stop_reason or progress.stop_reason
            _note_refusal(event.delta.stop_details, progress)
            return progress.stop_reason is not None
        case "message_stop":
            return True
        case _:
            pass  # block stops, and events newer than this code: nothing the answer needs
    return False


def absorb_whole(message: anthropic.types.Message, call: Call, progress: Progress) -> None:
    """Take in a message that came in one piece."""
    progress.reached = True
    progress.model = message.model or progress.model
    progress.usage = _usage(message.usage, None)
    blocks: dict[int, ToolPieces] = {}
    for index, block in enumerate(message.content or ()):
        if block.type == "tool_use":
            arguments = json.dumps(block.input, ensure_ascii=False)
            blocks[index] = ToolPieces(id=block.id, name=block.name, arguments=[arguments])
        elif block.type == "text":
            progress.add_text(block.text or "")
    progress.stop_reason = message.stop_reason
    _note_refusal(getattr(message, "stop_details", None), progress)
    if progress.stop_reason is None:
        raise unfinished("a stop reason came")
    _conclude(progress, blocks, call.native.name if call.native is not None and sends_tool(call) else None)


def _note_refusal(details: Any, progress: Progress) -> None:
    if details is not None and getattr(details, "explanation", None):
        progress.refusal.append(details.explanation)


def _conclude(progress: Progress, blocks: dict[int, ToolPieces], answer_tool: str | None) -> None:
    progress.tool_calls = [pieces.finish(index) for index, pieces in sorted(blocks.items())]
    progress.stop = _STOPS.get(progress.stop_reason or "", StopKind.OTHER)
    progress.verdict = _VERDICTS.get(progress.stop_reason or "")
    if answer_tool is not None:
        _settle_structured(progress, blocks, answer_tool)


def _settle_structured(progress: Progress, blocks: dict[int, ToolPieces], answer_tool: str) -> None:
    """On the tool rung the arguments, exactly as streamed, are the answer; text without a call stays the answer."""
    for pieces in blocks.values():
        if pieces.name == answer_tool:
            progress.text[:] = pieces.arguments
            progress.tool_calls = []
            if progress.stop is StopKind.TOOL_USE:
                progress.stop = StopKind.END
            return


def _usage(usage: Any, earlier: Usage | None) -> Usage:
    """The counts so far: they are cumulative, and later events may leave out what earlier ones told."""
    old = earlier or Usage()

    def count(name: str, before: int) -> int:
        value = getattr(usage, name, None)
        return before if value is None else value

    return Usage(
        input_tokens=count("input_tokens", old.input_tokens),
        output_tokens=count("output_tokens", old.output_tokens),
        cache_read_tokens=count("cache_read_input_tokens", old.cache_read_tokens),
        cache_write_tokens=count("cache_creation_input_tokens", old.cache_write_tokens),
    )


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
    if isinstance(error, anthropic.APIStatusError | anthropic.APIResponseValidationError):
        complaint = _complaint(error)
        if isinstance(error, anthropic.APIResponseValidationError):
            kind = ErrorKind.TRANSPORT
    elif isinstance(error, anthropic.APITimeoutError):
        kind = ErrorKind.TIMEOUT
    elif isinstance(error, anthropic.APIConnectionError):
        kind = (failures.transport_kind(error.__cause__) if error.__cause__ else None) or ErrorKind.TRANSPORT
        complaint = failures.Complaint(message=f"{error.message} {error.__cause__ or ''}".strip())
    elif isinstance(error, anthropic.APIWebhookValidationError):
        kind = ErrorKind.AUTH
    elif isinstance(error, anthropic.APIError | anthropic.RetryableError):
        kind = ErrorKind.TRANSPORT
    elif isinstance(error, anthropic.AnthropicError):  # credentials, misuse of the SDK: this set-up cannot work
        kind = ErrorKind.NOT_CONFIGURED
    else:
        kind = failures.transport_kind(error)
        if kind is None:
            return None
    return failures.build(complaint, path=path, kind=kind, secrets=secrets, quoted=quoted)


def _complaint(error: anthropic.APIStatusError | anthropic.APIResponseValidationError) -> failures.Complaint:
    body = error.body if isinstance(error.body, dict) else {}
    nested = body.get("error")
    if isinstance(nested, dict):
        body = nested
    details = body.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return failures.Complaint(
        message=str(body.get("message") or error.message),
        status=error.status_code,
        code=str(code or ""),
        type=str(body.get("type") or ""),
        headers=error.response.headers,
    )
