"""What a running development stack tells other commands: a private state file, and a lock that says if it is true."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tasks.dev.process import POLL_SECONDS, StackError, write_private

FOLDER = Path(".vancetope")
# Longer than the moment for which `find_running` holds the lock to look at it.
LOCK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """A stack that runs now. Holds passwords: never log it whole; `summary` is safe to show."""

    pid: int
    folder: str
    started_at: str
    database_url: str
    redis_url: str
    local_model_url: str | None = None
    local_model_name: str | None = None
    api_url: str | None = None
    flower_url: str | None = None
    children: Mapping[str, int] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """The settings that make any command of this project use this stack."""
        values = {
            "VANCETOPE_DATABASE_URL": self.database_url,
            "VANCETOPE_REDIS_URL": self.redis_url,
            "VANCETOPE_LOCAL_MODEL_URL": self.local_model_url,
        }
        return {name: value for name, value in values.items() if value}

    def summary(self) -> str:
        """Several lines for people: what runs, where, and as which process; no password."""
        places = {
            "postgres": self.database_url.rpartition("@")[2],
            "redis": self.redis_url.rpartition("@")[2],
            "local model": self.local_model_url,
            "api": self.api_url,
            "flower": self.flower_url,
        }
        lines = [f"stack        pid {self.pid}, since {self.started_at}, data in {self.folder}"]
        for name, place in places.items():
            if place:
                pid = self.children.get(name)
                lines.append(f"{name:<12} {place}" + (f" (pid {pid})" if pid else " (not started by this stack)"))
        others = [f"{name} (pid {pid})" for name, pid in self.children.items() if name not in places]
        if others:
            lines.append(f"{'celery':<12} {', '.join(others)}")
        return "\n".join(lines)


class AlreadyRunning(StackError):
    """Another process runs the stack of this folder; `state` says what it told about itself so far."""

    def __init__(self, folder: Path, state: StackState | None) -> None:
        self.state = state
        if state is None:
            super().__init__(f"another process is starting or stopping the stack in {folder}")
        else:
            super().__init__(
                f"the stack in {folder} already runs:\n{state.summary()}\n"
                f"Use it as it is, stop it with Ctrl-C in its terminal or `kill {state.pid}`, or choose another folder"
            )


class FolderLock:
    """At most one living process holds it; the kernel lets go when that process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises AlreadyRunning when another process holds it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + LOCK_SECONDS
        while not _try_lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise AlreadyRunning(self.folder, read_state(self.folder))
            time.sleep(POLL_SECONDS)
        self._descriptor = descriptor

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_state(folder: Path, state: StackState) -> None:
    write_private(folder / "stack.json", json.dumps(asdict(state), indent=2) + "\n")


def remove_state(folder: Path) -> None:
    (folder / "stack.json").unlink(missing_ok=True)


def read_state(folder: Path) -> StackState | None:
    """What the last stack of this folder wrote; it may be dead."""
    try:
        return StackState(**json.loads((folder / "stack.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def find_running(folder: Path = FOLDER) -> StackState | None:
    """The stack that runs on this folder now, or None. A state file left by a killed stack is not believed."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        if _try_lock(descriptor, fcntl.LOCK_SH):
            return None
    finally:
        os.close(descriptor)
    return read_state(folder)
