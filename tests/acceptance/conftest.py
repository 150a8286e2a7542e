"""Real processes for each test: a database of its own, an emptied Redis, a fake provider, workers on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, MakeCluster
from fakes.provider import FakeProvider
from fakes.wire_formats import Answer
from services import private_folder

from tasks.dev import migrate
from tasks.dev.postgres import Postgres
from tasks.dev.redis import Redis


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.acceptance)
            item.add_marker(pytest.mark.timeout(240))
            # Celery's result backend calls a method that redis-py has deprecated.
            item.add_marker(pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"))


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """Answers every question with ``{"n": 1}`` unless told otherwise."""
    with FakeProvider(default=Answer(json={"n": 1})) as server:
        yield server


@pytest.fixture
def make_cluster(
    tmp_path: Path, database_url: str, redis_url: str, provider: FakeProvider, request: pytest.FixtureRequest
) -> Iterator[MakeCluster]:
    """``make_cluster(**settings)``: a cluster that is gone, to the last child, when the test ends."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Cluster:
            made = Cluster(
                tmp_path,
                **{
                    "database_url": database_url,
                    "redis_url": redis_url,
                    "provider_url": provider.openai_url,
                    **settings,
                },
            )
            stack.callback(made.close)
            # Shown by pytest only when the test has failed.
            stack.callback(made.print_logs)
            return made

        yield make


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """One with the usual settings, nothing started yet."""
    return make_cluster()


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    """A Redis of this test's own, to be restarted."""
    with private_folder() as folder, Redis(folder / "redis") as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A migrated PostgreSQL of this test's own, to be restarted."""
    with private_folder() as folder, Postgres(folder / "postgres", unsafe_fast=True) as server:
        migrate.upgrade(server.dsn)
        yield server
