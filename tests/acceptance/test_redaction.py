"""Prompts and keys are in the database and at the provider, and nowhere else (case C18)."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from celery.events import EventReceiver
from cluster import Cluster, MakeCluster
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from processes import eventually
from proof import assert_proven

PROMPT = "SECRET-123"
KEY = "sk-test-abcdef"


@contextmanager
def events_of(cluster: Cluster) -> Iterator[list[dict[str, Any]]]:
    """Every Celery event while the block runs: what Flower and other monitors get to see."""
    seen: list[dict[str, Any]] = []
    with cluster.app.connection_for_read() as connection:
        receiver = EventReceiver(connection, handlers={"*": seen.append}, app=cluster.app)
        thread = threading.Thread(target=lambda: receiver.capture(limit=None, wakeup=False), name="events", daemon=True)
        thread.start()
        yield seen
        receiver.should_stop = True
        thread.join(10)


def everything_in(client: redis.Redis) -> str:
    """All keys and values, message bodies decoded."""
    found: list[str] = []
    for key in client.scan_iter():
        kind = client.type(key)
        read: dict[bytes, Any] = {
            b"string": lambda key: [client.get(key)],
            b"list": lambda key: client.lrange(key, 0, -1),
            b"hash": lambda key: [part for pair in client.hgetall(key).items() for part in pair],
            b"set": client.smembers,
            b"zset": lambda key: client.zrange(key, 0, -1),
        }
        for value in [key, *read[kind](key)]:
            text = (value or b"").decode("utf-8", "replace")
            found.append(text)
            try:
                body = json.loads(text).get("body")
                found.append(base64.b64decode(body).decode("utf-8", "replace"))
            except (ValueError, AttributeError, TypeError):
                continue
    return "\n".join(found)


@pytest.mark.parametrize("failure", ["auth", "crash"])
def test_no_prompt_and_no_key_shows_outside(failure: str, make_cluster: MakeCluster, provider: FakeProvider) -> None:
    cluster = make_cluster(llm_api_key=KEY, log_level="DEBUG")
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error"}}
    if failure == "auth":
        provider.enqueue(Answer(status=401, body=echo))
    else:
        provider.enqueue(Answer(status=500, body=echo), Answer(json={"n": 1}))
    worker = cluster.worker(events=True)
    cluster.beat()
    with events_of(cluster) as events:
        job = cluster.send(f"the number of {PROMPT}?")
        cluster.wait_closed(job)
        eventually(lambda: any(event["type"] == "task-succeeded" for event in events), "events arrive")
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert PROMPT in provider.requests[0].text
    wrapper = json.dumps(cluster.result(job))
    assert json.loads(wrapper)["success"] is (failure == "crash")
    with redis.Redis.from_url(cluster.redis_url) as client:
        places = {"events": json.dumps(events), "Redis": everything_in(client), "the result": wrapper}
    places |= {member.name: "\n".join(member.lines) for member in cluster.members}
    history = cluster.rows("SELECT coalesce(string_agg(output::text, ' '), '') FROM phase_records")
    places["the audit trail"] = history[0][0]
    for place, text in places.items():
        assert KEY not in text, place
        assert PROMPT not in text, place
    assert str(job) in places["events"]
    assert worker.said("turn done")
    assert_proven(cluster.database_url, [job])
