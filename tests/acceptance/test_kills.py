"""``kill -9`` at every named point of a turn, and a worker back after its lease: effects once, calls bounded.

Every job here takes two turns (its first answer does not fit, the second one does), so that the cursor, the history
and the messages of a turn before the crash are there to be doubled or lost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from cluster import Cluster, Member
from fakes.provider import FakeProvider, Recorded
from fakes.wire_formats import Answer
from processes import eventually
from proof import assert_proven
from services import new_database, private_folder

from tasks.dev.redis import Redis
from tasks.faults import POINTS

# Where a crash costs a call: the answer is there and not yet stored.
PAID_TWICE = ("after_call", "before_commit")
# Points of the task that stores a submission: until then its message is all there is.
IN_SUBMIT = ("before_store", "after_store")
# Jobs ask and tell nobody: what happens around an answer is in test_tree_kills, around a batch in test_batches, and
# around a webhook in test_webhooks.
OF_OTHERS = (
    *("before_answer", "after_answer"),
    *("after_park", "before_batch", "after_batch", "after_answers"),
    "after_webhook",
)
OF_JOBS = [point for point in POINTS if point not in OF_OTHERS]
# Where a worker dies that runs both turns in one task: in the first of them, holding the second, or handing it over.
OF_BURSTS = ["after_claim", "before_call", "after_call", "before_commit", "after_commit", "after_publish"]
BURST = 10


def first_attempt(request: Recorded) -> bool:
    """Whether the question is asked for the first time: a correction quotes the rejected answer."""
    return not any(message["role"] == "assistant" for message in request.body["messages"])


def hasten_redelivery(cluster: Cluster) -> None:
    """Make the broker give the dead worker's message back now instead of after its visibility timeout."""
    with redis.Redis.from_url(cluster.redis_url) as client:
        tags = eventually(lambda: client.zrange("unacked_index", 0, -1), "the message is not acknowledged")
        client.zadd("unacked_index", {tag: 1.0 for tag in tags})


class Armed:
    """Two workers and a beat that die at any point whose token exists."""

    def __init__(self, cluster: Cluster, provider: FakeProvider, tokens: Path) -> None:
        self.cluster = cluster
        self.provider = provider
        self._tokens = tokens
        faults = ",".join(f"{point}:kill:{tokens / point}" for point in OF_JOBS)
        self._workers = [
            cluster.worker(wait=False, environment={"VANCETOPE_FAULT": faults}),
            cluster.worker(wait=False, environment={"VANCETOPE_FAULT": faults}),
        ]
        for worker in self._workers:
            worker.wait_ready()
        cluster.beat()

    def arm(self, point: str) -> Path:
        self.revive()
        token = self._tokens / point
        token.touch()
        return token

    def revive(self) -> list[Member]:
        """Start the dead again; returns who was dead."""
        dead = [worker for worker in self._workers if not worker.running]
        for worker in dead:
            worker.start()
            worker.wait_ready()
        return dead


@pytest.fixture(scope="module")
def armed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_admin_url: str, _template: str
) -> Iterator[Armed]:
    """Its parameter is the number of turns that a task may run."""
    folder = tmp_path_factory.mktemp("kills")
    with ExitStack() as stack:
        database_url = stack.enter_context(new_database(postgres_admin_url, _template))
        # Of its own: these workers live as long as the module, and would take the messages of other tests.
        broker = stack.enter_context(Redis(stack.enter_context(private_folder()) / "redis"))
        provider = stack.enter_context(FakeProvider(default=Answer(json={"n": 1})))
        provider.rule(first_attempt, Answer(text="no JSON at all"))
        cluster = Cluster(
            folder,
            database_url=database_url,
            redis_url=broker.url,
            provider_url=provider.openai_url,
            turn_burst=request.param,
        )
        stack.callback(cluster.close)
        stack.callback(cluster.print_logs)
        yield Armed(cluster, provider, folder)


@pytest.mark.parametrize(
    ("armed", "point"),
    [*((1, point) for point in OF_JOBS), *((BURST, point) for point in OF_BURSTS)],
    indirect=["armed"],
)
def test_a_worker_killed_at_this_point_costs_at_most_one_call_and_no_effect(point: str, armed: Armed) -> None:
    cluster = armed.cluster
    before = len(armed.provider.requests)
    token = armed.arm(point)
    if point in IN_SUBMIT:
        job = cluster.send("what is n?")
    else:
        # Not published: so that a sweep has something to publish, which is where `in_sweep` dies.
        job = cluster.store("what is n?")[0] if point == "in_sweep" else cluster.submit("what is n?")
    eventually(lambda: not token.exists(), f"a worker reaches {point}")
    eventually(lambda: any(not member.running for member in cluster.members), "the worker is dead")
    if point == "before_store":
        # The broker looks for messages of the dead when a worker starts, and every minute or two.
        hasten_redelivery(cluster)
        assert len(armed.revive()) == 1
    cluster.wait_closed(job)
    assert point == "before_store" or len(armed.revive()) == 1
    assert cluster.result(job) == {"success": True, "attempts": 2, "data": {"n": 1}, "model": "fake-model"}
    assert_proven(cluster.database_url, [job])
    kinds = cluster.rows("SELECT kind FROM messages WHERE process_id = %s ORDER BY id", job)
    assert [kind for (kind,) in kinds] == ["prompt", "reply", "correction", "result"]
    records = cluster.rows(
        "SELECT r.turn, r.iteration FROM phase_records r JOIN nodes n ON n.id = r.node_id"
        " WHERE n.process_id = %s ORDER BY r.turn",
        job,
    )
    # The cursor and the audit trail agree: no iteration was counted twice.
    assert records == [(1, 1), (2, 2)]
    calls = len(armed.provider.requests) - before
    assert calls == (3 if point in PAID_TWICE else 2)


def test_the_answer_of_a_worker_that_comes_back_after_its_lease_is_dropped(
    cluster: Cluster, provider: FakeProvider
) -> None:
    late = threading.Event()
    provider.enqueue(Answer(json={"n": 111}, hold=late), Answer(json={"n": 222}))
    workers = cluster.workers(2)
    cluster.beat()
    job = cluster.submit("what is n?")
    provider.wait_for(lambda requests: len(requests) == 1, timeout=30)
    owner = cluster.lease_owner(job)
    (sleeper,) = (worker for worker in workers if worker.owner == owner)
    sleeper.pause()
    try:
        cluster.wait_closed(job)
        late.set()
        eventually(lambda: provider.requests[0].finished, "the late answer is written to the sleeper's socket")
    finally:
        sleeper.go_on()
    eventually(lambda: sleeper.said("turn is no longer ours"), "the sleeper finds its turn gone")
    assert cluster.result(job)["data"] == {"n": 222}
    assert_proven(cluster.database_url, [job])
    assert cluster.rows("SELECT count(*) FROM llm_calls") == [(1,)]
    assert len(provider.requests) == 2
    # It is a worker like any other again.
    following = [cluster.submit("what is n?") for _ in range(4)]
    cluster.wait_closed(*following)
    assert_proven(cluster.database_url, following)
