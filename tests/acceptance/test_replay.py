"""A tree that real workers grew, with everything a tree is made of, is exported and decides the same once more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from cluster import Cluster, MakeCluster
from fakes.provider import FakeProvider, tree_model
from processes import eventually
from treedrill import Person, submit_tree, tree_settings
from treeplan import LEAST_NODES, TreePlan

from models.store.export import exported
from tasks.replay.archive import Archive
from tasks.replay.compare import Report, compared
from tasks.replay.run import place, replay
from tasks.settings import load_settings

PLAN = TreePlan(LEAST_NODES, 1)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(default=tree_model(PLAN)) as server:
        yield server


def grown(cluster: Cluster, *, killed: bool = False) -> UUID:
    """The tree, closed; ``killed``: workers were killed and started again meanwhile."""
    workers = cluster.workers(3, concurrency=2)
    cluster.beat()
    person = Person(cluster, 1, project="default")
    root = submit_tree(cluster, PLAN, project="default")
    kills = iter(workers if killed else ())

    def closed() -> bool:
        person.look()
        if (worker := next(kills, None)) is not None:
            worker.kill9()
            worker.start()
        return not cluster.open_jobs([root])

    eventually(closed, "the tree is closed", 120)
    return root


def again(cluster: Cluster, root: UUID, admin_url: str) -> Report:
    """Without prompts: this person answers within milliseconds, which is when answers may be seen a turn earlier."""
    archive = Archive.parse("".join(exported(cluster.runtime.database, root)), "export")
    with place(admin_url) as url:
        return compared(archive, replay(archive, url, load_settings({})), prompts=False)


def test_a_tree_that_several_workers_grew_decides_the_same(
    make_cluster: MakeCluster, tmp_path: Path, postgres_admin_url: str
) -> None:
    cluster = make_cluster(**tree_settings(tmp_path))
    report = again(cluster, grown(cluster), postgres_admin_url)
    assert report.differences == ()
    assert report.nodes >= LEAST_NODES
    assert report.calls >= len(PLAN.calls)


def test_a_tree_that_lost_workers_decides_the_same(
    make_cluster: MakeCluster, tmp_path: Path, postgres_admin_url: str
) -> None:
    cluster = make_cluster(**tree_settings(tmp_path))
    report = again(cluster, grown(cluster, killed=True), postgres_admin_url)
    assert report.differences == ()
