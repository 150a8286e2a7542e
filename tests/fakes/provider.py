"""A fake LLM provider: a real HTTP server that speaks OpenAI chat completions and Anthropic messages, streamed or not,
and the batches of both.

In a test::

    with FakeProvider() as fake:
        fake.enqueue(Answer(json={"n": 1}))
        ...                       # point a client at fake.openai_url or fake.anthropic_url
        fake.requests[0].body

As a process, for drills (prints ``listening http://127.0.0.1:PORT`` once it is ready)::

    python tests/fakes/provider.py --port 0 --log calls.jsonl [--rules rules.json] [--delay 0.2] [--tree NODES:SEED]

Standard library only (and the schema sampler of this project), so that it shares no bug with the clients under test.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import re
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a script: the repository is not on the path yet
    sys.path[0:1] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from fakes.batches import FakeBatches
from fakes.wire_formats import Answer, anthropic_events, anthropic_message, openai_completion, openai_events
from treeplan import Key, TreePlan, key_of, usage_of

DEFAULT_MARKER = r"drill-[A-Za-z0-9_.-]+"
TREE_DELAY_SECONDS = (0.02, 0.3)


@dataclass(kw_only=True)
class Recorded:
    """One request as it came in, and what became of it. ``order`` is the arrival order, from 0."""

    order: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes
    method: str = "POST"
    disconnected: bool = False
    """The client closed the connection before the answer was complete."""
    finished: bool = False
    """The whole answer was written."""
    waiting: bool = False
    """The server is holding or hanging, or has sent the last chunk it is going to send for now."""

    @property
    def text(self) -> str:
        """All prompt text, system included."""
        return "\n".join(_texts(self.body))


class FakeProvider:
    """The server. Usable as a context manager; thread-safe; one event loop in one thread."""

    def __init__(
        self,
        *,
        port: int = 0,
        log: Path | None = None,
        default: Answer | Callable[[Recorded], Answer] | None = None,
        marker: str = DEFAULT_MARKER,
        keep: int = 100_000,
    ) -> None:
        self._port = port
        self._log_path = log
        self.default = default or Answer()
        self._marker = re.compile(marker)
        self._keep = keep
        self._changed = threading.Condition()
        self._queue: list[Answer] = []
        self._rules: list[tuple[Callable[[Recorded], bool], list[Answer]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._log: Any = None
        self._held: list[threading.Event] = []
        self._seen = 0
        self.requests: list[Recorded] = []
        self.batches = FakeBatches(self._answer_member)
        self.connections = 0

    # --- scripting -------------------------------------------------------------------------------------------------

    def enqueue(self, *answers: Answer) -> None:
        """The next requests get these, whatever they ask. The queue goes before the rules."""
        with self._changed:
            self._queue.extend(answers)

    def rule(self, match: str | Callable[[Recorded], bool], *answers: Answer) -> None:
        """Requests whose prompt contains ``match`` (or that it holds for) get these in turn; the last one stays."""
        test = match if callable(match) else lambda request: match in request.text
        with self._changed:
            self._rules.append((test, list(answers)))

    def wait_for(self, condition: Callable[[list[Recorded]], bool], timeout: float = 10.0) -> None:
        """Block until ``condition`` holds for the requests so far; no polling."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self.requests), timeout):
                raise TimeoutError(f"the fake provider saw {len(self.requests)} requests, but not what was waited for")

    def _answer(self, request: Recorded) -> Answer:
        with self._changed:
            if self._queue:
                return self._queue.pop(0)
            for test, answers in self._rules:
                if test(request):
                    return answers.pop(0) if len(answers) > 1 else answers[0]
        return self.default(request) if callable(self.default) else self.default

    def _note(self, change: Callable[[], None]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> FakeProvider:
        self._loop = asyncio.new_event_loop()
        self._log = self._log_path.open("a", encoding="utf-8") if self._log_path is not None else None
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="fake-provider", daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> FakeProvider:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        return self.url

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._connection, "127.0.0.1", self._port, limit=64 * 1024 * 1024, backlog=1024)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()

    async def _close(self) -> None:
        self._server.close()
        for event in self._held:
            event.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- HTTP ------------------------------------------------------------------------------------------------------

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        early: bytes | None = b""
        try:
            while early is not None:
                early = await self._exchange(early, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _exchange(self, early: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """One request and its answer. Returns what was read of the next one; ``None`` closes the connection."""
        head = (early + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        raw = await reader.readexactly(int(headers.get("content-length") or 0))
        method, path = first.split(" ")[:2]
        request = self._record(method, path, headers, raw)
        # While the answer is under way the client sends nothing: a read that ends means that it has hung up.
        watch = asyncio.ensure_future(reader.read(1))
        if self.batches.serves(request.path):
            respond = asyncio.ensure_future(self._respond_of_batches(request, writer))
        else:
            respond = asyncio.ensure_future(self._respond(request, self._answer(request), writer))
        try:
            await asyncio.wait({watch, respond}, return_when=asyncio.FIRST_COMPLETED)
            if not respond.done() and watch.result() == b"":
                self._note(lambda: setattr(request, "disconnected", True))
                return None
            if not await respond:
                return None
            self._note(lambda: setattr(request, "finished", True))
            watch.cancel()
            (rest,) = await asyncio.gather(watch, return_exceptions=True)
            return b"" if isinstance(rest, BaseException) else rest or None
        except ConnectionError:
            self._note(lambda: setattr(request, "disconnected", True))
            return None
        finally:
            for future in (watch, respond):
                future.cancel()
            await asyncio.gather(watch, respond, return_exceptions=True)

    async def _respond_of_batches(self, request: Recorded, writer: asyncio.StreamWriter) -> bool:
        status, body = self.batches.respond(request.method, request.path, request.headers, request.raw)
        if status == 0:  # the answer is lost on its way
            return False
        return await _plain(writer, status, body, {})

    def _answer_member(self, path: str, body: dict[str, Any]) -> Answer:
        """A request inside a batch gets what it would get by itself."""
        return self._answer(Recorded(order=-1, path=path, headers={}, body=body, raw=b""))

    def _record(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Recorded:
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {}
        plain = path.partition("?")[0]
        request = Recorded(order=self._seen, path=plain, headers=headers, body=body, raw=raw, method=method)
        self._seen += 1
        if self._log is not None:
            self._log.write(json.dumps(self._log_line(request)) + "\n")
            self._log.flush()

        def add() -> None:
            self.requests.append(request)
            del self.requests[: -self._keep]

        self._note(add)
        return request

    def _log_line(self, request: Recorded) -> dict[str, Any]:
        text = request.text
        metadata = request.body.get("metadata")
        return {
            "order": request.order,
            "at": time.time(),
            "path": request.path,
            "model": request.body.get("model"),
            "stream": bool(request.body.get("stream")),
            "user": request.body.get("user") or (metadata.get("user_id") if isinstance(metadata, dict) else None),
            "marks": sorted(set(self._marker.findall(text))),
            "tree": tree_key(request),
            "prompt_sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
            "prompt_chars": len(text),
            "last": text[-200:],
        }

    async def _respond(self, request: Recorded, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        if answer.delay:
            await asyncio.sleep(answer.delay)
        if answer.hang or answer.hold is not None:
            self._note(lambda: setattr(request, "waiting", True))
            if answer.hang:
                await asyncio.Event().wait()
            self._held.append(answer.hold)
            await asyncio.get_running_loop().run_in_executor(None, answer.hold.wait)
        anthropic = request.path.endswith("/messages")
        if not anthropic and not request.path.endswith("/chat/completions"):
            return await _plain(writer, 404, {"error": {"message": f"no such path {request.path}"}}, {})
        if answer.status != 200 or answer.body is not None:
            return await _plain(
                writer, answer.status, answer.body or _error_body(answer.status, anthropic), answer.headers
            )
        if not request.body.get("stream") or answer.ignore_stream:
            build = anthropic_message if anthropic else openai_completion
            return await _plain(writer, 200, build(request.body, answer), answer.headers)
        events = anthropic_events(request.body, answer) if anthropic else openai_events(request.body, answer)
        return await self._stream(request, answer, writer, events)

    async def _stream(
        self, request: Recorded, answer: Answer, writer: asyncio.StreamWriter, events: Iterable[bytes]
    ) -> bool:
        headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **answer.headers}
        writer.write(_head(200, headers))
        for index, event in enumerate(events):
            if answer.break_after == index:
                await writer.drain()
                return False
            if answer.hang_after == index:
                await writer.drain()
                self._note(lambda: setattr(request, "waiting", True))
                await asyncio.Event().wait()
            writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            if answer.chunk_delay:
                await writer.drain()
                await asyncio.sleep(answer.chunk_delay)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _plain(writer: asyncio.StreamWriter, status: int, body: Any, headers: dict[str, str]) -> bool:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/plain" if isinstance(body, str) else "application/json"
    writer.write(_head(status, {"content-type": kind, "content-length": str(len(data)), **headers}) + data)
    await writer.drain()
    return True


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Status\r\n{lines}\r\n".encode("latin-1")


def _error_body(status: int, anthropic: bool) -> dict[str, Any]:
    names = {
        429: "rate_limit_error",
        529: "overloaded_error",
        401: "authentication_error",
        400: "invalid_request_error",
    }
    error = {"type": names.get(status, "api_error"), "message": f"fake error {status}"}
    return {"type": "error", "error": error} if anthropic else {"error": error}


def _texts(body: dict[str, Any]) -> Iterable[str]:
    pending: list[Any] = [body.get("system"), *(body.get("messages") or [])]
    for item in pending:
        yield from _strings(item)


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key in ("text", "content"):
            yield from _strings(value.get(key))


def tree_key(request: Recorded) -> Key | None:
    """Which call of a tree plan the request is: each correction adds a message of the user."""
    roles = [message.get("role") for message in request.body.get("messages") or ()]
    return key_of(request.text, roles.count("user"))


def tree_model(plan: TreePlan, *, delay: tuple[float, float] = (0.0, 0.0)) -> Callable[[Recorded], Answer]:
    """The model of a tree plan: the same answer to the same question. delay: shortest and longest, in seconds."""

    def answer(request: Recorded) -> Answer:
        key = tree_key(request)
        said = plan.calls.get(key) if key is not None else None
        if key is None or said is None:
            return Answer(status=400, body={"error": {"message": f"not of this plan: {key}"}})
        shortest, longest = delay
        wait = shortest + (longest - shortest) * (zlib.crc32(repr(key).encode()) % 1000) / 1000
        what = said(request.text)
        content = {"text": what} if isinstance(what, str) else {"json": what}
        return Answer(**content, usage=usage_of(key), delay=wait, chunk_size=200)

    return answer


def load_rules(fake: FakeProvider, path: Path) -> None:
    """Rules from JSON: ``[{"match": "text", "answers": [{...fields of Answer...}]}]``; no match: the queue."""
    known = {item.name for item in fields(Answer)}
    for rule in json.loads(path.read_text(encoding="utf-8")):
        answers = [Answer(**{key: value for key, value in item.items() if key in known}) for item in rule["answers"]]
        if rule.get("match"):
            fake.rule(rule["match"], *answers)
        else:
            fake.enqueue(*answers)


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake LLM provider for drills.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--rules", type=Path)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each default answer")
    parser.add_argument("--tree", help="NODES:SEED of the tree plan to answer for (see treeplan.py)")
    parser.add_argument("--marker", default=DEFAULT_MARKER, help="regular expression of the marks to log")
    options = parser.parse_args()
    default: Answer | Callable[[Recorded], Answer] = Answer(delay=options.delay)
    if options.tree:
        nodes, _, seed = options.tree.partition(":")
        default = tree_model(TreePlan(int(nodes), int(seed)), delay=TREE_DELAY_SECONDS)
    with FakeProvider(port=options.port, log=options.log, default=default, marker=options.marker, keep=1_000) as fake:
        if options.rules is not None:
            load_rules(fake, options.rules)
        print(f"listening {fake.url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
