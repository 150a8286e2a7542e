"""`stop`, `suspend`, `resume`: they write to PostgreSQL, so they hold however busy the workers are."""

from __future__ import annotations

import click

from models.store import processes as store
from tasks.cli.failures import FAILED, USAGE, CommandError
from tasks.cli.here import backend_settings
from tasks.cli.output import json_option, out, print_json
from tasks.cli.store import known_status, process_id
from tasks.cli.wired import open_runtime
from tasks.control import resume_process, stop_process


@click.command()
@click.argument("identity", metavar="ID")
@json_option
def stop(identity: str, as_json: bool) -> None:
    """Close a job and everything below it as STOPPED, now. Running model calls are aborted, their answers dropped."""
    runtime = open_runtime(backend_settings())
    process = process_id(runtime.database, identity)
    found = known_status(runtime.database, process)
    if found["engine"] not in runtime.engines and found["status"] != "CLOSED":
        message = (
            f"{process} runs on the engine {found['engine']!r}, unknown here: set VANCETOPE_ENGINES as its workers do"
        )
        raise CommandError(message, USAGE)
    closed = [str(each) for each in stop_process(runtime, process)]
    if as_json:
        print_json({"closed": closed})
    elif closed:
        more = f" and {len(closed) - 1} below it" if len(closed) > 1 else ""
        out().print(f"stopped {process}{more}", markup=False)
    else:
        out().print(f"{process} was closed already: nothing was changed", markup=False)


@click.command()
@click.argument("identity", metavar="ID")
@click.option("--now", is_flag=True, help="Abort running model calls too; they are made again after the resume.")
@json_option
@click.pass_context
def suspend(ctx: click.Context, identity: str, now: bool, as_json: bool) -> None:
    """Let a job rest: no new turn starts. A call that is running may finish and its result is kept."""
    runtime = open_runtime(backend_settings())
    process = process_id(runtime.database, identity)
    known_status(runtime.database, process)
    changed = store.suspend(runtime.database, process, abort_running=now)
    after = known_status(runtime.database, process)["status"]
    if as_json:
        print_json({"changed": changed, "status": after})
    else:
        text = (
            f"suspended {process}; `vancetope resume {process}` lets it go on" if changed else f"{process} is {after}"
        )
        out().print(text, markup=False)
    ctx.exit(0 if changed or after == "SUSPENDED" else FAILED)


@click.command()
@click.argument("identity", metavar="ID")
@json_option
@click.pass_context
def resume(ctx: click.Context, identity: str, as_json: bool) -> None:
    """Let a suspended job go on where it was."""
    runtime = open_runtime(backend_settings())
    process = process_id(runtime.database, identity)
    known_status(runtime.database, process)
    changed = resume_process(runtime, process)
    after = known_status(runtime.database, process)["status"]
    if as_json:
        print_json({"changed": changed, "status": after})
    else:
        out().print(f"resumed {process}" if changed else f"{process} is {after}, not suspended", markup=False)
    ctx.exit(0 if changed else FAILED)
