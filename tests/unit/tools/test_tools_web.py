"""``web_fetch`` and its guard against real servers on this machine; names and addresses are faked, sockets are not."""

from __future__ import annotations

import gzip
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from engines.llm.cancel import Cancellation
from engines.tools.base import ToolContext, ToolFailed
from engines.tools.guard import Forbidden, Guard, objection
from engines.tools.http import Fetcher
from engines.tools.page import decoded, readable
from engines.tools.web_fetch import WebFetch

PUBLIC = "93.184.216.34"
CERTIFICATE = Path(__file__).parent / "site.pem"
"""Of a.example, self-signed, with its key: of no use outside these tests."""
CONTEXT = ToolContext(seconds=5, max_chars=2_000)
Answer = Callable[[BaseHTTPRequestHandler], None]


class Site(ThreadingHTTPServer):
    """A public web site: every public address the fetcher dials leads here. Everything else is dialled for real."""

    daemon_threads = True

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.seen: list[tuple[str, str]] = []
        self.dialled: list[tuple[str, int]] = []
        self.names: dict[str, list[list[str]]] = {}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.seen.append((self.headers["Host"], self.path))
                site.pages[self.path.partition("?")[0]](self)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def handle_error(self, *_: Any) -> None: ...

    def dial(self, address: str, port: int, seconds: float) -> socket.socket:
        self.dialled.append((address, port))
        if address == PUBLIC:
            return socket.create_connection(self.server_address[:2], timeout=seconds)  # type: ignore[arg-type]
        return socket.create_connection((address, port), timeout=seconds)

    def resolve(self, host: str, port: int) -> list[str]:
        if host in self.names:
            answers = self.names[host]
            return answers.pop(0) if len(answers) > 1 else answers[0]
        if host[0].isdigit() or ":" in host:
            return [host]
        return [PUBLIC]

    def fetcher(self, **options: Any) -> Fetcher:
        return Fetcher(Guard(self.resolve, frozenset(range(1, 65_536))), dial=self.dial, **options)

    def fetch(self, url: str, context: ToolContext = CONTEXT, start: int = 0, **options: Any) -> str:
        return WebFetch(self.fetcher(**options)).run({"url": url, "start": start}, context).text


def page(
    body: bytes, kind: str | None = "text/plain", status: int = 200, length: bool = True, **headers: str
) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if kind is not None:
            handler.send_header("Content-Type", kind)
        if length:
            handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def redirect(to: str) -> Answer:
    return page(b"", status=302, Location=to)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.shutdown()
    site.server_close()


@pytest.fixture
def inside() -> Iterator[tuple[int, list[Any]]]:
    """A service that must not be reached: its port, and the connections it got."""
    listener = socket.create_server(("127.0.0.1", 0))
    reached: list[Any] = []

    def accept() -> None:
        while True:
            try:
                reached.append(listener.accept())
            except OSError:
                return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1], reached
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)
    for connection, _ in reached:
        connection.close()


@pytest.mark.parametrize("address", [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::7f00:1", "fe80::1%eth0",
    "nonsense", "",
])  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert objection(address) is not None


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_that_are_public(address: str) -> None:
    assert objection(address) is None


@pytest.mark.parametrize("url", [
    "file:///etc/passwd", "ftp://a.example/", "gopher://a.example/", "http://", "http:///x", "//a.example", "a.example",
    "http://user:secret@a.example/", "http://a.example:22/", "http://a.example:99999/", "http://a.example:x/",
    "http://a.example/\r\nHost: b", "http://a.example\\@b.example/", "http://a. example/", "http://[::1%25eth0]/",
    "http://a.example/" + "x" * 3_000, "javascript:alert(1)", "data:text/plain,x",
])  # fmt: skip
def test_urls_that_are_refused_before_any_name_is_looked_up(url: str) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise AssertionError("looked up")

    with pytest.raises(Forbidden):
        Guard(resolve).check(url)


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "localhost"])
def test_odd_spellings_of_this_machine_are_seen_through(host: str) -> None:
    with pytest.raises(ToolFailed):
        Guard().check(f"http://{host}/")


