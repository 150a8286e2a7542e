"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench import machine, peers
from bench.program import ROOT, ProgramError
from bench.report import Report
from bench.sections import fan_out, history, latency, many_turns, one_tree, one_turn, statements
from bench.sections.base import QUICK, Section, Setting, Sizes
from bench.servers import Servers
from tasks.dev.process import StackError

SECTIONS: dict[str, Callable[[Setting], Section]] = {
    "one_turn": one_turn.measure,
    "latency": latency.measure,
    "many_turns": many_turns.measure,
    "fan_out": fan_out.measure,
    "statements": statements.measure,
    "history": history.measure,
    "one_tree": one_tree.measure,
}
LETTERS = {"A": "one_turn", "B": "many_turns", "C": "fan_out", "T": "one_tree"}
CONTESTS = frozenset({"one_turn", "many_turns", "fan_out"})
"""Sections that need the peers."""


PLACES = ("--peers-python", "--output")
"""Options that say where something lies on this machine, which is nothing for a report."""


def without_places(words: Sequence[str]) -> list[str]:
    """The words of the command line that say what is measured."""
    pairs = zip(("", *words), words, strict=False)
    return [word for before, word in pairs if before not in PLACES and word.partition("=")[0] not in PLACES]


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench", description="Measure vancetope, and other durable engines beside it, on this machine."
    )
    parser.add_argument("--quick", action="store_true", help="small counts: does it run at all?")
    parser.add_argument("--only", action="append", choices=[*SECTIONS, *LETTERS], default=[],
                        help="this section, by name or letter (repeatable)")  # fmt: skip
    parser.add_argument("--prefork", action="store_true", help="measure Celery's prefork pool with two processes too")
    parser.add_argument("--no-peers", action="store_true", help="leave DBOS and LangGraph out")
    parser.add_argument("--peers-python", type=Path, help="an interpreter that has the peers already")
    parser.add_argument("--jobs", type=int, help="jobs per round of (A)")
    parser.add_argument("--rounds", type=int, help="rounds of each contest")
    parser.add_argument("--history", help="numbers of finished processes, comma separated")
    parser.add_argument(
        "--output", type=Path, help="the Markdown file (default: bench/results.md; --quick and --only write none)"
    )
    return parser.parse_args(words)


def _sizes(arguments: argparse.Namespace) -> Sizes:
    sizes = QUICK if arguments.quick else Sizes()
    if arguments.jobs:
        sizes = replace(sizes, jobs=arguments.jobs)
    if arguments.rounds:
        sizes = replace(sizes, rounds=arguments.rounds)
    if arguments.history:
        sizes = replace(sizes, history=tuple(sorted(int(size) for size in arguments.history.split(","))))
    return sizes


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def run(words: Sequence[str]) -> None:
    """Measure what is asked for; print it, and write it to the results file."""
    arguments = _arguments(words)
    chosen = [LETTERS.get(name, name) for name in arguments.only] or list(SECTIONS)
    python = None
    if not arguments.no_peers and CONTESTS & set(chosen):
        python = arguments.peers_python.absolute() if arguments.peers_python else peers.python()
    sizes = _sizes(arguments)
    # What is measured in part must not take the place of a whole report.
    partly = arguments.quick or arguments.only
    output = arguments.output or (None if partly else ROOT / "bench" / "results.md")
    output = output.absolute() if output is not None else None
    # Celery and the programs look for their modules in the current folder.
    os.chdir(ROOT)
    sections: list[Section] = []
    with Servers() as servers:
        report = Report(
            command=shlex.join(["python", "-m", "bench", *without_places(words)]),
            machine=machine.description(),
            servers=servers.versions(),
            durability=servers.durability(),
            peers=peers.versions(python) if python is not None else {},
            sizes=asdict(sizes),
            quick=arguments.quick,
        )
        setting = Setting(
            servers=servers, sizes=sizes, peers_python=python, prefork=arguments.prefork, say=_say
        )  # fmt: skip
        for name in chosen:
            _say(f"section {name}")
            sections.append(SECTIONS[name](setting))
            report.load_after = ", ".join(f"{load:.2f}" for load in os.getloadavg())
            # After each section: an hour's work must not be lost to what fails in the last minute.
            if output is not None:
                report.write(sections, output)
    print(report.markdown(sections))
    if output is not None:
        _say(f"written to {output} and {output.with_suffix('.json').name}")


def main() -> None:
    """Entry point: errors in one line each, and no server left behind when told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(sys.argv[1:])
    except (StackError, ProgramError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
