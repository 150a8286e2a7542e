"""Who stands where models and tools were: they say again what they said then, and note what is wanted besides."""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from engines.base import RunTools, ToolResult
from engines.llm.base import CancelToken, ChunkSink, ErrorKind, LlmReply, LlmRequest
from engines.llm.catalogue import Candidate, Catalogue
from engines.llm.policy import StepDown
from engines.structured.text import shorten
from engines.tools.registry import Registry
from models.records import ProcessView, Turn
from models.store.processes import Delivery
from models.store.scratch import Step
from tasks.attempt import fresh_nonce
from tasks.gate import Gate
from tasks.heartbeat import Cancel
from tasks.lessons import Lessons
from tasks.recording import asked, error_of, line_digests, reply_of, result_of
from tasks.replay.archive import Archive, Row
from tasks.retry import Postponed
from tasks.toolbox import Toolbox

NEVER: Final = 1e9
"""Seconds after which a turn comes back for which the recording has nothing more."""
LINES_SHOWN: Final = 5
LINE_CHARS: Final = 160


class OnStage:
    """A turn that is replayed in a thread of its own, step by step: only one of all runs at any moment."""

    def __init__(self, node_id: int, nonce: str, *, waits: bool = True) -> None:
        """waits: it is held before each step; otherwise it runs to its end at once."""
        self.node_id = node_id
        self.nonce = nonce
        self.next: Step | None = None
        """What it is held before; ``None``: it has not begun, or has ended."""
        self.failure: BaseException | None = None
        self._waits = waits
        self._held = threading.Event()
        self._go = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, work: Callable[[], object]) -> None:
        """Run it in a thread until it is held or has ended."""

        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.failure = error
            finally:
                self.next = None
                self._held.set()

        self._thread = threading.Thread(target=run, name=f"replay-{self.node_id}")
        self._thread.start()
        self._held.wait()

    def go_on(self) -> None:
        """To its next step, or its end."""
        self._held.clear()
        self._go.set()
        self._held.wait()

    def end(self) -> None:
        """To its end. What it raised is raised."""
        while self.next is not None:
            self.go_on()
        if self._thread is not None:
            self._thread.join()
        if self.failure is not None:
            raise self.failure

    def hold(self, step: Step) -> None:
        """Called in its own thread: wait before ``step``."""
        if not self._waits:
            return
        self.next = step
        self._held.set()
        self._go.wait()
        self._go.clear()


class Script:
    """What models and tools said to each node, in the order in which they said it. Safe to share between threads."""

    def __init__(self, archive: Archive) -> None:
        self._lock = threading.Lock()
        self._local = threading.local()
        self._calls: dict[int, deque[Row]] = defaultdict(deque)
        self._batches: dict[int, deque[Row]] = defaultdict(deque)
        self.stuck: dict[int, str] = {}
        """Nodes for which the recording has nothing more, and what they wanted."""
        self.changed_lines: dict[tuple[int, int], list[str]] = {}
        """Of prompts that are not as recorded, by node and turn: what is new in them."""
        for row in archive["phase_records"]:
            recording = row["recorded"] or {}
            if "reply" in recording or ("error" in recording and "asked" in recording):
                self._calls[row["node_id"]].append(row)
            elif "results" in recording:
                self._batches[row["node_id"]].append(row)
        self._archive = archive

    def enter(self, turn: OnStage) -> None:
        """From now on this thread plays ``turn``."""
        self._local.turn = turn

    @property
    def turn(self) -> OnStage:
        found: OnStage = self._local.turn
        return found

    def nonce(self) -> str:
        """The token of the claim that this thread makes."""
        return self.turn.nonce or fresh_nonce()

    def before(self, step: Step) -> None:
        """This thread's turn is about to do ``step``. Threads that play no turn just go on."""
        turn: OnStage | None = getattr(self._local, "turn", None)
        if turn is not None:
            turn.hold(step)

    def coming(self) -> Row | None:
        """The next call of this thread's node."""
        with self._lock:
            calls = self._calls[self.turn.node_id]
            return calls[0] if calls else None

    def call(self, request: LlmRequest) -> Row:
        """The recorded turn that answers ``request``."""
        with self._lock:
            calls = self._calls[self.turn.node_id]
            row = calls.popleft() if calls else None
        if row is None:
            raise self.nothing(f"a call of {request.model}: {_beginning(request)}")
        was, now = row["recorded"]["asked"], asked(request)
        if was != now:
            self.changed_lines[(row["node_id"], row["turn"])] = list(_changes(was, request))
        return row

    def batch(self, need: RunTools) -> Row:
        """The recorded turn that answers a batch of tool calls."""
        with self._lock:
            batches = self._batches[self.turn.node_id]
            row = batches.popleft() if batches else None
        names = [call.name for call in need.calls]
        if row is None or [call["name"] for call in row["recorded"]["calls"]] != names:
            raise self.nothing(f"the tools {', '.join(names)}")
        return row

    def nothing(self, wanted: str) -> Postponed:
        """This thread's node wants something that is not recorded: it gets no further."""
        with self._lock:
            self.stuck.setdefault(self.turn.node_id, wanted)
        return Postponed(NEVER)


