"""``python -m bench.worker_profile``: where a worker's time goes per turn, sampled with py-spy from outside.

Only threads that hold the interpreter's lock are sampled. Milliseconds are shares of the samples, scaled to the
worker's processor time per turn of the same run, so what runs without the lock (libpq, the kernel) is spread over all.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import peers
from bench.contest import run_round, warm_up
from bench.figures import number, table
from bench.servers import Servers
from bench.systems.vancetope import Vancetope, VancetopeFourTurns, VancetopeSteps, VancetopeTree

SCENARIOS: dict[str, Callable[[Servers, int], Vancetope]] = {
    "answer": lambda servers, burst: Vancetope(servers, burst=burst),
    "four": lambda servers, burst: VancetopeFourTurns(servers, burst=burst),
    "steps": lambda servers, burst: VancetopeSteps(servers, name="steps", burst=burst),
    "tree": lambda servers, burst: VancetopeTree(servers, 200, name="tree", burst=burst),
}
_LINE = re.compile(r":\d+\)")


def costs(stacks: Iterable[str], milliseconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds per turn by function, with what it calls and by itself, from py-spy's raw lines (stack, count)."""
    inclusive: Counter[str] = Counter()
    own: Counter[str] = Counter()
    total = 0
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        frames = [_LINE.sub(")", frame) for frame in stack.split(";")]
        total += int(count)
        own[frames[-1]] += int(count)
        for frame in set(frames):
            inclusive[frame] += int(count)
    per_sample = milliseconds / max(total, 1)
    with_calls, alone = (
        {frame: found * per_sample for frame, found in counter.most_common()} for counter in (inclusive, own)
    )
    return with_calls, alone


def main() -> None:
    """Profile one round and print the functions that cost most."""
    parser = argparse.ArgumentParser(prog="bench.worker_profile", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--scenario", choices=tuple(SCENARIOS), default="answer",
                        help="jeltz jobs of one turn or four, bare steps, or Marvin plans of 201 nodes")  # fmt: skip
    parser.add_argument("--warm", type=int, default=100, help="jobs before the measured ones")
    parser.add_argument("--burst", type=int, default=1)
    parser.add_argument("--top", type=int, default=60)
    parser.add_argument("--match", default="", help="only functions whose name or file holds this text")
    parser.add_argument("--py-spy", type=Path, help="the py-spy program (default: the peers' environment's)")
    arguments = parser.parse_args()
    spy = arguments.py_spy or peers.python().with_name("py-spy")
    with Servers() as servers:
        contestant = SCENARIOS[arguments.scenario](servers, arguments.burst)
        raw = servers.folder / "profile.raw"
        try:
            contestant.start()
            warm_up(contestant, arguments.warm)
            command = [spy, "record", "--pid", str(contestant.worker_pids()[0]), "--rate", "400", "--threads", "--gil"]
            recorder = subprocess.Popen(
                [*command, "--format", "raw", "--output", raw, "--duration", "3600"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(1.0)
            measured = run_round(contestant, arguments.jobs)
            recorder.send_signal(signal.SIGINT)
            recorder.wait(60)
            inclusive, own = costs(raw.read_text().splitlines(), measured.worker_ms)
        finally:
            contestant.stop()
            contestant.close()
    print(f"{measured.steps:,} turns, {measured.worker_ms:.2f} ms of worker CPU per turn (py-spy's own halts included)")
    for title, found in (("with what it calls", inclusive), ("by itself", own)):
        rows = [(frame, number(cost, 3)) for frame, cost in found.items() if arguments.match in frame]
        print(f"\n{table((title, 'ms per turn'), rows[: arguments.top])}")


if __name__ == "__main__":
    main()
