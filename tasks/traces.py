"""Which trace a turn belongs to and where in it, derived from ids alone; and whether traces are exported at all.

One trace holds a root process with everything below it. It is shaped like the plan: a span for each node, under it the
node's turns and what its children and sub-processes do. Nothing is stored for that: every worker derives the same ids.
OpenTelemetry itself is in :mod:`tasks.otel`, which is imported only when traces are exported.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from models.records import Lease, NodeView, ProcessView
from tasks.logs import Redactor
from tasks.observe import TurnSeen
from tasks.settings import Settings, SettingsError

log = logging.getLogger(__name__)

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PATH: Final = "/v1/traces"
MAX_HEADER_CHARS: Final = 512


class Traces(Protocol):
    """Takes turns that are over and exports their spans in its own time."""

    def __call__(self, seen: TurnSeen) -> None: ...

    def close(self) -> None:
        """Export what is left, and wait for it a little."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The trace of a root process. ``parent_id``: the enqueuer's span; ``sampled``: whether they record this trace."""

    trace_id: int
    parent_id: int | None
    sampled: bool
    state: str = ""


def origin(process: ProcessView) -> Origin:
    """The enqueuer's trace if they sent a valid ``traceparent``, else one with the root process's id for its own."""
    headers = {name.lower(): value for name, value in process.trace_context.items()}
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip())
    if match is not None:
        trace_id, parent_id, flags = (int(part, 16) for part in match.groups())
        if trace_id and parent_id:
            state = headers.get("tracestate", "")
            return Origin(trace_id=trace_id, parent_id=parent_id, sampled=bool(flags & 1), state=state)
    # All-zero ids are no ids, to OpenTelemetry; a process may well have one.
    return Origin(trace_id=process.root_id.int or 1, parent_id=None, sampled=True)


def sent_along(header: Callable[[str], object]) -> dict[str, str]:
    """The W3C headers that tracing libraries send along with a request or a message, by their names.

    header: what was sent under a name, ``None`` for nothing. Overlong ones are left out, as the standard wants it.
    """
    found = {name: header(name) for name in ("traceparent", "tracestate")}
    return {
        name: value for name, value in found.items() if isinstance(value, str) and 0 < len(value) <= MAX_HEADER_CHARS
    }


def node_span(process: ProcessView, node_id: int) -> int:
    """The span of a node of this trace."""
    return _derived(f"{process.root_id} node {node_id}")


def turn_span(lease: Lease) -> int:
    """The span of a turn. By its fence: a turn that is run again after a crash is another span."""
    return _derived(f"{lease.root_id} turn {lease.node_id} {lease.turn} {lease.fence}")


def part_span(lease: Lease, part: str) -> int:
    """The span of something within a turn."""
    return _derived(f"{lease.root_id} turn {lease.node_id} {lease.turn} {lease.fence} {part}")


def parent_of_node(process: ProcessView, node: NodeView) -> int | None:
    """The span above a node's: the parent node's, of a sub-process's root the caller's, of a root the enqueuer's."""
    above = node.parent_id if node.parent_id is not None else process.parent_node_id
    return origin(process).parent_id if above is None else node_span(process, above)


def _derived(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) or 1


def endpoint(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """The address traces are sent to, ``None`` when nobody asked for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if settings.otel_endpoint is None and environment.get(_ENDPOINTS[0]):
        # By the standard, the address of one signal is taken as it is.
        return environment[_ENDPOINTS[0]]
    base = settings.otel_endpoint or environment.get(_ENDPOINTS[1])
    if not base:
        return None
    base = base.rstrip("/")
    return base if base.endswith(_PATH) else base + _PATH


def build_traces(settings: Settings, environment: Mapping[str, str]) -> Traces | None:
    """The exporter of this process, or ``None``. Raises ``SettingsError`` when it is wanted and cannot be had."""
    address = endpoint(settings, environment)
    if address is None:
        return None
    try:
        module = importlib.import_module("tasks.otel")
    except ImportError as error:
        message = f"traces are not exported, OpenTelemetry is not installed ({error}): pip install -e '.[otel]'"
        if settings.otel_endpoint is None:
            # Platforms set the standard variable for all their containers, also for those that can do nothing with it.
            log.warning(message)
            return None
        raise SettingsError(f"VANCETOPE_OTEL_ENDPOINT is set, but {message}") from None
    redact = Redactor(settings.secrets())
    traces: Traces = module.SpanExport(address, capture=settings.otel_capture_content, redact=redact)
    return traces
