"""Turning interleaved rounds into a table: medians, ratios to one of the systems, and each round in the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from bench.contest import Contestant, Round
from bench.figures import median, number, ratio, spread, table, times
from bench.sections.base import Section

HEADER = (
    "system",
    "seconds",
    "steps/s",
    "ratio",
    "spread",
    "submit s",
    "CPU ms per step: worker",
    "submitter",
    "PostgreSQL",
    "Redis",
    "all",
)


def of_rounds(rounds: Sequence[Round], figure: Callable[[Round], float]) -> float:
    """The median of one figure over the rounds."""
    return median(map(figure, rounds))


def verdict(ours: str, peers: Sequence[str], results: Mapping[str, list[Round]], *, at_least: float) -> str:
    """What a target of so many times the best peer's steps/s has come to, for a note. Peers must have rounds."""

    def speed(name: str) -> float:
        return of_rounds(results[name], lambda each: each.steps_per_second)

    best = max(peers, key=speed)
    found = ratio(speed(ours), speed(best))
    met = "met" if found >= at_least else "**missed**"
    return f"Target of {ours}: {number(at_least, 1)}× the best durable peer ({best}); found {times(found)}: {met}."


def contest_section(
    name: str, title: str, contestants: Sequence[Contestant], results: Mapping[str, list[Round]], *, against: str
) -> Section:
    """The section of one contest. ``against`` names the system whose steps/s are 1.00."""
    base = of_rounds(results[against], lambda each: each.steps_per_second)
    rows = []
    for contestant in contestants:
        rounds = results[contestant.name]
        speed = of_rounds(rounds, lambda each: each.steps_per_second)
        rows.append(
            (
                contestant.name,
                number(of_rounds(rounds, lambda each: each.seconds), 2),
                number(speed, 0),
                times(ratio(speed, base)),
                f"{number(spread([each.steps_per_second for each in rounds]) * 100, 0)} %",
                number(of_rounds(rounds, lambda each: each.submit_seconds), 2),
                number(of_rounds(rounds, lambda each: each.worker_ms), 2),
                number(of_rounds(rounds, lambda each: each.milliseconds_per_step(each.submitter_cpu)), 2),
                number(of_rounds(rounds, lambda each: each.milliseconds_per_step(each.postgres_cpu)), 2),
                number(of_rounds(rounds, lambda each: each.milliseconds_per_step(each.redis_cpu)), 2),
                number(of_rounds(rounds, lambda each: each.all_ms), 2),
            )
        )
    notes = [f"{contestant.name}: {contestant.notes}." for contestant in contestants]
    notes.append(
        "Timed from the first submission to the last completion as seen in the database (polled every 20 ms), medians "
        "of interleaved rounds; *spread* is largest less smallest round; *submit s* is how long the submitter took, "
        "while the workers already worked."
    )
    data = {
        each: [{**asdict(one), "steps_per_second": one.steps_per_second, "worker_ms": one.worker_ms} for one in rounds]
        for each, rounds in results.items()
    }
    return Section(name=name, title=title, tables=[table(HEADER, rows)], notes=notes, data=data)
