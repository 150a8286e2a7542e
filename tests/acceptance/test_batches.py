"""The batch lane with real workers, beat and Redis: half the price, nothing twice under kills, no job kept waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, MakeCluster
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from processes import eventually
from proof import assert_proven

MODEL = {"model": "openai:gpt-4o"}
AT_ONCE = "/v1/chat/completions"


@pytest.fixture
def batching(make_cluster: MakeCluster, provider: FakeProvider) -> Cluster:
    """A cluster that may use OpenAI's batches and does not wait long for company."""
    return make_cluster(
        openai_api_key="key-of-openai",
        openai_base_url=provider.openai_url,
        batch_wait_seconds=0.2,
        batch_poll_seconds=0.3,
    )


def lanes(cluster: Cluster) -> list[tuple[Any, ...]]:
    return cluster.rows("SELECT DISTINCT lane FROM llm_calls")


def visit_now(cluster: Cluster) -> None:
    """A batch whose visitor has died is visited again now instead of after a quarter of an hour."""
    cluster.rows(
        "UPDATE batches SET next_visit_at = now() WHERE state <> 'ENDED' AND next_visit_at > now() RETURNING id"
    )


def test_jobs_go_through_batches_from_any_face(batching: Cluster, provider: FakeProvider) -> None:
    provider.rule("corrected", Answer(json={"n": "x"}), Answer(json={"n": 2}))
    batching.workers(2)
    batching.beat()
    batching.beat()
    jobs = [batching.submit(f"question {number}", params=MODEL, lane="batch") for number in range(20)]
    params = {"prompt": "corrected", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, **MODEL}
    jobs.append(batching.send("", params=params, lane="batch"))
    batching.wait_closed(*jobs)
    assert all(batching.result(job)["success"] for job in jobs)
    assert batching.result(jobs[-1])["attempts"] == 2
    assert lanes(batching) == [("batch",)]
    assert not [request for request in provider.requests if request.path == AT_ONCE]
    eventually(lambda: not batching.rows("SELECT 1 FROM batch_requests"), "nothing is kept of what is done")
    asked = [custom_id for batch in provider.batches.made for custom_id, _ in batch.lines]
    assert len(asked) == len(set(asked)) == 22
    assert_proven(batching.database_url, jobs)


def test_a_worker_killed_around_a_batch_sends_it_once(
    batching: Cluster, provider: FakeProvider, tmp_path: Path
) -> None:
    points = ("after_park", "before_batch", "after_batch", "after_answers")
    environment = {"VANCETOPE_FAULT": ",".join(f"{point}:kill:{tmp_path / point}" for point in points)}
    batching.beat()
    worker = batching.worker(environment=environment)
    jobs = []
    for point in points:
        (tmp_path / point).touch()
        jobs.append(batching.submit(f"killed {point}", params=MODEL, lane="batch"))
        eventually(lambda doomed=worker: not doomed.running, f"the worker dies {point}")
        worker = batching.worker(environment=environment)
        visit_now(batching)
        batching.wait_closed(jobs[-1])
    assert [path for path in points if (tmp_path / path).exists()] == []
    assert len(provider.batches.made) == len(jobs)
    assert not [request for request in provider.requests if request.path == AT_ONCE]
    assert batching.rows("SELECT lane, count(*) FROM llm_calls GROUP BY lane") == [("batch", len(jobs))]
    assert_proven(batching.database_url, jobs)


def test_at_the_deadline_of_the_lane_a_job_waits_no_longer(batching: Cluster, provider: FakeProvider) -> None:
    provider.batches.hold()
    batching.worker()
    batching.beat()
    job = batching.submit("slow", params=MODEL, lane="batch")
    eventually(lambda: batching.rows("SELECT 1 FROM batches WHERE state = 'SUBMITTED'"), "the batch is sent")
    # A day passes.
    batching.rows("UPDATE processes SET batch_until = now() RETURNING id")
    batching.rows("UPDATE nodes SET due_at = now(), next_hint_at = now() WHERE status = 'WAITING' RETURNING id")
    batching.wait_closed(job)
    assert batching.result(job)["success"] is True
    assert lanes(batching) == [("normal",)]
    # Nobody waits for it any more.
    eventually(lambda: provider.batches.made[0].cancelled, "the batch is cancelled")
    eventually(lambda: batching.rows("SELECT 1 FROM batches WHERE outcome = 'cancelled'"), "and over")
    assert_proven(batching.database_url, [job])
