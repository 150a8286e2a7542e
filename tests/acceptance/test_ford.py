"""Ford on real workers: a provider on the wire that calls tools, one slot, and a worker killed in the middle."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from cluster import Cluster
from fakes.provider import FakeProvider, Recorded
from fakes.wire_formats import Answer

from models.store import documents, processes
from tasks.submission import parse_submission, prepare

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
WRITE = Answer(
    tool_calls=[
        ("doc_write", {"path": "notes/a.md", "content": "written"}),
        ("structured_query", {"prompt": "what is n?", "schema": SCHEMA}),
    ]
)


def submit(cluster: Cluster, goal: str) -> UUID:
    payload = {"recipe": "ford", "goal": goal, "params": {"model": "compatible:fake-model"}}
    process = prepare(parse_submission(payload), cluster.settings, cluster.runtime.engines)
    cluster.runtime.publisher.publish(processes.submit(cluster.runtime.database, [process]))
    return process.id


def answered(request: Recorded) -> bool:
    return any(message["role"] == "tool" for message in request.body["messages"])


def asks_ford(request: Recorded) -> bool:
    return "Nobody can be asked back" in json.dumps(request.body) and not answered(request)


def teach(provider: FakeProvider, *last: Answer) -> None:
    provider.rule(answered, *last)
    provider.rule(asks_ford, WRITE)


def check(cluster: Cluster, job: UUID) -> None:
    expected: dict[str, Any] = {
        "success": True, "result": "It is done.", "roundTrips": 1, "documents": ["notes/a.md"],
    }  # fmt: skip
    assert cluster.result(job) == expected
    found = documents.get(cluster.runtime.database, "default", "default", "notes/a.md")
    assert found is not None
    assert (found.version, found.content) == (1, "written")


def test_one_slot_does_the_question_its_tools_and_its_query(cluster: Cluster, provider: FakeProvider) -> None:
    teach(provider, Answer(text="It is done."))
    cluster.worker(concurrency=1)
    cluster.beat()
    job = submit(cluster, "What is n?")
    cluster.wait_closed(job)
    check(cluster, job)
    assert len(provider.requests) == 3
    last = provider.requests[-1].body["messages"]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "tool", "tool"]
    assert "notes/a.md is written" in last[-2]["content"]
    assert '{"n": 1}' in last[-1]["content"]


def test_a_killed_worker_costs_one_call_and_nothing_is_written_twice(cluster: Cluster, provider: FakeProvider) -> None:
    teach(provider, Answer(hang=True), Answer(text="It is done."))
    first = cluster.worker(concurrency=1)
    cluster.beat()
    job = submit(cluster, "What is n?")
    provider.wait_for(lambda requests: any(answered(request) for request in requests), timeout=60)
    first.kill9()
    cluster.worker(concurrency=1)
    cluster.wait_closed(job)
    check(cluster, job)
    assert len(provider.requests) == 4
