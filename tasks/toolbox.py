"""Tools as the runner carries them out: a batch at once, bounded in time, under the turn's cancel token."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from engines.base import RunTools, ToolResult
from engines.llm.base import ToolCall
from engines.llm.cancel import Cancellation
from engines.tools.base import ToolContext
from engines.tools.pauses import Pauses
from engines.tools.registry import Registry, bundled_tools, installed_tools, internal_tools
from models.records import ProcessView, StoredDocument
from models.store import documents
from models.store.database import Database
from tasks.cookbook import Sources, recipe_sources
from tasks.expressions.guarded import guarded_evaluator
from tasks.heartbeat import Cancel
from tasks.settings import Settings

_LATE: Final = "[tool error] the tool took longer than {seconds:.0f} seconds and was given up"
_STOPPED: Final = "[tool error] the tool was stopped"


class StoreDocuments:
    """The documents of one project, each read with a statement of its own."""

    def __init__(self, database: Database, process: ProcessView) -> None:
        self._database = database
        self._process = process

    def get(self, path: str) -> StoredDocument | None:
        return documents.get(self._database, self._process.tenant, self._process.project, path)

    def paths(self, prefix: str, limit: int) -> Sequence[tuple[str, str, int]]:
        process = self._process
        found = documents.list_documents(self._database, process.tenant, process.project, prefix=prefix, limit=limit)
        return [(each.path, each.kind, each.characters) for each in found]


class Toolbox:
    """Runs batches of tool calls. Safe to share between threads.

    A tool that does not come back in time is given up: its thread ends when it does, its result is thrown away. While a
    batch runs, the heartbeat keeps the turn's lease.
    """

    def __init__(self, registry: Registry, database: Database | None, sources: Sources) -> None:
        self.registry = registry
        self._database = database
        self._sources = sources

    def run(
        self,
        need: RunTools,
        process: ProcessView,
        cancel: Cancel,
        on_result: Callable[[int], None] = lambda index: None,
    ) -> tuple[ToolResult, ...]:
        """One result for each call, in order. Never raises for what a tool does.

        on_result: told the index of each call that has come back, from that call's own thread.
        """
        ends = time.monotonic() + need.seconds
        stop = Cancellation()
        context = ToolContext(
            seconds=need.seconds,
            max_chars=need.max_chars,
            cancel=stop,
            documents=None if self._database is None else StoreDocuments(self._database, process),
            recipes=self._sources(process.tenant, process.project),
            tenant=process.tenant,
            project=process.project,
        )
        results: list[ToolResult | None] = [None] * len(need.calls)
        changed = threading.Condition()

        def work(index: int, call: ToolCall) -> None:
            found = self.registry.run(call, need.allowed, context)
            on_result(index)
            with changed:
                results[index] = found
                changed.notify_all()

        def cancelled() -> None:
            stop.set()
            with changed:
                changed.notify_all()

        unregister = cancel.on_cancel(cancelled)
        try:
            for index, call in enumerate(need.calls):
                threading.Thread(target=work, args=(index, call), name=f"tool-{call.name[:40]}", daemon=True).start()
            with changed:
                changed.wait_for(lambda: stop.is_set() or None not in results, timeout=ends - time.monotonic())
                missing = _STOPPED if stop.is_set() else _LATE.format(seconds=need.seconds)
                return tuple(found or ToolResult(text=missing, ok=False) for found in results)
        finally:
            unregister()
            stop.set()


def load_tools(settings: Settings, pauses: Pauses | None = None) -> Registry:
    """The tools that come along and the installation's own (entry points ``vancetope.tools``).

    pauses: of services that turn somebody away, if more than this process are to heed them.
    """
    key = settings.search_api_key
    bundled = bundled_tools(
        search_url=settings.search_url,
        search_key=key.get_secret_value() if key else None,
        search_key_header=settings.search_key_header,
        pauses=pauses,
        evaluator=guarded_evaluator(),
    )
    return Registry([*bundled, *installed_tools()], internal=internal_tools(guarded_evaluator()))


def build_toolbox(settings: Settings, registry: Registry, database: Database) -> Toolbox:
    """The toolbox of a worker."""
    return Toolbox(registry, database, recipe_sources(settings, database))


NO_TOOLS: Final = Toolbox(Registry([]), None, lambda tenant, project: ())
"""Answers every call with a text that says there is no such tool."""
