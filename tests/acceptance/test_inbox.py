"""A plan asks a person; another application answers through the client: real workers, real broker."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cluster import Cluster
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from processes import eventually
from proof import assert_proven

CLIENT = Path(__file__).resolve().parents[2] / "tasks" / "client"
TIMEOUT = 60.0
ANSWERS: tuple[dict[str, Any], ...] = (
    {"action": "NEEDS_USER_INPUT", "reason": "theirs", "userInput": {
        "type": "DECISION", "title": "Which city?", "payload": {"options": ["Graz", "Linz"]}}},
    {"action": "PROCEED_TO_CONCLUDE", "reason": "answered"},
    {"result": "To Linz.", "reason": "written"},
    {"verdict": "PASS", "issues": [], "reason": "good"},
)  # fmt: skip


@pytest.fixture
def vancetope(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(CLIENT))
    return importlib.import_module("vancetope_client")


def test_a_question_is_answered_through_the_client(
    cluster: Cluster, provider: FakeProvider, vancetope: Any, redis_url: str
) -> None:
    provider.enqueue(*(Answer(json=each) for each in ANSWERS))
    worker = cluster.worker()
    with vancetope.Client(redis_url, tenant="acme") as client, vancetope.Client(redis_url, tenant="other") as other:
        job = client.submit("marvin", goal="Where to?", params={"model": "compatible:fake-model"})
        (item,) = eventually(client.inbox, "asked")
        assert (item["title"], item["type"], item["status"]) == ("Which city?", "DECISION", "PENDING")
        eventually(lambda: job.status()["status"] == "BLOCKED", "blocked")
        assert client.inbox(tag="nothing") == []
        assert [each["id"] for each in client.inbox(tag="marvin")] == [item["id"]]
        assert other.inbox() == []
        for refused, code in (
            (lambda: client.answer(item["id"], {"chosen": "Wien"}, by="ada"), "INVALID"),
            (lambda: other.answer(item["id"], {"chosen": "Linz"}, by="ada"), "UNKNOWN"),
            (lambda: other.dismiss(item["id"], by="ada"), "UNKNOWN"),
        ):
            with pytest.raises(vancetope.AnswerRefused) as caught:
                refused()
            assert caught.value.code == code
        assert client.answer(item["id"], {"chosen": "Linz"}, by="ada") == "STORED"
        assert client.answer(item["id"], {"chosen": "Linz"}, by="ada") == "SAME"
        assert job.result(TIMEOUT)["result"] == "To Linz."
        with pytest.raises(vancetope.AnswerRefused, match="answered before, by ada"):
            client.answer(item["id"], {"chosen": "Graz"}, by="bob")
        with pytest.raises(vancetope.AnswerRefused, match="answered before"):
            client.dismiss(item["id"], by="bob")
        assert [each["status"] for each in client.inbox(status=None)] == ["ANSWERED"]
    assert "Answer: Linz" in provider.requests[1].text
    # What was asked, answered or listed is in no log.
    assert not any(word in line for line in worker.lines for word in ("Which city", "Linz", "Wien"))
    cluster.wait_closed(UUID(job.id))
    assert_proven(cluster.database_url, [UUID(job.id)])


def titles(node: dict[str, Any]) -> list[tuple[str, str]]:
    return [(node["title"], node["status"]), *(each for child in node["children"] or [] for each in titles(child))]


@pytest.mark.parametrize("channel_lost", [False, True])
def test_a_plan_is_watched_through_the_client_until_it_ends(
    cluster: Cluster,
    provider: FakeProvider,
    vancetope: Any,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    channel_lost: bool,
) -> None:
    if channel_lost:
        # Redis loses every event: the plan is asked for, so it is late and nothing else.
        watching = importlib.import_module("vancetope_client.watching")
        monkeypatch.setattr(watching.Listener, "next_event", lambda self, seconds: time.sleep(0.05))
        monkeypatch.setattr(watching, "SILENCE_SECONDS", 0.2)
    provider.enqueue(*(Answer(json=each) for each in ANSWERS))
    cluster.worker()
    with vancetope.Client(redis_url) as client:
        job = client.submit("marvin", goal="Where to?", params={"model": "compatible:fake-model"})
        seen: list[Any] = []
        for picture in client.watch(job.id, timeout=TIMEOUT):
            seen.append(picture)
            nodes = titles(picture.plan["rootNode"])
            if ("Which city?", "waiting") in nodes and (waiting := client.inbox()):
                item = picture.plan["rootNode"]["children"][0]["meta"]["inboxItemId"]
                assert item == str(waiting[0]["id"])
                client.answer(waiting[0]["id"], {"chosen": "Linz"}, by="ada")
        assert seen[-1].status == "CLOSED"
        assert titles(seen[-1].plan["rootNode"]) == [("Where to?", "done"), ("Which city?", "done")]
        assert len(seen) >= 2
        assert [each.at for each in seen] == sorted(each.at for each in seen)
        assert [each.status for each in client.job(job.id).watch()] == ["CLOSED"]
        with pytest.raises(vancetope.JobTimeout):
            list(client.job("00000000-0000-7000-8000-000000000000").watch(timeout=0.1))


def test_a_question_nobody_answers_expires_by_beat_alone(
    cluster: Cluster, provider: FakeProvider, vancetope: Any, redis_url: str
) -> None:
    provider.enqueue(*(Answer(json=each) for each in ANSWERS))
    cluster.worker()
    cluster.beat()
    with vancetope.Client(redis_url) as client:
        params = {"model": "compatible:fake-model", "inboxTtlSeconds": 1}
        wrapper = client.submit("marvin", goal="Where to?", params=params).result(TIMEOUT)
        assert wrapper["failedChildren"] == 1
        assert "nobody answered within 1 seconds" in wrapper["result"]
        (item,) = client.inbox(status="EXPIRED")
        with pytest.raises(vancetope.AnswerRefused) as caught:
            client.answer(item["id"], {"chosen": "Linz"}, by="ada")
        assert caught.value.code == "EXPIRED"
