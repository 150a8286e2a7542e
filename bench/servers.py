"""The PostgreSQL and Redis everything is measured on: default durability, one database per system."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

import psycopg
import redis
from psycopg import sql

from bench import cpu
from tasks.dev.postgres import Postgres
from tasks.dev.redis import Redis

# Read at start only. Counting statements costs every system the same few microseconds.
POSTGRES_SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.max": "5000",
    "max_connections": "300",
}
DURABILITY = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "wal_sync_method")


class Servers:
    """A fresh PostgreSQL and Redis in a folder that is removed afterwards."""

    def __init__(self, folder: Path | None = None) -> None:
        # Short-named: a Unix socket's path has few characters.
        self.folder = folder or Path(tempfile.mkdtemp(prefix="vt-bench-"))
        self.postgres = Postgres(self.folder / "postgres", settings=POSTGRES_SETTINGS)
        self.redis = Redis(self.folder / "redis")
        self._free_redis_databases = list(range(1, 16))

    def __enter__(self) -> Self:
        try:
            self.postgres.start()
            self.redis.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.redis.stop()
        self.postgres.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self, system: str) -> str:
        """DSN of an empty database for one system."""
        name = f"{system}_{secrets.token_hex(3)}"
        with self.admin() as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.postgres.dsn_of(name)

    def new_redis(self) -> str:
        """URL of an empty Redis database nobody else uses. Give it back: a server has sixteen."""
        return self.redis.url_of(self._free_redis_databases.pop())

    def release_redis(self, url: str) -> None:
        """Empty a database of :meth:`new_redis` and take it back."""
        with redis.Redis.from_url(url) as client:
            client.flushdb()
        self._free_redis_databases.append(int(url.rpartition("/")[2]))

    def admin(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(self.postgres.dsn_of(database), autocommit=True)

    def settle(self) -> None:
        """A checkpoint now, so that none falls due by accident in what is measured next."""
        with self.admin() as admin:
            admin.execute("CHECKPOINT")

    def cpu_seconds(self) -> tuple[float, float]:
        """Processor time so far of PostgreSQL and of Redis."""
        return cpu.seconds(self.postgres.pid), cpu.seconds(self.redis.pid)

    def versions(self) -> dict[str, str]:
        with self.admin() as admin:
            row = admin.execute("SHOW server_version").fetchone()
        with redis.Redis.from_url(self.redis.url) as client:
            info: dict[str, Any] = client.info("server")
        name = "valkey" if "valkey_version" in info else "redis"
        return {"postgresql": str(row[0]) if row else "", name: str(info.get(f"{name}_version", ""))}

    def durability(self) -> dict[str, str]:
        """The settings that decide what a commit costs, as the server has them."""
        with self.admin() as admin:
            rows = admin.execute("SELECT name, setting || coalesce(unit, '') FROM pg_settings WHERE name = ANY(%s)",
                                 (list(DURABILITY),)).fetchall()  # fmt: skip
        return dict(rows)
