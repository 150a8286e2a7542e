"""`make demo`: a backend of its own, real jobs over the example texts, a plan at the end, and a clean end.

python -m tasks.dev.demo [--scripted]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import redis
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from uuid_utils.compat import uuid7

from engines.llm.base import LlmError, LlmRequest, Message
from engines.llm.catalogue import Catalogue
from engines.llm.config import Selection
from engines.recipes.cascade import bundled_path
from models.store import processes as store
from models.store import read
from tasks.broker import publisher_app
from tasks.cli.output import age, err, json_text, money, out, plain, seconds
from tasks.dev.demo_plan import GOAL, RECIPE, PlanJob, follow_plan, report_plan, submit_plan
from tasks.dev.demo_script import plan_rules
from tasks.dev.local_model import LocalModel
from tasks.dev.process import StackError
from tasks.dev.stack import DevOptions, Stack
from tasks.plans import channel
from tasks.settings import SettingsError, load_settings
from tasks.submission import Submission, prepare
from tasks.wiring import Runtime

PATIENCE_SECONDS = 180.0
"""When nothing at all has happened for so long, the pipeline counts as broken."""
_PLAN = (("extract-event", "event-*.txt"), ("classify-ticket", "ticket-*.txt"), ("outline", "article-*.txt"))


@dataclass(slots=True)
class Job:
    """One job of the demonstration, as far as it is known."""

    id: UUID
    recipe: str
    source: str
    state: str = "waiting"
    characters: int = 0
    turns: int = 0
    status: Mapping[str, Any] = field(default_factory=dict)
    wrapper: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Brain:
    """Who answers. ``concurrency``: the local model does one thing at a time, and waiting calls would time out.

    model: of the single questions, when it is not the one that carries the plan; plan_words: who carries the plan then.
    """

    words: str
    model: str | None = None
    plan_words: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    concurrency: int = 4


def run_demo(*, folder: Path | None = None, scripted: bool = False, as_json: bool = False) -> int:
    """Run it. 0 when every job closed (whatever its result says), 1 when the pipeline failed, 130 after Ctrl-C."""
    say = err() if as_json else out()
    # Whoever ends us politely gets the same clean end as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as ends:
            home = folder or Path(ends.enter_context(_temporary_folder()))
            return _run(home, scripted=scripted, as_json=as_json, say=say, ends=ends)
    except KeyboardInterrupt:
        say.print("\ninterrupted; everything is stopped")
        return 130
    except (StackError, SettingsError) as error:
        err().print(Text(f"the demonstration cannot run: {error}", style="red"))
        return 1


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    # Short: a Unix socket's path has little room.
    return tempfile.TemporaryDirectory(prefix="vancetope-", ignore_cleanup_errors=True)


def _run(home: Path, *, scripted: bool, as_json: bool, say: Console, ends: ExitStack) -> int:
    home.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    brain = choose_brain(home, scripted=scripted, ends=ends)
    say.print(Text.assemble(("model       ", "dim"), brain.words), soft_wrap=True)
    log = ends.enter_context((home / "demo.log").open("a", encoding="utf-8", buffering=1))
    options = DevOptions(
        folder=home, concurrency=brain.concurrency, local_model="no", environment=brain.environment, log_level="WARNING"
    )
    stack = Stack(options, lambda name, line: None if log.closed else print(f"{name}: {line}", file=log))
    ends.enter_context(stack)
    state = stack.state()
    for line in state.summary().splitlines():
        say.print(Text(line, style="dim"), soft_wrap=True)
    say.print(f"everything is up after {seconds(time.monotonic() - began)}\n")
    settings = load_settings({**os.environ, **state.environment(), **brain.environment})
    app = publisher_app(settings)
    runtime = Runtime(settings, app)
    ends.callback(app.close)
    ends.callback(runtime.close)
    say.print(Text("1. Single questions, each with a schema its answer must fit", style="bold"))
    jobs = submit_jobs(runtime, brain.model)
    done = follow(runtime, jobs, say, stack)
    if not as_json:
        report(jobs, say)
    say.print(Text(f"\n2. A plan: {GOAL}", style="bold"))
    if brain.plan_words:
        say.print(Text(brain.plan_words, style="dim"), soft_wrap=True)
    plan = submit_plan(runtime)
    done = follow_plan(runtime, plan, say, stack, patience=PATIENCE_SECONDS) and done
    if as_json:
        _print_json(jobs, plan)
    else:
        report_plan(runtime, plan, say)
    if not done:
        handle, name = tempfile.mkstemp(prefix="vancetope-demo-", suffix=".log")
        os.close(handle)
        kept = Path(name)
        shutil.copyfile(home / "demo.log", kept)
        err().print(Text(f"not every job closed: the pipeline failed; the log is kept in {kept}", style="red"))
        return 1
    if not as_json:
        _where_next(say)
    return 0


def choose_brain(home: Path, *, scripted: bool, ends: ExitStack) -> Brain:
    """A provider of the environment, else the local model, else canned answers; and the words that say so."""
    why = "asked for"
    if not scripted:
        configured = _configured_provider()
        if configured is not None:
            return Brain(words=f"{configured}, from your settings")
        try:
            model = LocalModel(load_settings().local_model_path)
            model.start()
        except StackError as error:
            why = f"no key or URL of a provider is set, and no local model: {str(error).splitlines()[0]}"
        else:
            ends.callback(model.stop)
            local = {"VANCETOPE_LOCAL_MODEL_URL": model.base_url}
            return Brain(
                words=f"{model.name} on this machine: very small; it proves the pipeline, its answers are often wrong",
                model="local:default",
                plan_words="too much for the small model: the plan's answers come from a script, all else is real",
                environment={**local, **_script(home, {"rules": plan_rules()})},
                concurrency=1,
            )
    words = f"NONE: canned answers from a script ({why}). Everything else is real: queue, database, turns, validation"
    return Brain(words=words, environment=_script(home, canned_answers()))


def _script(home: Path, script: dict[str, Any]) -> dict[str, str]:
    file = home / "script.json"
    file.write_text(json.dumps(script), encoding="utf-8")
    return {"VANCETOPE_SCRIPTED_FILE": str(file)}


def _configured_provider() -> str | None:
    config = load_settings().llm()
    selection = Selection(config, Catalogue.load(config.catalogue_path), scripted=config.scripted_path is not None)
    try:
        found = selection.choose(LlmRequest(model="default:fast", messages=(Message(role="user", content=""),)))
    except LlmError:
        return None
    return f"{found.provider_name}:{found.model}"


def canned_answers() -> dict[str, Any]:
    """A script for the scripted provider: one answer per example text, one of them wrong at first, to be corrected; and
    those of the plan."""
    first, *others = (_canned(recipe, file) for recipe, pattern in _PLAN for file in _examples(pattern))
    right = first.pop("reply")
    wrong = {**first, "by": "count", "replies": [{"text": "Sure! Here is what I found: userId is unclear"}, right]}
    return {"rules": [*plan_rules(), wrong, *others], "default": {"sample": True}}


def _canned(recipe: str, file: Path) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8").strip()
    words = " ".join(text.split())
    answer: dict[str, Any]
    match recipe:
        case "extract-event":
            action = file.stem.removeprefix("event-")
            answer = {"userId": "see the text", "action": action, "timestamp": "see the text"}
        case "classify-ticket":
            category = file.stem.removeprefix("ticket-")
            answer = {"category": category, "priority": "high", "summary": words[:120]}
        case _:
            answer = {"title": words[:60], "sections": [{"heading": "Canned answer", "points": [words[60:160]]}]}
    return {"when": {"contains": text[:60]}, "reply": {"json": answer}}


def _examples(pattern: str) -> list[Path]:
    return sorted((bundled_path() / "examples").glob(pattern))


def submit_jobs(runtime: Runtime, model: str | None = None) -> list[Job]:
    """One job per example text. Raises when a recipe is broken: then there is nothing to demonstrate."""
    jobs: list[Job] = []
    choice = {} if model is None else {"model": model}
    for recipe, pattern in _PLAN:
        for file in _examples(pattern):
            prompt = file.read_text(encoding="utf-8").strip()
            submission = Submission(id=uuid7(), recipe=recipe, params={"prompt": prompt, **choice}, goal=file.name)
            process = prepare(submission, runtime.settings, runtime.engines, runtime.sources)
            runtime.publisher.publish(store.submit(runtime.database, [process]))
            jobs.append(Job(submission.id, recipe, file.name))
    return jobs


def follow(runtime: Runtime, jobs: list[Job], say: Console, stack: Stack) -> bool:
    """Show what goes on until every job is closed. ``False`` when nothing happens any more."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with ExitStack() as ends:
        client: Any = redis.Redis.from_url(runtime.settings.redis)
        ends.callback(client.close)
        pubsub = client.pubsub(ignore_subscribe_messages=True)
        ends.callback(pubsub.close)
        pubsub.psubscribe(channel("*"))
        show = _shower(jobs, say, ends)
        next_poll = 0.0
        while time.monotonic() < deadline:
            message = pubsub.get_message(timeout=0.2)
            if message is not None and message.get("type") == "pmessage":
                _take_in(jobs, json.loads(message["data"]))
                deadline = time.monotonic() + PATIENCE_SECONDS
            if time.monotonic() >= next_poll:
                next_poll = time.monotonic() + 0.5
                stack.revive()
                _look(runtime, jobs)
            show()
            if all(job.wrapper is not None for job in jobs):
                return True
    return False


