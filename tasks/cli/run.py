"""`run` and `submit`: from a command line to a stored process. Both write to PostgreSQL, so a refusal is immediate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import click
from uuid_utils.compat import uuid7

from models.records import NewProcess
from models.store import processes as store
from tasks.cli import asked
from tasks.cli.failures import FAILED, INTERRUPTED, UNFINISHED, USAGE, CommandError
from tasks.cli.follow import Follower, NotFinished
from tasks.cli.here import backend_settings
from tasks.cli.output import err, json_option, print_json
from tasks.cli.progress import RunProgress
from tasks.cli.store import parse_id
from tasks.cli.tree import Plan
from tasks.cli.wired import open_runtime
from tasks.cookbook import held
from tasks.submission import Submission, SubmissionError, parse_submission, prepare
from tasks.wiring import Runtime

BATCH = 500
"""Processes stored in one statement."""


def submit_all(runtime: Runtime, submissions: Iterable[Submission]) -> int:
    """Check all, store them, publish their first turns. Returns how many are new. Raises ``SubmissionError``."""
    prepared = _prepared(submissions, runtime)
    new = 0
    for start in range(0, len(prepared), BATCH):
        turns = store.submit(runtime.database, prepared[start : start + BATCH])
        # The rows are there: whatever happens to these hints, the sweeper starts the processes.
        runtime.publisher.publish(turns)
        new += len(turns)
    return new


def _prepared(submissions: Iterable[Submission], runtime: Runtime) -> list[NewProcess]:
    """Every submission checked against the recipes of one moment; remarks are printed, each once."""
    sources, told = held(runtime.sources), set[str]()

    def warn(text: str) -> None:
        if text not in told:
            told.add(text)
            err().print(f"remark: {text}", style="yellow", markup=False, soft_wrap=True)

    return [prepare(each, runtime.settings, runtime.engines, sources, warn) for each in submissions]


@click.command()
@click.argument("recipe")
@asked.submission_options
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait at most this long.")
@click.option("--id", "identity", metavar="UUID", help="Choose the id: the same one twice is one job.")
@click.option("--quiet", "-q", is_flag=True, help="No progress on standard error.")
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    recipe: str,
    timeout: float | None,
    identity: str | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Submit RECIPE, show progress, print the result as JSON.

    Standard output holds the result and nothing else. Exit code 0 when it is a success, 1 when it is a failure.

    \b
    vancetope run extract-event --prompt @note.txt
    echo "Ada paid 12 EUR" | vancetope run jeltz --prompt - --schema '{"type": "object", "properties": {…}}'
    """
    process_id = uuid7() if identity is None else parse_id(identity)
    submission = parse_submission({**asked.payload(**options), "recipe": recipe, "id": str(process_id)})
    settings = backend_settings()
    runtime = open_runtime(settings)
    with Follower(runtime.database, settings.redis, process_id) as follower:
        new = submit_all(runtime, [submission])
        wrapper = _wait(ctx, runtime, follower, process_id, timeout=timeout, quiet=quiet, new=bool(new))
    print_json(wrapper, indent=None if as_json else 2)
    if wrapper.get("success") is False:
        ctx.exit(FAILED)


def _wait(
    ctx: click.Context,
    runtime: Runtime,
    follower: Follower,
    process_id: UUID,
    *,
    timeout: float | None,
    quiet: bool,
    new: bool,
) -> dict[str, Any]:
    try:
        with RunProgress(process_id, runtime.app, Plan(runtime.database, process_id), quiet=quiet) as progress:
            if not new:
                progress.remark(f"{process_id} was submitted before; nothing was changed, this is that job")
            for event in follower.events(timeout):
                progress.show(event, follower.state)
    except NotFinished as error:
        raise CommandError(f"{error}; it goes on: {_where_next(process_id)}", UNFINISHED) from None
    except KeyboardInterrupt:
        err().print(f"\n{process_id} goes on: {_where_next(process_id)}", markup=False)
        ctx.exit(INTERRUPTED)
    wrapper = follower.wrapper()
    if wrapper is None:
        raise CommandError(f"{process_id} is closed, but its result is gone (pruned?)", FAILED)
    return wrapper