def test_a_page_is_fetched_by_its_checked_address_and_its_own_name(site: Site) -> None:
    site.pages["/a"] = page(b"<h1>Hi</h1><p>you &amp; <a href='/b'>me</a><script>x()</script>", "text/html")
    text = site.fetch("http://a.example/a?q=1")
    assert text.startswith("http://a.example/a?q=1 (HTTP 200, text/html)\n\n# Hi\n")
    assert text.endswith("you & me [http://a.example/b]")
    assert site.seen == [("a.example", "/a?q=1")]
    assert site.dialled == [(PUBLIC, 80)]


def test_https_is_checked_against_the_name_though_the_address_is_dialled(site: Site) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE)
    site.socket = server.wrap_socket(site.socket, server_side=True)
    site.pages["/"] = page(b"secret")
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    assert site.fetch("https://a.example/", tls=lambda: trusting).endswith("secret")
    assert site.dialled == [(PUBLIC, 443)]
    with pytest.raises(ToolFailed, match=r"b\.example failed: SSLCertVerificationError"):
        site.fetch("https://b.example/", tls=lambda: trusting)
    with pytest.raises(ToolFailed, match="SSLCertVerificationError"):
        site.fetch("https://a.example/")
    assert site.seen == [("a.example", "/")]


def test_g8_redirects_are_checked_at_each_hop(site: Site, inside: tuple[int, list[Any]]) -> None:
    port, reached = inside
    targets = [
        f"http://127.0.0.1:{port}/", f"http://[::ffff:127.0.0.1]:{port}/", f"//127.0.0.1:{port}/", f"http://in.example:{port}/",
        "http://169.254.169.254/latest/", "file:///etc/passwd", "gopher://a.example/",
    ]  # fmt: skip
    site.names["in.example"] = [["127.0.0.1"]]
    for target in targets:
        site.dialled.clear()
        site.pages["/go"] = redirect(target)
        with pytest.raises(Forbidden):
            site.fetch("http://a.example/go")
        assert site.dialled == [(PUBLIC, 80)]
    assert reached == []


def test_g8_ten_hops_are_followed_and_no_more(site: Site) -> None:
    site.pages["/end"] = page(b"arrived")
    for number in range(12):
        site.pages[f"/{number}"] = redirect(f"/{number + 1}")
    site.pages["/10"] = page(b"arrived")
    assert site.fetch("http://a.example/0").endswith("arrived")
    site.pages["/10"] = redirect("/end")
    with pytest.raises(Forbidden, match="more than 10 redirects"):
        site.fetch("http://a.example/0")


def test_g8_https_never_goes_on_as_http() -> None:
    guard = Guard(lambda host, port: [PUBLIC])
    first = guard.check("https://a.example/")
    with pytest.raises(Forbidden, match="https to http"):
        guard.check("http://a.example/", coming_from=first)
    assert guard.check("https://b.example/", coming_from=first).host == "b.example"


