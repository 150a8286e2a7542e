"""The scripted provider: rules, sequences, errors, and the promise to be cheap."""

from __future__ import annotations

import concurrent.futures
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from engines.llm import runtime
from engines.llm.base import ErrorKind, LlmError, LlmReply, LlmRequest, Message, StopKind, StructuredPath
from engines.llm.cancel import Cancellation
from engines.llm.client import build_client, shutdown
from engines.llm.config import LlmConfig
from engines.llm.scripted import Script, ScriptedAnswer, ScriptedClient, ScriptError
from engines.structured.schema import compile_schema

SCHEMA = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "string", "minLength": 9}, "minItems": 2},
        "level": {"type": "integer", "minimum": 3, "maximum": 4},
        "kind": {"enum": ["a", "b"]},
        "when": {"type": "string", "format": "date"},
        "inner": {"type": "object", "properties": {"x": {"type": "number", "exclusiveMinimum": 1}}, "required": ["x"]},
        "skipped": {"type": "string"},
    },
    "required": ["items", "level", "kind", "when", "inner"],
}


def request(*contents: str, **more: Any) -> LlmRequest:
    """A conversation of user and assistant messages by turns."""
    roles = ("user", "assistant")
    messages = tuple(Message(role=roles[i % 2], content=text) for i, text in enumerate(contents))  # type: ignore[arg-type]
    return LlmRequest(**{"model": "default:fast", "messages": messages, **more})


def scripted(data: Any) -> ScriptedClient:
    return ScriptedClient(Script.from_data(data))


def failing(client: ScriptedClient, asked: LlmRequest) -> LlmError:
    with pytest.raises(LlmError) as caught:
        client.complete(asked)
    return caught.value


@pytest.mark.parametrize(
    ("when", "matching", "other"),
    [
        ({"contains": "alpha"}, request("say alpha"), request("say beta")),
        ({"contains": ["alpha", "beta"]}, request("alpha", "beta"), request("alpha")),
        ({"lacks": "alpha"}, request("beta"), request("alpha")),
        ({"last": "alpha"}, request("x", "y", "alpha"), request("alpha", "y", "x")),
        ({"regex": "a.pha"}, request("alpha"), request("apha")),
        ({"model": "fast"}, request("x"), request("x", model="default:deep")),
        ({"schema": "plan"}, request("x", schema={}, schema_name="plan"), request("x", schema_name="plan")),
        ({"path": "prompt"}, request("x", schema={}, highest_path=StructuredPath.PROMPT), request("x", schema={})),
        ({"turn": 1}, request("x", "y", "z"), request("x")),
        ({"tools": False}, request("x"), request("x", tools=(None,))),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_conditions(when: dict[str, Any], matching: LlmRequest, other: LlmRequest) -> None:
    client = scripted({"rules": [{"when": when, "reply": {"text": "yes"}}], "default": {"text": "no"}})
    assert client.complete(matching).text == "yes"
    assert client.complete(other).text == "no"


def test_replies_go_by_the_conversation_not_by_this_process() -> None:
    data = {"rules": [{"replies": [{"text": "first"}, {"json": {"n": 2}}]}]}
    one, other = scripted(data), scripted(data)
    assert one.complete(request("a")).text == "first"
    assert other.complete(request("a", "first", "again")).text == '{"n": 2}'
    assert other.complete(request("a")).text == "first"
    assert one.complete(request(*"abcdefg")).text == '{"n": 2}'


def test_replies_by_count_are_counted_across_threads() -> None:
    client = scripted({"rules": [{"by": "count", "replies": [{"text": str(i)} for i in range(50)]}]})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: client.complete(request("x")).text, range(50)))
    assert sorted(texts, key=int) == [str(i) for i in range(50)]


def test_errors_carry_their_fields() -> None:
    fields = {"kind": "rate_limited", "retry_after": 3, "status": 429, "message": "slow"}
    error = failing(scripted({"rules": [{"error": fields}]}), request("x", schema={}))
    assert (error.kind, error.retry_after, error.status, error.message) == (ErrorKind.RATE_LIMITED, 3, 429, "slow")
    assert error.path is StructuredPath.STRICT


def test_chunks_tool_calls_usage_and_stop() -> None:
    answer = {
        "chunks": ["a", "b"],
        "tool_calls": [{"name": "look", "arguments": {"q": 1}}],
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "cost_usd": 0.5,
    }
    client = scripted({"rules": [{"when": {"last": "x"}, "reply": answer}], "default": {"text": "t", "stop": "length"}})
    pieces: list[str] = []
    reply = client.complete(request("x"), on_chunk=pieces.append)
    assert (reply.text, pieces, reply.stop) == ("ab", ["a", "b"], StopKind.TOOL_USE)
    assert (reply.tool_calls[0].name, reply.usage.total_tokens, reply.cost_usd) == ("look", 7, 0.5)
    assert client.complete(request("y")).stop is StopKind.LENGTH


def test_sample_fits_the_schema() -> None:
    reply = scripted({"default": {"sample": True}}).complete(request("x", schema=SCHEMA))
    compiled = compile_schema(SCHEMA)
    assert compiled.validate(json.loads(reply.text)) == ()


def test_answers_from_memory_in_order() -> None:
    script = Script.of("text", {"n": 1}, ErrorKind.TIMEOUT, LlmError(ErrorKind.AUTH, "bad"), ScriptedAnswer(text="end"))
    client = ScriptedClient(script)
    assert client.complete(request("1")).text == "text"
    assert client.complete(request("2")).text == '{"n": 1}'
    assert failing(client, request("3")).kind is ErrorKind.TIMEOUT
    assert failing(client, request("4")).message == "bad"
    assert client.complete(request("5")).text == "end"
    assert failing(client, request("6")).kind is ErrorKind.BAD_REQUEST
    assert [item.messages[0].content for item in script.requests] == list("123456")


def test_delay_ends_when_the_call_is_cancelled() -> None:
    client = ScriptedClient(Script.of(ScriptedAnswer(text="late", delay=3600)))
    registered = threading.Event()

    class Token(Cancellation):
        def on_cancel(self, callback: Any) -> Any:
            unregister = super().on_cancel(callback)
            registered.set()
            return unregister

    token = Token()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future: concurrent.futures.Future[LlmReply] = pool.submit(client.complete, request("x"), cancel=token)
        assert registered.wait(10)
        token.set()
        error = future.exception(10)
    assert isinstance(error, LlmError)
    assert error.kind is ErrorKind.CANCELLED


def test_file_through_the_client_needs_neither_thread_nor_loop(tmp_path: Path) -> None:
    shutdown()
    path = tmp_path / "script.yaml"
    path.write_text("rules:\n- when: {contains: capital}\n  reply: {json: {city: Paris}}\n")
    client = build_client(LlmConfig(scripted_path=path))
    before = threading.active_count()
    reply = client.complete(request("the capital?", schema={"type": "object"}))
    assert (reply.text, reply.provider) == ('{"city": "Paris"}', "scripted")
    assert reply.output_limit == 16384
    assert threading.active_count() == before
    assert runtime._current is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"rules": [{"when": {"contain": "x"}, "reply": {"text": "y"}}]}, "contain"),
        ({"rules": [{}]}, "exactly one of reply, error and replies"),
        ({"rules": [{"error": {"kind": "nonsense"}}]}, "error"),
        ({"rule": []}, "rule"),
    ],
)
def test_bad_scripts_are_refused_with_a_place(data: Any, problem: str) -> None:
    with pytest.raises(ScriptError, match=problem):
        Script.from_data(data)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"nowhere\.yaml"):
        Script.load(tmp_path / "nowhere.yaml")
