"""The parts of the embedded stack: each starts, keeps its data, survives a crash and dies with its parent."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from processes import DEADLINE, ended, eventually
from redis.backoff import NoBackoff
from redis.retry import Retry
from services import note, notes, private_folder, unavailable

from tasks.dev.local_model import LocalModel
from tasks.dev.postgres import Postgres, candidates, find_binaries, major_version
from tasks.dev.process import ChildProcess, Identity, StackError, process_alive
from tasks.dev.redis import Redis
from tasks.dev.redis import candidates as redis_candidates

pytestmark = pytest.mark.integration


@pytest.fixture
def folder() -> Iterator[Path]:
    with private_folder() as path:
        yield path


def postgres_bindirs() -> list[Path]:
    """One folder of binaries per major version this machine has."""
    found: dict[int, Path] = {}
    for folder in candidates():
        version = major_version(folder)
        if version is not None and version >= 15:
            found.setdefault(version, folder)
    return [found[version] for version in sorted(found)]


def redis_servers() -> list[Path]:
    return list(dict.fromkeys(path for path in redis_candidates() if path.is_file()))


@pytest.fixture(params=postgres_bindirs() or [None], ids=lambda path: f"postgres-{path and major_version(path)}")
def postgres(request: pytest.FixtureRequest, folder: Path) -> Iterator[Postgres]:
    if request.param is None:
        unavailable("no PostgreSQL binaries on this machine")
    with Postgres(folder / "postgres", bindir=request.param, unsafe_fast=True) as server:
        yield server


@pytest.fixture(params=redis_servers() or [None], ids=lambda path: path.name if path else "none")
def redis_server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Redis]:
    if request.param is None:
        unavailable("no Redis server on this machine")
    with Redis(folder / "redis", server=request.param) as server:
        yield server


class TestPostgres:
    def test_data_survives_every_kind_of_restart(self, postgres: Postgres) -> None:
        port = postgres.port
        note(postgres.dsn, "a")
        postgres.restart()
        note(postgres.dsn, "b")
        postgres.restart(immediate=True)
        note(postgres.dsn, "c")
        held = psycopg.connect(postgres.dsn)
        postgres.kill9()
        postgres.start()
        held.close()
        assert notes(postgres.dsn) == ["a", "b", "c"]
        assert postgres.port == port

    def test_a_later_start_finds_data_password_and_port(self, postgres: Postgres) -> None:
        note(postgres.dsn, "kept")
        dsn = postgres.dsn
        postgres.stop()
        with Postgres(postgres.data_dir, unsafe_fast=True) as later:
            assert later.dsn == dsn
            assert notes(later.dsn) == ["kept"]

    def test_a_pid_file_that_names_a_stranger_does_not_block(self, postgres: Postgres) -> None:
        note(postgres.dsn, "kept")
        postgres.kill9()
        pid_file = postgres.pgdata / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        with subprocess.Popen(["sleep", "600"]) as stranger:
            pid_file.write_text("\n".join([str(stranger.pid), *lines[1:], ""]))
            postgres.start()
            stranger.kill()
        assert notes(postgres.dsn) == ["kept"]

    def test_an_empty_pid_file_does_not_block(self, postgres: Postgres) -> None:
        postgres.stop()
        (postgres.pgdata / "postmaster.pid").touch()
        postgres.start()

    def test_a_second_server_on_the_same_data_is_refused(self, postgres: Postgres) -> None:
        with pytest.raises(StackError, match=f"already runs.*pid {postgres.pid}, port {postgres.port}"):
            Postgres(postgres.data_dir).start()
        note(postgres.dsn, "unharmed")

    def test_passwords_are_private_and_needed(self, postgres: Postgres) -> None:
        assert stat.S_IMODE((postgres.data_dir / "password").stat().st_mode) == 0o600
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(postgres.dsn.replace(postgres.password, "wrong"))

    def test_a_start_that_was_cut_off_in_initdb_is_repeated(self, postgres: Postgres, folder: Path) -> None:
        unfinished = folder / "other" / "pgdata.new"
        unfinished.mkdir(parents=True)
        (unfinished / "PG_VERSION").write_text("1\n")
        with Postgres(folder / "other", bindir=postgres.bindir, unsafe_fast=True) as server:
            note(server.dsn, "fine")

    def test_a_port_taken_meanwhile_is_replaced_by_another(self, postgres: Postgres, folder: Path) -> None:
        other = Postgres(folder / "other", bindir=postgres.bindir, unsafe_fast=True)
        other.data_dir.mkdir()
        (other.data_dir / "port").write_text(str(postgres.port))
        with other:
            assert other.port != postgres.port


@pytest.mark.parametrize("way", ["namespace", "nobody"])
@pytest.mark.parametrize("bindir", postgres_bindirs(), ids=lambda path: f"postgres-{major_version(path)}")
def test_root_has_two_ways_to_run_it(
    folder: Path, bindir: Path, way: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root needs to become somebody else")
    if not allowed(bindir, way):
        pytest.skip("this machine does not allow it")
    monkeypatch.setattr("tasks.dev.postgres.server_identity", lambda bindir: way)
    # Closed to everybody else, as a home folder is.
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with Postgres(closed / "postgres", bindir=bindir, unsafe_fast=True) as server:
        note(server.dsn, "a")
    # What one way made, the other can use.
    other: Identity = "nobody" if way == "namespace" else "namespace"
    if allowed(bindir, other):
        monkeypatch.setattr("tasks.dev.postgres.server_identity", lambda bindir: other)
        with server:
            assert notes(server.dsn) == ["a"]


def allowed(bindir: Path, way: Identity) -> bool:
    probe = ChildProcess("probe", [bindir / "postgres", "--version"], identity=way)
    probe.start()
    return probe.wait(DEADLINE) and probe.returncode == 0


def test_binaries_that_were_named_are_never_replaced(folder: Path) -> None:
    with pytest.raises(StackError, match="no PostgreSQL server in"):
        find_binaries(folder)


def test_data_of_another_version_are_refused_with_both_versions(folder: Path) -> None:
    if not postgres_bindirs():
        unavailable("no PostgreSQL binaries on this machine")
    with pytest.raises(StackError, match=r"made by PostgreSQL 9.*found: \d+ in"):
        find_binaries(None, data_version=9)


class TestRedis:
    def test_data_survives_restarts_and_a_kill(self, redis_server: Redis) -> None:
        for number, disturb in enumerate([redis_server.restart, redis_server.kill9]):
            with redis.Redis.from_url(redis_server.url) as client:
                client.rpush("notes", number)
                eventually(lambda client=client: aof_written(client), "the append-only file is on disk")
            disturb()
        redis_server.start()
        with redis.Redis.from_url(redis_server.url) as client:
            assert client.lrange("notes", 0, -1) == [b"0", b"1"]

    def test_nothing_is_evicted_and_the_password_is_needed(self, redis_server: Redis) -> None:
        with redis.Redis.from_url(redis_server.url) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
        with (
            redis.Redis(port=redis_server.port, retry=Retry(NoBackoff(), 0)) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()

    def test_the_password_is_on_no_command_line(self, redis_server: Redis) -> None:
        if sys.platform != "linux":
            pytest.skip("reads /proc")
        assert redis_server.password not in Path(f"/proc/{redis_server.pid}/cmdline").read_text()
        assert stat.S_IMODE((redis_server.data_dir / "redis.conf").stat().st_mode) == 0o600


def aof_written(client: redis.Redis) -> bool:
    return client.info("persistence")["aof_pending_bio_fsync"] == 0


class TestChildProcess:
    def test_it_may_be_started_from_a_thread_that_ends(self) -> None:
        child = ChildProcess("sleeper", ["sleep", "600"])
        thread = threading.Thread(target=child.start)
        thread.start()
        thread.join()
        child.wait(0.3)
        assert child.running
        child.stop()
        assert child.returncode == -signal.SIGTERM

    @pytest.mark.parametrize("watch", [pytest.param(True, id="pipe"), pytest.param(False, id="kernel")])
    def test_it_dies_with_a_parent_that_is_killed(self, watch: bool) -> None:
        if not watch and sys.platform != "linux":
            pytest.skip("only Linux tells children of their parent's death")
        program = (
            "import sys, time\n"
            "from tasks.dev.process import ChildProcess\n"
            f"child = ChildProcess('sleeper', ['sleep', '600'], watch={watch})\n"
            "child.start()\n"
            "print(child.pid, flush=True)\n"
            "time.sleep(600)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            assert process_alive(pid)
            parent.kill()
        eventually(ended([pid]), "the child is gone")

    def test_one_that_ignores_the_polite_signal_is_killed(self) -> None:
        program = (
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
        )
        child = ChildProcess("deaf", [sys.executable, "-c", program])
        child.start()
        eventually(lambda: "deaf" in child.last_lines, "it ignores SIGTERM")
        child.stop(timeout=0.1)
        assert child.returncode == -signal.SIGKILL


def test_local_model_answers() -> None:
    try:
        model = LocalModel()
    except StackError as error:
        pytest.skip(str(error))
    with model:
        assert model.running
        assert model.base_url.endswith("/v1")
    assert not model.running


def test_a_machine_without_libgomp_is_told_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "libgomp.so.1: cannot open shared object file: No such file or directory"
    (folder / "xllamacpp.py").write_text(f"raise ImportError({words!r})\n")
    weights = folder / "model.gguf"
    weights.touch()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with pytest.raises(StackError, match="apt-get install libgomp1"):
        LocalModel(weights).start()
