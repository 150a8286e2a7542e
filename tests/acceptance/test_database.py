"""PostgreSQL restarts in the middle, and no connection is held while a model thinks (cases D3, D4, D5)."""

from __future__ import annotations

import threading

import psycopg
import pytest
from cluster import Cluster, MakeCluster
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from processes import eventually
from proof import assert_proven
from services import with_database

from tasks.dev.postgres import Postgres


def test_no_connection_and_no_transaction_is_held_during_a_call(
    make_cluster: MakeCluster, provider: FakeProvider
) -> None:
    # One connection for four turns at once: had a call kept it, the other three could not have been claimed.
    cluster = make_cluster(database_pool_size=1)
    calls = [threading.Event() for _ in range(4)]
    provider.enqueue(*(Answer(json={"n": 1}, hold=event) for event in calls))
    cluster.worker(concurrency=6)
    cluster.beat()
    jobs = [cluster.submit(f"job {number}") for number in range(4)]
    provider.wait_for(lambda requests: len(requests) == 4, timeout=30)
    states: list[str] = []
    before = cluster.rows("SELECT min(lease_expires_at) FROM nodes")[0][0]
    # For the length of a whole lease, so that heartbeats and sweeps are among what is looked at.
    while cluster.rows("SELECT min(lease_expires_at) > %s + interval '3 seconds' FROM nodes", before) == [(False,)]:
        states += [
            state
            for (state,) in cluster.rows(
                "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND application_name LIKE 'vancetope%%'"
            )
        ]
    for event in calls:
        event.set()
    cluster.wait_closed(*jobs)
    assert_proven(cluster.database_url, jobs)
    assert set(states) <= {"idle", "active"}
    assert states.count("idle") > len(states) * 0.5
    assert len(provider.requests) == 4


def test_the_database_restarts_under_fifty_jobs(
    make_cluster: MakeCluster, own_postgres: Postgres, provider: FakeProvider
) -> None:
    cluster = make_cluster(database_url=own_postgres.dsn, lease_seconds=6)
    cluster.workers(2, concurrency=4)
    cluster.beat()
    jobs = [cluster.submit(f"job {number}") for number in range(50)]
    restarts = 5
    for number in range(restarts):
        held = threading.Event()
        provider.enqueue(Answer(json={"n": 1}, hold=held))
        # One job more each time, under way while the server goes down and comes back.
        seen = len(provider.requests)
        jobs.append(cluster.submit(f"under way {number}"))
        provider.wait_for(lambda requests, seen=seen: len(requests) > seen, timeout=30)  # type: ignore[misc]
        own_postgres.restart(immediate=True)
        cluster.runtime.database.dispose()
        held.set()
    cluster.wait_closed(*jobs)
    assert_proven(cluster.database_url, jobs)
    assert {str(cluster.result(job)["data"]) for job in jobs} == {"{'n': 1}"}
    # A reply that was paid for waits for the server; only a claim that the crash has undone costs a call again.
    assert len(provider.requests) <= len(jobs) + restarts * 8


def test_the_database_restarts_in_the_middle_of_a_sweep(
    make_cluster: MakeCluster, own_postgres: Postgres, provider: FakeProvider
) -> None:
    cluster = make_cluster(database_url=own_postgres.dsn)
    worker = cluster.worker()
    jobs = [cluster.store(f"job {number}")[0] for number in range(10)]
    blocker = psycopg.connect(cluster.database_url)
    blocker.execute("LOCK TABLE nodes IN ACCESS EXCLUSIVE MODE")
    cluster.beat()
    # From another database, for a new session reads nothing of the locked one.
    eventually(lambda: _waiting(own_postgres), "a sweep waits for the table")
    own_postgres.restart(immediate=True)
    with pytest.raises(psycopg.OperationalError):
        blocker.execute("SELECT 1")
    blocker.close()
    cluster.runtime.database.dispose()
    cluster.wait_closed(*jobs)
    assert_proven(cluster.database_url, jobs)
    assert len(provider.requests) == 10
    assert worker.said("sweep interrupted")


def _waiting(server: Postgres) -> int:
    with psycopg.connect(with_database(server.dsn, "postgres"), autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%expired%'"
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def test_more_turns_than_connections_wait_and_none_fails(make_cluster: MakeCluster, provider: FakeProvider) -> None:
    cluster: Cluster = make_cluster(database_pool_size=1)
    cluster.worker(concurrency=8)
    jobs = [cluster.submit(f"job {number}") for number in range(40)]
    cluster.wait_closed(*jobs)
    assert_proven(cluster.database_url, jobs)
    assert len(provider.requests) == 40
