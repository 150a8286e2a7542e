"""The line protocol between the benchmark and its programs. Standard library only: peers have their own environment.

A program says ``ready``, then answers each line ``name argument…`` with ``done`` and perhaps a word. It ends with its
standard input, so none outlives the benchmark.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping

Command = Callable[..., object]


def serve(commands: Mapping[str, Command]) -> None:
    """Carry out commands until the input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            answer = commands[name](*arguments)
        except Exception:
            print("failed", traceback.format_exc().replace("\n", " \\ "), flush=True)
        else:
            print("done", "" if answer is None else answer, flush=True)
