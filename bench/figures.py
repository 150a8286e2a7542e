"""Statistics of samples and the tables they are shown in. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def median(samples: Iterable[float]) -> float:
    """The middle one, or the mean of the two in the middle. Not a number without samples."""
    ordered = sorted(samples)
    if not ordered:
        return math.nan
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(samples: Iterable[float], percent: float) -> float:
    """The smallest sample that at least ``percent`` of them do not exceed (nearest rank)."""
    ordered = sorted(samples)
    if not ordered:
        return math.nan
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def spread(samples: Sequence[float]) -> float:
    """Largest less smallest, as a share of the median: how far the rounds lie apart."""
    middle = median(samples)
    return (max(samples) - min(samples)) / middle if samples and middle else math.nan


def ratio(value: float, to: float) -> float:
    """``value / to``; not a number when there is nothing to compare with."""
    return value / to if to else math.nan


def number(value: float | None, digits: int = 1) -> str:
    """A figure for a table: thousands separated, a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.{digits}f}"


def times(value: float) -> str:
    """A ratio for a table."""
    return f"{number(value, 2)}×" if not math.isnan(value) else "–"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, columns padded so that it reads in a terminal too; all but the first are right-aligned."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [header, *rows]]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * width) if not column else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join([line(cells[0]), f"| {' | '.join(rule)} |", *map(line, cells[1:])])
