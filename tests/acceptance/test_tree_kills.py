"""``kill -9`` around every kind of commit that a tree is made of: the tables end as if nothing had happened.

Each tree has something of everything, and everything that is aimed at at least twice: so one worker dies before such a
commit and another one after it. Workers have one slot each, so that a kill hits one turn, and no turn three times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from celery.backends.redis import RedisBackend
from cluster import Cluster
from fakes.provider import FakeProvider, tree_model
from processes import eventually
from proof import assert_proven
from services import new_database, private_folder
from treedrill import PERSON, Person, submit_tree, tree_settings
from treeplan import LEAST_NODES, TreePlan
from treeproof import TreeProof, portrait

from models.store.inbox import Outcome
from tasks.dev.redis import Redis

WORKERS = 3
AROUND = ("before_commit", "after_commit")
STEPS = {
    "children are created by a node, from a document, and once more": (
        "SCOPE.FANNED_OUT",
        "EXPAND.FANNED_OUT",
        "POST_CHILDREN.FANNED_OUT",
    ),
    "a recipe is called, and its process closes and wakes the caller": ("SCOPE.CALLED", "ANSWER.CONCLUDED"),
    "a question takes a node's place, is put in the inbox, and answered": ("SCOPE.ASKED", "ASK.ASKED", "ASK.CONCLUDED"),
    "a result is stored with its documents and wakes the parent": ("VALIDATE.CONCLUDED", "EXPAND.CONCLUDED"),
}
# At most two of them, for a third may be on the same turn, and that gives its node up.
ON_THE_WAY = (("after_claim", "in_sweep"), ("before_call", "after_call"))
IN_ANSWER = ("before_answer", "after_answer")
POINTS = (*(f"{point}@{step}" for steps in STEPS.values() for step in steps for point in AROUND), *sum(ON_THE_WAY, ()))


class Grove:
    """Workers and a beat that grow one plan again and again, and die where they are told to."""

    def __init__(self, cluster: Cluster, provider: FakeProvider, plan: TreePlan, tokens: Path) -> None:
        self.cluster = cluster
        self.provider = provider
        self.plan = plan
        self._tokens = tokens
        self._numbers = count(1)
        faults = ",".join(f"{point}:kill:{tokens / point}" for point in (*POINTS, *IN_ANSWER))
        self._workers = cluster.workers(WORKERS, concurrency=1, environment={"VANCETOPE_FAULT": faults})
        cluster.beat()
        self.undisturbed = portrait(cluster.database_url, self.grow())

    def grow(self, points: Iterable[str] = (), say: Callable[[int, dict[str, Any]], Outcome] | None = None) -> UUID:
        """Grow a tree to its end while workers die at ``points`` and are started again."""
        tokens = [self._tokens / point for point in points]
        for token in tokens:
            token.touch()
        project = f"grove-{next(self._numbers)}"
        person = Person(self.cluster, 1, project=project, say=say, unheard=(AssertionError,))
        root = submit_tree(self.cluster, self.plan, project=project)

        def closed() -> bool:
            for worker in self._workers:
                if not worker.running:
                    worker.start()
            person.look()
            return not self.cluster.open_jobs([root])

        eventually(closed, "the tree is closed", 120)
        assert [token.name for token in tokens if token.exists()] == [], "no worker came to these points"
        assert person.wrong == []
        return root


@pytest.fixture(scope="module")
def grove(tmp_path_factory: pytest.TempPathFactory, postgres_admin_url: str, _template: str) -> Iterator[Grove]:
    folder = tmp_path_factory.mktemp("grove")
    plan = TreePlan(LEAST_NODES, 1)
    with ExitStack() as stack:
        database_url = stack.enter_context(new_database(postgres_admin_url, _template))
        broker = stack.enter_context(Redis(stack.enter_context(private_folder()) / "redis"))
        provider = stack.enter_context(FakeProvider(default=tree_model(plan)))
        cluster = Cluster(
            folder,
            database_url=database_url,
            redis_url=broker.url,
            provider_url=provider.openai_url,
            **tree_settings(folder),
        )
        stack.callback(cluster.close)
        stack.callback(cluster.print_logs)
        yield Grove(cluster, provider, plan, folder)


def assert_as_undisturbed(grove: Grove, root: UUID) -> None:
    found = portrait(grove.cluster.database_url, root)
    for table, rows in grove.undisturbed.items():
        assert found[table] == rows, table
    assert TreeProof(grove.cluster.database_url, root, grove.plan).broken() == {}
    assert_proven(grove.cluster.database_url, [root])


@pytest.mark.parametrize("what", STEPS)
def test_workers_killed_around_a_commit_leave_the_tree_as_if_nothing_had_happened(what: str, grove: Grove) -> None:
    before = len(grove.provider.requests)
    points = [f"{point}@{step}" for step in STEPS[what] for point in AROUND]
    assert_as_undisturbed(grove, grove.grow(points))
    lost = len(grove.provider.requests) - before - len(grove.plan.calls)
    # A call is lost where its worker dies before the commit, and nowhere else.
    assert 0 <= lost <= len(STEPS[what])


@pytest.mark.parametrize("points", ON_THE_WAY)
def test_workers_killed_on_their_way_leave_the_tree_as_if_nothing_had_happened(
    points: tuple[str, ...], grove: Grove
) -> None:
    assert_as_undisturbed(grove, grove.grow(points))


def test_a_person_answers_workers_that_are_killed_over_the_answer(grove: Grove) -> None:
    app = grove.cluster.app
    assert isinstance(app.backend, RedisBackend)

    def say(item_id: int, answer: dict[str, Any]) -> Outcome:
        # A worker that is killed takes its message along: not heard of in time, it is said again.
        kwargs = {"item_id": item_id, "answer": answer, "by": PERSON}
        sent = app.send_task("vancetope.inbox.answer", kwargs=kwargs, queue="vancetope.urgent", expires=3).id

        def heard() -> Any:
            meta = app.backend.get_task_meta(sent)
            return meta["result"] if meta["status"] == "SUCCESS" else None

        return Outcome(eventually(heard, "the answer is acknowledged", timeout=5)["outcome"])

    assert_as_undisturbed(grove, grove.grow(IN_ANSWER, say))
