"""Spans of turns, exported by OTLP over HTTP in batches from a thread of their own. Imported only when that is wanted.

Names and attributes of calls and tools follow OpenTelemetry's semantic conventions for generative AI.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from engines.llm.base import NORMAL_LANE, LlmError, Message
from models.records import Reason
from tasks.observe import CallSeen, Span, ToolSeen, TurnSeen
from tasks.traces import Origin, node_span, origin, parent_of_node, part_span, turn_span

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 5.0
"""The longest a worker that goes down waits for its last spans to be taken."""
MAX_CONTENT: Final = 20_000
"""Characters of one text that is captured; longer ones are cut."""
MAX_MESSAGES: Final = 50
"""Messages of a conversation that are captured: the last ones."""

# Where the conventions have another word for a provider than our presets.
_PROVIDERS: Final = {"gemini": "gcp.gemini", "mistral": "mistral_ai"}
_NAME: Final = "vancetope"

Attributes = dict[str, Any]


class SpanExport:
    """Makes the spans of each turn and hands them to the exporter's thread. A forked child starts its own."""

    def __init__(self, endpoint: str, *, capture: bool, redact: Callable[[str], str]) -> None:
        """endpoint: the whole address. capture: whether prompts, replies and what tools say is part of the spans."""
        self._endpoint = endpoint
        self._capture = capture
        self._redact = redact
        self._scope = InstrumentationScope(_NAME, importlib.metadata.version(_NAME))
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._processor: BatchSpanProcessor | None = None
        self._resource: Resource | None = None

    def __call__(self, seen: TurnSeen) -> None:
        """Queue the spans of a turn. Never blocks."""
        found = origin(seen.claim.view.process)
        if not found.sampled:
            return
        processor = self._started()
        for span in self._spans(seen, found):
            processor.on_end(span)

    def close(self) -> None:
        """Export what is left. A collector that does not answer is waited for a few seconds, no longer."""
        if self._processor is None or self._pid != os.getpid():
            return
        ending = threading.Thread(target=self._processor.shutdown, name="vancetope-otel-shutdown", daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)

    def _started(self) -> BatchSpanProcessor:
        with self._lock:
            if self._processor is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._resource = _resource()
                self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=self._endpoint))
            return self._processor

    def _spans(self, seen: TurnSeen, found: Origin) -> Iterator[ReadableSpan]:
        view, lease = seen.claim.view, seen.claim.lease
        process, node = view.process, view.node
        of_node, of_turn = node_span(process, node.id), turn_span(lease)

        def span(
            name: str,
            identity: int,
            parent: int | None,
            when: Span,
            attributes: Attributes,
            kind: SpanKind,
            bad: str = "",
        ) -> ReadableSpan:
            return ReadableSpan(
                name=name,
                context=_context(found, identity),
                parent=None if parent is None else _context(found, parent, remote=True),
                resource=self._resource,
                attributes={key: value for key, value in attributes.items() if value is not None},
                kind=kind,
                status=Status(StatusCode.ERROR, bad) if bad else Status(StatusCode.UNSET),
                start_time=when.began,
                end_time=when.ended,
                instrumentation_scope=self._scope,
            )

        where: Attributes = {
            "vancetope.process.id": str(process.id),
            "vancetope.process.root_id": str(process.root_id),
            "vancetope.node.id": node.id,
            "vancetope.engine": process.engine,
            "vancetope.recipe": process.recipe_name,
            "vancetope.tenant": process.tenant,
            "vancetope.project": process.project,
        }
        if seen.outcome == "committed" and node.turn == 1:
            # Once for each node, with its first turn: nobody can tell which one will be its last.
            name = f"process {process.recipe_name}" if node.parent_id is None else f"node {node.kind}"
            goal = self._text((process.goal if node.parent_id is None else node.goal) or "")
            shown = where | {"vancetope.node.kind": node.kind, "vancetope.goal": goal}
            yield span(name, of_node, parent_of_node(process, node), seen.span, shown, SpanKind.INTERNAL)
        said: Attributes = {
            "vancetope.turn": node.turn,
            "vancetope.phase": node.phase,
            "vancetope.outcome": seen.outcome,
            "vancetope.close_reason": seen.closed.value if seen.closed else None,
        }
        bad = "" if seen.outcome in ("committed", "postponed", "lost") else seen.outcome
        if seen.transition is not None:
            said["vancetope.reason"] = seen.transition.reason.value
            if seen.transition.reason in (Reason.FAILED, Reason.CRASHED, Reason.POISONED):
                bad = seen.transition.reason.value
        turn_name = f"turn {process.engine} {node.phase}"
        yield span(turn_name, of_turn, of_node, seen.span, where | said, SpanKind.CONSUMER, bad)
        if seen.call is not None:
            call, failed = seen.call, seen.call.end if isinstance(seen.call.end, LlmError) else None
            yield span(
                f"chat {call.model}", part_span(lease, "call"), of_turn, call.span, self._call(call), SpanKind.CLIENT,
                failed.kind.value if failed else "",
            )  # fmt: skip
        for index, tool in enumerate(seen.tools):
            yield span(
                f"execute_tool {tool.call.name[:100]}", part_span(lease, f"tool {index}"), of_turn, tool.span,
                self._tool(tool), SpanKind.INTERNAL, "" if tool.result.ok else "tool_error",
            )  # fmt: skip

    def _call(self, call: CallSeen) -> Attributes:
        request, end = call.request, call.end
        usage = end.usage
        found: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(call.provider, call.provider),
            "gen_ai.request.model": call.model,
            "gen_ai.request.max_tokens": request.max_output_tokens,
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.output.type": "text" if request.schema is None else "json",
            # The conventions count cached tokens in; our ledger keeps them apart.
            "gen_ai.usage.input_tokens": usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens or None,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens or None,
            "vancetope.cost_usd": end.cost_usd,
            # The answer of a batch is read in no time: its wait is nobody's work.
            "vancetope.lane": end.lane if end.lane != NORMAL_LANE else None,
        }
        if isinstance(end, LlmError):
            found["error.type"] = end.kind.value
            found["http.response.status_code"] = end.status
        else:
            found["gen_ai.response.model"] = end.model or None
            found["gen_ai.response.finish_reasons"] = (end.stop_reason or end.stop.value,)
        if self._capture:
            system = [_part(self._text(each.content)) for each in request.messages if each.role == "system"]
            rest = [each for each in request.messages if each.role != "system"]
            found["gen_ai.system_instructions"] = _json(system) if system else None
            found["gen_ai.input.messages"] = _json([self._message(each) for each in rest[-MAX_MESSAGES:]])
            if not isinstance(end, LlmError):
                reply = self._message(Message(role="assistant", content=end.text, tool_calls=end.tool_calls))
                found["gen_ai.output.messages"] = _json([reply | {"finish_reason": end.stop_reason or end.stop.value}])
        return found

    def _tool(self, tool: ToolSeen) -> Attributes:
        content: Attributes = {}
        if self._capture:
            arguments = _json(tool.call.arguments) if tool.call.raw is None else tool.call.raw
            content["gen_ai.tool.call.arguments"] = self._text(arguments)
            content["gen_ai.tool.call.result"] = self._text(tool.result.text)
        return content | {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.call.name[:100],
            "gen_ai.tool.call.id": tool.call.id,
            "gen_ai.tool.type": "function",
            "error.type": None if tool.result.ok else "tool_error",
        }

    def _message(self, message: Message) -> dict[str, Any]:
        parts: list[dict[str, Any]] = []
        if message.role == "tool":
            answer = self._text(message.content)
            parts.append({"type": "tool_call_response", "id": message.tool_call_id, "response": answer})
        elif message.content:
            parts.append(_part(self._text(message.content)))
        for call in message.tool_calls:
            arguments = self._text(_json(call.arguments) if call.raw is None else call.raw)
            parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments})
        return {"role": message.role, "parts": parts}

    def _text(self, text: str) -> str | None:
        """As it may be shown: only if that is wanted, without secrets, cut, and storable as UTF-8."""
        if not self._capture:
            return None
        return self._redact(text)[:MAX_CONTENT].encode("utf-8", "replace").decode()


def _context(found: Origin, identity: int, *, remote: bool = False) -> SpanContext:
    state = TraceState.from_header([found.state]) if found.state else TraceState()
    return SpanContext(found.trace_id, identity, remote, TraceFlags(TraceFlags.SAMPLED), state)


def _resource() -> Resource:
    """Who sends: what ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` say, and our own words for the rest."""
    given = Resource.create()
    ours: Mapping[str, str] = {
        "service.version": importlib.metadata.version(_NAME),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    if str(given.attributes.get("service.name", "")).startswith("unknown_service"):
        return given.merge(Resource({**ours, "service.name": _NAME}))
    return Resource(ours).merge(given)


def _part(text: str | None) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _json(value: Sequence[Any] | Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
