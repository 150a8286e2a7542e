"""The body of an Anthropic messages request: pure, byte-stable, no SDK.

Byte-stable means: the same call gives the same bytes whatever the key order of the dictionaries it was made from, so
that a cached prefix stays a prefix. Order on this wire is tools, then system, then messages.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

from engines.llm.base import Message, StructuredPath, ToolSpec
from engines.llm.wire import Call
from engines.structured.native import stable

log = logging.getLogger(__name__)

_MINIMUM_BUDGET = 1_024
_ROOM_FOR_ANSWER = 1_024
_CHARACTERS_PER_TOKEN = 4
_EFFORTS = ((2_048, "low"), (8_192, "medium"))
_ANSWER_TOOL = "Give the final answer. Call this exactly once, with the whole answer as its arguments."
_USE_TOOL = "Give your answer by calling the tool `{name}` exactly once; write nothing else."
_NOTHING = "(empty)"
_MARK = {"type": "ephemeral"}


def build_body(call: Call) -> dict[str, Any]:
    """Keyword arguments of the SDK's ``messages.create``. Never a forced tool together with thinking."""
    spec = call.candidate.spec
    wanted = call.native.name if sends_tool(call) and call.native is not None else call.wanted_tool
    forced = wanted is not None and _may_force(call)
    messages = list(call.messages)
    # Beside other tools the answer tool is called when its time has come: the caller's messages say so.
    if wanted is not None and not forced and not (sends_tool(call) and call.tools):
        messages.insert(_after_system(messages), Message(role="system", content=_USE_TOOL.format(name=wanted)))
    tools = [_tool(tool) for tool in call.tools]
    output: dict[str, Any] = {}
    body: dict[str, Any] = {"model": call.candidate.model, "stream": True, "max_tokens": call.max_output}
    if call.native is not None:
        schema = stable(call.native.schema)
        if sends_tool(call):
            tools.append({"name": call.native.name, "description": _ANSWER_TOOL, "input_schema": schema})
        else:
            output["format"] = {"type": "json_schema", "schema": schema}
    system, conversation = _conversation(messages)
    _place_marks(call, tools, system, conversation)
    if tools:
        body["tools"] = tools
    if forced:
        body["tool_choice"] = {"type": "tool", "name": wanted}
    elif tools and call.tool_choice == "none" and "tool_choice" not in call.without:
        body["tool_choice"] = {"type": "none"}
    _thinking(call, body, output, forced=forced)
    if output:
        body["output_config"] = output
    if system:
        body["system"] = [block for block, _ in system]
    body["messages"] = [{"role": turn["role"], "content": turn["content"]} for turn in conversation]
    if call.temperature is not None and spec.accepts_sampling:
        # The SDK's method has no such argument any more; servers of older API versions still take it.
        body["extra_body"] = {"temperature": call.temperature}
    return body


def canonical(value: Any) -> Any:
    """The same JSON value with sorted keys at every depth."""
    if isinstance(value, dict):
        return {key: canonical(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    return value


def sends_tool(call: Call) -> bool:
    """Whether the schema travels as a tool on this call (the loose rung)."""
    return call.native is not None and call.native.path is StructuredPath.LOOSE


def _may_force(call: Call) -> bool:
    """Forcing is refused while the model thinks, by some models always. The answer tool is not forced beside others."""
    spec = call.candidate.spec
    if (call.tools and call.wanted_tool is None) or "tool_choice" in call.without:
        return False
    if spec.forced_tool_choice == "never":
        return False
    if spec.forced_tool_choice == "always":
        return True
    wants_thinking = bool(call.thinking_tokens) and spec.thinking != "none"
    return not wants_thinking and (not spec.thinking_default_on or spec.thinking_off is not None)


def _thinking(call: Call, body: dict[str, Any], output: dict[str, Any], *, forced: bool) -> None:
    spec = call.candidate.spec
    wanted = call.thinking_tokens
    if "thinking" in call.without or spec.thinking == "none":
        return
    if forced or (wanted is not None and wanted <= 0):
        if spec.thinking_default_on and spec.thinking_off is not None:
            body["thinking"] = {"type": spec.thinking_off}
        return
    if wanted is None:
        return
    if spec.thinking == "budget":
        # With a budget, an assistant turn that called tools must begin with its thinking blocks; we do not keep those.
        if any(message.tool_calls for message in call.messages):
            return
        budget = max(_MINIMUM_BUDGET, min(wanted, spec.max_output - _ROOM_FOR_ANSWER))
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        # Thinking counts towards the limit: the answer keeps its own room.
        body["max_tokens"] = min(spec.max_output, call.max_output + budget)
        return
    body["thinking"] = {"type": "adaptive"}
    if "effort" not in call.without:
        output["effort"] = next((effort for limit, effort in _EFFORTS if wanted <= limit), "high")


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": stable(tool.parameters)}


def _after_system(messages: Iterable[Message]) -> int:
    last = -1
    for index, message in enumerate(messages):
        if message.role == "system":
            last = index
    return last + 1


def _conversation(messages: Iterable[Message]) -> tuple[list[tuple[dict[str, Any], bool]], list[dict[str, Any]]]:
    """System blocks, and alternating turns. Each system block and each turn remembers whether a mark was asked for."""
    system: list[tuple[dict[str, Any], bool]] = []
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            if message.content.strip():
                system.append(({"type": "text", "text": message.content}, message.cache))
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": [], "marks": []})
        turn = turns[-1]
        turn["content"].extend(_blocks(message))
        if message.cache and turn["content"]:
            turn["marks"].append(len(turn["content"]) - 1)
    for turn in turns:
        if not turn["content"]:
            turn["content"] = [{"type": "text", "text": _NOTHING}]
    return system, turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        content = message.content if message.content.strip() else _NOTHING
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": content}]
    blocks: list[dict[str, Any]] = []
    if message.content.strip():
        # A trailing blank in the last assistant turn is refused; it says nothing anyway.
        text = message.content.rstrip() if message.role == "assistant" else message.content
        blocks.append({"type": "text", "text": text})
    for call in message.tool_calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": canonical(call.arguments)})
    return blocks


def _place_marks(
    call: Call,
    tools: list[dict[str, Any]],
    system: list[tuple[dict[str, Any], bool]],
    conversation: list[dict[str, Any]],
) -> None:
    """Put ``cache_control`` on the blocks asked for: one per turn, none under the minimum, no more than allowed.

    When there are too many, the first (the longest-lived prefix) and the latest ones stay.
    """
    spec = call.candidate.spec
    size = _size(tools)
    wanted: list[tuple[dict[str, Any], int]] = []
    for block, asked in system:
        size += len(block["text"])
        if asked:
            wanted.append((block, size))
    for turn in conversation:
        marks = turn.pop("marks", [])
        for index, block in enumerate(turn["content"]):
            size += _size(block)
            if marks and index == marks[-1]:
                wanted.append((block, size))
    if not wanted:
        return
    minimum = spec.cache_minimum_tokens * _CHARACTERS_PER_TOKEN
    usable = [block for block, prefix in wanted if prefix >= minimum]
    if len(usable) < len(wanted):
        log.info(
            "cache mark left out: prefix of about %d tokens is under the minimum of %d for %s",
            wanted[0][1] // _CHARACTERS_PER_TOKEN,
            spec.cache_minimum_tokens,
            call.candidate.model,
        )
    allowed = spec.cache_breakpoints
    if len(usable) > allowed:
        usable = [usable[0], *usable[len(usable) - allowed + 1 :]] if allowed else []
    for block in usable:
        block["cache_control"] = dict(_MARK)


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False)) if value else 0
