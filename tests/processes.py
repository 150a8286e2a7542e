"""Watching operating-system processes from a test: with deadlines, never with a fixed wait."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.dev.process import process_alive

DEADLINE = 60.0


def eventually(condition: Callable[[], Any], what: str, timeout: float = DEADLINE) -> Any:
    """Wait until ``condition`` gives something true, and return that."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"still not so after {timeout:.0f} s: {what}"
        time.sleep(0.02)
    return found


def ended(pids: list[int]) -> Callable[[], bool]:
    return lambda: not any(process_alive(pid) for pid in pids)


def descendants(pid: int) -> list[int]:
    family = [pid]
    parents = parents_of_all()
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family[1:]


def parents_of_all() -> dict[int, int]:
    if sys.platform != "linux":
        listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        return {int(pid): int(parent) for pid, parent in (line.split() for line in listing.splitlines())}
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    return parents
