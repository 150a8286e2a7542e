"""The Anthropic SDK driven for real against the fake provider: E7, E10, A16, A17, stop reasons, tools, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes.provider import Answer, FakeProvider

from engines.llm.base import ErrorKind, LlmError, LlmRequest, Message, StopKind, StructuredPath, ToolSpec, Usage
from engines.llm.client import RoutingClient

Ask = Callable[..., LlmRequest]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LOOK = ToolSpec(
    name="look", description="Looks.", parameters={"type": "object", "properties": {"q": {"type": "string"}}}
)
HAIKU, SONNET, OPUS = "anthropic:claude-haiku-4-5", "anthropic:claude-sonnet-4-6", "anthropic:claude-opus-5-5"


def failing(client: RoutingClient, request: LlmRequest) -> LlmError:
    with pytest.raises(LlmError) as caught:
        client.complete(request)
    return caught.value


def test_text_streams_and_is_priced(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    usage = {"input": 1000, "output": 100, "cache_read": 400, "cache_write": 50}
    fake.enqueue(Answer(text="abcdefgh", chunk_size=3, usage=usage))
    pieces: list[str] = []
    reply = client.complete(ask(model=SONNET, system="Be brief."), on_chunk=pieces.append)
    assert (reply.text, pieces, reply.stop) == ("abcdefgh", ["abc", "def", "gh"], StopKind.END)
    assert reply.usage == Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=400, cache_write_tokens=50)
    assert reply.cost_usd == pytest.approx((1000 * 3 + 100 * 15 + 400 * 0.30 + 50 * 3.75) / 1e6)
    assert fake.requests[0].body["system"] == [{"type": "text", "text": "Be brief."}]


def test_strict_is_the_native_output_format(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    reply = client.complete(ask(model=SONNET, schema=SCHEMA))
    body = fake.requests[0].body
    assert body["output_config"]["format"]["type"] == "json_schema"
    assert body["output_config"]["format"]["schema"]["additionalProperties"] is False
    assert "tools" not in body
    assert (reply.text, reply.path) == ('{"n": 1}', StructuredPath.STRICT)


def test_bounds_are_not_sent_as_keywords(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    bounded = {
        "type": "object",
        "properties": {"k": {"type": "integer", "minimum": 1, "maximum": 10}, "s": {"type": "string", "maxLength": 5}},
        "required": ["k", "s"],
    }
    client.complete(ask(model=SONNET, schema=bounded))
    sent = fake.requests[0].body["output_config"]["format"]["schema"]["properties"]
    assert not {"minimum", "maximum", "maxLength"} & (set(sent["k"]) | set(sent["s"]))
    assert "10" in sent["k"]["description"]


def test_loose_is_a_forced_tool_whose_arguments_are_the_text(
    client: RoutingClient, fake: FakeProvider, ask: Ask
) -> None:
    fake.enqueue(Answer(json={"n": 4}, chunk_size=4))
    pieces: list[str] = []
    request = ask(model=SONNET, schema=SCHEMA, highest_path=StructuredPath.LOOSE)
    reply = client.complete(request, on_chunk=pieces.append)
    body = fake.requests[0].body
    assert body["tool_choice"] == {"type": "tool", "name": "answer"}
    assert reply.text == "".join(pieces) == '{"n": 4}'
    assert (reply.path, reply.stop, reply.tool_calls) == (StructuredPath.LOOSE, StopKind.END, ())


@pytest.mark.parametrize("model", [HAIKU, SONNET, "anthropic:claude-haiku-5-5", "anthropic:claude-opus-5", OPUS])
@pytest.mark.parametrize("path", list(StructuredPath))
@pytest.mark.parametrize("thinking", [None, 0, 4000])
def test_forcing_and_thinking_never_meet(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str, path: StructuredPath, thinking: int | None
) -> None:
    client.complete(ask(model=model, schema=SCHEMA, highest_path=path, thinking_tokens=thinking))
    body = fake.requests[0].body
    forced = body.get("tool_choice", {}).get("type") in ("tool", "any")
    active = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    thinks_unasked = model in ("anthropic:claude-haiku-5-5", "anthropic:claude-opus-5", OPUS) and "thinking" not in body
    assert not (forced and (active or thinks_unasked))


@pytest.mark.parametrize("model", [OPUS, "anthropic:claude-sonnet-5-5"])
def test_model_that_refuses_forcing_gets_an_instruction_and_may_answer_in_text(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str
) -> None:
    fake.enqueue(Answer(text='{"n": 7}'))
    reply = client.complete(ask(model=model, schema=SCHEMA, highest_path=StructuredPath.LOOSE))
    body = fake.requests[0].body
    assert "tool_choice" not in body
    assert body["tools"][0]["name"] == "answer"
    assert "answer" in body["system"][0]["text"]
    assert (reply.text, reply.path) == ('{"n": 7}', StructuredPath.LOOSE)


@pytest.mark.parametrize("model", [HAIKU, SONNET, "anthropic:claude-opus-5"])
def test_thinking_that_was_asked_for_goes_before_forcing(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str
) -> None:
    client.complete(ask(model=model, schema=SCHEMA, highest_path=StructuredPath.LOOSE, thinking_tokens=4000))
    client.complete(ask(model=model, schema=SCHEMA, highest_path=StructuredPath.LOOSE))
    thinking, forcing = (request.body for request in fake.requests)
    assert thinking["thinking"]["type"] in ("enabled", "adaptive")
    assert "tool_choice" not in thinking
    assert forcing["tool_choice"]["type"] == "tool"


def test_thinking_budget_leaves_room_for_the_answer(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    reply = client.complete(ask(model=HAIKU, thinking_tokens=4000, max_output_tokens=1000))
    body = fake.requests[0].body
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 4000}
    assert body["max_tokens"] == reply.output_limit == 5000
    client.complete(ask(model=HAIKU, thinking_tokens=10**9, max_output_tokens=1000))
    body = fake.requests[1].body
    assert body["thinking"]["budget_tokens"] < body["max_tokens"] <= 64000
    client.complete(ask(model=HAIKU, thinking_tokens=5, max_output_tokens=10))
    assert fake.requests[2].body["thinking"]["budget_tokens"] == 1024


def test_adaptive_models_get_an_effort_instead_of_a_budget(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    client.complete(ask(model=OPUS, thinking_tokens=50_000))
    body = fake.requests[0].body
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "high"}


def test_no_sampling_parameter_is_ever_sent(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    for temperature in (0.0, 0.2, 0.35, 0.5):
        client.complete(ask(model=OPUS, temperature=temperature))
    assert all(not {"temperature", "top_p", "top_k"} & set(request.body) for request in fake.requests)


def test_unknown_model_that_refuses_temperature_is_learned_once(
    make_client: Callable[..., RoutingClient], fake: FakeProvider, ask: Ask, tmp_path: Any
) -> None:
    override = tmp_path / "models.yaml"
    override.write_text("models: {anthropic: {my-model: {accepts_sampling: true}}}")
    client = make_client(catalogue_path=override)
    message = "temperature: Extra inputs are not permitted"
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    fake.enqueue(Answer(status=400, body=body))
    request = ask(model="anthropic:my-model", temperature=0.3)
    error = failing(client, request)
    assert (error.kind, error.parameter) == (ErrorKind.SAMPLING_REJECTED, "temperature")
    client.complete(ask(model="anthropic:my-model", temperature=0.3, without=frozenset({"temperature"})))
    assert ["temperature" in request.body for request in fake.requests] == [True, False]


def test_tools_round_trip_in_one_user_turn(client: RoutingClient, fake: FakeProvider) -> None:
    fake.enqueue(Answer(text="looking", tool_calls=[("look", {"q": "x"}), ("look", {"q": "y"})]))
    user = Message(role="user", content="go")
    reply = client.complete(LlmRequest(model=SONNET, messages=(user,), tools=(LOOK,)))
    assert (reply.stop, reply.text, len(reply.tool_calls)) == (StopKind.TOOL_USE, "looking", 2)
    messages = (
        user,
        Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls),
        *(Message(role="tool", content="", tool_call_id=call.id) for call in reply.tool_calls),
        Message(role="user", content="go on"),
    )
    client.complete(LlmRequest(model=SONNET, messages=messages, tools=(LOOK,)))
    sent = fake.requests[1].body["messages"]
    assert [turn["role"] for turn in sent] == ["user", "assistant", "user"]
    assert [block["type"] for block in sent[1]["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "tool_result", "text"]
    assert sent[2]["content"][1]["tool_use_id"] == reply.tool_calls[1].id
    assert all(block.get("content", "x") for block in sent[2]["content"])


def test_schema_beside_tools_stays_native_and_never_forces(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    strict = client.complete(ask(model=SONNET, schema=SCHEMA, tools=(LOOK,)))
    lower = client.complete(ask(model=SONNET, schema=SCHEMA, tools=(LOOK,), highest_path=StructuredPath.LOOSE))
    assert (strict.path, lower.path) == (StructuredPath.STRICT, StructuredPath.PROMPT)
    assert all("tool_choice" not in request.body for request in fake.requests)
    assert [len(request.body["tools"]) for request in fake.requests] == [1, 1]


def test_an_answer_tool_may_stand_among_tools_unforced_and_its_call_is_the_answer(
    client: RoutingClient, fake: FakeProvider, ask: Ask
) -> None:
    request = ask(model=SONNET, schema=SCHEMA, schema_name="submit", tools=(LOOK,), highest_path=StructuredPath.LOOSE,
                  answer_beside_tools=True)  # fmt: skip
    fake.enqueue(
        Answer(text="I look first.", tool_calls=[("look", {"q": "x"})]),
        Answer(text="Now.", tool_calls=[("look", {"q": "y"}), ("submit", {"n": 7})]),
        Answer(text='{"n": 8}'),
    )
    looked, called, written = (client.complete(request) for _ in range(3))
    assert ([call.name for call in looked.tool_calls], looked.text) == (["look"], "I look first.")
    assert (called.tool_calls, called.text, called.stop) == ((), '{"n": 7}', StopKind.END)
    assert written.text == '{"n": 8}'
    assert {reply.path for reply in (looked, called, written)} == {StructuredPath.LOOSE}
    for sent in fake.requests:
        assert [tool["name"] for tool in sent.body["tools"]] == ["look", "submit"]
        assert "tool_choice" not in sent.body
        assert "calling the tool" not in sent.text, "when to call it is for the caller's own words to say"


def test_budget_thinking_is_left_out_after_tool_calls(client: RoutingClient, fake: FakeProvider) -> None:
    fake.enqueue(Answer(text="", tool_calls=[("look", {"q": "x"})]))
    user = Message(role="user", content="go")
    reply = client.complete(LlmRequest(model=HAIKU, messages=(user,), tools=(LOOK,), thinking_tokens=2000))
    messages = (
        user,
        Message(role="assistant", content="", tool_calls=reply.tool_calls),
        Message(role="tool", content="seen", tool_call_id=reply.tool_calls[0].id),
    )
    client.complete(LlmRequest(model=HAIKU, messages=messages, tools=(LOOK,), thinking_tokens=2000))
    assert ["thinking" in request.body for request in fake.requests] == [True, False]


def test_refusal_is_one_call_and_keeps_its_reason(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(refusal="cannot help"))
    error = failing(client, ask(model=SONNET, schema=SCHEMA))
    assert (error.kind, error.partial_text) == (ErrorKind.REFUSAL, "cannot help")
    assert error.usage.output_tokens == 5
    assert len(fake.requests) == 1


def test_refusal_with_text_is_still_a_refusal(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text='{"n": 1', finish="refusal"))
    error = failing(client, ask(model=SONNET, schema=SCHEMA))
    assert (error.kind, error.partial_text) == (ErrorKind.REFUSAL, '{"n": 1')


def test_full_window_is_told_apart_from_a_short_limit(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(
        Answer(text="half an ans", finish="model_context_window_exceeded"), Answer(text="x" * 100, cut_tokens=4)
    )
    error = failing(client, ask(model=SONNET))
    assert (error.kind, error.partial_text) == (ErrorKind.CONTEXT_TOO_LONG, "half an ans")
    reply = client.complete(ask(model=SONNET))
    assert (reply.stop, reply.stop_reason, len(reply.text)) == (StopKind.LENGTH, "max_tokens", 16)


def test_unknown_and_paused_stops(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text="so far", finish="pause_turn"), Answer(text="", finish="something_new"))
    assert client.complete(ask(model=SONNET)).stop is StopKind.OTHER
    assert failing(client, ask(model=SONNET)).kind is ErrorKind.EMPTY


@pytest.mark.parametrize("answer", [Answer(text="x" * 400, break_after=5), Answer(text="x" * 64, no_finish=True)])
def test_cut_stream_is_a_transport_failure_that_keeps_what_came(
    client: RoutingClient, fake: FakeProvider, ask: Ask, answer: Answer
) -> None:
    fake.enqueue(answer)
    error = failing(client, ask(model=SONNET, schema=SCHEMA))
    assert error.kind is ErrorKind.TRANSPORT
    assert error.partial_text.startswith("xxxx")
    assert error.reached_inference
    assert error.usage.input_tokens == 10


def test_error_event_inside_a_stream(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    fake.enqueue(Answer(text="abc", stream_error={"type": "overloaded_error", "message": "Overloaded"}))
    error = failing(client, ask(model=SONNET))
    assert (error.kind, error.status, error.partial_text) == (ErrorKind.OVERLOADED, None, "abc")
    assert error.reached_inference


@pytest.mark.parametrize(
    ("status", "type_", "kind"),
    [
        (429, "rate_limit_error", ErrorKind.RATE_LIMITED),
        (529, "overloaded_error", ErrorKind.OVERLOADED),
        (500, "api_error", ErrorKind.TRANSPORT),
        (401, "authentication_error", ErrorKind.AUTH),
        (413, "request_too_large", ErrorKind.REQUEST_TOO_LARGE),
        (404, "not_found_error", ErrorKind.BAD_REQUEST),
    ],
)
def test_status_kinds(
    client: RoutingClient, fake: FakeProvider, ask: Ask, status: int, type_: str, kind: ErrorKind
) -> None:
    fake.enqueue(Answer(status=status, body={"type": "error", "error": {"type": type_, "message": "no"}}))
    error = failing(client, ask(model=SONNET))
    assert (error.kind, error.status) == (kind, status)
    assert len(fake.requests) == 1


def test_ambient_credentials_are_not_used(
    client: RoutingClient, fake: FakeProvider, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-ambient")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-ambient")
    client.complete(ask(model=SONNET))
    assert "ambient" not in str(fake.requests[0].headers)
    assert "zyx987654" in str(fake.requests[0].headers)
