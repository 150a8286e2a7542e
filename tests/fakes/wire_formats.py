"""Bodies and event streams of the fake provider, in the OpenAI and Anthropic formats."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engines.llm.sample import sample_value


@dataclass(kw_only=True)
class Answer:
    """One scripted answer. Without content it is generated: a value of the requested schema, or ``ok``.

    status / headers / body: an error or any raw response instead of a completion.
    finish: stop reason as the provider spells it. refusal: OpenAI's field, or Anthropic's stop reason.
    cut_tokens: only so many words of the text, and the length stop reason.
    usage: prompt/output/cache counts; ``None`` leaves usage out. null_content: OpenAI content is null.
    delay: seconds before the first byte. hang: never answer. hold: wait for this event before answering.
    hang_after / break_after: after so many chunks, go silent / drop the connection. stream_error: an error event
    instead of the rest. no_finish: end the stream without a stop reason. ignore_stream: one piece all the same.
    """

    text: str | None = None
    json: Any = None
    tool_calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    finish: str | None = None
    refusal: str | None = None
    null_content: bool = False
    cut_tokens: int | None = None
    usage: dict[str, int] | None = field(default_factory=lambda: {"input": 10, "output": 5})
    chunk_size: int = 16
    chunk_delay: float = 0.0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    delay: float = 0.0
    hang: bool = False
    hold: threading.Event | None = None
    hang_after: int | None = None
    break_after: int | None = None
    stream_error: dict[str, Any] | None = None
    no_finish: bool = False
    ignore_stream: bool = False
    model: str | None = None


def openai_completion(body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    text, calls, finish = _openai_parts(body, answer)
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": answer.refusal}
    if calls:
        message["tool_calls"] = [call for _, call in calls]
    result: dict[str, Any] = {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if answer.usage is not None:
        result["usage"] = _openai_usage(answer.usage)
    return result


def openai_events(body: dict[str, Any], answer: Answer) -> Iterator[bytes]:
    text, calls, finish = _openai_parts(body, answer)
    base = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 0}
    base["model"] = answer.model or body.get("model")

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        return _data({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})

    yield chunk({"role": "assistant", "content": None if answer.null_content else ""})
    for piece in _pieces(text or "", answer.chunk_size):
        yield chunk({"content": piece})
    if answer.refusal is not None:
        yield chunk({"refusal": answer.refusal})
    for index, call in calls:
        start = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield chunk({"tool_calls": [start]})
        for piece in _pieces(call["function"]["arguments"], answer.chunk_size):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if answer.stream_error is not None:
        yield _data({"error": answer.stream_error})
        return
    if not answer.no_finish:
        yield chunk({}, finish)
    wants_usage = (body.get("stream_options") or {}).get("include_usage")
    if answer.usage is not None and wants_usage:
        yield _data({**base, "choices": [], "usage": _openai_usage(answer.usage)})
    yield b"data: [DONE]\n\n"


def anthropic_message(body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    blocks, stop = _anthropic_parts(body, answer)
    usage = answer.usage or {"input": 0, "output": 0}
    return {
        "id": "msg_fake",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {**_anthropic_usage(usage), "output_tokens": usage["output"]},
    }


def anthropic_events(body: dict[str, Any], answer: Answer) -> Iterator[bytes]:
    blocks, stop = _anthropic_parts(body, answer)
    usage = answer.usage or {"input": 0, "output": 0}
    message = {**anthropic_message(body, answer), "content": [], "stop_reason": None}
    message["usage"] = {**_anthropic_usage(usage), "output_tokens": 1}
    yield _event("message_start", message=message)
    yield _event("ping")
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for piece in _pieces(block["text"], answer.chunk_size):
                yield _event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        else:
            yield _event("content_block_start", index=index, content_block={**block, "input": {}})
            for piece in _pieces(json.dumps(block["input"]), answer.chunk_size):
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    if answer.stream_error is not None:
        yield _event("error", error=answer.stream_error)
        return
    if not answer.no_finish:
        delta: dict[str, Any] = {"stop_reason": stop, "stop_sequence": None}
        if answer.refusal is not None:
            delta["stop_details"] = {"type": "refusal", "category": None, "explanation": answer.refusal}
        yield _event("message_delta", delta=delta, usage={"output_tokens": usage["output"]})
        yield _event("message_stop")


def _openai_parts(body: dict[str, Any], answer: Answer) -> tuple[str | None, list[tuple[int, dict[str, Any]]], str]:
    text, finish = _text(body, answer), answer.finish
    calls: list[tuple[str, dict[str, Any]]] = list(answer.tool_calls)
    forced = body.get("tool_choice")
    if not calls and isinstance(forced, dict) and answer.text is None:
        name = forced["function"]["name"]
        calls, text = [(name, _wanted(body, answer, _openai_tool(body, name)))], None
    if answer.null_content or answer.refusal is not None:
        text = None
    text, cut = _cut(text, answer)
    built = [
        (
            index,
            {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}},
        )
        for index, (name, arguments) in enumerate(calls)
    ]
    return text, built, finish or ("length" if cut else "tool_calls" if calls else "stop")


def _anthropic_parts(body: dict[str, Any], answer: Answer) -> tuple[list[dict[str, Any]], str]:
    calls: list[tuple[str, dict[str, Any]]] = list(answer.tool_calls)
    text: str | None = _text(body, answer)
    forced = body.get("tool_choice") or {}
    if not calls and forced.get("type") == "tool" and answer.text is None:
        name = forced["name"]
        schema = next(tool["input_schema"] for tool in body["tools"] if tool["name"] == name)
        calls, text = [(name, _wanted(body, answer, schema))], None
    if answer.null_content or answer.refusal is not None:
        text = None
    text, cut = _cut(text, answer)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for index, (name, arguments) in enumerate(calls):
        blocks.append({"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": arguments})
    usual = "max_tokens" if cut else "tool_use" if calls else "end_turn"
    return blocks, answer.finish or ("refusal" if answer.refusal is not None else usual)


def _text(body: dict[str, Any], answer: Answer) -> str:
    if answer.text is not None:
        return answer.text
    if answer.json is not None:
        return json.dumps(answer.json)
    if answer.tool_calls:
        return ""
    schema = _requested_schema(body)
    return json.dumps(sample_value(schema)) if schema is not None else "ok"


def _wanted(body: dict[str, Any], answer: Answer, schema: dict[str, Any]) -> dict[str, Any]:
    return answer.json if answer.json is not None else sample_value(schema)


def _requested_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    """The schema the answer has to fit: from the native formats, else the first JSON Schema shown in the prompt."""
    shape = (body.get("response_format") or {}).get("json_schema") or (body.get("output_config") or {}).get("format")
    if shape:
        return shape["schema"]
    return _schema_in_text(json.dumps([body.get("system"), body.get("messages")]))


def _schema_in_text(dumped: str) -> dict[str, Any] | None:
    if "properties" not in dumped:
        return None
    decoder = json.JSONDecoder()
    for text in _all_strings(json.loads(dumped)):
        start = text.find("{")
        while start != -1:
            try:
                value, _ = decoder.raw_decode(text, start)
            except ValueError:
                value = None
            if isinstance(value, dict) and value.get("type") == "object":
                return value
            start = text.find("{", start + 1)
    return None


def _all_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _all_strings(item)


def _openai_tool(body: dict[str, Any], name: str) -> dict[str, Any]:
    return next(tool["function"]["parameters"] for tool in body["tools"] if tool["function"]["name"] == name)


def _cut(text: str | None, answer: Answer) -> tuple[str | None, bool]:
    """The first ``cut_tokens`` tokens (four characters each) of the text, and whether anything was lost."""
    if text is None or answer.cut_tokens is None or len(text) <= answer.cut_tokens * 4:
        return text, False
    return text[: answer.cut_tokens * 4], True


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _openai_usage(usage: dict[str, int]) -> dict[str, Any]:
    prompt, output = usage.get("input", 0), usage.get("output", 0)
    details = {"cached_tokens": usage.get("cache_read", 0), "cache_write_tokens": usage.get("cache_write", 0)}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": details,
    }


def _anthropic_usage(usage: dict[str, int]) -> dict[str, int]:
    return {
        "input_tokens": usage.get("input", 0),
        "cache_read_input_tokens": usage.get("cache_read", 0),
        "cache_creation_input_tokens": usage.get("cache_write", 0),
    }


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: ".encode() + json.dumps({"type": name, **fields}).encode() + b"\n\n"
