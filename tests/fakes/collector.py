"""A fake OpenTelemetry collector: a real HTTP server that takes protobuf at ``/v1/traces`` and keeps the spans."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, kw_only=True)
class Received:
    """One span. Ids are hexadecimal, times nanoseconds since the epoch, ``parent`` is empty at the top."""

    name: str
    trace: str
    id: str
    parent: str
    began: int
    ended: int
    kind: int
    failed: bool
    attributes: dict[str, Any]
    sender: str
    """``service.instance.id``: host and process id."""


class Collector:
    """``status``: what it answers with; other than 200, it keeps nothing."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.requests: list[tuple[str, str]] = []
        self._spans: list[Received] = []
        self._lock = threading.Lock()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector._take(self.path, self.headers.get("Content-Type", ""), body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def spans(self) -> list[Received]:
        """All that came in, in the order of their beginnings."""
        with self._lock:
            return sorted(self._spans, key=lambda span: (span.began, -span.ended))

    def _take(self, path: str, content_type: str, body: bytes) -> None:
        found = [] if self.status != 200 else list(_spans(body))
        with self._lock:
            self.requests.append((path, content_type))
            self._spans += found


def _spans(body: bytes) -> Any:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        sender = {each.key: _value(each.value) for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    began=span.start_time_unix_nano,
                    ended=span.end_time_unix_nano,
                    kind=span.kind,
                    failed=span.status.code == 2,
                    attributes={each.key: _value(each.value) for each in span.attributes},
                    sender=sender["service.instance.id"],
                )


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, which)
