"""Child processes of the development stack: they never outlive their parent, and their last words are kept."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

Sink = Callable[[str], None]
Identity = Literal["same", "namespace", "nobody"]

POLL_SECONDS = 0.02
LAST_WORDS = 40

# Linux reports a parent's death when the *thread* that forked ends. So every child is forked by one thread that lives
# as long as the process, and a caller may start children from a thread that ends.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vancetope-spawn")


class StackError(Exception):
    """A part of the development stack cannot be started; the message says what is missing and what to do."""


class ChildProcess:
    """One child process in a session of its own (a Ctrl-C in the terminal reaches only the parent).

    It gets `death_signal` when the parent dies in any way, `kill -9` included. Its output goes line by line to `sink`,
    and the last lines are kept for error messages.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        sink: Sink | None = None,
        death_signal: signal.Signals = signal.SIGKILL,
        identity: Identity = "same",
        watch: bool = sys.platform != "linux",
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.last_lines: deque[str] = deque(maxlen=LAST_WORDS)
        self._env = dict(env) if env is not None else None
        self._cwd = cwd
        self._sink = sink
        self._death_signal = death_signal
        self._identity = identity
        self._watch = watch
        self._alive_pipe: int | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process id of the command itself. Raises StackError before `start`."""
        if self._process is None:
            raise StackError(f"{self.name} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the command; returns as soon as it is forked. A running child is left alone."""
        if self.running:
            return
        self.last_lines.clear()
        _spawner.submit(self._spawn).result()

    def _spawn(self) -> None:
        watch_fd = -1
        if self._watch:
            watch_fd, self._alive_pipe = os.pipe()
        launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py"))]
        wishes = [str(os.getpid()), str(int(self._death_signal)), self._identity, str(watch_fd)]
        try:
            self._process = subprocess.Popen(
                [*launcher, *wishes, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
                pass_fds=(watch_fd,) if watch_fd >= 0 else (),
            )
        finally:
            if watch_fd >= 0:
                os.close(watch_fd)
        self._reader = threading.Thread(target=self._read, args=(self._process,), name=f"log-{self.name}", daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                text = line.rstrip("\n")
                self.last_lines.append(text)
                if self._sink is not None:
                    self._sink(text)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command; quietly nothing when it has ended."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def wait(self, timeout: float) -> bool:
        """Wait for the end. True when it has ended within `timeout` seconds."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 10.0) -> None:
        """Ask with `number`, insist with SIGKILL after `timeout` seconds; its process group is gone afterwards."""
        self.send(number)
        if not self.wait(timeout):
            self.kill9()
        self._clear_group()
        self._close()

    def kill9(self) -> None:
        """SIGKILL to the command alone (its own children are left to notice) and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.wait(10.0)
        self._close()

    def _clear_group(self) -> None:
        if self._process is None:
            return
        try:
            # The command led its own session, so only its descendants can be left in the group of that number.
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def _close(self) -> None:
        if self._alive_pipe is not None:
            os.close(self._alive_pipe)
            self._alive_pipe = None
        if self._reader is not None:
            self._reader.join(2.0)

    def last_words(self) -> str:
        """The last lines of output, for an error message."""
        if self._reader is not None and not self.running:
            self._reader.join(2.0)
        return "\n".join(self.last_lines)


def wait_until(ready: Callable[[], bool], process: ChildProcess, timeout: float) -> None:
    """Poll `ready` until it is true. StackError with the child's last words when it ends or time is up."""
    deadline = time.monotonic() + timeout
    while not ready():
        if not process.running:
            raise StackError(
                f"{process.name} ended with code {process.returncode} while starting:\n{process.last_words()}"
            )
        if time.monotonic() > deadline:
            raise StackError(f"{process.name} was not ready after {timeout:.0f} s:\n{process.last_words()}")
        time.sleep(POLL_SECONDS)


def free_port(preferred: int | None = None) -> int:
    """A free port on 127.0.0.1: the preferred one when nobody listens there."""
    for port in (preferred, 0):
        if port is None:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise StackError("no free port on 127.0.0.1")


def remembered_port(folder: Path) -> int:
    """The port last used by the service whose data is in `folder` when it is free, else another one, noted there."""
    note = folder / "port"
    try:
        preferred = int(note.read_text())
    except (OSError, ValueError):
        preferred = None
    port = free_port(preferred)
    write_private(note, f"{port}\n")
    return port


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whatever the umask; never readable by others even for a moment."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


def process_alive(pid: int) -> bool:
    """Whether a process of this id runs, as anybody's. One that ended and was not collected does not run."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        # The state follows the name, which stands in brackets and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return sys.platform != "linux"