def _take_in(jobs: list[Job], event: Mapping[str, Any]) -> None:
    for job in jobs:
        if event.get("process") != str(job.id) or job.wrapper is not None:
            continue
        if event.get("kind") == "chunk":
            job.characters += len(event.get("text", ""))
            job.state = f"the model writes ({job.characters} characters)"
        elif event.get("kind") == "turn":
            job.turns += 1
            job.characters = 0
            job.state = f"turn {job.turns}: {str(event.get('reason', '')).lower()}"


def _look(runtime: Runtime, jobs: list[Job]) -> None:
    for job in jobs:
        if job.wrapper is None:
            job.status = read.status(runtime.database, job.id) or {}
            if job.status.get("status") == "RUNNING" and job.state == "waiting":
                job.state = "the model reads"
            if job.status.get("status") == "CLOSED":
                job.wrapper = read.result(runtime.database, job.id)
                job.state = "closed"


def _shower(jobs: list[Job], say: Console, ends: ExitStack) -> Callable[[], None]:
    """A table that redraws itself on a terminal; elsewhere one line per change of a job."""
    if say.is_terminal:
        live = ends.enter_context(Live(_progress(jobs), console=say, transient=True, refresh_per_second=6))
        return lambda: live.update(_progress(jobs))
    told: dict[UUID, str] = {}

    def tell() -> None:
        for job in jobs:
            state = job.state.partition(" (")[0]
            if told.get(job.id, "waiting") != state:
                told[job.id] = state
                say.print(f"{job.source:<22} {state}", markup=False)

    return tell


