"""What commands print: tables and colours for people, JSON for machines, and never a control character of a model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.jsonable import jsonable

F = TypeVar("F", bound=Callable[..., Any])

# Escape sequences, and the marks that turn the direction of text around: either can make a terminal lie.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CONTROL_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def json_option(command: F) -> F:
    """``--json``: one compact JSON value on standard output, for other programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")(command)


def out() -> Console:
    """Standard output for people."""
    return Console(highlight=False, soft_wrap=True)


def err() -> Console:
    """Standard error: progress and remarks, so that standard output holds the answer only."""
    # Never broken at the terminal's edge: what it names is meant to be copied.
    return Console(stderr=True, highlight=False, soft_wrap=True)


def plain(value: object) -> str:
    """A value's text, safe to show: control characters are replaced."""
    return _CONTROL.sub("\ufffd", str(value))


def json_text(value: object, *, indent: int | None = None) -> str:
    """JSON that is safe to show and survives any encoding of standard output."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    text = json.dumps(jsonable(value), ensure_ascii=not encoding.startswith("utf"), indent=indent)
    return _CONTROL_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_json(value: object, *, indent: int | None = None) -> None:
    """JSON on standard output: indented for people, one line without ``indent``; coloured on a terminal only."""
    text = json_text(value, indent=indent)
    console = out()
    if indent is not None and console.is_terminal and not console.no_color:
        console.print_json(text, indent=indent)
    else:
        click.echo(text)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """A table that fits the terminal, or aligned whole columns when standard output is no terminal."""
    if not rows:
        err().print(empty)
        return
    shown = [[cell(value) for value in row] for row in rows]
    console = out()
    if not console.is_terminal:
        widths = [max(len(row[at]) for row in [list(columns), *shown]) for at in range(len(columns))]
        for row in [list(columns), *shown]:
            click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        # The first column is what one copies: never broken.
        table.add_column(name, overflow="fold", no_wrap=at == 0)
    for row in shown:
        table.add_row(*(Text(text, style=STYLES.get(text, "")) for text in row))
    console.print(table)


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """``name value`` lines; fields without a value are left out."""
    console = out()
    for name, value in fields:
        if value is None or value == "":
            continue
        text = cell(value)
        console.print(Text.assemble((f"{name:<12} ", "dim"), (text, STYLES.get(text, ""))))


STYLES = {
    "DONE": "green",
    "RUNNING": "cyan",
    "FAILED": "red",
    "STOPPED": "yellow",
    "SUSPENDED": "yellow",
    "yes": "green",
    "ok": "green",
    "problem": "red",
}


def cell(value: object) -> str:
    """One value for people: times local, money in dollars, nothing for nothing."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        case Decimal():
            return money(value)
        case float():
            return f"{value:,.2f}"
        case int():
            return f"{value:,}"
        case _:
            return plain(value)


def money(value: Decimal | float | None) -> str:
    """US dollars with as many places as small sums need; ``unpriced`` when nobody knows."""
    if value is None:
        return "unpriced"
    return f"${value:.2f}" if value >= 1 else f"${value:.6f}".rstrip("0").rstrip(".") if value else "$0"


def seconds(value: float) -> str:
    """A duration for people."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def age(since: datetime | None, until: datetime | None) -> str:
    """How long something took, or has taken so far."""
    if since is None:
        return ""
    return seconds(((until or datetime.now(since.tzinfo)) - since).total_seconds())
