"""Processor time of processes with everything below them, read from ``/proc`` (Linux; elsewhere not a number)."""

from __future__ import annotations

import math
import os
from pathlib import Path

PROC = Path("/proc")
_STATE_FIELDS_BEFORE = 3
# Numbers of the fields in proc(5), counted from 1.
_PPID, _UTIME, _STIME, _CUTIME, _CSTIME = 4, 14, 15, 16, 17


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in brackets and may hold anything; what follows starts with field 3.
    return text.rpartition(")")[2].split()


def _field(stat: list[str], number: int) -> int:
    return int(stat[number - _STATE_FIELDS_BEFORE])


def tree(pid: int) -> list[int]:
    """The process and its living descendants."""
    parents: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            parents.setdefault(_field(stat, _PPID), []).append(int(entry.name))
    found, open_ends = [], [pid]
    while open_ends:
        current = open_ends.pop()
        found.append(current)
        open_ends += parents.get(current, [])
    return found


def seconds(pid: int) -> float:
    """User and system time of the process, its living descendants and those it has waited for."""
    if not PROC.joinpath("self", "stat").exists():
        return math.nan
    ticks = 0
    for each in tree(pid):
        if (stat := _stat(each)) is not None:
            ticks += sum(_field(stat, number) for number in (_UTIME, _STIME, _CUTIME, _CSTIME))
    return ticks / os.sysconf("SC_CLK_TCK")
