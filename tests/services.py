"""The real PostgreSQL and Redis that tests run against: the embedded ones, or those named by the environment."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis
from psycopg import sql
from sqlalchemy import make_url

from tasks.dev.postgres import Postgres
from tasks.dev.process import StackError
from tasks.dev.redis import Redis

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")

_numbers = itertools.count(1)


def unavailable(reason: object) -> None:
    """Skip where a person may lack the service; in CI a missing service is a failure, or nothing would be tested."""
    if IN_CI:
        pytest.fail(f"CI needs this service: {reason}", pytrace=False)
    pytest.skip(str(reason))


@contextmanager
def private_folder() -> Iterator[Path]:
    """A short-named folder: pytest's own are too deep for a Unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="vancetope-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres_server() -> Iterator[str]:
    """DSN of a database whose user may create databases."""
    given = os.environ.get("VANCETOPE_TEST_DATABASE_URL")
    if given:
        try:
            psycopg.connect(given, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            unavailable(f"VANCETOPE_TEST_DATABASE_URL: {error}")
        yield given
        return
    with private_folder() as folder:
        server = None
        try:
            server = Postgres(folder / "postgres", unsafe_fast=True, settings={"max_connections": "300"})
            server.start()
        except StackError as error:
            unavailable(error)
        assert server is not None
        try:
            yield server.dsn_of("postgres")
        finally:
            server.stop()


@contextmanager
def redis_server() -> Iterator[str]:
    """URL of a Redis database that tests may empty."""
    given = os.environ.get("VANCETOPE_TEST_REDIS_URL")
    if given:
        try:
            with redis.Redis.from_url(given) as client:
                client.ping()
        except redis.RedisError as error:
            unavailable(f"VANCETOPE_TEST_REDIS_URL: {error}")
        yield given
        return
    with private_folder() as folder:
        server = None
        try:
            server = Redis(folder / "redis")
            server.start()
        except StackError as error:
            unavailable(error)
        assert server is not None
        try:
            yield server.url
        finally:
            server.stop()


def with_database(dsn: str, database: str) -> str:
    """The same server, another database."""
    return make_url(dsn).set(database=database).render_as_string(hide_password=False)


@contextmanager
def new_database(admin_dsn: str, template: str | None = None) -> Iterator[str]:
    """DSN of a database that exists for the length of the block: empty, or a clone of `template`."""
    name = f"vancetope_test_{os.getpid()}_{next(_numbers)}_{secrets.token_hex(3)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
        sql.Identifier(name), sql.Identifier(template or "template0")
    )
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(create)
    try:
        yield with_database(admin_dsn, name)
    finally:
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def note(dsn: str, text: str) -> None:
    """Leave something in a database that `notes` finds again if it is still the same one."""
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS notes (text text)")
        connection.execute("INSERT INTO notes VALUES (%s)", (text,))


def notes(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return [str(row[0]) for row in connection.execute("SELECT text FROM notes ORDER BY text")]
