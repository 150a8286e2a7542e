"""The thin client against real workers: what another application sees of this backend."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis
from celery import Celery
from cluster import SCHEMA, Cluster, MakeCluster
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from kombu import Queue
from processes import eventually

CLIENT = Path(__file__).resolve().parents[2] / "tasks" / "client"
TIMEOUT = 60.0


@pytest.fixture
def vancetope(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The client package, as an application that installed it would import it."""
    monkeypatch.syspath_prepend(str(CLIENT))
    return importlib.import_module("vancetope_client")


@pytest.fixture
def client(vancetope: Any, redis_url: str) -> Iterator[Any]:
    with vancetope.Client(redis_url, tenant="acme") as made:
        yield made


def size_of_results(redis_url: str) -> list[int]:
    """Bytes of each result key; every one of them has to expire."""
    with redis.Redis.from_url(redis_url) as server:
        keys = list(server.scan_iter("celery-task-meta-*"))
        assert all(server.ttl(key) > 0 for key in keys)
        return [server.strlen(key) for key in keys]


def test_a_job_from_submission_to_result(cluster: Cluster, client: Any, redis_url: str) -> None:
    cluster.worker()
    job = client.jeltz("how many?", SCHEMA, max_attempts=2, goal="counting")
    wrapper = job.result(TIMEOUT)
    assert wrapper["success"] is True
    assert wrapper["data"] == {"n": 1}
    # Again, later, from the id alone.
    assert client.job(job.id).result(TIMEOUT) == wrapper
    status = job.status()
    assert (status["status"], status["close_reason"], status["tenant"]) == ("CLOSED", "DONE", "acme")
    # The status answer is gone; the wrapper is kept for whoever asks next.
    assert len(size_of_results(redis_url)) == 1


def test_the_same_id_twice_is_one_job(cluster: Cluster, client: Any, provider: FakeProvider) -> None:
    cluster.worker()
    first = client.jeltz("one", SCHEMA)
    first.result(TIMEOUT)
    second = client.jeltz("two", SCHEMA, id=first.id)
    assert second.result(TIMEOUT) == first.result(TIMEOUT)
    assert len(provider.requests) == 1


def test_what_only_the_backend_can_judge_comes_as_a_result(cluster: Cluster, client: Any) -> None:
    cluster.worker()
    wrapper = client.submit("jelzt", params={"prompt": "x"}).result(TIMEOUT)
    assert wrapper["success"] is False
    assert wrapper["error"] == "invalid_params"
    assert "did you mean 'jeltz'" in wrapper["message"]


def test_time_is_up_and_the_job_goes_on(cluster: Cluster, vancetope: Any, client: Any, provider: FakeProvider) -> None:
    hold = threading.Event()
    provider.enqueue(Answer(json={"n": 5}, hold=hold))
    cluster.worker()
    job = client.jeltz("slow", SCHEMA)
    with pytest.raises(vancetope.JobTimeout, match="it goes on"):
        job.result(0.2)
    hold.set()
    assert job.result(TIMEOUT)["data"] == {"n": 5}


def test_nobody_answers(cluster: Cluster, vancetope: Any, client: Any) -> None:
    job = client.jeltz("x", SCHEMA)
    with pytest.raises(vancetope.NoAnswer, match="no worker answered"):
        job.status(timeout=0.2)


def test_stop_reaches_a_running_call(cluster: Cluster, client: Any, provider: FakeProvider) -> None:
    provider.enqueue(Answer(hang=True))
    cluster.worker()
    job = client.jeltz("hang", SCHEMA)
    provider.wait_for(lambda requests: any(each.waiting for each in requests), TIMEOUT)
    assert job.stop(timeout=TIMEOUT) == [job.id]
    assert job.result(TIMEOUT)["error"] == "stopped"
    assert job.stop(timeout=TIMEOUT) == []
    provider.wait_for(lambda requests: requests[0].disconnected, TIMEOUT)


def test_suspend_now_and_resume(cluster: Cluster, client: Any, provider: FakeProvider) -> None:
    provider.enqueue(Answer(hang=True))
    cluster.worker()
    job = client.jeltz("hang", SCHEMA)
    provider.wait_for(lambda requests: any(each.waiting for each in requests), TIMEOUT)
    assert job.suspend(now=True, timeout=TIMEOUT) is True
    assert job.suspend(timeout=TIMEOUT) is False
    provider.wait_for(lambda requests: requests[0].disconnected, TIMEOUT)
    assert job.status(timeout=TIMEOUT)["status"] == "SUSPENDED"
    assert job.resume(timeout=TIMEOUT) is True
    assert job.result(TIMEOUT)["success"] is True


