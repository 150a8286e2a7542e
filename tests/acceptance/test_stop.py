"""Stopping reaches the call that is running and everything that has not begun (cases C17, E15)."""

from __future__ import annotations

import pytest
from cluster import Cluster, MakeCluster
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from processes import eventually
from proof import assert_proven


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_stop_aborts_the_running_call_and_no_other_one_is_made(
    pool: str, cluster: Cluster, provider: FakeProvider
) -> None:
    provider.rule("never ends", Answer(hang=True))
    cluster.worker(pool=pool, concurrency=1)
    running = cluster.submit("this one never ends")
    provider.wait_for(lambda requests: len(requests) == 1, timeout=30)
    pending = [cluster.submit(f"pending {number}") for number in range(8)]
    for job in [*pending, running]:
        assert cluster.stop(job) == (job,)
    provider.wait_for(lambda requests: requests[0].disconnected, timeout=30)
    # The slot is free again, and what was stopped is behind us in the queue: nothing of it was called.
    following = cluster.submit("a later one")
    cluster.wait_closed(following)
    assert len(provider.requests) == 2
    for job in [*pending, running]:
        wrapper = cluster.result(job)
        assert (wrapper["success"], wrapper["error"], wrapper["attempts"]) == (False, "stopped", 0)
        assert cluster.stop(job) == ()
    assert cluster.result(following)["success"] is True
    cluster.wait_closed(running, *pending)
    assert_proven(cluster.database_url, [running, *pending, following])
    assert cluster.rows("SELECT process_id FROM llm_calls") == [(following,)]


def test_a_provider_that_never_answers_costs_a_time_out_and_frees_the_slot(
    make_cluster: MakeCluster, provider: FakeProvider
) -> None:
    cluster = make_cluster(call_timeout_seconds=1.5)
    provider.rule("hung", Answer(hang=True), Answer(json={"n": 2}))
    cluster.worker(concurrency=1)
    cluster.beat()
    hung = cluster.submit("a hung socket")
    provider.wait_for(lambda requests: len(requests) == 1, timeout=30)
    other = cluster.submit("another")
    # The retry has a due time; the only slot is free for others meanwhile.
    cluster.wait_closed(other)
    cluster.wait_closed(hung)
    assert cluster.result(hung) == {"success": True, "attempts": 1, "data": {"n": 2}, "model": "fake-model"}
    kinds = cluster.rows("SELECT error_kind FROM llm_calls WHERE process_id = %s ORDER BY turn", hung)
    assert kinds == [("timeout",), (None,)]
    assert len(provider.requests) == 3
    assert_proven(cluster.database_url, [hung, other])


def test_a_call_far_longer_than_the_lease_is_made_once(make_cluster: MakeCluster, provider: FakeProvider) -> None:
    cluster = make_cluster(lease_seconds=1.5)
    provider.rule("long", Answer(json={"n": 5}, delay=5.0))
    cluster.workers(2)
    cluster.beat()
    job = cluster.submit("a long one")
    eventually(lambda: provider.requests, "the call is under way")
    # Losses are forgotten at a commit; every claim raises the fence.
    claimed = cluster.rows("SELECT fence FROM nodes")
    cluster.wait_closed(job)
    assert len(provider.requests) == 1
    assert cluster.rows("SELECT losses FROM nodes") == [(0,)]
    assert cluster.rows("SELECT fence FROM nodes") == claimed
    assert not any(member.said("call no longer wanted") for member in cluster.members)
