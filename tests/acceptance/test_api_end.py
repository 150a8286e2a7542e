"""The real `vancetope api`, told to end while people listen to it."""

from __future__ import annotations

import signal
import threading

import pytest
import requests
from cluster import Cluster
from processes import eventually

from tasks.dev.celery_processes import api_command
from tasks.dev.process import free_port


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_api_ends_cleanly_with_open_streams_and_long_polls(cluster: Cluster, number: signal.Signals) -> None:
    job, _ = cluster.store("nobody runs this")
    port = free_port()
    api = cluster.start("api1", api_command(port))
    own = f"http://127.0.0.1:{port}/v1/processes/{job}"
    answers: list[int] = []

    def wait_long() -> None:
        answers.append(requests.get(f"{own}/result?wait=60", timeout=60).status_code)

    waiting = threading.Thread(target=wait_long)
    with requests.get(f"{own}/events", stream=True, timeout=60) as stream:
        told = stream.iter_lines()
        assert next(told) == b"event: state"
        waiting.start()
        with requests.get(f"http://127.0.0.1:{port}/console/processes/{job}/events", stream=True, timeout=60) as other:
            next(other.iter_lines())
            api.send(number)
            # The streams end as responses do, not as connections that break.
            assert [line for line in told if line.startswith(b"event")] == []
            list(other.iter_lines())
    waiting.join(60)
    eventually(lambda: not api.running, "the API has ended")
    assert api.returncode == 0
    assert answers == [202]
    for word in ("Traceback", "CancelledError", "graceful shutdown exceeded", "ERROR"):
        assert not api.said(word), word
