"""What a turn got from outside, kept with its phase record so that the turn can be replayed (``tasks.replay``).

A recording is one compressed JSON object, written by the turn's commit with the row that is written anyway:

============= ==========================================================================================================
``nonce``     the token of the claim's fences
``claimedIn`` the transaction of the claim, 0 when the commit before has made it
``snapshot``  what was visible when it looked at its plan; ``answers``: the nodes whose answers it saw, a moment later
``overdue``   true when the deadline had passed at the claim
``document``  ``{id, version}`` of the stored document in the view; ``model``: ``{modelId, version}`` of the model spec
``asked``     of a model call: ``model`` and for each message its role, length and digests (the prompt itself is not
              kept: it follows from what is); ``schema`` as a digest; the names of ``tools`` with their ``toolsDigest``
``calls``     of a batch of tools: name and the beginning of the arguments of each
``reply``     the reply; ``error``: the failed call; ``results``: what the tools said (``null`` for an engine's own
              tools, which are pure and run again); ``spent``: the limit reached; ``abandoned``: why it was given up
============= ==========================================================================================================

What a call cost and how long it took is in the ledger's row of the same turn.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, assert_never

from engines.base import (
    Abandoned,
    AskModel,
    BudgetSpent,
    ModelFailed,
    ModelReplied,
    Outcome,
    RunTools,
    ToolResult,
    ToolsRan,
)
from engines.llm.base import (
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
from engines.structured.text import shorten
from models.records import CallRecord, View
from models.store.recordings import packed
from models.transition import WriteDocument
from tasks.attempt import Attempt

ARGUMENT_CHARS = 500
_UNWRITABLE = "arguments with NaN or Infinity"


def recorded(attempt: Attempt, own_tools: Collection[str]) -> bytes:
    """The recording of a turn that is about to be committed. own_tools: the engines' own, which are pure."""
    found = _seen(attempt.view)
    match attempt.need:
        case AskModel():
            found["asked"] = asked(attempt.need.request)
        case RunTools():
            found["calls"] = [{"name": call.name, "arguments": _beginning(call)} for call in attempt.need.calls]
    if attempt.outcome is not None:
        found |= _came(attempt, attempt.outcome, own_tools)
    return packed(found)


def asked(request: LlmRequest) -> dict[str, Any]:
    """What a model was asked, as far as two requests are compared by it."""
    found: dict[str, Any] = {"model": request.model, "messages": [_message(each) for each in request.messages]}
    if request.schema is not None:
        found["schema"] = _digest(json.dumps(request.schema))
    if request.tools:
        found["tools"] = [tool.name for tool in request.tools]
        found["toolsDigest"] = _digest(
            json.dumps([(each.name, each.description, each.parameters) for each in request.tools])
        )
    return found


def line_digests(text: str) -> str:
    """Four characters for each line: which lines of a later text are new follows from them."""
    lines = text.encode("utf-8", "replace").split(b"\n")
    return struct.pack(f">{len(lines)}H", *(zlib.crc32(line) & 0xFFFF for line in lines)).hex()


def reply_of(recording: Mapping[str, Any], call: CallRecord) -> LlmReply:
    """The reply of a recording with what the ledger has of its call."""
    said = recording["reply"]
    return LlmReply(
        text=said["text"],
        tool_calls=tuple(ToolCall(**each) for each in said["toolCalls"]),
        stop=StopKind(said["stop"]),
        stop_reason=call.stop_reason,
        usage=_usage(call),
        provider=call.provider,
        model=call.model,
        path=_path(call),
        cost_usd=call.cost_usd,
        latency_ms=call.latency_ms,
        output_limit=said["outputLimit"],
        output_ceiling=said["outputCeiling"],
    )


