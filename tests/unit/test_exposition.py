"""How what workers have counted becomes Prometheus's families."""

from __future__ import annotations

from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from tasks.api.exposition import counted
from tasks.meter import CALLS, TURN_SECONDS, Field


def text(*counts: tuple[Field, float]) -> list[str]:
    class Fixed:
        def collect(self):  # type: ignore[no-untyped-def]
            return counted(counts)

    registry = CollectorRegistry()
    registry.register(Fixed())  # type: ignore[arg-type]
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_a_value_is_in_the_smallest_bucket_that_holds_it() -> None:
    assert [TURN_SECONDS.bucket(value) for value in (0.0, 0.005, 0.0051, 600.0, 600.1)] == [
        "0.005", "0.005", "0.01", "600.0", "+Inf",
    ]  # fmt: skip


def test_buckets_are_summed_up_and_unlabelled_ones_left_out() -> None:
    name = TURN_SECONDS.name
    lines = text(
        ((name, "jeltz", "ASK", "0.01"), 2.0),
        ((name, "jeltz", "ASK", "5.0"), 1.0),
        ((name, "jeltz", "ASK", "+Inf"), 1.0),
        ((name, "jeltz", "ASK", "sum"), 700.5),
        ((name, "of another version", "0.01"), 9.0),
    )
    found = {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines}
    labels = 'engine="jeltz",phase="ASK"'
    assert found[f'{name}_bucket{{engine="jeltz",le="0.005",phase="ASK"}}'] == 0
    assert found[f'{name}_bucket{{engine="jeltz",le="0.01",phase="ASK"}}'] == 2
    assert found[f'{name}_bucket{{engine="jeltz",le="10.0",phase="ASK"}}'] == 3
    assert found[f'{name}_bucket{{engine="jeltz",le="+Inf",phase="ASK"}}'] == 4
    assert (found[f"{name}_count{{{labels}}}"], found[f"{name}_sum{{{labels}}}"]) == (4, 700.5)
    assert not any("another" in line for line in lines)


def test_a_bucket_of_another_version_goes_to_the_next_one_of_ours() -> None:
    name = TURN_SECONDS.name
    lines = text(((name, "jeltz", "ASK", "0.02"), 3.0), ((name, "jeltz", "ASK", "7200.0"), 1.0))
    assert f'{name}_bucket{{engine="jeltz",le="0.01",phase="ASK"}} 0.0' in lines
    assert f'{name}_bucket{{engine="jeltz",le="0.025",phase="ASK"}} 3.0' in lines
    assert f'{name}_bucket{{engine="jeltz",le="+Inf",phase="ASK"}} 4.0' in lines


def test_hostile_names_are_escaped() -> None:
    lines = text(((CALLS.name, "openai", 'evil"} 1\nvancetope_fake 1', ""), 1.0))
    assert [line for line in lines if "evil" in line] == [
        'vancetope_provider_calls_total{error_kind="",model="evil\\"} 1\\nvancetope_fake 1",provider="openai"} 1.0'
    ]
    assert not any(line.startswith("vancetope_fake") for line in lines)
