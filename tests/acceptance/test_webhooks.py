"""Webhooks of real workers: beat asks, a worker sends, the receiver verifies; and a worker dies between the two."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, MakeCluster
from fakes.receiver import NETWORKS, Answer, Receiver, Request
from hooks import endpoint
from processes import eventually

CLIENT = Path(__file__).resolve().parents[2] / "tasks" / "client"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(CLIENT))
    return importlib.import_module("vancetope_client").verify_webhook


@pytest.fixture
def telling(make_cluster: MakeCluster) -> Cluster:
    """A cluster whose webhooks may go to this machine."""
    return make_cluster(webhook_networks=NETWORKS)


def states(cluster: Cluster) -> list[tuple[Any, ...]]:
    return cluster.rows("SELECT state, attempts FROM webhook_deliveries ORDER BY id")


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_the_close_of_a_submitted_job_arrives_signed(
    telling: Cluster, receiver: Receiver, verify: Any, pool: str
) -> None:
    _, secret = endpoint(telling.runtime.database, receiver.url)
    worker = telling.worker(pool=pool)
    telling.beat()
    job = telling.send("how many?", owner="ann")
    telling.wait_closed(job)
    eventually(lambda: receiver.requests, "the receiver is told")
    eventually(lambda: states(telling) == [("DELIVERED", 1)], "marked")
    (request,) = receiver.requests
    event = verify(secret, request.headers, request.body)
    assert (event["type"], event["id"]) == ("process.closed", request.id)
    data = event["data"]
    assert (data["processId"], data["closeReason"], data["owner"], data["recipe"]) == (str(job), "DONE", "ann", "jeltz")
    assert data["result"] == telling.result(job)
    # Neither the secret nor what was sent is in a log.
    assert not any("whsec_" in line or request.id in line for line in worker.lines)


def test_a_worker_killed_between_sending_and_marking_has_sent_and_it_is_sent_again(
    telling: Cluster, receiver: Receiver, tmp_path: Path
) -> None:
    endpoint(telling.runtime.database, receiver.url)
    token = tmp_path / "once"
    token.touch()
    worker = telling.worker(environment={"VANCETOPE_FAULT": f"after_webhook:kill:{token}"})
    telling.beat()
    telling.wait_closed(telling.submit("how many?"))
    eventually(lambda: not worker.running, "killed after it has sent")
    assert (len(receiver.requests), states(telling)) == (1, [("PENDING", 1)])
    telling.rows("UPDATE webhook_deliveries SET lease_expires_at = now(), due_at = now() RETURNING id")
    telling.worker()
    eventually(lambda: states(telling) == [("DELIVERED", 2)], "sent again and marked")
    first, second = receiver.requests
    assert (first.id, first.body) == (second.id, second.body)


def test_a_worker_that_is_told_to_end_does_not_wait_for_a_receiver_that_hangs(telling: Cluster) -> None:
    hang = threading.Event()

    def answer(_: Request) -> Answer:
        hang.wait(60)
        return (200, {}, b"")

    with Receiver(answer) as hanging:
        endpoint(telling.runtime.database, hanging.url)
        worker = telling.worker()
        telling.beat()
        telling.wait_closed(telling.submit("how many?"))
        eventually(lambda: hanging.requests, "the receiver has it and says nothing")
        worker.ask_to_end()
        eventually(lambda: not worker.running, "the worker has ended", timeout=30)
        assert states(telling) == [("PENDING", 1)]
        hang.set()
