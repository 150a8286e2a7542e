"""The embedded stack as a person meets it: it starts, keeps data, says what runs, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from services import private_folder, unavailable

from tasks.dev.local_model import LocalModel
from tasks.dev.postgres import Postgres, candidates, find_binaries, major_version
from tasks.dev.process import ChildProcess, Identity, StackError, process_alive
from tasks.dev.redis import Redis
from tasks.dev.redis import candidates as redis_candidates
from tasks.dev.state import StackState, find_running, read_state

pytestmark = pytest.mark.integration

RUN = Path(__file__).resolve().parents[1] / "run_embedded.py"
DEADLINE = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with private_folder() as path:
        yield path


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {DEADLINE:.0f} s: {what}"
        time.sleep(0.02)


def ended(pids: list[int]) -> Callable[[], bool]:
    return lambda: not any(process_alive(pid) for pid in pids)


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


def note(dsn: str, text: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS notes (text text)")
        connection.execute("INSERT INTO notes VALUES (%s)", (text,))


def notes(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return [str(row[0]) for row in connection.execute("SELECT text FROM notes ORDER BY text")]


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


class Running:
    """A stack in a process of its own."""

    def __init__(self, folder: Path, pool: str = "threads") -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(RUN.parents[1])}
        self.log = folder.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(RUN), str(folder), pool], stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    def ready(self) -> StackState:
        eventually(lambda: self.process.poll() is not None or "ready; Ctrl-C" in self.text(), "the stack is ready")
        state = find_running(self.folder)
        assert state is not None, self.text()
        return state

    def text(self) -> str:
        return self.log.read_text()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def run(pool: str = "threads") -> Running:
        started.append(Running(folder / "stack", pool))
        return started[-1]

    try:
        yield run
    finally:
        for running in started:
            if running.process.poll() is None:
                running.end(signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    family = [pid]
    parents = parents_of_all()
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family[1:]


def parents_of_all() -> dict[int, int]:
    if sys.platform != "linux":
        listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        return {int(pid): int(parent) for pid, parent in (line.split() for line in listing.splitlines())}
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    return parents


class TestStack:
    def test_it_stops_in_order_and_leaves_nothing_but_data(self, start: Callable[..., Running]) -> None:
        running = start()
        state = running.ready()
        assert set(state.children) == {"postgres", "redis", "worker1", "beat"}
        assert stat.S_IMODE((running.folder / "stack.json").stat().st_mode) == 0o600
        family = descendants(running.process.pid)
        assert set(state.children.values()) <= set(family)
        note(state.database_url, "kept")

        assert running.end(signal.SIGINT) == 0, running.text()
        eventually(ended(family), "all children are gone")
        assert find_running(running.folder) is None
        assert not (running.folder / "stack.json").exists()

        again = start()
        assert notes(again.ready().database_url) == ["kept"]

    def test_a_second_start_says_what_runs(self, start: Callable[..., Running]) -> None:
        first = start()
        state = first.ready()
        text = first.text()
        second = start()
        assert second.process.wait(DEADLINE) == 1
        assert f"kill {first.process.pid}" in second.text()
        assert "postgres" in second.text()
        assert state.database_url not in second.text()
        assert find_running(first.folder) == state
        assert "password" not in text

    @pytest.mark.parametrize("pool", ["threads", "prefork"])
    def test_children_die_with_a_stack_that_is_killed(self, start: Callable[..., Running], pool: str) -> None:
        running = start(pool)
        running.ready()
        family = descendants(running.process.pid)
        running.end(signal.SIGKILL)
        eventually(ended(family), "all children are gone")
        assert read_state(running.folder) is not None
        assert find_running(running.folder) is None
        start().ready()

    def test_what_dies_is_started_again(self, start: Callable[..., Running]) -> None:
        running = start()
        before = running.ready().children
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)

        def replaced() -> bool:
            state = find_running(running.folder)
            return state is not None and not set(state.children.values()) & set(before.values())

        eventually(replaced, "everything runs again")
        state = find_running(running.folder)
        assert state is not None
        assert state.children.keys() == before.keys()
        assert running.end(signal.SIGTERM) == 0, running.text()

    def test_a_killed_start_does_not_leave_a_state_to_believe(self, folder: Path) -> None:
        folder.joinpath("stack.json").write_text(json.dumps({"pid": 1}))
        assert read_state(folder) is None
        assert find_running(folder) is None
