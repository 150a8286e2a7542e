"""`inbox` and `answer`: questions that plans put to people."""

from __future__ import annotations

import getpass
import json
from typing import Any

import click

from engines.inbox.answers import Answer, answer_text, option_ids, shape_of
from engines.inbox.spoken import spoken_value
from engines.inbox.words import Decision, InputType
from models.records import InboxItem, ItemStatus
from models.store import inbox as store
from models.store.database import Database
from models.store.inbox import Resolution
from tasks.cli.failures import FAILED, USAGE, CommandError
from tasks.cli.here import backend_settings
from tasks.cli.output import json_option, out, plain, print_fields, print_json, print_table
from tasks.cli.store import open_database
from tasks.cli.wired import open_runtime
from tasks.inbox import answer_item, dismiss_item, explained, reported, shown

_ITEM = click.argument("item_id", metavar="ID", type=click.IntRange(min=1))
_BY = click.option("--by", help="Who answers. Default: your login name; an item's owner must be given.")


@click.group()
def inbox() -> None:
    """List, show, answer and dismiss the questions plans put to people."""


@inbox.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also those that are answered, dismissed or expired.")
@click.option("--owner", help="Only this person's and those that are nobody's.")
@click.option("--tag", help="Only those with this tag.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@click.option("--tenant", help="Default: VANCETOPE_TENANT.")
@click.option("--project", help="Default: VANCETOPE_PROJECT.")
@json_option
def ls(
    everything: bool,
    owner: str | None,
    tag: str | None,
    limit: int,
    tenant: str | None,
    project: str | None,
    as_json: bool,
) -> None:
    """What waits for an answer, the pressing ones first."""
    settings = backend_settings()
    status = None if everything else ItemStatus.PENDING
    place = (tenant or settings.tenant, project or settings.project)
    found = store.items(open_database(settings), *place, status=status, owner=owner, tag=tag, limit=limit)
    if as_json:
        print_json([shown(item) for item in found])
        return
    rows = [
        (str(each.id), each.status.value, each.type, each.criticality, each.owner, each.expires_at, _heading(each))
        for each in found
    ]
    columns = ("id", "status", "type", "criticality", "owner", "expires", "question")
    print_table(columns, rows, empty="nothing waits for an answer; --all shows earlier questions")


@inbox.command("show")
@_ITEM
@json_option
def show(item_id: int, as_json: bool) -> None:
    """The whole question, how to answer it, and its answer if it has one."""
    item = _known(open_database(), item_id)
    if as_json:
        print_json(shown(item))
        return
    kind = InputType(item.type)
    options = option_ids(kind, item.payload)
    print_fields([
        ("id", str(item.id)), ("question", item.title), ("type", item.type), ("criticality", item.criticality),
        ("status", item.status.value), ("owner", item.owner), ("asked by", item.originator),
        ("tags", ", ".join(item.tags)), ("job", str(item.process_id)),
        ("options", ", ".join(options)), ("asked", item.created_at), ("expires", item.expires_at),
        ("resolved", item.answered_at), ("by", item.answered_by),
    ])  # fmt: skip
    if item.body:
        click.echo(f"\n{plain(item.body)}")
    if item.payload:
        click.echo(f"\n{plain(json.dumps(item.payload, ensure_ascii=False, indent=2))}")
    if item.answer is not None:
        click.echo(f"\n{plain(answer_text(kind, Answer.from_json(item.answer)))}")
    elif item.status is ItemStatus.PENDING:
        click.echo(f"\nanswer with: vancetope answer {item.id} WORDS   (stored as {shape_of(kind)})")


@click.command()
@_ITEM
@click.argument("words", metavar="[WORDS]", required=False)
@click.option("--raw", metavar="JSON", help="The answer itself: the value, or {outcome, value, reason}.")
@click.option("--reason", help="Goes with the answer; needed with the next two.")
@click.option(
    "--insufficient-info", is_flag=True, help="Not to be answered without knowing more: say what by --reason."
)
@click.option("--undecidable", is_flag=True, help="There is no answer: say why by --reason.")
@_BY
@json_option
def answer(
    item_id: int,
    words: str | None,
    raw: str | None,
    reason: str | None,
    insufficient_info: bool,
    undecidable: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Answer the question ID; its job goes on.

    WORDS: yes or no (APPROVAL, OUTPUT_…), an option or other words (DECISION), words (FEEDBACK), ids separated by
    commas (ORDERING), JSON (STRUCTURE_EDIT).
    """
    runtime = open_runtime(backend_settings())
    item = _known(runtime.database, item_id)
    if sum((words is not None, raw is not None, insufficient_info, undecidable)) != 1:
        raise CommandError("give one of WORDS, --raw, --insufficient-info, --undecidable", USAGE)
    given: Any
    if raw is not None:
        given = _parsed(raw)
    elif words is not None:
        value = spoken_value(InputType(item.type), item.payload, words)
        given = {"outcome": Decision.DECIDED.value, "value": value} | ({"reason": reason} if reason else {})
    else:
        outcome = Decision.INSUFFICIENT_INFO if insufficient_info else Decision.UNDECIDABLE
        given = {"outcome": outcome.value, "reason": reason}
    _report(item_id, answer_item(runtime, item_id, given, by=by or getpass.getuser()), as_json)


@inbox.command("dismiss")
@_ITEM
@_BY
@json_option
def dismiss(item_id: int, by: str | None, as_json: bool) -> None:
    """Close the question ID without an answer; the part of the plan that asked fails."""
    runtime = open_runtime(backend_settings())
    _known(runtime.database, item_id)
    _report(item_id, dismiss_item(runtime, item_id, by=by or getpass.getuser()), as_json)


inbox.add_command(answer, "answer")


def _known(database: Database, item_id: int) -> InboxItem:
    item = store.get(database, item_id)
    if item is None:
        raise CommandError(f"there is no item {item_id}: `vancetope inbox ls --all` shows all", USAGE)
    return item


def _parsed(raw: str) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        raise CommandError(f"--raw: is no JSON ({error})", USAGE) from None


def _report(item_id: int, resolution: Resolution, as_json: bool) -> None:
    if as_json:
        print_json(reported(item_id, resolution))
        click.get_current_context().exit(0 if resolution.accepted else FAILED)
    if not resolution.accepted:
        raise CommandError(explained(item_id, resolution), FAILED)
    out().print(explained(item_id, resolution), markup=False)


def _heading(item: InboxItem) -> str:
    return item.title or " ".join(item.body.split())[:80]
