"""Questions about jobs: status, list, result, calls, history, dead letters. They need PostgreSQL only."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import click

from models.store import read
from models.store.database import Database
from tasks.cli.failures import FAILED, UNFINISHED, CommandError
from tasks.cli.follow import Follower, NotFinished
from tasks.cli.here import backend_settings
from tasks.cli.output import age, cell, err, json_option, money, plain, print_fields, print_json, print_table
from tasks.cli.store import known_status, open_database, process_id


@click.command()
@click.argument("identity", metavar="ID")
@json_option
def status(identity: str, as_json: bool) -> None:
    """What is known of one job. ID is what `submit` printed, or `last`."""
    database = open_database()
    found = known_status(database, process_id(database, identity))
    if as_json:
        print_json(found)
        return
    print_fields(status_fields(found))


def status_fields(found: dict[str, Any]) -> list[tuple[str, object]]:
    """The lines `status` and `watch` show of a process."""
    usage, root = found["usage"] or {}, found["root_node"] or {}
    tokens = f"{usage.get('input_tokens', 0):,} in, {usage.get('output_tokens', 0):,} out"
    is_open = found["status"] != "CLOSED"
    limits = [
        (f"{found[name]:,}" if name != "max_cost_usd" else money(found[name])) + f" {unit}"
        for name, unit in (("max_calls", "calls"), ("max_tokens", "tokens"), ("max_cost_usd", ""))
        if found[name] is not None
    ]
    due = root.get("due_at") if is_open and not root.get("lease_owner") else None
    # Inside JSON PostgreSQL writes times as text.
    waits = datetime.fromisoformat(due) if isinstance(due, str) else due
    return [
        ("id", str(found["id"])),
        ("status", found["status"] if is_open else found["close_reason"]),
        ("recipe", f"{found['recipe']} (engine {found['engine']})"),
        ("tenant", f"{found['tenant']}/{found['project']}"),
        ("owner", found["owner"]),
        ("submitted", found["created_at"]),
        ("deadline", found["deadline_at"]),
        ("lane", f"batch, until {_minute(found['batch_until'])}" if found["lane"] == "batch" else None),
        ("took" if not is_open else "age", age(found["created_at"], found["closed_at"])),
        ("phase", f"{root.get('phase')}, turn {root.get('turn')}" if is_open and root else None),
        ("runs on", root.get("lease_owner") if is_open else None),
        ("next turn", waits),
        ("nodes", ", ".join(f"{number} {name}" for name, number in (found["nodes"] or {}).items())),
        ("calls", f"{usage.get('calls', 0)}, {usage.get('failed_calls', 0)} failed"),
        ("tokens", tokens),
        ("cost", money(usage.get("cost_usd")) if usage.get("cost_usd") else None),
        ("limits", ", ".join(limits)),
        ("parent node", found["parent_node_id"]),
        ("texts", _removed(found["artifacts_removed_at"])),
    ]


def _minute(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


def _removed(at: datetime | None) -> str | None:
    return None if at is None else f"removed by retention on {cell(at)}"


@click.command("list")
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--tenant")
@click.option("--owner", help="Only those this person has submitted.")
@json_option
def list_(limit: int, tenant: str | None, owner: str | None, as_json: bool) -> None:
    """The newest jobs."""
    rows = read.recent(open_database(), limit=limit, tenant=tenant, owner=owner)
    if as_json:
        print_json(rows)
        return
    print_table(
        ("id", "status", "recipe", "owner", "submitted", "took"),
        [
            (
                row["id"],
                row["close_reason"] or row["status"],
                row["recipe"],
                row["owner"],
                row["created_at"],
                age(row["created_at"], row["closed_at"]),
            )
            for row in rows
        ],
        empty='no jobs yet: `vancetope run extract-event --prompt "…"` submits one',
    )


@click.command()
@click.argument("identity", metavar="ID")
@click.option("--wait", is_flag=True, help="Wait until it is closed.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="With --wait: at most this long.")
@json_option
@click.pass_context
def result(ctx: click.Context, identity: str, wait: bool, timeout: float | None, as_json: bool) -> None:
    """Print a job's result wrapper. Exit code 0: a success, 1: a failure, 4: not closed yet."""
    database = open_database()
    process = process_id(database, identity)
    wrapper = _waited(database, process, timeout) if wait else read.result(database, process)
    if wrapper is None:
        found = known_status(database, process)
        message = f"{process} is {found['status']}: no result yet; --wait waits for it"
        raise CommandError(message, UNFINISHED)
    print_json(wrapper, indent=None if as_json else 2)
    if wrapper.get("success") is False:
        ctx.exit(FAILED)


