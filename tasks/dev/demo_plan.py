"""The demonstration's last job: a plan that asks a person, fans out from a document, calls recipes, writes a report."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text
from uuid_utils.compat import uuid7

from engines.inbox.answers import InvalidAnswer, option_ids
from engines.inbox.spoken import spoken_value
from engines.inbox.words import InputType
from engines.recipes.cascade import bundled_path
from models.records import InboxItem
from models.store import documents, inbox, read
from models.store import processes as store
from tasks.cli.output import age, money, plain
from tasks.cli.tree import plan_tree
from tasks.dev.demo_script import RECIPE_FILE
from tasks.dev.stack import Stack
from tasks.inbox import answer_item
from tasks.plans import picture
from tasks.submission import Submission, prepare
from tasks.wiring import Runtime

GOAL = "A briefing on Ellesund's tram that runs on water"
RECIPE = "briefing"
_LOOK_SECONDS = 0.2
_EXAMPLES = bundled_path() / "examples"
_DOCUMENTS = (
    ("demo/article.md", _EXAMPLES / "article-tram.txt"),
    ("demo/outline.md", _EXAMPLES / "briefing" / "outline.md"),
    ("recipes/briefing.yaml", RECIPE_FILE),
)


@dataclass(slots=True)
class PlanJob:
    """The plan, as far as it is known."""

    id: UUID
    payload: Any = None
    status: dict[str, Any] = field(default_factory=dict)
    wrapper: dict[str, Any] | None = None
    answered: list[tuple[str, str]] = field(default_factory=list)
    """Questions and their answers."""

    @property
    def usage(self) -> str:
        usage = self.status.get("usage") or {}
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        return f"{usage.get('calls', 0)} model calls, {tokens:,} tokens, {money(usage.get('cost_usd'))}"


def submit_plan(runtime: Runtime) -> PlanJob:
    """Store what the plan works on, its recipe among it, and submit it."""
    settings = runtime.settings
    for path, file in _DOCUMENTS:
        documents.put(runtime.database, settings.tenant, settings.project, path, file.read_text(encoding="utf-8"))
    job = PlanJob(uuid7())
    submission = Submission(id=job.id, recipe=RECIPE, goal=GOAL)
    process = prepare(submission, settings, runtime.engines, runtime.sources)
    runtime.publisher.publish(store.submit(runtime.database, [process]))
    return job


def follow_plan(runtime: Runtime, job: PlanJob, say: Console, stack: Stack, *, patience: float) -> bool:
    """Show the plan grow until it closes, and answer its question. ``False``: nothing happens any more."""
    person = _ask if say.is_terminal and sys.stdin.isatty() else _stand_in
    show = _Screen(say) if say.is_terminal else _Lines(say)
    deadline = time.monotonic() + patience
    seen: Any = None
    try:
        while time.monotonic() < deadline:
            stack.revive()
            _look(runtime, job)
            if job.payload != seen:
                seen, deadline = job.payload, time.monotonic() + patience
            show.update(job)
            if job.wrapper is not None:
                return True
            for item in inbox.items(runtime.database, runtime.settings.tenant, runtime.settings.project):
                if item.process_id == job.id:
                    show.pause()
                    _answer(runtime, job, item, person(item, say), say)
                    deadline = time.monotonic() + patience
            time.sleep(_LOOK_SECONDS)
    finally:
        show.pause()
    return False


def _look(runtime: Runtime, job: PlanJob) -> None:
    job.status = read.status(runtime.database, job.id) or {}
    found = picture(runtime.database, job.id)
    job.payload = found["plan"] if found else None
    if job.status.get("status") == "CLOSED":
        job.wrapper = read.result(runtime.database, job.id)


def _answer(runtime: Runtime, job: PlanJob, item: InboxItem, words: str, say: Console) -> None:
    value = spoken_value(InputType(item.type), item.payload, words)
    answer_item(runtime, item.id, {"outcome": "DECIDED", "value": value}, by="you")
    job.answered.append((item.title, words))
    say.print(Text.assemble(("inbox  ", "yellow"), plain(item.title), "  ", (words, "bold")))


def _stand_in(item: InboxItem, say: Console) -> str:
    """The demonstration's own person, where nobody sits at a terminal: takes the first option."""
    return next(iter(option_ids(InputType(item.type), item.payload)), "yes")