def _progress(jobs: list[Job]) -> Table:
    table = Table("text", "recipe", "state", box=None, header_style="bold", pad_edge=False)
    for job in jobs:
        style = "dim" if job.state == "waiting" else "green" if job.state == "closed" else "cyan"
        table.add_row(job.source, job.recipe, Text(job.state, style=style))
    return table


def _print_json(jobs: list[Job], plan: PlanJob) -> None:
    rows = [
        {"id": job.id, "recipe": job.recipe, "source": job.source, "usage": job.status.get("usage"),
         "result": job.wrapper}
        for job in jobs
    ]  # fmt: skip
    last = {"id": plan.id, "recipe": RECIPE, "source": GOAL, "usage": plan.status.get("usage"), "result": plan.wrapper}
    sys.stdout.write(json_text([*rows, {**last, "plan": plan.payload, "answers": plan.answered}]) + "\n")


def report(jobs: list[Job], say: Console) -> None:
    """What came of the jobs: a table, then every wrapper as it is."""
    table = Table("text", "recipe", "result", "attempts", "tokens", "cost", "took", box=None, header_style="bold")
    for job in jobs:
        usage = job.status.get("usage") or {}
        wrapper = job.wrapper or {}
        good = bool(wrapper.get("success"))
        word = "success" if good else str(wrapper.get("error", "not closed"))
        table.add_row(
            job.source,
            job.recipe,
            Text(word, style="green" if good else "red"),
            str(wrapper.get("attempts", "")),
            f"{usage.get('input_tokens', 0):,} + {usage.get('output_tokens', 0):,}",
            money(usage.get("cost_usd")),
            age(job.status.get("started_at"), job.status.get("closed_at")),
        )
    say.print(table)
    for job in jobs:
        say.print(Text.assemble(f"\n{job.source} ", (f"{job.recipe} {job.id}", "dim")), soft_wrap=True)
        say.print(plain(json_text(job.wrapper, indent=2)), markup=False, soft_wrap=True)


def _where_next(say: Console) -> None:
    say.print(
        "\nWhere to look next:\n"
        "  vancetope dev               the same backend, staying up, data kept in ./.vancetope\n"
        '  vancetope run extract-event --prompt "Ada signed in at 2026-05-04 09:12"\n'
        "  vancetope recipes ls        what else can be run;  vancetope models: what it can run on\n"
        '  vancetope run marvin-architect --goal "…"   writes a recipe for a plan of your own\n'
        "  README.md                   settings, enqueueing from another app, operations",
        markup=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(run_demo(scripted="--scripted" in sys.argv[1:], as_json="--json" in sys.argv[1:]))
