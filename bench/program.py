"""A program of the benchmark in a process of its own, spoken to line by line (see ``bench.programs.lines``)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READY_SECONDS = 60.0


class ProgramError(Exception):
    """A program ended or reported a failure; the message holds its last words."""


class Program:
    """``python -m bench.programs.<module>``, ready when constructed."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        python: str | Path = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.module = module
        self._errors: deque[str] = deque(maxlen=40)
        self._process = subprocess.Popen(
            [str(python), "-m", f"bench.programs.{module}", *arguments],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read_errors, daemon=True).start()
        try:
            self._expect("ready")
        except ProgramError:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, *words: object) -> None:
        """Send a command and do not wait. Read its answer with :meth:`answer`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ProgramError(f"{self.module} has ended:\n{self.last_words()}") from None

    def answer(self) -> str:
        """Wait for the answer to the oldest command not yet answered."""
        return self._expect("done")

    def ask(self, *words: object) -> str:
        self.tell(*words)
        return self.answer()

    def last_words(self) -> str:
        return "\n".join(self._errors)

    def stop(self, timeout: float = 15.0) -> None:
        """End of input, then SIGKILL when it does not end."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and stream is self._process.stdin:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _expect(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            first, _, rest = line.strip().partition(" ")
            if first == word:
                return rest
            if first == "failed":
                raise ProgramError(f"{self.module}: {rest}")
            # Anything else is a library's chatter.
            self._errors.append(line.rstrip())
        self._process.wait()
        raise ProgramError(f"{self.module} ended with code {self._process.returncode}:\n{self.last_words()}")

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._errors.append(line.rstrip())
