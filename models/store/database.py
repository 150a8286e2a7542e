"""One pool of connections per operating-system process, and the two ways to use it.

``statement``: one autocommitted statement through psycopg, for the hot path (no BEGIN/COMMIT round trips, prepared by
the driver after a few uses). ``begin``: a SQLAlchemy transaction for everything else.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, create_engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

Row = tuple[Any, ...]


class DatabaseUnavailable(Exception):
    """PostgreSQL cannot be reached, went away in the middle, or no connection of the pool came free in time.

    What the statement did is unknown; every write of the store is guarded, so it may simply be tried again.
    """


_TRANSIENT = (psycopg.OperationalError, psycopg.InterfaceError)
_LIMITS = "54"
"""SQLSTATE class of values too large or too deep: among the operational errors, but nothing that passes."""


_FLUSH = "SELECT pg_logical_emit_message(true, 'vancetope', '')"
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


@lru_cache(maxsize=512)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """``%(name)s`` placeholders as the server's own ``$n``, with the names in order.

    Done once per statement: the driver would otherwise parse the long ones again at every execution.
    """
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return _PLACEHOLDER.sub(number, sql), tuple(names)


class Database:
    """Connections to one PostgreSQL. Safe to share between threads; a forked child gets a fresh pool by itself.

    url: ``postgresql://user:password@host:port/name``. pool_size: connections kept; no more are opened.
    pool_timeout: seconds to wait for a free one before :class:`DatabaseUnavailable`.
    """

    def __init__(self, url: str, *, pool_size: int = 8, pool_timeout: float = 30.0, name: str = "vancetope") -> None:
        self.url = url
        self._pool_size = pool_size
        self._pool_timeout = pool_timeout
        self._name = name
        self._lock = threading.Lock()
        self._pid = -1
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        if self._engine is None or self._pid != os.getpid():
            with self._lock:
                if self._engine is not None and self._pid != os.getpid():
                    # Inherited over fork: the sockets belong to the parent, so forget them without closing.
                    self._engine.dispose(close=False)
                    self._engine = None
                if self._engine is None:
                    self._engine = self._create()
                    self._pid = os.getpid()
        return self._engine

    def _create(self) -> Engine:
        return create_engine(
            make_url(self.url).set(drivername="postgresql+psycopg"),
            isolation_level="AUTOCOMMIT",
            # Statements carry prompts and results; their errors are logged.
            hide_parameters=True,
            pool_size=self._pool_size,
            max_overflow=0,
            pool_timeout=self._pool_timeout,
            connect_args={
                "application_name": self._name,
                "connect_timeout": 5,
                # A server that vanished without a word (a fail-over) must not hang every thread, the heartbeat first.
                "keepalives_idle": 15,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 30_000,
                # The statements are few, large and always by key: planning each again would cost more than running it.
                "options": "-c idle_in_transaction_session_timeout=60000 -c statement_timeout=60000"
                " -c plan_cache_mode=force_generic_plan",
            },
        )

    def statement(self, sql: str, params: dict[str, Any]) -> list[Row]:
        """Run one statement in its own transaction and return its rows. Raises :class:`DatabaseUnavailable`."""
        try:
            pooled = self.engine.raw_connection()
        except (*_TRANSIENT, DBAPIError, PoolTimeout) as error:
            raise DatabaseUnavailable(_short(error)) from error
        try:
            connection: Any = pooled.driver_connection
            query, names = _numbered(sql)
            cursor: psycopg.RawCursor[Row] = psycopg.RawCursor(connection)
            cursor.execute(query, [params[name] for name in names], prepare=True)
            result = cursor.pgresult
            rows = cursor.fetchall() if result is not None and result.nfields else []
        except _TRANSIENT as error:
            if connection.closed:
                pooled.invalidate()
            if (error.sqlstate or "").startswith(_LIMITS):
                raise
            raise DatabaseUnavailable(_short(error)) from error
        finally:
            pooled.close()
        return rows

    def flush(self) -> None:
        """Wait until everything that was committed so far is on disk, also what did not wait for it by itself.

        A message to nobody is the smallest transaction there is; the log is written in order, so what came before it
        is on disk with it. Those of several connections share a write. Raises :class:`DatabaseUnavailable`.
        """
        self.statement(_FLUSH, {})

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction (READ COMMITTED). Commits at the end of the block, rolls back on an exception."""
        with self._transaction(isolation_level="READ COMMITTED") as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A transaction that sees the database as it is now, to its end (REPEATABLE READ), and cannot write."""
        with self._transaction(isolation_level="REPEATABLE READ", postgresql_readonly=True) as connection:
            yield connection

    @contextmanager
    def _transaction(self, **options: Any) -> Iterator[Connection]:
        try:
            with self.engine.execution_options(**options).begin() as connection:
                yield connection
        except PoolTimeout as error:
            raise DatabaseUnavailable(_short(error)) from error
        except DBAPIError as error:
            if error.connection_invalidated or isinstance(error.orig, _TRANSIENT):
                raise DatabaseUnavailable(_short(error)) from error
            raise

    def dispose(self) -> None:
        """Close every pooled connection. The database may be used again afterwards."""
        if self._engine is not None and self._pid == os.getpid():
            self._engine.dispose()
        self._engine = None


def _short(error: BaseException) -> str:
    # libpq's messages span lines and may repeat the connection string's host; the first line says what happened.
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