def test_an_oversize_result_comes_in_pieces(
    make_cluster: MakeCluster, client: Any, provider: FakeProvider, redis_url: str
) -> None:
    text = "Ünïcode €😀 and\nlines " * 8_000
    provider.enqueue(Answer(json={"text": text}))
    cluster = make_cluster(max_result_message_bytes=4096)
    cluster.worker()
    job = client.jeltz("long", {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
    wrapper = job.result(TIMEOUT)
    assert wrapper["data"] == {"text": text}
    # Case C11: no key beyond 100 KB, all with an end.
    assert max(size_of_results(redis_url)) < 100_000


def test_a_result_survives_the_loss_of_everything_in_redis(cluster: Cluster, client: Any, redis_url: str) -> None:
    cluster.worker()
    job = client.jeltz("x", SCHEMA)
    wrapper = job.result(TIMEOUT)
    with redis.Redis.from_url(redis_url) as server:
        server.flushdb()
    assert client.job(job.id).result(TIMEOUT) == wrapper


def test_a_submission_lost_with_redis_is_sent_again(cluster: Cluster, client: Any, redis_url: str) -> None:
    job = client.jeltz("x", SCHEMA)
    with redis.Redis.from_url(redis_url) as server:
        server.flushdb()
    cluster.worker()
    assert job.result(TIMEOUT)["success"] is True


@pytest.mark.parametrize("queue", [None, "app.inbox"])
def test_the_callback_is_called_with_id_and_wrapper(
    cluster: Cluster, client: Any, redis_url: str, queue: str | None
) -> None:
    cluster.worker()
    job = client.jeltz("x", SCHEMA, callback="app.done" if queue is None else ("app.done", queue))
    wrapper = job.result(TIMEOUT)
    app = Celery("app", broker=redis_url, set_as_current=False)
    with app.connection_for_read() as connection:
        inbox = connection.SimpleQueue(Queue(queue or "celery"))
        message = inbox.get(timeout=TIMEOUT)
        message.ack()
        inbox.close()
    app.close()
    args, _, _ = message.payload
    assert message.headers["task"] == "app.done"
    assert args == [job.id, wrapper]
    assert json.dumps(wrapper) not in message.headers["argsrepr"]


def test_high_priority_goes_first(cluster: Cluster, client: Any, provider: FakeProvider) -> None:
    """Case C16. One busy worker; what waits behind it is taken up in the order of its priority."""
    hold = threading.Event()
    provider.enqueue(Answer(json={"n": 1}, hold=hold))
    cluster.worker(concurrency=1, queues="vancetope.jeltz")
    cluster.worker(concurrency=1, queues="vancetope.control")
    jobs = [client.jeltz("mark-busy", SCHEMA)]
    provider.wait_for(lambda requests: any(each.waiting for each in requests), TIMEOUT)
    # The consumer has already taken one more from the queue: this one goes first whatever its priority.
    jobs.append(client.jeltz("mark-taken", SCHEMA, priority="low"))
    eventually(lambda: cluster.status(UUID(jobs[-1].id)), "stored")
    for priority in ("low", "normal", "high"):
        jobs.append(client.jeltz(f"mark-{priority}", SCHEMA, priority=priority))
    eventually(lambda: all(cluster.status(UUID(job.id)) for job in jobs), "all stored")
    hold.set()
    for job in jobs:
        job.result(TIMEOUT)
    order = [word for each in provider.requests for word in ("high", "normal", "low") if f"mark-{word}" in each.text]
    assert order == ["high", "normal", "low"]


@pytest.mark.parametrize("priority", [None, 6])
def test_a_plain_celery_app_needs_no_client(cluster: Cluster, redis_url: str, priority: int | None) -> None:
    """The second documented way: task name and payload, and the result under the process id.

    An application's own message priority picks another Redis list; workers have to read that one too.
    """
    cluster.worker()
    app = Celery("plain", broker=redis_url, backend=redis_url, set_as_current=False)
    process_id = cluster.new_id()
    payload = {"recipe": "jeltz", "params": {"prompt": "x", "schema": SCHEMA}}
    answer = app.send_task(
        "vancetope.submit", kwargs=payload, task_id=process_id, queue="vancetope.control", priority=priority
    )
    assert answer.get(timeout=TIMEOUT)["data"] == {"n": 1}
    app.backend.result_consumer.stop()
    app.backend.client.close()
    app.close()


def test_a_prompt_shows_in_no_message_header(client: Any, redis_url: str) -> None:
    """Case C18, this side: what goes out describes itself without its arguments."""
    client.jeltz("SECRET-123", SCHEMA)
    with redis.Redis.from_url(redis_url) as server:
        (raw,) = server.lrange("vancetope.control", 0, -1)
    headers = json.loads(raw)["headers"]
    assert "SECRET-123" not in json.dumps(headers)
    assert "jeltz" in headers["kwargsrepr"]
