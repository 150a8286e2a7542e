"""Fixtures for all tests. Whoever asks for `database_url` or `redis_url` is marked `integration` by that alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, settings
from services import new_database, postgres_server, redis_server
from sqlalchemy import make_url

from tasks.dev import migrate

SERVICE_FIXTURES = {"database_url", "empty_database_url", "redis_url", "postgres_admin_url"}
# Where the services are is the machine's business; everything else a test sets itself.
KEPT = ("VANCETOPE_TEST_", "VANCETOPE_POSTGRES_BINDIR", "VANCETOPE_REDIS_SERVER")
PROVIDER_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")

# How long an example takes is the machine's business too: nothing that a test is there to find out.
settings.register_profile("vancetope", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vancetope")


def pytest_configure(config: pytest.Config) -> None:
    # A developer's own settings must not decide what a test finds, and no test may spend money.
    for name in list(os.environ):
        if (name.startswith("VANCETOPE_") and not name.startswith(KEPT)) or name in PROVIDER_KEYS:
            del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVICE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def postgres_admin_url() -> Iterator[str]:
    """DSN of the session's PostgreSQL, as a user that may create databases."""
    with postgres_server() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def _template(postgres_admin_url: str) -> Iterator[str]:
    with new_database(postgres_admin_url) as dsn:
        migrate.upgrade(dsn)
        name = make_url(dsn).database
        assert name is not None
        yield name


@pytest.fixture
def database_url(postgres_admin_url: str, _template: str) -> Iterator[str]:
    """DSN of a freshly migrated database of this test's own."""
    with new_database(postgres_admin_url, _template) as dsn:
        yield dsn


@pytest.fixture
def empty_database_url(postgres_admin_url: str) -> Iterator[str]:
    """DSN of an empty database of this test's own."""
    with new_database(postgres_admin_url) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
def redis_url(_redis_server: str) -> Iterator[str]:
    """URL of an empty Redis database."""
    with redis.Redis.from_url(_redis_server) as client:
        client.flushdb()
        yield _redis_server
        client.flushdb()
