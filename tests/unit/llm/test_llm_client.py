"""The client around the wires: aborting, time limits, processes and threads, and what error texts may not say."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.provider import Answer, FakeProvider

from engines.llm import runtime
from engines.llm.base import ErrorKind, LlmError, LlmReply, LlmRequest, StructuredPath
from engines.llm.cancel import Cancellation
from engines.llm.client import RoutingClient, shutdown

Make = Callable[..., RoutingClient]
Ask = Callable[..., LlmRequest]
BOTH = pytest.mark.parametrize("model", ["openai:gpt-4.1-mini", "anthropic:claude-sonnet-4-6"])
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Caller:
    """A call in a thread of its own."""

    def __init__(self, client: RoutingClient, request: LlmRequest, **options: object) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self.future: concurrent.futures.Future[LlmReply] = self._pool.submit(client.complete, request, **options)  # type: ignore[arg-type]

    def error(self) -> LlmError:
        error = self.future.exception(timeout=10)
        self._pool.shutdown()
        assert isinstance(error, LlmError)
        return error


@BOTH
@pytest.mark.parametrize("answer", [Answer(hang=True), Answer(text="x" * 200, hang_after=4)])
def test_abort_at_any_moment_closes_the_connection(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str, answer: Answer
) -> None:
    fake.enqueue(answer)
    cancel = Cancellation()
    caller = Caller(client, ask(model=model), cancel=cancel)
    fake.wait_for(lambda requests: bool(requests) and requests[0].waiting)
    cancel.set()
    error = caller.error()
    assert error.kind is ErrorKind.CANCELLED
    fake.wait_for(lambda requests: requests[0].disconnected)
    assert not fake.requests[0].finished


def test_abort_in_mid_stream_keeps_what_came(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text="x" * 200, hang_after=6))
    cancel, arrived = Cancellation(), threading.Event()
    caller = Caller(client, ask(), cancel=cancel, on_chunk=lambda piece: arrived.set())
    assert arrived.wait(10)
    cancel.set()
    error = caller.error()
    assert error.reached_inference
    assert error.partial_text.startswith("x")


def test_call_that_is_cancelled_beforehand_is_never_sent(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    cancel = Cancellation()
    cancel.set()
    with pytest.raises(LlmError) as caught:
        client.complete(ask(), cancel=cancel)
    assert caught.value.kind is ErrorKind.CANCELLED
    assert fake.requests == []


def test_late_abort_harms_nothing(client: RoutingClient, ask: Ask) -> None:
    cancel = Cancellation()
    assert client.complete(ask(), cancel=cancel).text == "ok"
    cancel.set()
    assert client.complete(ask()).text == "ok"


@BOTH
def test_a_provider_that_never_answers_times_out(make_client: Make, fake: FakeProvider, ask: Ask, model: str) -> None:
    client = make_client(inactivity_timeout=0.1)
    fake.enqueue(Answer(hang=True))
    with pytest.raises(LlmError) as caught:
        client.complete(ask(model=model, schema=SCHEMA))
    assert caught.value.kind is ErrorKind.TIMEOUT
    assert caught.value.path is StructuredPath.STRICT
    fake.wait_for(lambda requests: requests[0].disconnected)


@BOTH
def test_silence_in_mid_stream_times_out(make_client: Make, fake: FakeProvider, ask: Ask, model: str) -> None:
    client = make_client(inactivity_timeout=1.0)  # long enough for the first chunks on a busy machine
    fake.enqueue(Answer(text="x" * 200, hang_after=6))
    with pytest.raises(LlmError) as caught:
        client.complete(ask(model=model))
    assert caught.value.kind is ErrorKind.TIMEOUT
    assert caught.value.partial_text.startswith("x")
    assert caught.value.reached_inference


@BOTH
def test_a_trickle_is_bounded_by_the_total_time(make_client: Make, fake: FakeProvider, ask: Ask, model: str) -> None:
    # Each chunk comes well within the inactivity limit; there is no end to them.
    client = make_client(inactivity_timeout=5.0)
    fake.enqueue(Answer(text="x" * 100_000, chunk_size=1, chunk_delay=0.01))
    with pytest.raises(LlmError, match=r"within 0\.3 s") as caught:
        client.complete(ask(model=model, timeout_seconds=0.3))
    assert caught.value.kind is ErrorKind.TIMEOUT
    fake.wait_for(lambda requests: requests[0].disconnected)


@contextlib.contextmanager
def deaf_listener() -> Iterator[int]:
    """A port whose backlog is full: connecting to it neither succeeds nor fails."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@BOTH
def test_connecting_is_bounded_and_does_not_blame_the_structured_path(make_client: Make, ask: Ask, model: str) -> None:
    with deaf_listener() as port:
        url = f"http://127.0.0.1:{port}"
        client = make_client(connect_timeout=0.1, base_urls={"openai": url, "anthropic": url})
        with pytest.raises(LlmError) as caught:
            client.complete(ask(model=model, schema=SCHEMA))
    assert caught.value.kind is ErrorKind.TIMEOUT
    assert caught.value.path is None
    assert not caught.value.reached_inference


