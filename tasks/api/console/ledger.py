"""What was paid, by day, recipe or model, as a table and as a plot made here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from models.store import read
from tasks.api.console.pages import page
from tasks.api.console.session import Visitor
from tasks.api.console.texts import money, number
from tasks.api.parts import Here

router = APIRouter(prefix="/ledger")

BARS: Final = 60
WIDTH: Final = 720
HEIGHT: Final = 200


@dataclass(frozen=True, slots=True)
class Bar:
    """In the units of the plot; ``height`` is zero when there is nothing."""

    x: float
    y: float
    width: float
    height: float
    title: str


@router.get("")
def ledger_page(
    request: Request,
    here: Here,
    who: Visitor,
    group: Literal["day", "recipe", "model"] = "day",
    days: Annotated[int, Query(ge=1, le=366)] = 30,
    project: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """The tenant's calls of the last ``days``, today (UTC) included."""
    until = datetime.now(UTC)
    since = (until - timedelta(days=days - 1)).replace(hour=0, minute=0, second=0, microsecond=0)
    wanted = project.replace("\0", "").strip()
    rows = read.usage(
        here.runtime.database, tenant=who.tenant, group=group, since=since, until=until, project=wanted or None
    )
    if group != "day":
        rows.sort(key=lambda row: (-row["cost_usd"], -row["calls"], row["group"]))
    unit = "cost_usd" if any(row["cost_usd"] for row in rows) else "calls"
    keys = ("calls", "failed_calls", "input_tokens", "output_tokens", "cost_usd")
    plotted = _every_day(rows, since, days) if group == "day" else rows[:BARS]
    return page(
        request,
        "ledger.html",
        rows=rows,
        total={key: sum(row[key] for row in rows) for key in keys},
        group=group,
        days=days,
        project=wanted,
        bars=bars(plotted, unit) if rows else [],
        unit=unit,
        most=_said(max((row[unit] for row in rows), default=0), unit),
        ends=(plotted[0]["group"], plotted[-1]["group"]) if plotted else ("", ""),
        width=WIDTH,
        height=HEIGHT,
    )


def bars(rows: Sequence[dict[str, Any]], unit: str) -> list[Bar]:
    """One bar for each row, the highest as high as the plot."""
    most = float(max((row[unit] for row in rows), default=0)) or 1.0
    step = WIDTH / max(len(rows), 8)
    made = []
    for place, row in enumerate(rows):
        high = round(float(row[unit]) / most * HEIGHT, 1)
        if row[unit]:
            high = max(high, 1.0)
        title = f"{row['group']}: {_said(row[unit], unit)}"
        made.append(
            Bar(round(place * step + step * 0.1, 1), round(HEIGHT - high, 1), round(step * 0.8, 1), high, title)
        )
    return made


def _every_day(rows: Sequence[dict[str, Any]], since: datetime, days: int) -> list[dict[str, Any]]:
    """The rows by day, with a row for the days on which nothing was called; at most the last :data:`BARS`."""
    found = {row["group"]: row for row in rows}
    names = [(since + timedelta(days=each)).strftime("%Y-%m-%d") for each in range(days)]
    return [found.get(name, {"group": name, "calls": 0, "cost_usd": 0}) for name in names[-BARS:]]


def _said(value: Any, unit: str) -> str:
    return money(value) if unit == "cost_usd" else f"{number(value)} calls"
