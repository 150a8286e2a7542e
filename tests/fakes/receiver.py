"""A receiver of webhooks: a real HTTP server that keeps what it is sent and answers as it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NETWORKS = "127.0.0.0/8"
"""``VANCETOPE_WEBHOOK_NETWORKS`` of whoever sends to it."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request. Header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


Answer = tuple[int, dict[str, str], bytes]


class Receiver(ThreadingHTTPServer):
    """``answer`` decides by the request; it may block. ``most``: how many requests were open at the same time."""

    daemon_threads = True
    # All threads of several senders may connect at the same moment; those that find no place would count as refused.
    request_queue_size = 256

    def __init__(self, answer: Callable[[Request], Answer] | int = 204) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.most = 0
        self._open = 0
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, extra, answer = receiver._take(Request(path=self.path, headers=headers, body=body))
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(answer))} | extra).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def handle_error(self, *_: Any) -> None: ...

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(10)

    def _take(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            self._open += 1
            self.most = max(self.most, self._open)
        try:
            return (self.answer, {}, b"") if isinstance(self.answer, int) else self.answer(request)
        finally:
            with self._lock:
                self._open -= 1