class RecordedClient:
    """Answers each node's calls with what was answered then. Knows no provider."""

    def __init__(self, archive: Archive, script: Script, catalogue: Catalogue) -> None:
        self._archive = archive
        self._script = script
        self._catalogue = catalogue
        self._last: tuple[str, str] = ("scripted", "scripted")

    def candidate(self, request: LlmRequest) -> Candidate:
        row = self._script.coming()
        if row is not None and row["recorded"].get("error", {}).get("kind") == ErrorKind.NOT_CONFIGURED:
            raise error_of(self._script.call(request)["recorded"], None)
        call = None if row is None else self._archive.calls.get((row["node_id"], row["turn"]))
        provider, model = self._last if call is None else (call.provider, call.model)
        self._last = (provider, model)
        if provider not in self._catalogue.providers:
            provider = "scripted"
        found = self._catalogue.candidate(provider, model)
        # Prices and limits as they were; but nobody is asked, so nobody needs to be protected.
        return replace(found, provider=found.provider.model_copy(update={"wire": "scripted"}))

    def complete(
        self, request: LlmRequest, *, cancel: CancelToken | None = None, on_chunk: ChunkSink | None = None
    ) -> LlmReply:
        row = self._script.call(request)
        call = self._archive.calls.get((row["node_id"], row["turn"]))
        if "error" in row["recorded"]:
            raise error_of(row["recorded"], call)
        if call is None:
            raise self._script.nothing(f"a call of {request.model}, which the ledger of the export does not have")
        return reply_of(row["recorded"], call)


class RecordedTools(Toolbox):
    """Says what tools said then. Engines' own tools are pure and run again: what they do is this version's decision."""

    def __init__(self, registry: Registry, script: Script) -> None:
        super().__init__(registry, None, lambda tenant, project: ())
        self._script = script

    def run(
        self,
        need: RunTools,
        process: ProcessView,
        cancel: Cancel,
        on_result: Callable[[int], None] = lambda index: None,
    ) -> tuple[ToolResult, ...]:
        said: list[Row | None] = self._script.batch(need)["recorded"]["results"]
        own = tuple(call for call, result in zip(need.calls, said, strict=True) if result is None)
        again = iter(super().run(replace(need, calls=own), process, cancel) if own else ())
        return tuple(next(again) if result is None else result_of(result) for result in said)


class NoGate(Gate):
    """Lets every call through."""

    def __init__(self) -> None: ...

    def extend(self) -> None: ...


class NoLessons(Lessons):
    """Nothing is learned from calls that are not made; what a node has learned is in its row."""

    def __init__(self) -> None: ...

    def note(self, request: LlmRequest, candidate: Candidate, error: Any, step: StepDown) -> None: ...


class Nowhere:
    """The publisher and the background thread of a replay: turns are found in the tables, and nobody watches."""

    def publish(self, turns: Iterable[Turn]) -> int:
        return 0

    def ensure_own_process(self) -> None: ...

    def emit(self, root_id: UUID, event: dict[str, Any]) -> None: ...

    def plan_changed(self, root_id: UUID, process_id: UUID, *, last: bool) -> None: ...

    def deliver(self, delivery: Delivery) -> None: ...


def _beginning(request: LlmRequest) -> str:
    last = request.messages[-1].content if request.messages else ""
    return json.dumps(shorten(last, LINE_CHARS), ensure_ascii=False)


def _changes(was: Row, request: LlmRequest) -> Iterable[str]:
    """What is new in a prompt, message by message."""
    now = asked(request)
    for name in ("model", "schema", "tools"):
        if was.get(name) != now.get(name):
            yield f"{name}: recorded {was.get(name)}, now {now.get(name)}"
    if was.get("tools") == now.get("tools") and was.get("toolsDigest") != now.get("toolsDigest"):
        yield "tools: the same names, with other descriptions or parameters"
    for place, (message, new) in enumerate(zip(request.messages, now["messages"], strict=True), 1):
        old = was["messages"][place - 1] if place <= len(was["messages"]) else None
        if old is None:
            yield f"message {place} ({message.role}): new, {len(message.content):,} characters"
        elif old != new:
            yield f"message {place} ({message.role}): recorded {old[1]:,} characters, now {len(message.content):,}"
            yield from _new_lines(old[3], message.content)
    if (gone := len(was["messages"]) - len(request.messages)) > 0:
        yield f"{gone} messages more were recorded"


def _new_lines(digests: str, text: str) -> Iterable[str]:
    known = {digests[at : at + 4] for at in range(0, len(digests), 4)}
    now = line_digests(text)
    lines = text.split("\n")
    new = [place for place in range(len(lines)) if now[4 * place : 4 * place + 4] not in known]
    for place in new[:LINES_SHOWN]:
        yield f"  line {place + 1} is new: {shorten(lines[place].strip(), LINE_CHARS)}"
    if len(new) > LINES_SHOWN:
        yield f"  and {len(new) - LINES_SHOWN} more lines are new"
    elif not new:
        yield "  no line is new: some were left out, or stand elsewhere"
