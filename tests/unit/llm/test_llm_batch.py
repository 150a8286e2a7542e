"""Calls in batches: what is prepared, and answers of either provider read as those of calls at once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.llm.base import (
    BATCH_LANE,
    ErrorKind,
    LlmError,
    LlmReply,
    LlmRequest,
    Message,
    StopKind,
    StructuredPath,
    ToolSpec,
    Usage,
)
from engines.llm.batch import BatchClient, missing
from engines.llm.client import RoutingClient, build_client
from engines.llm.config import LlmConfig

Ask = Callable[..., LlmRequest]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OPTIONAL = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}
LOOK = ToolSpec(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
STRICT = StructuredPath.STRICT
MODELS = {"openai": "openai:gpt-4o", "anthropic": "anthropic:claude-sonnet-4-6"}


def made() -> RoutingClient:
    client = build_client(LlmConfig(api_keys={"openai": "sk-test-abcdef123456", "anthropic": "sk-ant-zyx987654"}))
    assert isinstance(client, RoutingClient)
    return client


@pytest.fixture
def batches() -> BatchClient:
    return BatchClient(made())


def request_to(wire: str, **more: Any) -> LlmRequest:
    base: dict[str, Any] = {"model": MODELS[wire], "messages": (Message(role="user", content="How many of them?"),)}
    return LlmRequest(**{**base, **more})


def recall(batches: BatchClient, request: LlmRequest, answer: dict[str, Any]) -> LlmReply:
    candidate = batches.candidate(*request.model.split(":", 1))
    sent = json.loads(json.dumps(batches.prepare(request, candidate).sent))
    return batches.recall(request, candidate, sent, answer, 3_600_000)


def failing(batches: BatchClient, request: LlmRequest, answer: dict[str, Any]) -> LlmError:
    with pytest.raises(LlmError) as caught:
        recall(batches, request, answer)
    return caught.value


def openai(text: str | None = "ok", *, finish: str = "stop", **message: Any) -> dict[str, Any]:
    body = {
        "id": "c", "object": "chat.completion", "created": 0, "model": "gpt-4o-2024-08-06",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100,
                  "prompt_tokens_details": {"cached_tokens": 400}},
    }  # fmt: skip
    return {"custom_id": "x", "response": {"status_code": 200, "request_id": "r", "body": body}, "error": None}


def anthropic(*blocks: dict[str, Any], stop: str = "end_turn", **message: Any) -> dict[str, Any]:
    body = {
        "id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6", "stop_reason": stop,
        "stop_sequence": None, "content": list(blocks) or [{"type": "text", "text": "ok"}],
        "usage": {"input_tokens": 600, "output_tokens": 100, "cache_read_input_tokens": 400,
                  "cache_creation_input_tokens": 0},
    }  # fmt: skip
    return {"type": "succeeded", "message": {**body, **message}}


@pytest.mark.parametrize("wire", MODELS)
def test_a_prepared_call_is_json_that_does_not_stream_and_carries_no_key(batches: BatchClient, wire: str) -> None:
    request = request_to(wire, schema=SCHEMA, temperature=0.2, max_output_tokens=77, without=frozenset({"top_p"}))
    prepared = batches.prepare(request, batches.candidate(*MODELS[wire].split(":")))
    dumped = json.dumps([prepared.body, prepared.sent])
    assert not any(name in prepared.body for name in ("stream", "stream_options", "extra_body"))
    assert "sk-" not in dumped
    assert prepared.body["model"] == MODELS[wire].split(":")[1]
    assert prepared.sent == {"path": "strict", "without": ["top_p"], "outputLimit": 77}


@pytest.mark.parametrize(
    ("wire", "answer"), [("openai", openai("four")), ("anthropic", anthropic({"type": "text", "text": "four"}))]
)
def test_a_reply_says_what_a_call_at_once_would_and_costs_half(
    batches: BatchClient, wire: str, answer: dict[str, Any]
) -> None:
    reply = recall(batches, request_to(wire), answer)
    assert (reply.text, reply.stop, reply.provider) == ("four", StopKind.END, wire)
    assert reply.usage == Usage(input_tokens=600, output_tokens=100, cache_read_tokens=400)
    assert (reply.lane, reply.latency_ms) == (BATCH_LANE, 3_600_000)
    prices = batches.candidate(*MODELS[wire].split(":")).spec.prices
    assert prices is not None
    assert reply.cost_usd == pytest.approx(prices.cost(reply.usage) / 2)


def test_an_answer_tool_and_tool_calls_are_told_apart(batches: BatchClient) -> None:
    request = request_to("anthropic", schema=SCHEMA, highest_path=StructuredPath.LOOSE, schema_name="answer")
    given = anthropic({"type": "tool_use", "id": "t", "name": "answer", "input": {"n": 4}}, stop="tool_use")
    reply = recall(batches, request, given)
    assert (json.loads(reply.text), reply.tool_calls, reply.path) == ({"n": 4}, (), StructuredPath.LOOSE)

    function = {"name": "look", "arguments": '{"q": 1}'}
    given = openai(None, finish="tool_calls", tool_calls=[{"id": "t", "type": "function", "function": function}])
    reply = recall(batches, request_to("openai", tools=(LOOK,)), given)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("look", {"q": 1})]
    assert reply.stop is StopKind.TOOL_USE


def test_what_was_made_optional_for_the_provider_comes_back_in_the_callers_terms(batches: BatchClient) -> None:
    reply = recall(batches, request_to("openai", schema=OPTIONAL), openai('{"a": "x", "b": null}'))
    assert (json.loads(reply.text), reply.path) == ({"a": "x"}, StructuredPath.STRICT)


def test_an_answer_is_read_by_the_rung_it_was_asked_on(batches: BatchClient) -> None:
    # Meanwhile somebody has learned that the model refuses the strict rung: this answer was given on it all the same.
    asked = request_to("openai", schema=OPTIONAL)
    candidate = batches.candidate("openai", "gpt-4o")
    sent = batches.prepare(asked, candidate).sent
    now = request_to("openai", schema=OPTIONAL, highest_path=StructuredPath.PROMPT)
    reply = batches.recall(now, candidate, sent, openai('{"a": "x", "b": null}'), 1)
    assert (json.loads(reply.text), reply.path) == ({"a": "x"}, StructuredPath.STRICT)


def test_a_late_answer_is_priced_without_its_question(batches: BatchClient) -> None:
    candidate = batches.candidate("openai", "gpt-4o")
    sent = batches.prepare(request_to("openai", schema=SCHEMA), candidate).sent
    bare = LlmRequest(model="openai:gpt-4o", messages=())
    reply = batches.recall(bare, candidate, sent, openai('{"n": 1}'), 1)
    assert (reply.usage.output_tokens, reply.path) == (100, StructuredPath.STRICT)
    assert reply.cost_usd


def refused(status: int, message: str, **fields: Any) -> dict[str, Any]:
    body = {"error": {"message": message, "type": "invalid_request_error", "code": None, "param": None, **fields}}
    return {"response": {"status_code": status, "request_id": "r", "body": body}, "error": None}


def errored(kind: str, message: str) -> dict[str, Any]:
    nested = {"type": kind, "message": message}
    return {"type": "errored", "error": {"type": "error", "error": nested, "request_id": None}}


@dataclass(frozen=True)
class Case:
    wire: str
    answer: dict[str, Any]
    kind: ErrorKind
    parameter: str | None = None
    path: StructuredPath | None = None


CASES = [
    Case("openai", refused(429, "slow down", type="rate_limit_exceeded"), ErrorKind.RATE_LIMITED, path=STRICT),
    Case("openai", refused(503, "busy", type="server_error"), ErrorKind.OVERLOADED, path=STRICT),
    Case("openai", refused(401, "bad key"), ErrorKind.AUTH, path=STRICT),
    Case("openai", refused(400, "maximum context length is 8"), ErrorKind.CONTEXT_TOO_LONG, path=STRICT),
    Case("openai", refused(400, "Invalid schema for response_format"), ErrorKind.SCHEMA_REJECTED, path=STRICT),
    Case("openai", refused(400, "Unsupported parameter", param="temperature", code="unsupported_parameter"),
         ErrorKind.SAMPLING_REJECTED, "temperature", STRICT),
    Case("openai", {"response": None, "error": {"code": "batch_expired", "message": "too late"}}, ErrorKind.TIMEOUT),
    Case("openai", {"response": None, "error": {"code": "batch_cancelled", "message": "gone"}}, ErrorKind.TRANSPORT),
    Case("openai", openai(None, refusal="I will not"), ErrorKind.REFUSAL, path=STRICT),
    Case("openai", openai("", finish="content_filter"), ErrorKind.CONTENT_FILTER, path=STRICT),
    Case("openai", openai(""), ErrorKind.EMPTY, path=STRICT),
    Case("openai", {"response": {"status_code": 200, "body": {}}}, ErrorKind.TRANSPORT),
    Case("anthropic", errored("rate_limit_error", "slow down"), ErrorKind.RATE_LIMITED, path=STRICT),
    Case("anthropic", errored("overloaded_error", "busy"), ErrorKind.OVERLOADED, path=STRICT),
    Case("anthropic", errored("api_error", "oops"), ErrorKind.TRANSPORT, path=STRICT),
    Case("anthropic", errored("billing_error", "pay"), ErrorKind.AUTH, path=STRICT),
    Case("anthropic", errored("request_too_large", "big"), ErrorKind.REQUEST_TOO_LARGE, path=STRICT),
    Case("anthropic", errored("invalid_request_error", "prompt is too long: 9 tokens"), ErrorKind.CONTEXT_TOO_LONG,
         path=STRICT),
    Case("anthropic", errored("invalid_request_error", "output_config.format: grammar too large"),
         ErrorKind.SCHEMA_REJECTED, path=STRICT),
    Case("anthropic", {"type": "expired"}, ErrorKind.TIMEOUT),
    Case("anthropic", {"type": "canceled"}, ErrorKind.TRANSPORT),
    Case("anthropic", {"type": "vanished"}, ErrorKind.TRANSPORT),
    Case("anthropic", anthropic(stop="refusal"), ErrorKind.REFUSAL, path=STRICT),
    Case("anthropic", anthropic(stop="model_context_window_exceeded"), ErrorKind.CONTEXT_TOO_LONG,
         path=STRICT),
    Case("openai", missing("the batch ended (cancelled) without an answer"), ErrorKind.TRANSPORT),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.wire}-{case.kind}")
def test_errors_have_the_kinds_of_calls_at_once(batches: BatchClient, case: Case) -> None:
    error = failing(batches, request_to(case.wire, schema=SCHEMA), case.answer)
    assert (error.kind, error.parameter, error.path) == (case.kind, case.parameter, case.path)
    assert (error.lane, error.provider, error.latency_ms) == (BATCH_LANE, case.wire, 3_600_000)


@pytest.mark.parametrize("wire", MODELS)
def test_an_error_never_shows_the_prompt_or_a_key(batches: BatchClient, wire: str) -> None:
    said = "cannot do: How many of them? (key sk-test-abcdef123456)"
    answer = refused(400, said) if wire == "openai" else errored("invalid_request_error", said)
    text = failing(batches, request_to(wire), answer).message
    assert "sk-test" not in text
    assert "How many of them" not in text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 600) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["response", "error", "status_code", "body", "choices", "message", "content", "type", "usage", "delta", "code"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
_KNOWN = st.sampled_from(["succeeded", "errored", "expired"])


@pytest.mark.parametrize("wire", MODELS)
@given(
    rubbish=st.dictionaries(st.sampled_from(["response", "error", "message", "type"]), _JSON, max_size=4), kind=_KNOWN
)
def test_rubbish_in_place_of_an_answer_is_an_error_like_any_other(
    wire: str, rubbish: dict[str, Any], kind: str
) -> None:
    batches = BatchClient(made())
    with contextlib.suppress(LlmError):
        reply = recall(batches, request_to(wire, schema=SCHEMA), {"type": kind, **rubbish})
        assert reply.text or reply.stop is StopKind.LENGTH


def test_only_providers_with_batches_take_them(batches: BatchClient) -> None:
    takes = {name: batches.takes(batches.candidate(name, "any")) for name in ("openai", "anthropic", "groq", "ollama")}
    assert takes == {"openai": True, "anthropic": True, "groq": False, "ollama": False}
    with pytest.raises(LlmError) as caught:
        batches.candidate("gone", "any")
    assert caught.value.kind is ErrorKind.NOT_CONFIGURED