def test_g9_a_second_answer_of_the_resolver_is_never_asked_for(site: Site, inside: tuple[int, list[Any]]) -> None:
    port, reached = inside
    site.names["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
    site.pages["/"] = page(b"public")
    assert site.fetch(f"http://rebind.example:{port}/").endswith("public")
    assert site.dialled == [(PUBLIC, port)]
    with pytest.raises(Forbidden):
        site.fetch(f"http://rebind.example:{port}/")
    assert reached == []


def test_g9_one_private_address_among_public_ones_refuses_the_name(site: Site) -> None:
    site.names["mixed.example"] = [[PUBLIC, "10.0.0.1"]]
    with pytest.raises(Forbidden, match=r"10\.0\.0\.1 is a private address"):
        site.fetch("http://mixed.example/")
    assert site.dialled == []


def test_g11_a_big_body_is_cut_and_says_so(site: Site) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.end_headers()
        try:
            for _ in range(16_000):
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            sent.set()

    sent = threading.Event()
    site.pages["/big"] = endless
    text = site.fetch("http://a.example/big", max_bytes=200_000)
    assert "[truncated: only the first 200,000 bytes were read]" in text
    assert len(text) <= 2_000
    assert "[truncated: the text has 200,000 characters, these are the first]" in text
    assert sent.wait(10)


def test_g11_a_gzip_bomb_stays_small(site: Site) -> None:
    bomb = gzip.compress(b"\0" * 200_000_000, 6)
    site.pages["/bomb"] = page(bomb, "text/html", Content_Encoding="gzip")
    began = time.monotonic()
    text = site.fetch("http://a.example/bomb", max_bytes=300_000)
    assert "only the first 300,000 bytes" in text
    assert time.monotonic() - began < 5


def test_gzip_is_unpacked(site: Site) -> None:
    site.pages["/z"] = page(gzip.compress(b"packed"), Content_Encoding="gzip")
    assert site.fetch("http://a.example/z").endswith("packed")


@pytest.mark.parametrize("packed", [False, True])
def test_chunks_are_put_together(site: Site, packed: bool) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.send_header("Transfer-Encoding", "chunked")
        if packed:
            handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        body = gzip.compress(b"one two three") if packed else b"one two three"
        for piece in (body[:5], body[5:]):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.write(b"0\r\n\r\n")

    site.pages["/chunks"] = answer
    assert site.fetch("http://a.example/chunks").endswith("\n\none two three")


def test_a_body_that_breaks_off_is_shown_and_says_so(site: Site) -> None:
    site.pages["/short"] = page(b"beginning", length=False, Content_Length="5000")
    text = site.fetch("http://a.example/short")
    assert text.endswith("beginning")
    assert "[truncated: the connection broke" in text


@pytest.mark.parametrize("by", ["time", "cancel"])
@pytest.mark.parametrize("where", ["body", "headers"])
def test_g11_a_trickle_ends_with_the_time_or_the_turn(site: Site, by: str, where: str) -> None:
    def trickle(handler: BaseHTTPRequestHandler) -> None:
        if where == "body":
            handler.send_response(200)
            handler.send_header("Content-Type", "text/plain")
            handler.end_headers()
        try:
            for _ in range(200):
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(0.05)
        except OSError:
            return

    site.pages["/slow"] = trickle
    cancel = Cancellation()
    seconds = 0.5 if by == "time" else 30.0
    if by == "cancel":
        threading.Timer(0.4, cancel.set).start()
    began = time.monotonic()
    context = ToolContext(seconds=seconds, max_chars=1_000, cancel=cancel)
    if where == "body":
        assert "[truncated: the rest did not come in time]" in site.fetch("http://a.example/slow", context)
    else:
        with pytest.raises(ToolFailed, match="did not answer in time"):
            site.fetch("http://a.example/slow", context)
    assert time.monotonic() - began < 4


def test_g11_what_is_no_text_is_said_to_be_none(site: Site) -> None:
    site.pages["/png"] = page(b"\x89PNG\0\0", "image/png")
    site.pages["/untyped"] = page(b"\0\1\2", None)
    for path in ("/png", "/untyped"):
        with pytest.raises(ToolFailed, match="is no text"):
            site.fetch(f"http://a.example{path}")


def test_reading_on_from_where_the_text_was_cut(site: Site) -> None:
    site.pages["/long"] = page(b"a" * 3_000 + b"end")
    assert site.fetch("http://a.example/long", start=3_000).endswith("\n\nend")
    assert "[nothing from 9,000 on: it has 3,003 characters]" in site.fetch("http://a.example/long", start=9_000)


def test_answers_that_are_no_http_are_failures_in_words(site: Site) -> None:
    site.pages["/rubbish"] = lambda handler: handler.wfile.write(b"\0\1\2 not http at all\r\n\r\n")  # type: ignore[func-returns-value]
    with pytest.raises(ToolFailed, match=r"a\.example failed"):
        site.fetch("http://a.example/rubbish")


@pytest.mark.parametrize(("kind", "body", "text"), [
    ("text/plain; charset=utf-8", "café".encode(), "café"),
    ("text/plain; charset=latin-1", "café".encode("latin-1"), "café"),
    ("text/plain; charset=utf-8", "café".encode("latin-1"), "caf\ufffd"),
    ("text/plain; charset=ascii", "café".encode(), "café"),
    ("text/plain; charset=no-such-thing", "café".encode(), "café"),
    ("text/plain; charset=zlib", b"plain", "plain"),
    ("text/plain; charset=idna", b"plain", "plain"),
    ("text/html", b"<meta charset='latin-1'>caf\xe9", "<meta charset='latin-1'>café"),
    ("text/plain", "café".encode("utf-16"), "café"),
    ("text/plain", b"\xef\xbb\xbfx", "x"),
])  # fmt: skip
def test_charsets_and_lies_about_them(kind: str, body: bytes, text: str) -> None:
    assert decoded(kind, body) == text


def test_nul_and_controls_are_cleaned_and_markup_is_dropped() -> None:
    html = (
        b"<title>T</title><style>a{}</style><p>one\0two\x07</p><ul><li>x<li>y</ul><table><tr><td>1<td>2</table>"
        b"<a href='javascript:x()'>no</a><template><p>hidden</p></template><pre>a\n  b</pre>"
    )
    text = readable("text/html", html, "http://a.example/")
    assert "onetwo" in text.replace("\ufffd", "")
    assert "\0" not in text
    assert [word in text for word in ("hidden", "javascript", "a{}")] == [False, False, False]
    assert "- x\n" in text
    assert "a\n  b" in text
    assert "1 | 2" in text


def test_broken_markup_never_raises() -> None:
    for html in (
        b"<a href='http://[x'>y</a>",
        b"<" * 5_000,
        b"<!--" * 500,
        b"<script>never closed",
        b"</a></b>&#xD800;",
    ):
        readable("text/html", html, "http://a.example/")


# -- networks that are open although they are not public ---------------------------------------------------------------


def opened(address: str, **options: Any) -> Guard:
    return Guard(lambda host, port: [address], networks=[ipaddress.ip_network("10.20.0.0/16")], **options)


@pytest.mark.parametrize("address", ["10.20.3.4", "::ffff:10.20.3.4", "64:ff9b::a14:304"])
def test_a_network_that_is_opened_is_reached_at_any_port(address: str) -> None:
    assert opened(address, tls_only=True).check("http://inside.example:9999/x").address == address


@pytest.mark.parametrize(
    ("address", "url", "why"),
    [
        ("10.21.0.1", "http://inside.example/", "a private address"),
        ("127.0.0.1", "http://inside.example/", "a loopback address"),
        (PUBLIC, "http://outside.example:9999/", "port 9999"),
    ],
)
def test_opening_a_network_opens_nothing_else(address: str, url: str, why: str) -> None:
    with pytest.raises(Forbidden, match=why):
        opened(address).check(url)


def test_one_forbidden_address_refuses_the_name_though_the_others_are_open() -> None:
    guard = Guard(lambda host, port: ["10.20.0.1", "10.21.0.1"], networks=[ipaddress.ip_network("10.20.0.0/16")])
    with pytest.raises(Forbidden, match=r"10\.21\.0\.1"):
        guard.check("http://inside.example/")


def test_where_only_tls_will_do_nobody_is_asked_for_a_plain_address() -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise AssertionError("asked")

    with pytest.raises(Forbidden, match="only https"):
        Guard(resolve, tls_only=True).check("http://outside.example/")
    with pytest.raises(Forbidden, match="port 22"):
        Guard(resolve).check("https://outside.example:22/")


@pytest.mark.parametrize("status", [200, 204, 299])
def test_what_is_posted_arrives_and_a_fine_answer_is_not_read(site: Site, status: int) -> None:
    got: list[tuple[bytes, str]] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        got.append((handler.rfile.read(int(handler.headers["Content-Length"])), handler.headers["X-Mine"]))
        handler.send_response(status)
        # More is promised than comes: who reads it waits.
        handler.send_header("Content-Length", "0" if status == 204 else "1000")
        handler.end_headers()

    site.pages["/in"] = answer
    page = site.fetcher().post("http://a.example/in", b"{}", headers={"X-Mine": "1"}, seconds=5)
    assert (page.status, page.body, got) == (status, b"", [(b"{}", "1")])


def test_a_redirect_of_a_post_is_its_answer(site: Site) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        for name, value in (("Location", "http://b.example/"), ("Retry-After", "7"), ("Content-Length", "0")):
            handler.send_header(name, value)
        handler.end_headers()

    site.pages["/in"] = answer
    page = site.fetcher().post("http://a.example/in", b"", headers={}, seconds=5)
    assert (page.status, page.retry_after, len(site.dialled)) == (307, "7", 1)