def _ask(item: InboxItem, say: Console) -> str:
    """The person's own words; Enter takes the first option."""
    options = option_ids(InputType(item.type), item.payload)
    say.print(Text.assemble(("\nThe plan asks you: ", "bold yellow"), plain(item.title)))
    say.print(Text(plain(item.body), style="dim"))
    choice = f"{' / '.join(map(plain, options))}, Enter for {plain(options[0])}: " if options else "> "
    while True:
        try:
            words = say.input(Text(choice)).strip() or (options[0] if options else "")
            if words:
                spoken_value(InputType(item.type), item.payload, words)
                return words
        except EOFError:
            return _stand_in(item, say)
        except InvalidAnswer as error:
            say.print(Text(error.message, style="red"))


class _Screen:
    """The tree, redrawn; made way for a question."""

    def __init__(self, say: Console) -> None:
        self._say = say
        self._live: Live | None = None

    def update(self, job: PlanJob) -> None:
        if self._live is None:
            self._live = Live(_drawn(job), console=self._say, transient=True, refresh_per_second=8)
            self._live.start()
        else:
            self._live.update(_drawn(job))

    def pause(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class _Lines:
    """One line for each task that appears or is settled, for files and pipes."""

    def __init__(self, say: Console) -> None:
        self._say = say
        self._told: dict[str, str] = {}

    def update(self, job: PlanJob) -> None:
        todo = [job.payload["rootNode"]] if job.payload and job.payload["rootNode"] else []
        while todo:
            node = todo.pop(0)
            todo += node["children"] or []
            state = _state(node)
            if self._told.get(node["id"]) != state:
                self._told[node["id"]] = state
                self._say.print(f"  {state:<24} {plain(node['title'])}", markup=False, soft_wrap=True)

    def pause(self) -> None:
        return


def _state(node: Any) -> str:
    meta, status = node["meta"], str(node["status"])
    if meta.get("awaiting"):
        return "waits for its subtasks"
    if status == "waiting":
        return "waits for a person" if meta.get("inboxItemId") else "waits for a recipe"
    return f"{status}  {meta.get('phase', '')}".rstrip() if status == "running" else status


def _drawn(job: PlanJob) -> RenderableType:
    tree = plan_tree(job.payload) if job.payload else None
    lines: list[RenderableType] = [tree if tree is not None else Text(f"▶ {GOAL}", style="cyan")]
    return Group(*lines, Text(job.usage, style="dim"))


def report_plan(runtime: Runtime, job: PlanJob, say: Console) -> None:
    """The finished tree, the report, the documents and what it took."""
    tree = plan_tree(job.payload) if job.payload else None
    if tree is not None and say.is_terminal:
        say.print(tree)
    wrapper = job.wrapper or {}
    text = plain(str(wrapper.get("result") or wrapper.get("message") or "no result"))
    say.print()
    say.print(Markdown(text) if say.is_terminal else Text(text), soft_wrap=not say.is_terminal)
    settings = runtime.settings
    say.print(Text("\ndocuments", style="bold"))
    for each in documents.list_documents(runtime.database, settings.tenant, settings.project):
        if not each.path.startswith("_"):
            whose = "written by the plan" if each.path in wrapper.get("documents", ()) else "given to it"
            say.print(Text.assemble(f"  {plain(each.path):<24} {each.characters:>6,} characters  ", (whose, "dim")))
    took = age(job.status.get("started_at"), job.status.get("closed_at"))
    good = bool(wrapper.get("success"))
    end = Text("done" if good else str(wrapper.get("error", "not closed")), style="green" if good else "red")
    say.print(Text.assemble("\n", end, f" in {took}: {wrapper.get('nodeCount', 0)} tasks, {job.usage}"))
