"""Guarded requests: each hop checked, connected by its checked address only, bounded in bytes, hops and seconds."""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin

import certifi
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from engines.llm.base import CancelToken
from engines.tools.base import ToolFailed
from engines.tools.guard import Forbidden, Guard, Target

MAX_HOPS: Final = 10
MAX_BYTES: Final = 2_000_000
"""Of the unpacked body."""
_PIECE: Final = 65_536
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {
    "User-Agent": "vancetope-web-fetch/1",
    "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
    "Connection": "close",
}

Dial = Callable[[str, int, float], socket.socket]
"""Opens a TCP connection to an address (never a name) and port within so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the last hop answered. ``why_cut`` says why ``body`` is only the beginning; empty when it is whole."""

    url: str
    status: int
    content_type: str
    body: bytes
    why_cut: str = ""
    retry_after: str = ""
    """The header as it came."""


def dial(address: str, port: int, seconds: float) -> socket.socket:
    return socket.create_connection((address, port), timeout=seconds)


@functools.lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certifi.where())


class _Watch:
    """Cuts the open connection when the time is over or the turn is cancelled, whatever the peer trickles."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.cut = False

    def left(self) -> float:
        return self._ends - time.monotonic()

    def hold(self, connection: socket.socket) -> None:
        with self._lock:
            self._socket = connection
            cut = self.cut
        if cut:
            self.stop()

    def stop(self) -> None:
        with self._lock:
            self.cut = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


class Fetcher:
    """Gets pages for the tools. Safe to share between threads. Proxies of the environment are not used."""

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        dial: Dial = dial,
        tls: Callable[[], ssl.SSLContext] = _tls,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._guard = guard or Guard()
        self._dial = dial
        self._tls = tls
        self._max_bytes = max_bytes

    def get(self, url: str, *, seconds: float, cancel: CancelToken | None = None) -> Page:
        """The page at ``url``. Raises :class:`ToolFailed`, of it :class:`Forbidden` when the guard refuses a hop."""
        with _watched(seconds, cancel) as watch:
            return self._follow(url, watch)

    def post(
        self, url: str, body: bytes, *, headers: Mapping[str, str], seconds: float, cancel: CancelToken | None = None
    ) -> Page:
        """What ``url`` itself answers: a redirect is an answer like any other. Of a 2xx the body is left unread.

        Raises :class:`ToolFailed`, of it :class:`Forbidden` when the guard refuses; then nothing was sent.
        """
        with _watched(seconds, cancel) as watch:
            target = self._guard.check(url)
            with self._answer(target, watch, "POST", {"Connection": "close", **headers}, body) as response:
                return _page(target, response, b"") if _is_fine(response) else self._read(target, response, watch)

    def _follow(self, url: str, watch: _Watch) -> Page:
        target = self._guard.check(url)
        for _ in range(MAX_HOPS + 1):
            with self._answer(target, watch) as response:
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or not location:
                    return self._read(target, response, watch)
            target = self._guard.check(urljoin(target.url, location.strip()), coming_from=target)
        raise Forbidden(f"{url} leads over more than {MAX_HOPS} redirects")

    @contextlib.contextmanager
    def _answer(
        self,
        target: Target,
        watch: _Watch,
        method: str = "GET",
        headers: Mapping[str, str] = _HEADERS,
        body: bytes | None = None,
    ) -> Iterator[BaseHTTPResponse]:
        if watch.cut or watch.left() <= 0:
            raise ToolFailed(f"{target.host} did not answer in time")
        connection = HTTPConnection(target.host, target.port, timeout=max(0.1, watch.left()))
        try:
            # Connected already, so the name is never looked up a second time.
            connection.sock = self._connect(target, watch)
            headers = {**headers, "Host": _host_header(target)}
            connection.request(
                method, target.path, body=body, headers=headers, preload_content=False, decode_content=True
            )
            yield connection.getresponse()
        except (OSError, HTTPError, http.client.HTTPException, ValueError) as error:
            why = "did not answer in time" if watch.cut or watch.left() <= 0 else f"failed: {_named(error)}"
            raise ToolFailed(f"{target.host} {why}") from None
        finally:
            connection.close()

    def _connect(self, target: Target, watch: _Watch) -> socket.socket:
        raw = self._dial(target.address, target.port, max(0.1, min(10.0, watch.left())))
        try:
            raw.settimeout(max(0.1, watch.left()))
            watch.hold(raw)
            if target.scheme == "https":
                raw = self._tls().wrap_socket(raw, server_hostname=target.host)
                watch.hold(raw)
        except BaseException:
            raw.close()
            raise
        return raw

    def _read(self, target: Target, response: BaseHTTPResponse, watch: _Watch) -> Page:
        body = bytearray()
        why_cut = ""
        try:
            while len(body) <= self._max_bytes:
                # One piece of what has arrived, unpacked within bounds: a small body cannot become a huge one here.
                piece = response.read(amt=_PIECE) if response.headers.get("Content-Encoding") else _piece(response)
                if not piece:
                    break
                body += piece
        except (OSError, HTTPError, http.client.HTTPException) as error:
            if not body:
                raise
            why_cut = "the rest did not come in time" if watch.cut else f"the connection broke: {_named(error)}"
        if len(body) > self._max_bytes:
            why_cut = f"only the first {self._max_bytes:,} bytes were read"
        elif watch.cut and not why_cut:
            why_cut = "the rest did not come in time"
        return _page(target, response, bytes(body[: self._max_bytes]), why_cut)


@contextlib.contextmanager
def _watched(seconds: float, cancel: CancelToken | None) -> Iterator[_Watch]:
    watch = _Watch(seconds)
    timer = threading.Timer(seconds, watch.stop)
    timer.daemon = True
    timer.start()
    unregister = cancel.on_cancel(watch.stop) if cancel is not None else None
    try:
        yield watch
    finally:
        timer.cancel()
        if unregister is not None:
            unregister()


def _is_fine(response: BaseHTTPResponse) -> bool:
    return 200 <= response.status < 300


def _page(target: Target, response: BaseHTTPResponse, body: bytes, why_cut: str = "") -> Page:
    return Page(
        url=target.url,
        status=response.status,
        content_type=response.headers.get("Content-Type") or "",
        body=body,
        why_cut=why_cut,
        retry_after=response.headers.get("Retry-After") or "",
    )


def _piece(response: BaseHTTPResponse) -> bytes:
    return response.read1(_PIECE)


def _host_header(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == {"http": 80, "https": 443}[target.scheme] else f"{host}:{target.port}"


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
