"""Rubbish on the queues is set aside and the worker lives; what was accepted beside it is done all the same."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from cluster import SCHEMA, SUBMIT, Cluster
from fakes.provider import FakeProvider
from processes import eventually
from proof import assert_proven

from tasks.publish import CONTROL_QUEUE

TURNS = "vancetope.jeltz"
TURN = "vancetope.jeltz.turn"


def envelope(*, body: bytes, task: str = TURN, **changes: Any) -> bytes:
    """A message as Celery's Redis transport stores it."""
    properties = {
        "correlation_id": "5e3a1b1e-0000-4000-8000-000000000001",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": TURNS},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": "5e3a1b1e-0000-4000-8000-000000000002",
    }
    message = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": task, "id": "5e3a1b1e-0000-4000-8000-000000000001", "root_id": None},
        "properties": properties,
    }
    return json.dumps({**message, **changes}).encode()


def push(cluster: Cluster, raw: bytes, queue: str = TURNS) -> None:
    with redis.Redis.from_url(cluster.redis_url) as client:
        client.lpush(queue, raw)


def send(cluster: Cluster, *args: object, task: str = TURN, queue: str = TURNS, **options: Any) -> None:
    cluster.app.send_task(task, args=args, queue=queue, **options)


ARGUMENTS = json.dumps([[1, 1], {}, {}]).encode()

RUBBISH: dict[str, Callable[[Cluster], None]] = {
    "arguments of the wrong type": lambda cluster: send(cluster, "x", None),
    "too few arguments": lambda cluster: send(cluster, 1),
    "too many arguments": lambda cluster: send(cluster, 1, 2, 3),
    "a body that is no JSON": lambda cluster: push(cluster, envelope(body=b"%%% no JSON")),
    "a body of another form": lambda cluster: push(cluster, envelope(body=b'{"n": 1}')),
    "pickled arguments": lambda cluster: push(
        cluster, envelope(body=b"cos\nsystem\n(S'true'\ntR.", **{"content-type": "application/x-python-serialize"})
    ),
    "a task that does not exist": lambda cluster: send(cluster, 1, 1, task="vancetope.nothing"),
    "a submission without a UUID": lambda cluster: send(
        cluster, {"recipe": "jeltz"}, task=SUBMIT, queue=CONTROL_QUEUE, task_id="not-a-uuid"
    ),
    "an envelope that is no JSON": lambda cluster: push(cluster, b"no JSON at all"),
    "an envelope without its parts": lambda cluster: push(cluster, b'{"body": "e30="}'),
}


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_rubbish_is_set_aside_and_the_worker_lives(pool: str, cluster: Cluster, provider: FakeProvider) -> None:
    worker = cluster.worker(pool=pool, concurrency=2)
    # Unknown nodes and turns long past are no rubbish: such hints are normal, and ignored.
    send(cluster, 999_999_999, 1)
    send(cluster, 2**70, 1)
    send(cluster, 1, -5)
    seen = 0
    jobs = []
    for what, drop in RUBBISH.items():
        drop(cluster)
        eventually(lambda seen=seen: letters(cluster) > seen, f"set aside: {what}")  # type: ignore[misc]
        seen = letters(cluster)
        # Celery may start its consumer again after it, but the process goes on, and so does the work.
        jobs.append(cluster.submit("good work"))
        cluster.wait_closed(*jobs)
        assert worker.running, what
    assert letters(cluster) == len(RUBBISH)
    assert_proven(cluster.database_url, jobs)
    assert len(provider.requests) == len(jobs)


def letters(cluster: Cluster) -> int:
    return int(cluster.rows("SELECT count(*) FROM dead_letters")[0][0])


def test_a_submission_that_cannot_run_is_answered(cluster: Cluster, provider: FakeProvider) -> None:
    cluster.worker()
    refused = {
        "unknown recipe": {"recipe": "jelz", "params": {}},
        "unknown field": {"recipe": "jeltz", "parms": {}},
        "no recipe": {},
    }
    for payload in refused.values():
        result = cluster.app.send_task(SUBMIT, kwargs=payload, queue=CONTROL_QUEUE, task_id=cluster.new_id())
        wrapper = result.get(timeout=60)
        assert (wrapper["success"], wrapper["error"]) == (False, "invalid_params")
    good = cluster.send("good work", params={"prompt": "good work", "schema": SCHEMA})
    cluster.wait_closed(good)
    assert len(provider.requests) == 1