def error_of(recording: Mapping[str, Any], call: CallRecord | None) -> LlmError:
    """The failed call of a recording; ``None``: there is no row of it in the ledger, because nobody could be asked."""
    failed = recording["error"]
    return LlmError(
        ErrorKind(failed["kind"]),
        failed["message"],
        retry_after=failed["retryAfter"],
        status=failed["status"],
        provider=call.provider if call else "",
        model=call.model if call else "",
        parameter=failed["parameter"],
        path=_path(call) if call else None,
        partial_text=failed["partialText"],
        usage=_usage(call) if call else None,
        cost_usd=call.cost_usd if call else None,
        latency_ms=call.latency_ms if call else 0,
        reached_inference=call.reached_inference if call else False,
    )


def result_of(stored: Mapping[str, Any]) -> ToolResult:
    """One tool's result."""
    documents = tuple(WriteDocument(**each) for each in stored.get("documents", ()))
    return ToolResult(text=stored["text"], ok=stored["ok"], documents=documents)


def _seen(view: View) -> dict[str, Any]:
    # Of a turn that was given back unused, the first claim.
    claimed = view.node.transport.get("claimedIn", view.claimed_in)
    found: dict[str, Any] = {"nonce": view.nonce, "claimedIn": claimed}
    if view.plan is not None:
        found["snapshot"] = view.plan.snapshot
        if view.plan.answers:
            found["answers"] = [item.node_id for item in view.plan.answers]
    if view.process.overdue:
        found["overdue"] = True
    if view.document is not None:
        found["document"] = {"id": view.document.id, "version": view.document.version}
    if view.model is not None:
        found["model"] = {"modelId": view.model.model_id, "version": view.model.version}
    return found


def _came(attempt: Attempt, outcome: Outcome, own_tools: Collection[str]) -> dict[str, Any]:
    match outcome:
        case ModelReplied():
            return {"reply": _reply(outcome.reply)}
        case ModelFailed():
            return {"error": _error(outcome.error)}
        case ToolsRan():
            calls = attempt.need.calls if isinstance(attempt.need, RunTools) else ()
            return {
                "results": [
                    None if call.name in own_tools else _result(result)
                    for call, result in zip(calls, outcome.results, strict=True)
                ]
            }
        case BudgetSpent():
            return {"spent": outcome.limit}
        case Abandoned():
            return {"abandoned": outcome.why}
        case _:
            assert_never(outcome)


def _reply(reply: LlmReply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "toolCalls": [_tool_call(call) for call in reply.tool_calls],
        "stop": reply.stop.value,
        "outputLimit": reply.output_limit,
        "outputCeiling": reply.output_ceiling,
    }


def _tool_call(call: ToolCall) -> dict[str, Any]:
    try:
        json.dumps(call.arguments, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return {"id": call.id, "name": call.name, "arguments": {}, "raw": call.raw or _UNWRITABLE}
    return asdict(call)


def _error(error: LlmError) -> dict[str, Any]:
    return {
        "kind": error.kind.value,
        "message": error.message,
        "retryAfter": error.retry_after,
        "status": error.status,
        "parameter": error.parameter,
        "partialText": error.partial_text,
    }


def _result(result: ToolResult) -> dict[str, Any]:
    found: dict[str, Any] = {"text": result.text, "ok": result.ok}
    if result.documents:
        found["documents"] = [asdict(document) for document in result.documents]
    return found


def _message(message: Message) -> list[Any]:
    # A message's calls are replies of before: their ids and arguments are in the recordings of those turns.
    text = message.content
    return [message.role, len(text), _digest(text), line_digests(text)]


def _beginning(call: ToolCall) -> str:
    return shorten(call.raw if call.raw is not None else json.dumps(call.arguments, default=str), ARGUMENT_CHARS)


def _usage(call: CallRecord) -> Usage:
    return Usage(
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cache_read_tokens=call.cache_read_tokens,
        cache_write_tokens=call.cache_write_tokens,
    )


def _path(call: CallRecord) -> StructuredPath | None:
    return StructuredPath(call.structured_path) if call.structured_path else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
