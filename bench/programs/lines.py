"""The line protocol between the benchmark and its programs. Standard library only: peers have their own environment.

A program says ``ready``, then answers each line ``name argument…`` with ``done`` and perhaps a word. It ends with its
standard input, also in the middle of a command, so none outlives the benchmark.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping

Command = Callable[..., object]
GRACE_SECONDS = 5.0


def serve(commands: Mapping[str, Command]) -> None:
    """Carry out commands until the input ends."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    print("ready", flush=True)
    while (line := lines.get()) is not None:
        name, *arguments = line.split()
        try:
            answer = commands[name](*arguments)
        except Exception:
            print("failed", traceback.format_exc().replace("\n", " \\ "), flush=True)
        else:
            print("done", "" if answer is None else answer, flush=True)


def _read(lines: queue.SimpleQueue[str | None]) -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put(None)
    # Whoever is still busy now works for nobody.
    time.sleep(GRACE_SECONDS)
    os._exit(1)
