"""Redis restarts, forgets everything, is slow or gets rubbish: messages are hints, the rows are the truth (group C)."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest
import redis
from cluster import Cluster, MakeCluster
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from processes import eventually
from proof import assert_proven

from models.records import Turn
from models.store import processes as store
from models.store.clean import Cleaner
from tasks.dev.redis import Redis
from tasks.publish import CONTROL_QUEUE
from tasks.submission import parse_submission, prepare

QUEUE = "vancetope.jeltz"


def turn_messages(client: redis.Redis) -> int:
    """Turn messages lying on the broker, of any priority."""
    return sum(int(client.llen(key)) for key in client.keys(f"{QUEUE}*") if client.type(key) == b"list")


def test_consumption_goes_on_after_a_restart_of_redis_and_after_killed_connections(
    make_cluster: MakeCluster, own_redis: Redis, provider: FakeProvider
) -> None:
    cluster = make_cluster(redis_url=own_redis.url)
    cluster.workers(2)
    cluster.beat()
    jobs = [cluster.submit("before")]
    cluster.wait_closed(*jobs)
    for disturbance in ("restart", "kill"):
        running = threading.Event()
        provider.enqueue(Answer(json={"n": 3}, hold=running))
        jobs.append(cluster.submit("during"))
        expected = len(provider.requests) + 1
        provider.wait_for(lambda requests, expected=expected: len(requests) == expected, timeout=30)  # type: ignore[misc]
        if disturbance == "restart":
            own_redis.restart()
        else:
            with redis.Redis.from_url(own_redis.url) as client:
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        running.set()
        jobs.append(cluster.submit("after"))
        cluster.wait_closed(*jobs)
    assert_proven(cluster.database_url, jobs)
    assert len(provider.requests) == len(jobs)
    assert all(member.running for member in cluster.members)


def test_a_flush_of_redis_with_twenty_jobs_under_way_loses_none(cluster: Cluster, provider: FakeProvider) -> None:
    go_on = threading.Event()
    provider.enqueue(*(Answer(json={"n": 1}, hold=go_on) for _ in range(4)))
    cluster.workers(2)
    cluster.beat()
    jobs = [cluster.submit(f"job {number}") for number in range(20)]
    provider.wait_for(lambda requests: len(requests) == 4, timeout=30)
    with redis.Redis.from_url(cluster.redis_url) as client:
        client.flushall()
    go_on.set()
    cluster.wait_closed(*jobs)
    assert_proven(cluster.database_url, jobs)
    assert len(provider.requests) == 20


def test_short_jobs_do_not_wait_behind_a_long_one(cluster: Cluster, provider: FakeProvider) -> None:
    long = threading.Event()
    provider.rule("long", Answer(json={"n": 1}, hold=long))
    cluster.workers(2, concurrency=1)
    cluster.beat()
    first = cluster.submit("the long one")
    provider.wait_for(lambda requests: len(requests) == 1, timeout=30)
    short = [cluster.submit(f"short {number}") for number in range(5)]
    # Whatever the busy worker may have put aside for itself: the long call is still running when the five are done.
    cluster.wait_closed(*short)
    assert cluster.status(first) == "RUNNING"
    long.set()
    cluster.wait_closed(first)
    assert_proven(cluster.database_url, [first, *short])
    assert len(provider.requests) == 6


def test_overlapping_sweeps_publish_each_lost_turn_once(cluster: Cluster) -> None:
    # Only the control queue is served: turn messages stay where they can be counted.
    workers = cluster.workers(2, concurrency=4, queues=CONTROL_QUEUE)
    jobs = [cluster.store(f"job {number}")[0] for number in range(300)]
    with psycopg.connect(cluster.database_url, autocommit=True) as connection:
        # Due for a hint now, and after that not for minutes, however slow this machine is.
        connection.execute("UPDATE nodes SET next_hint_at = now(), hints = 7")
    cluster.beat()
    cluster.beat()
    for _ in range(20):
        cluster.app.send_task("vancetope.sweep", queue=CONTROL_QUEUE)
    with redis.Redis.from_url(cluster.redis_url) as client:
        eventually(lambda: turn_messages(client) >= len(jobs), "every turn is published")
        # Twenty sweeps more, side by side: they find nothing.
        for _ in range(20):
            cluster.app.send_task("vancetope.sweep", queue=CONTROL_QUEUE)
        marker = cluster.app.send_task("vancetope.status", args=[str(jobs[0])], queue=CONTROL_QUEUE, priority=9)
        assert marker.get(timeout=60)["status"] == "INIT"
        eventually(lambda: client.llen(CONTROL_QUEUE) == 0, "all sweeps are taken")
        assert turn_messages(client) == len(jobs)
    assert cluster.rows("SELECT hints, count(*) FROM nodes GROUP BY hints") == [(8, 300)]
    assert sum(worker.said('"swept"') for worker in workers) >= 1


def test_a_warm_shutdown_ends_what_runs_and_leaves_the_rest_to_the_next_worker(
    cluster: Cluster, provider: FakeProvider
) -> None:
    running = threading.Event()
    provider.enqueue(Answer(json={"n": 7}, hold=running))
    first = cluster.worker(concurrency=1)
    jobs = [cluster.submit(f"job {number}") for number in range(11)]
    provider.wait_for(lambda requests: len(requests) == 1, timeout=30)
    first.ask_to_end()
    eventually(lambda: first.said("Warm shutdown"), "the worker has heard it")
    running.set()
    eventually(lambda: not first.running, "the worker ends")
    assert first.returncode == 0
    # It committed what it ran, and took nothing else. (Celery may have started one that it had in hand.)
    closed = [job for job in jobs if cluster.status(job) == "CLOSED"]
    assert closed
    assert len(provider.requests) == len(closed)
    assert cluster.rows("SELECT count(*) FROM nodes WHERE lease_owner IS NOT NULL") == [(0,)]
    cluster.worker(concurrency=1)
    cluster.beat()
    cluster.wait_closed(*jobs)
    assert_proven(cluster.database_url, jobs)
    assert len(provider.requests) == 11


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_hint_that_comes_before_the_commit_starts_nothing_and_loses_nothing(
    end: str, cluster: Cluster, provider: FakeProvider
) -> None:
    cluster.worker(concurrency=1)
    cluster.beat()
    payload = {"recipe": "jeltz", "params": {"prompt": "too early", "schema": {"type": "object"}}}
    process = prepare(parse_submission(payload), cluster.settings, cluster.runtime.engines)
    with psycopg.connect(cluster.database_url) as connection:
        parameters = {"processes": Cleaner().json([store._row(process)]), "grace": store.HINT_GRACE_SECONDS}
        row = connection.execute(store._SUBMIT, parameters).fetchone()
        assert row is not None
        cluster.runtime.publisher.publish([Turn(node_id=row[0], turn=row[1], engine="jeltz", priority=3)])
        # One slot, one queue: when the later one is done, the early hint has come and gone.
        later = cluster.submit("the later one")
        cluster.wait_closed(later)
        assert len(provider.requests) == 1
        if end == "rollback":
            connection.rollback()
    if end == "commit":
        cluster.wait_closed(process.id)
        assert_proven(cluster.database_url, [process.id, later])
        assert len(provider.requests) == 2
    else:
        last = cluster.submit("the last one")
        cluster.wait_closed(last)
        assert cluster.rows("SELECT id FROM processes WHERE id = %s", process.id) == []
        assert len(provider.requests) == 2


@pytest.mark.parametrize(("pool", "concurrency"), [("threads", 4), ("prefork", 2), ("solo", 1)])
def test_every_pool_runs_twenty_jobs(
    pool: str, concurrency: int, cluster: Cluster, provider: FakeProvider, tmp_path: Path
) -> None:
    cluster.worker(pool=pool, concurrency=concurrency)
    jobs = [cluster.submit(f"job {number}") for number in range(20)]
    cluster.wait_closed(*jobs)
    assert_proven(cluster.database_url, jobs)
    assert {str(cluster.result(job)["data"]) for job in jobs} == {"{'n': 1}"}
    assert len(provider.requests) == 20
