"""One tool forced, none allowed, or the model's own choice: what goes over both wires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes.provider import Answer, FakeProvider

from engines.llm.base import ErrorKind, LlmError, LlmRequest, Message, StructuredPath, ToolCall, ToolSpec
from engines.llm.client import RoutingClient

Ask = Callable[..., LlmRequest]
SUBMIT = ToolSpec(name="submit", description="Hand in.", parameters={"type": "object", "properties": {}})
LOOK = ToolSpec(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
OPENAI, ANTHROPIC = "openai:gpt-4.1", "anthropic:claude-sonnet-4-6"


def sent(fake: FakeProvider) -> dict[str, Any]:
    return fake.requests[-1].body


def test_a_named_tool_is_forced(client: RoutingClient, fake: FakeProvider, ask: Ask) -> None:
    reply = client.complete(ask(model=OPENAI, tools=(SUBMIT,), tool_choice="submit"))
    assert sent(fake)["tool_choice"] == {"type": "function", "function": {"name": "submit"}}
    assert [call.name for call in reply.tool_calls] == ["submit"]
    client.complete(ask(model=ANTHROPIC, tools=(SUBMIT, LOOK), tool_choice="submit"))
    assert sent(fake)["tool_choice"] == {"type": "tool", "name": "submit"}
    assert "system" not in sent(fake)


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
def test_the_models_own_choice_says_nothing(client: RoutingClient, fake: FakeProvider, ask: Ask, model: str) -> None:
    client.complete(ask(model=model, tools=(SUBMIT, LOOK)))
    assert "tool_choice" not in sent(fake)


def test_where_forcing_is_not_allowed_the_tool_is_asked_for(
    client: RoutingClient, fake: FakeProvider, ask: Ask
) -> None:
    for more in ({"model": "anthropic:claude-opus-5-5"}, {"model": ANTHROPIC, "thinking_tokens": 4000}):
        fake.enqueue(Answer(text="fine"))
        client.complete(ask(system="Rules.", tools=(SUBMIT,), tool_choice="submit", **more))
        assert "tool_choice" not in sent(fake)
        rules, request = (block["text"] for block in sent(fake)["system"])
        assert rules == "Rules."
        assert "`submit`" in request
    client.complete(ask(model="compatible:x", tools=(SUBMIT,), tool_choice="submit"))
    assert "tool_choice" not in sent(fake)


@pytest.mark.parametrize(("model", "none"), [(OPENAI, "none"), (ANTHROPIC, {"type": "none"})])
def test_the_final_call_keeps_the_tools_and_forbids_them(
    client: RoutingClient, fake: FakeProvider, model: str, none: Any
) -> None:
    call = ToolCall(id="t1", name="look", arguments={})
    history = (
        Message(role="user", content="go"),
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="seen", tool_call_id="t1"),
    )
    client.complete(LlmRequest(model=model, messages=history, tools=(LOOK,), tool_choice="none"))
    assert sent(fake)["tool_choice"] == none
    assert len(sent(fake)["tools"]) == 1
    client.complete(LlmRequest(model=model, messages=history[:1], tool_choice="none"))
    assert "tool_choice" not in sent(fake)


def test_the_cached_prefix_is_the_same_bytes_whatever_is_chosen(client: RoutingClient, fake: FakeProvider) -> None:
    messages = (Message(role="system", content="word " * 3000, cache=True), Message(role="user", content="go"))
    for choice in ("auto", "none", "submit"):
        client.complete(LlmRequest(model=ANTHROPIC, messages=messages, tools=(LOOK, SUBMIT), tool_choice=choice))
    assert len({str((request.body["tools"], request.body["system"])) for request in fake.requests}) == 1
    assert "cache_control" in sent(fake)["system"][0]


@pytest.mark.parametrize("model", ["compatible:x", OPENAI])
def test_a_server_that_refuses_the_choice_is_asked_without_it(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str
) -> None:
    fake.enqueue(Answer(status=400, body={"error": {"message": "unknown field tool_choice", "param": "tool_choice"}}))
    with pytest.raises(LlmError) as caught:
        client.complete(ask(model=model, tools=(LOOK,), tool_choice="none"))
    assert (caught.value.kind, caught.value.parameter) == (ErrorKind.SAMPLING_REJECTED, "tool_choice")
    client.complete(ask(model=model, tools=(LOOK,), tool_choice="none", without=frozenset({"tool_choice"})))
    assert "tool_choice" not in sent(fake)


def test_a_refused_choice_that_carries_the_schema_is_a_refused_rung(
    client: RoutingClient, fake: FakeProvider, ask: Ask
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "tool_choice is not supported"}}
    fake.enqueue(Answer(status=400, body=error))
    with pytest.raises(LlmError) as caught:
        client.complete(ask(model=ANTHROPIC, schema=schema, highest_path=StructuredPath.LOOSE))
    assert caught.value.kind is ErrorKind.SCHEMA_REJECTED


@pytest.mark.parametrize(("cache", "marked"), [(True, 2), (False, 0)])
def test_one_breakpoint_for_each_stable_tier_and_none_when_off(
    client: RoutingClient, fake: FakeProvider, cache: bool, marked: int
) -> None:
    messages = (
        Message(role="system", content="rules " * 3000, cache=cache),
        Message(role="system", content="session " * 1000, cache=cache),
        Message(role="user", content="go"),
    )
    client.complete(LlmRequest(model=ANTHROPIC, messages=messages, tools=(LOOK, SUBMIT)))
    assert [block.get("cache_control") for block in sent(fake)["system"]].count({"type": "ephemeral"}) == marked
    assert fake.requests[-1].raw.count(b"cache_control") == marked