def _where_next(process_id: UUID) -> str:
    return f"`vancetope watch {process_id}` shows it, `vancetope stop {process_id}` ends it"


@click.command()
@click.argument("recipe", required=False)
@asked.submission_options
@click.option("--id", "identity", metavar="UUID", help="Choose the id: the same one twice is one job.")
@click.option("--batch", metavar="FILE.jsonl|-", help="Many jobs: one JSON object per line.")
@json_option
def submit(recipe: str | None, identity: str | None, batch: str | None, as_json: bool, **options: Any) -> None:
    """Submit RECIPE and print the id at once.

    With --batch every line is one job, {"params": {"prompt": "…"}}; "recipe" may be left out when RECIPE is given, and
    the other options are defaults for all lines. One bad line and nothing is submitted. Ids are printed in order.
    """
    if recipe is None and batch is None:
        raise click.UsageError("name a RECIPE (`vancetope recipes ls`), or give --batch FILE.jsonl")
    if batch is not None and identity is not None:
        raise click.UsageError('--id is for one job; in a batch give each line its own "id"')
    if batch == asked.STDIN and asked.STDIN in (options["prompt"], options["schema"]):
        raise click.UsageError("--batch - reads standard input itself: put the other text into a file")
    common = {**asked.payload(**options), **({} if recipe is None else {"recipe": recipe})}
    if batch is None:
        common["id"] = str(uuid7() if identity is None else parse_id(identity))
        submissions = [parse_submission(common)]
    else:
        submissions = list(_lines(batch, common))
    runtime = open_runtime(backend_settings())
    if batch is not None:
        _check_each(submissions, batch, runtime)
    new = submit_all(runtime, submissions)
    ids = [str(each.id) for each in submissions]
    if as_json:
        print_json({"ids": ids, "new": new} if batch is not None else {"id": ids[0], "new": bool(new)})
        return
    for each in ids:
        click.echo(each)
    if new < len(set(ids)):
        err().print(f"{len(set(ids)) - new} of them submitted before: nothing was changed", style="yellow")


def _lines(name: str, common: dict[str, Any]) -> Iterator[Submission]:
    """The batch's submissions. Raises a usage error that names file and line."""
    where = "standard input" if name == asked.STDIN else name
    text = asked.read_stdin("--batch") if name == asked.STDIN else asked.read_file(name, "--batch")
    problems: list[str] = []
    found: list[Submission] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(parse_submission(_merged(asked.parse_json(line, "the line"), common)))
        except (SubmissionError, CommandError) as error:
            problems.append(f"{where}:{number}: {error.message}")
    _refuse(problems)
    if not found:
        raise CommandError(f"{where} holds no job: one JSON object per line", USAGE)
    yield from found


def _merged(line: Any, common: dict[str, Any]) -> Any:
    if not isinstance(line, dict):
        return line
    merged = {**common, **line}
    for part in ("params", "limits"):
        if isinstance(line.get(part), dict) and part in common:
            merged[part] = {**common[part], **line[part]}
    return merged


def _check_each(submissions: list[Submission], where: str, runtime: Runtime) -> None:
    """Recipes and sizes too, before anything is stored."""
    problems: list[str] = []
    sources = held(runtime.sources)
    for number, each in enumerate(submissions, start=1):
        try:
            prepare(each, runtime.settings, runtime.engines, sources)
        except SubmissionError as error:
            problems.append(f"{where}: job {number}: {error.message}")
    _refuse(problems)


def _refuse(problems: list[str]) -> None:
    if problems:
        more = len(problems) - 10
        tail = [f"and {more} more"] if more > 0 else []
        raise CommandError("nothing was submitted:\n" + "\n".join([*problems[:10], *tail]), USAGE)