@BOTH
def test_nobody_listening_is_a_transport_failure(make_client: Make, ask: Ask, model: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        client = make_client(base_urls={"openai": url, "anthropic": url})
        with pytest.raises(LlmError) as caught:
            client.complete(ask(model=model))
    assert caught.value.kind is ErrorKind.TRANSPORT


@BOTH
def test_address_that_is_no_address_is_a_configuration_error(make_client: Make, ask: Ask, model: str) -> None:
    client = make_client(base_urls={"openai": "ftp://x", "anthropic": "ftp://x"})
    with pytest.raises(LlmError) as caught:
        client.complete(ask(model=model))
    assert caught.value.kind is ErrorKind.NOT_CONFIGURED


@BOTH
def test_secrets_and_prompts_stay_out_of_errors(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-test-abcdef123456" if model.startswith("openai") else "sk-ant-test-zyx987654"
    prompt = "Tell me SECRET-" + "123 now"  # in two parts: a traceback quotes these very lines
    message = f"Incorrect API key provided: {key} while asked: {prompt}"
    fake.enqueue(Answer(status=401, body={"error": {"type": "authentication_error", "message": message}}))
    with caplog.at_level(logging.DEBUG), pytest.raises(LlmError) as caught:
        client.complete(ask(prompt, model=model))
    error = caught.value
    assert error.kind is ErrorKind.AUTH
    # The SDK's exception holds the request with its key: it must not hang on ours.
    assert error.__cause__ is None
    assert error.__context__ is None
    told = str(error) + repr(error) + str(error.__dict__) + "".join(traceback.format_exception(error)) + caplog.text
    for secret in (key, prompt):
        assert secret not in told


def test_error_tells_what_the_ledger_needs(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(refusal="no", usage={"input": 1_000_000, "output": 0}))
    with pytest.raises(LlmError) as caught:
        client.complete(ask())
    error = caught.value
    assert (error.provider, error.model) == ("openai", "gpt-4.1-mini")
    assert error.cost_usd == pytest.approx(0.40)


def test_chunk_sink_that_raises_does_not_end_the_call(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text="abcdef", chunk_size=2))
    seen: list[str] = []

    def sink(piece: str) -> None:
        seen.append(piece)
        raise RuntimeError("sink")

    assert client.complete(ask(), on_chunk=sink).text == "abcdef"
    assert seen == ["ab"]


def test_interrupted_caller_ends_the_call(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    """What a soft time limit does: a signal handler raises in the thread that waits; the call must not go on."""

    class SoftLimit(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise SoftLimit

    def send_signal() -> None:
        fake.wait_for(lambda requests: bool(requests) and requests[0].waiting)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    fake.enqueue(Answer(hang=True))
    previous = signal.signal(signal.SIGUSR1, interrupt)
    try:
        sender = threading.Thread(target=send_signal)
        sender.start()
        with pytest.raises(SoftLimit):
            client.complete(ask())
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    fake.wait_for(lambda requests: requests[0].disconnected)


def test_many_threads_share_one_loop_and_one_pool(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda i: client.complete(ask(f"number {i}")), range(64)))
    assert [reply.text for reply in replies] == ["ok"] * 64
    assert len(fake.requests) == 64
    assert [thread.name for thread in threading.enumerate()].count("llm-calls") == 1


def test_clients_of_the_same_address_share_a_pool(make_client: Make, fake: FakeProvider, ask: Ask) -> None:
    make_client().complete(ask())
    make_client().complete(ask())
    assert len(runtime.current()._wires) == 1
    make_client(api_keys={"openai": "another"}).complete(ask())
    assert len(runtime.current()._wires) == 2


def test_connections_are_reused(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    for _ in range(5):
        client.complete(ask())
    assert fake.connections == 1


def test_shutdown_aborts_and_later_calls_start_anew(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(hang=True))
    caller = Caller(client, ask())
    fake.wait_for(lambda requests: bool(requests) and requests[0].waiting)
    shutdown()
    assert caller.error().kind is ErrorKind.CANCELLED
    shutdown()
    assert client.complete(ask()).text == "ok"


def test_a_forked_child_uses_its_own_loop(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    client.complete(ask("parent"))
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        try:
            status = 0 if client.complete(ask("child")).text == "ok" else 1
        except BaseException:
            status = 2
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert client.complete(ask("parent again")).text == "ok"
    assert [request.body["messages"][0]["content"] for request in fake.requests] == ["parent", "child", "parent again"]


def test_plan_and_candidate_can_be_asked_without_a_call(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    request = ask(schema={**SCHEMA, "properties": {"n": True}})
    planned = client.plan(request)
    assert planned.path is StructuredPath.LOOSE
    assert planned.reasons
    assert client.candidate(request).provider_name == "openai"
    assert fake.requests == []


@BOTH
def test_process_that_ends_without_shutdown_leaves_no_warning(fake: FakeProvider, model: str) -> None:
    code = (
        "from engines.llm.base import LlmRequest, Message\n"
        "from engines.llm.client import build_client\n"
        "from engines.llm.config import LlmConfig\n"
        f"urls = {{'openai': {fake.openai_url!r}, 'anthropic': {fake.anthropic_url!r}}}\n"
        "client = build_client(LlmConfig(api_keys={'openai': 'k', 'anthropic': 'k'}, base_urls=urls))\n"
        f"request = LlmRequest(model={model!r}, messages=(Message(role='user', content='hi'),))\n"
        "print(client.complete(request).text)\n"
    )
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-W", "error", "-W", "default::ResourceWarning", "-c", code]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ok\n", "")
