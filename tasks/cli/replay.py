"""`replay`: an exported job once more, offline, and what this version decides otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from engines.structured.text import shorten
from tasks.cli.failures import FAILED
from tasks.cli.output import err, json_option, out, plain, print_json
from tasks.replay.archive import Archive
from tasks.replay.compare import Difference, Report, compared
from tasks.replay.run import place
from tasks.replay.run import replay as play
from tasks.settings import load_settings
from tasks.wiring import load_engines

VALUE_CHARS = 300
SHOWN = 20


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--database", metavar="URL", help="A PostgreSQL for a temporary database. Default: an embedded one.")
@click.option("--ignore-prompts", is_flag=True, help="Prompts that are rendered otherwise do not count.")
@json_option
@click.pass_context
def replay(ctx: click.Context, file: Path, database: str | None, ignore_prompts: bool, as_json: bool) -> None:
    """Run the job of an export again with this version, from what models, tools and people said then.

    No model is asked, no tool reaches out, and no database of vancetope is touched. Exit code 0: it decides the same;
    1: something differs, and the first divergence is shown first.
    """
    archive = Archive.load(file)
    settings = load_settings()
    archive.check(load_engines(settings.engines))
    for gap in archive.gaps():
        err().print(f"note: {plain(gap)}", markup=False)
    with place(database) as url:
        report = compared(archive, play(archive, url, settings), prompts=not ignore_prompts)
    if as_json:
        print_json(_for_machines(report))
    else:
        _tell(report)
    if not report.same:
        ctx.exit(FAILED)


def _for_machines(report: Report) -> dict[str, Any]:
    return {
        "same": report.same,
        "processes": report.processes,
        "nodes": report.nodes,
        "turns": report.turns,
        "calls": report.calls,
        "differences": [
            {
                "kind": each.kind,
                "node": each.where,
                "turn": each.turn,
                "phase": each.phase,
                "what": each.what,
                "recorded": each.recorded,
                "replayed": each.replayed,
                "lines": list(each.lines),
            }
            for each in report.differences
        ],
    }


def _tell(report: Report) -> None:
    sizes = ((report.turns, "turn"), (report.nodes, "node"), (report.processes, "process"), (report.calls, "call"))
    seen = ", ".join(f"{number:,} {_plural(name, number)}" for number, name in sizes)
    if report.same:
        out().print(Text.assemble(("same", "green"), f": {seen}"))
        return
    number = len(report.differences)
    out().print(Text.assemble(("differs", "red"), f": {number:,} {_plural('difference', number)} in {seen}"))
    out().print(Text("\nthe first divergence:", style="bold"))
    for place_of, each in enumerate(report.differences[:SHOWN]):
        if place_of == 1:
            out().print(Text("\nand then:", style="bold"))
        _tell_one(each)
    if number > SHOWN:
        out().print(f"and {number - SHOWN:,} more; --json has all of them", markup=False)


def _tell_one(each: Difference) -> None:
    turn = "" if each.turn is None else f", turn {each.turn}, {each.phase}"
    out().print(Text.assemble((each.kind, "yellow"), f" of {plain(each.where)}{turn}: {plain(each.what)}"))
    out().print(Text(f"  recorded  {_value(each.recorded)}"))
    out().print(Text(f"  replayed  {_value(each.replayed)}"))
    for line in each.lines:
        out().print(Text(f"    {plain(line)}"))


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(plain(text).replace("\n", "\\n"), VALUE_CHARS)


def _plural(name: str, number: int) -> str:
    if number == 1:
        return name
    return f"{name}es" if name.endswith("s") else f"{name}s"
