"""The OpenAI SDK driven for real against the fake provider: what is sent, what comes back, what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes.provider import Answer, FakeProvider

from engines.llm.base import (
    ErrorKind,
    LlmError,
    LlmRequest,
    Message,
    StopKind,
    StructuredPath,
    ToolCall,
    ToolSpec,
    Usage,
)
from engines.llm.client import RoutingClient

Ask = Callable[..., LlmRequest]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OPTIONAL = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}
LOOK = ToolSpec(
    name="look", description="Looks.", parameters={"type": "object", "properties": {"q": {"type": "string"}}}
)


def failing(client: RoutingClient, request: LlmRequest) -> LlmError:
    with pytest.raises(LlmError) as caught:
        client.complete(request)
    return caught.value


def test_text_streams_and_is_priced(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    usage = {"input": 1000, "output": 100, "cache_read": 400, "cache_write": 0}
    fake.enqueue(Answer(text="abcdefgh", chunk_size=3, usage=usage))
    pieces: list[str] = []
    reply = client.complete(ask(), on_chunk=pieces.append)
    assert (reply.text, pieces) == ("abcdefgh", ["abc", "def", "gh"])
    assert reply.usage == Usage(input_tokens=600, output_tokens=100, cache_read_tokens=400)
    assert reply.cost_usd == pytest.approx((600 * 0.40 + 400 * 0.10 + 100 * 1.60) / 1e6)
    assert (reply.stop, reply.provider, reply.model) == (StopKind.END, "openai", "gpt-4.1-mini")
    assert reply.path is None


def test_sdk_does_not_retry(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(status=429, headers={"retry-after": "3"}))
    error = failing(client, ask())
    assert (error.kind, error.retry_after, error.status) == (ErrorKind.RATE_LIMITED, 3.0, 429)
    assert not error.reached_inference
    assert client.complete(ask()).text == "ok"
    assert len(fake.requests) == 2


@pytest.mark.parametrize("status", [500, 502, 503, 520, 529, 408, 409])
def test_passing_troubles_have_kinds_that_are_retried(
    client: RoutingClient, fake: FakeProvider, ask: Ask, status: int
) -> None:
    fake.enqueue(Answer(status=status, body="<html>gateway</html>"))
    error = failing(client, ask())
    assert error.kind in (ErrorKind.OVERLOADED, ErrorKind.TRANSPORT, ErrorKind.TIMEOUT)
    assert error.status == status
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("model", "parameter", "absent"),
    [
        ("openai:gpt-5-mini", "max_completion_tokens", "max_tokens"),
        ("openai:gpt-4o", "max_completion_tokens", "max_tokens"),
        ("compatible:old-server", "max_tokens", "max_completion_tokens"),
    ],
)
def test_output_limit_goes_by_the_name_the_model_knows(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str, parameter: str, absent: str
) -> None:
    reply = client.complete(ask(model=model, max_output_tokens=77))
    assert fake.requests[0].body[parameter] == 77
    assert absent not in fake.requests[0].body
    assert reply.output_limit == 77


def test_output_limit_is_clamped_and_reported(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    reply = client.complete(ask(model="openai:gpt-4o", max_output_tokens=10**9))
    assert fake.requests[0].body["max_completion_tokens"] == 16384
    assert (reply.output_limit, reply.output_ceiling) == (16384, 16384)


def test_a_refused_limit_name_gives_way_to_the_other(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    refused = {"error": {"message": "Unrecognized request argument supplied: max_completion_tokens"}}
    fake.enqueue(Answer(status=400, body=refused))
    request = ask(max_output_tokens=50)
    error = failing(client, request)
    assert (error.kind, error.parameter) == (ErrorKind.SAMPLING_REJECTED, "max_completion_tokens")
    client.complete(ask(max_output_tokens=50, without=frozenset({error.parameter})))
    body = fake.requests[1].body
    assert body["max_tokens"] == 50
    assert "max_completion_tokens" not in body


@pytest.mark.parametrize("temperature", [0.0, 0.2, 0.35, 0.5, 0.65])
def test_temperature_is_sent_only_where_it_is_accepted(
    client: RoutingClient, fake: FakeProvider, ask: Ask, temperature: float
) -> None:
    client.complete(ask(model="openai:gpt-4.1", temperature=temperature))
    client.complete(ask(model="openai:gpt-5-mini", temperature=temperature))
    client.complete(ask(model="openai:gpt-4.1", temperature=temperature, without=frozenset({"temperature"})))
    assert fake.requests[0].body["temperature"] == temperature
    assert "temperature" not in fake.requests[1].body
    assert "temperature" not in fake.requests[2].body


def test_system_role_and_merging_of_system_messages(client: RoutingClient, fake: FakeProvider) -> None:
    messages = (
        Message(role="system", content="one"),
        Message(role="system", content="two"),
        Message(role="user", content="hi"),
    )
    client.complete(LlmRequest(model="openai:gpt-5", messages=messages))
    client.complete(LlmRequest(model="compatible:x", messages=messages))
    roles = [[(m["role"], m["content"]) for m in request.body["messages"]] for request in fake.requests]
    assert roles[0] == [("developer", "one\n\ntwo"), ("user", "hi")]
    assert roles[1] == [("system", "one\n\ntwo"), ("user", "hi")]


def test_strict_format_and_the_way_back_from_nulls(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text='{"a": "x", "b": null}'))
    reply = client.complete(ask(schema=OPTIONAL, schema_name="my plan!"))
    shape = fake.requests[0].body["response_format"]["json_schema"]
    assert shape["strict"] is True
    assert shape["name"] == "my_plan_"
    assert sorted(shape["schema"]["required"]) == ["a", "b"]
    assert shape["schema"]["properties"]["b"]["type"] == ["integer", "null"]
    assert (reply.text, reply.path) == ('{"a": "x"}', StructuredPath.STRICT)


@pytest.mark.parametrize("text", ['{"a": "x", "b": null', 'Sure! {"a": "x", "b": null}', '{"a":"x","a":"y","b":null}'])
def test_text_that_is_no_clean_json_is_handed_on_untouched(
    client: RoutingClient, fake: FakeProvider, ask: Ask, text: str
) -> None:
    fake.enqueue(Answer(text=text))
    assert client.complete(ask(schema=OPTIONAL)).text == text


def test_loose_format_is_not_strict(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    reply = client.complete(ask(schema=OPTIONAL, highest_path=StructuredPath.LOOSE))
    assert fake.requests[0].body["response_format"]["json_schema"]["strict"] is False
    assert reply.path is StructuredPath.LOOSE


def test_schema_that_strict_cannot_take_goes_down_by_itself(
    client: RoutingClient, fake: FakeProvider, ask: Ask
) -> None:
    open_map = {"type": "object", "properties": {"m": {"type": "object"}, "x": True}, "required": ["m"]}
    reply = client.complete(ask(schema=open_map))
    assert reply.path is StructuredPath.LOOSE
    assert fake.requests[0].body["response_format"]["json_schema"]["strict"] is False


def test_loose_by_forced_tool_takes_the_arguments_as_text(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(json={"n": 4}, chunk_size=4))
    pieces: list[str] = []
    request = ask(model="deepseek:deepseek-chat", schema=SCHEMA)
    with pytest.raises(LlmError, match="VANCETOPE_DEEPSEEK_API_KEY"):
        client.complete(request)
    client = RoutingClient(
        client._config.model_copy(update={"api_keys": {"deepseek": client._config.api_keys["openai"]}}),
        client._catalogue,
        None,
    )
    reply = client.complete(request, on_chunk=pieces.append)
    body = fake.requests[0].body
    assert body["tool_choice"] == {"type": "function", "function": {"name": "answer"}}
    assert "response_format" not in body
    assert reply.text == "".join(pieces) == '{"n": 4}'
    assert (reply.tool_calls, reply.path, reply.stop) == ((), StructuredPath.LOOSE, StopKind.END)


def test_prompt_rung_shows_the_schema_once(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    reply = client.complete(ask(schema=SCHEMA, system="Be brief.", highest_path=StructuredPath.PROMPT))
    body = fake.requests[0].body
    assert "response_format" not in body
    assert body["messages"][0]["content"].startswith("Be brief.\n\n")
    assert '"required"' in body["messages"][0]["content"]
    assert reply.path is StructuredPath.PROMPT


def test_tools_round_trip(client: RoutingClient, fake: FakeProvider) -> None:
    fake.enqueue(Answer(text="", tool_calls=[("look", {"q": "x"}), ("look", {"q": "y"})]))
    user = Message(role="user", content="go")
    reply = client.complete(LlmRequest(model="openai:gpt-4.1", messages=(user,), tools=(LOOK,)))
    assert reply.stop is StopKind.TOOL_USE
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("look", {"q": "x"}), ("look", {"q": "y"})]
    messages = (
        user,
        Message(role="assistant", content="", tool_calls=reply.tool_calls),
        *(Message(role="tool", content="seen", tool_call_id=call.id) for call in reply.tool_calls),
    )
    client.complete(LlmRequest(model="openai:gpt-4.1", messages=messages, tools=(LOOK,)))
    sent = fake.requests[1].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"q": "x"}'}
    assert sent[3]["tool_call_id"] == reply.tool_calls[1].id
    assert fake.requests[0].body["tools"][0]["function"]["name"] == "look"


def test_models_that_take_tools_only_without_reasoning_get_it_switched_off(
    client: RoutingClient, fake: FakeProvider
) -> None:
    user = (Message(role="user", content="go"),)
    client.complete(LlmRequest(model="openai:gpt-6.1-terra", messages=user, tools=(LOOK,), thinking_tokens=5000))
    client.complete(LlmRequest(model="openai:gpt-6.1-terra", messages=user, thinking_tokens=5000))
    client.complete(LlmRequest(model="openai:gpt-6.1-terra", messages=user, thinking_tokens=0))
    client.complete(LlmRequest(model="openai:gpt-4.1", messages=user, thinking_tokens=5000))
    assert [request.body.get("reasoning_effort") for request in fake.requests] == ["none", "medium", "none", None]


def test_arguments_that_are_no_object_are_kept_raw(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text="", tool_calls=[("look", [1, 2])]))  # type: ignore[list-item]
    reply = client.complete(ask(tools=(LOOK,)))
    assert reply.tool_calls == (ToolCall(id="call_0", name="look", arguments={}, raw="[1, 2]"),)


def test_refusal_with_null_content_is_one_call(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(null_content=True, refusal="cannot help"))
    error = failing(client, ask(schema=SCHEMA))
    assert (error.kind, error.message, error.partial_text) == (ErrorKind.REFUSAL, "cannot help", "cannot help")
    assert error.reached_inference
    assert error.usage.total_tokens == 15
    assert error.cost_usd is not None
    assert len(fake.requests) == 1


def test_content_filter(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text="", finish="content_filter"))
    assert failing(client, ask()).kind is ErrorKind.CONTENT_FILTER


@pytest.mark.parametrize("model", ["openai:gpt-4.1", "compatible:x"])
def test_null_or_empty_content_is_empty(client: RoutingClient, fake: FakeProvider, ask: Ask, model: str) -> None:
    fake.enqueue(Answer(null_content=True, usage=None), Answer(text=" \n"), Answer(text="", finish="model_length"))
    for _ in range(3):
        error = failing(client, ask(model=model))
        assert error.kind is ErrorKind.EMPTY
        assert error.reached_inference


def test_unknown_stop_reason_with_text_is_an_answer(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text='{"n": 1}', finish="model_length"))
    reply = client.complete(ask(schema=SCHEMA))
    assert (reply.text, reply.stop, reply.stop_reason) == ('{"n": 1}', StopKind.OTHER, "model_length")


def test_truncation_is_told_even_without_any_text(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text="x" * 400, cut_tokens=16), Answer(text="", finish="length"))
    reply = client.complete(ask(max_output_tokens=16))
    assert (reply.stop, len(reply.text), reply.output_limit) == (StopKind.LENGTH, 64, 16)
    assert client.complete(ask()).stop is StopKind.LENGTH


def test_server_that_streams_no_usage(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text="hi", usage=None))
    reply = client.complete(ask())
    assert (reply.usage, reply.cost_usd) == (Usage(), None)


def test_server_that_does_not_stream_at_all(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(
        Answer(text="whole", ignore_stream=True),
        Answer(text="", tool_calls=[("look", {"q": "x"}), ("look", {"q": "y"})], ignore_stream=True),
    )
    reply = client.complete(ask())
    assert (reply.text, reply.stop, reply.usage.total_tokens) == ("whole", StopKind.END, 15)
    calls = client.complete(ask(tools=(LOOK,))).tool_calls
    assert [call.arguments for call in calls] == [{"q": "x"}, {"q": "y"}]


def test_model_is_named_by_the_server_but_not_by_a_path(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(model="gpt-4.1-mini-2025-04-14"), Answer(model="/srv/models/small.gguf"))
    assert client.complete(ask()).model == "gpt-4.1-mini-2025-04-14"
    assert client.complete(ask()).model == "small.gguf"


def test_unpriced_model_has_no_cost(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    reply = client.complete(ask(model="compatible:x"))
    assert (reply.usage.total_tokens, reply.cost_usd) == (15, None)


@pytest.mark.parametrize("answer", [Answer(text="x" * 400, break_after=4), Answer(text="x" * 64, no_finish=True)])
def test_cut_stream_is_a_transport_failure_that_keeps_what_came(
    client: RoutingClient, fake: FakeProvider, ask: Ask, answer: Answer
) -> None:
    fake.enqueue(answer)
    error = failing(client, ask(schema=SCHEMA))
    assert error.kind is ErrorKind.TRANSPORT
    assert error.partial_text.startswith("xxxx")
    assert error.reached_inference
    assert error.path is StructuredPath.STRICT


def test_connection_lost_after_the_answer_was_complete_does_not_spoil_it(
    client: RoutingClient, fake: FakeProvider, ask: Ask
) -> None:
    # Chunks: role, one text, finish; then the connection drops before usage and [DONE].
    fake.enqueue(Answer(text="done", break_after=3))
    assert client.complete(ask()).text == "done"


def test_error_event_inside_a_stream(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    event: dict[str, Any] = {"message": "The server is overloaded", "type": "server_error", "code": "overloaded"}
    fake.enqueue(Answer(text="abc", stream_error=event), Answer(text="abc", stream_error={"message": "x", "code": 502}))
    assert failing(client, ask()).kind in (ErrorKind.OVERLOADED, ErrorKind.TRANSPORT)
    error = failing(client, ask())
    assert (error.kind, error.status) == (ErrorKind.TRANSPORT, 502)


def test_ambient_openai_settings_are_not_sent_elsewhere(
    client: RoutingClient, fake: FakeProvider, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ambient")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-ambient")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-ambient")
    client.complete(ask(model="compatible:x"))
    assert "ambient" not in str(fake.requests[0].headers)
