"""Prompts and keys are in the database and at the provider, and nowhere else (case C18)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
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
    places = {"events": json.dumps(events), "Redis": cluster.everything_in_redis(), "the result": wrapper}
    places |= {member.name: "\n".join(member.lines) for member in cluster.members}
    history = cluster.rows("SELECT coalesce(string_agg(output::text, ' '), '') FROM phase_records")
    places["the audit trail"] = history[0][0]
    for place, text in places.items():
        assert KEY not in text, place
        assert PROMPT not in text, place
    assert str(job) in places["events"]
    assert worker.said("turn done")
    assert_proven(cluster.database_url, [job])
