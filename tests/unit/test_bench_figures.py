"""The benchmark's arithmetic and tables: a wrong median would be a wrong claim."""

from __future__ import annotations

import math
import os

import pytest

from bench import cpu
from bench.cli import without_places
from bench.contest import Round
from bench.figures import median, number, percentile, ratio, spread, table, times
from bench.sections.base import Section


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([3.0], 3.0), ([3.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 3.0], 2.5)],
)
def test_median(samples: list[float], expected: float) -> None:
    assert median(samples) == expected


def test_a_median_of_nothing_is_no_number() -> None:
    assert math.isnan(median([]))
    assert math.isnan(percentile([], 95))
    assert number(median([])) == "–"


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 50), (95, 95), (99.5, 100), (100, 100)])
def test_percentile_is_the_nearest_rank(percent: float, expected: int) -> None:
    assert percentile(range(1, 101), percent) == expected


def test_ratio_and_spread() -> None:
    assert ratio(3, 2) == 1.5
    assert math.isnan(ratio(3, 0))
    assert spread([90.0, 100.0, 120.0]) == pytest.approx(0.3)
    assert (times(1.5), times(math.nan)) == ("1.50×", "–")
    assert number(1234567.891, 2) == "1,234,567.89"


def test_a_table_is_padded_and_its_cells_cannot_break_it() -> None:
    shown = table(("system", "steps/s"), [("a|b", "1"), ("longer name", "1,000")])
    lines = shown.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0] == "| system      | steps/s |"
    assert lines[1] == "| ----------- | ------: |"
    assert lines[2] == "| a\\|b        |       1 |"


def test_a_round_in_figures_per_step() -> None:
    measured = Round(
        jobs=50,
        steps=200,
        seconds=2.0,
        submit_seconds=0.5,
        worker_cpu=0.4,
        submitter_cpu=0.1,
        postgres_cpu=0.2,
        redis_cpu=0.1,
    )
    assert measured.steps_per_second == 100
    assert measured.worker_ms == pytest.approx(2.0)
    assert measured.all_ms == pytest.approx(4.0)


def test_a_section_in_markdown() -> None:
    section = Section(name="x", title="Title", tables=["| a |"], notes=["first", "second"])
    assert section.markdown() == "## Title\n\n| a |\n\n* first\n* second\n"


@pytest.mark.skipif(not cpu.PROC.joinpath("self", "stat").exists(), reason="needs /proc")
def test_processor_time_grows_with_work() -> None:
    pid = os.getpid()
    assert pid in cpu.tree(pid)
    before = cpu.seconds(pid)
    while cpu.seconds(pid) < before + 0.03:
        sum(range(10_000))


def test_a_report_does_not_say_where_things_lie_on_a_machine() -> None:
    words = ["--peers-python", "/home/me/python", "--only", "B", "--output=/tmp/x.md", "--rounds", "5"]
    assert without_places(words) == ["--only", "B", "--rounds", "5"]