def _waited(database: Database, process: UUID, timeout: float | None) -> dict[str, Any] | None:
    root = known_status(database, process)["root_id"]
    with Follower(database, backend_settings().redis, process, root) as follower:
        try:
            for _ in follower.events(timeout):
                pass
        except NotFinished as error:
            raise CommandError(f"{error}; it goes on", UNFINISHED) from None
        return follower.wrapper()


@click.command()
@click.argument("identity", metavar="ID")
@json_option
def calls(identity: str, as_json: bool) -> None:
    """The usage ledger: every model call of a job and what is below it, failed ones too."""
    database = open_database()
    process = process_id(database, identity)
    known_status(database, process)
    rows = read.calls(database, process)
    if as_json:
        print_json(rows)
        return
    print_table(
        ("turn", "model", "lane", "outcome", "path", "in", "out", "cached", "cost", "ms", "at"),
        [
            (
                row["turn"],
                f"{row['provider']}:{row['model']}",
                row["lane"] if row["lane"] != "normal" else None,
                row["error_kind"] or row["stop_reason"],
                row["structured_path"],
                row["input_tokens"],
                row["output_tokens"],
                row["cache_read_tokens"] or None,
                money(row["cost_usd"]),
                row["latency_ms"],
                row["created_at"],
            )
            for row in rows
        ],
        empty="no model call yet",
    )


@click.command()
@click.argument("identity", metavar="ID")
@click.option("--messages/--no-messages", default=True, help="Also the conversation.")
@json_option
def history(identity: str, messages: bool, as_json: bool) -> None:
    """What happened: every phase of a job with its outcome, and the conversation."""
    database = open_database()
    process = process_id(database, identity)
    known_status(database, process)
    phases = read.phase_history(database, process)
    talk = read.messages(database, process) if messages else []
    if as_json:
        print_json({"phases": phases, "messages": talk} if messages else {"phases": phases})
        return
    print_table(
        ("turn", "phase", "outcome", "what", "model", "tokens", "at"),
        [
            (
                row["turn"],
                row["phase"] + (" (forced)" if row["forced"] else ""),
                row["reason"],
                _told(row["output"], row["lane_note"]),
                row["model"],
                row["tokens"],
                row["created_at"],
            )
            for row in phases
        ],
        empty="no turn has been committed yet",
    )
    for message in talk:
        click.echo()
        click.secho(f"{message['role']} · {message['kind']} · {message['created_at'].astimezone():%H:%M:%S}", bold=True)
        click.echo(plain(message["content"]).rstrip())


def _told(output: Any, lane_note: str | None) -> str:
    """One line of a phase record's output, and why its call was not made in a batch."""
    shown = dict(output) if isinstance(output, dict) else {}
    shown["not in a batch"] = lane_note
    text = "; ".join(f"{key}: {value}" for key, value in shown.items() if value not in (None, ""))
    return text if len(text) <= 160 else text[:159] + "…"


@click.command("dead-letters")
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--payload", is_flag=True, help="Show what the messages held: it may contain prompts.")
@json_option
def dead_letters(limit: int, payload: bool, as_json: bool) -> None:
    """Messages that came over the broker and that nobody could act on, the newest first."""
    rows = read.dead_letters(open_database(), limit=limit)
    if not payload:
        for row in rows:
            row["payload"] = f"{len(row['payload']):,} characters (--payload shows them)"
    if as_json:
        print_json(rows)
        return
    print_table(
        ("id", "at", "task", "problem", "payload"),
        [(row["id"], row["created_at"], row["task"], row["problem"], row["payload"]) for row in rows],
        empty="no dead letters",
    )
    if rows:
        err().print("Fix the sender and send again; nothing here is retried by itself.", style="dim")
