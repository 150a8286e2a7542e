"""Parents wake when their children are over, however those ended, and no slot waits for anybody (C12, D14, D15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from cluster import Cluster, MakeCluster
from factory import PROBE, new_process
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from proof import assert_proven

from models.store import processes as store

ASK = {"ask": "what is n?", "model": "compatible:fake-model"}


@pytest.fixture
def probing(make_cluster: MakeCluster) -> Cluster:
    """A cluster whose workers also know the probe engine."""
    return make_cluster(engines="factory:PROBE")


def submit(cluster: Cluster, steps: Sequence[dict[str, Any]]) -> UUID:
    process = new_process(steps=list(steps))
    cluster.runtime.publisher.publish(store.submit(cluster.runtime.database, [process]))
    return process.id


@pytest.mark.parametrize("mode", ["PARALLEL", "SEQUENTIAL"])
def test_a_parent_wakes_although_a_child_has_failed(mode: str, probing: Cluster, provider: FakeProvider) -> None:
    assert PROBE.name in probing.runtime.engines
    probing.workers(2)
    probing.beat()
    each = [[ASK, {"finish": "a"}], [ASK, {"fail": "no luck"}], [ASK, {"park": 0.5}, {"finish": "c"}]]
    job = submit(probing, [{"fan_out": 3, "mode": mode, "each": each}, {"finish": "woken"}])
    probing.wait_closed(job)
    assert probing.result(job)["data"] == "woken"
    ends = probing.rows("SELECT status, failure FROM nodes WHERE parent_id IS NOT NULL ORDER BY order_key")
    assert ends == [("DONE", None), ("FAILED", "no luck"), ("DONE", None)]
    assert_proven(probing.database_url, [job])
    assert len(provider.requests) == 3


def test_a_parent_wakes_once_although_all_children_failed(probing: Cluster, provider: FakeProvider) -> None:
    probing.workers(2)
    probing.beat()
    probing.beat()
    jobs = [submit(probing, [{"fan_out": 6, "steps": [{"fail": "no luck"}]}, ASK]) for _ in range(5)]
    probing.wait_closed(*jobs)
    assert_proven(probing.database_url, jobs)
    # One call for each parent: each was woken once, by its last child or by the sweeper.
    assert len(provider.requests) == 5


def test_a_worker_with_one_slot_runs_a_process_that_calls_another(probing: Cluster, provider: FakeProvider) -> None:
    probing.worker(concurrency=1)
    probing.beat()
    job = submit(probing, [{"call": [ASK, {"finish": "inner"}], "count": 2}, ASK, {"finish": "outer"}])
    probing.wait_closed(job)
    assert probing.result(job)["data"] == "outer"
    inner = probing.rows("SELECT status, close_reason FROM processes WHERE parent_node_id IS NOT NULL")
    assert inner == [("CLOSED", "DONE")] * 2
    assert_proven(probing.database_url, [job])
    assert len(provider.requests) == 3


def test_a_stop_reaches_every_running_child_and_sub_process(probing: Cluster, provider: FakeProvider) -> None:
    provider.rule("for ever", Answer(hang=True))
    probing.workers(2, concurrency=3)
    for_ever = {**ASK, "ask": "for ever"}
    job = submit(probing, [{"fan_out": 3, "steps": [{"call": [for_ever]}]}, ASK])
    provider.wait_for(lambda requests: len(requests) == 3, timeout=30)
    closed = probing.stop(job)
    assert len(closed) == 4
    provider.wait_for(lambda requests: all(request.disconnected for request in requests), timeout=30)
    after = submit(probing, [{"finish": "free"}])
    probing.wait_closed(job, after)
    assert probing.result(job)["error"] == "stopped"
    assert_proven(probing.database_url, [job, after])
    assert len(provider.requests) == 3
