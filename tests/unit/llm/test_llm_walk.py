"""Client and policy together, as a runner walks them: how many calls a trouble costs, and what the last one looks like.

Waits are added up instead of waited.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from fakes.provider import Answer, FakeProvider

from engines.llm.base import ErrorKind, LlmError, LlmReply, LlmRequest, StructuredPath
from engines.llm.client import RoutingClient
from engines.llm.policy import FailureCounts, GiveUp, RetryIn, StepDown, next_step

Ask = Callable[..., LlmRequest]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
BOTH = pytest.mark.parametrize("model", ["openai:gpt-4.1-mini", "anthropic:claude-sonnet-4-6"])


@dataclass
class Walk:
    """What came of a request after all its retries."""

    reply: LlmReply | None = None
    errors: list[LlmError] = field(default_factory=list)
    waited: float = 0.0
    reason: str = ""


def walk(client: RoutingClient, request: LlmRequest) -> Walk:
    result, counts = Walk(), FailureCounts()
    while True:
        try:
            result.reply = client.complete(request)
            return result
        except LlmError as error:
            step = next_step(error, counts, jitter=0.5)
            counts = FailureCounts.from_json(json.loads(json.dumps(counts.after(error).to_json())))
            result.errors.append(error)
        match step:
            case RetryIn(seconds):
                result.waited += seconds
            case StepDown(path, parameter):
                learned = request.without | ({parameter} if parameter else set())
                request = replace(request, highest_path=path or request.highest_path, without=learned)
            case GiveUp(reason):
                result.reason = reason
                return result


@BOTH
def test_rate_limit_with_a_wait_costs_two_calls(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str
) -> None:
    fake.enqueue(Answer(status=429, headers={"retry-after": "3"}))
    result = walk(client, ask(model=model))
    assert result.reply is not None
    assert len(fake.requests) == 2
    assert 3.0 <= result.waited < 6.0


@BOTH
def test_every_passing_server_trouble_is_survived(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str
) -> None:
    fake.enqueue(*(Answer(status=status) for status in (529, 520, 503, 408, 409)))
    result = walk(client, ask(model=model))
    assert result.reply is not None
    assert len(fake.requests) == 6
    assert not any(error.reached_inference for error in result.errors)


@BOTH
def test_grammar_that_is_too_large_walks_down_to_the_prompt(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str
) -> None:
    message = "The compiled grammar is too large, which would cause performance issues."
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    fake.enqueue(Answer(status=400, body=body), Answer(status=400, body=body))
    result = walk(client, ask(model=model, schema=SCHEMA))
    assert result.reply is not None
    assert (result.reply.path, result.reply.text) == (StructuredPath.PROMPT, '{"n": 1}')
    assert [error.path for error in result.errors] == [StructuredPath.STRICT, StructuredPath.LOOSE]
    assert not any(error.reached_inference for error in result.errors)
    assert result.waited == 0


@BOTH
def test_native_path_that_fails_twice_goes_down_instead_of_a_third_time(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str
) -> None:
    fake.enqueue(Answer(status=500), Answer(status=500))
    result = walk(client, ask(model=model, schema=SCHEMA))
    assert result.reply is not None
    assert result.reply.path is StructuredPath.LOOSE
    assert len(fake.requests) == 3


def test_refused_temperature_is_learned_with_one_extra_call(
    client: RoutingClient, fake: FakeProvider, ask: Ask
) -> None:
    body = {"error": {"message": "temperature is deprecated for this model", "param": "temperature"}}
    fake.enqueue(Answer(status=400, body=body))
    result = walk(client, ask(model="compatible:unknown", temperature=0.2))
    assert result.reply is not None
    assert ["temperature" in request.body for request in fake.requests] == [True, False]


@BOTH
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(refusal="no"), ErrorKind.REFUSAL),
        (Answer(status=401), ErrorKind.AUTH),
        (Answer(status=413), ErrorKind.REQUEST_TOO_LARGE),
        (
            Answer(status=400, body={"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}),
            ErrorKind.CONTEXT_TOO_LONG,
        ),
        (Answer(status=429, body={"error": {"message": "x", "code": "insufficient_quota"}}), ErrorKind.RATE_LIMITED),
    ],
    ids=lambda value: value.value if isinstance(value, ErrorKind) else "",
)
def test_what_cannot_get_better_is_one_call(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str, answer: Answer, kind: ErrorKind
) -> None:
    if kind is ErrorKind.RATE_LIMITED:  # the same status, but no money left: no rate limit at all
        if model.startswith("anthropic"):
            message = "Your credit balance is too low"
            answer = replace(answer, body={"error": {"type": "invalid_request_error", "message": message}})
        kind = ErrorKind.AUTH
    fake.enqueue(answer)
    result = walk(client, ask(model=model))
    assert [error.kind for error in result.errors] == [kind]
    assert len(fake.requests) == 1
    assert result.reason


def test_empty_answers_cost_three_calls_and_their_tokens_are_told(
    client: RoutingClient, fake: FakeProvider, ask: Ask
) -> None:
    fake.enqueue(*(Answer(text="") for _ in range(10)))
    result = walk(client, ask())
    assert [error.kind for error in result.errors] == [ErrorKind.EMPTY] * 3
    assert sum(error.usage.total_tokens for error in result.errors) == 45


@BOTH
@pytest.mark.parametrize("highest", [StructuredPath.STRICT, StructuredPath.LOOSE])
def test_a_schema_is_sent_with_its_properties_in_their_authors_order(
    client: RoutingClient, fake: FakeProvider, ask: Ask, model: str, highest: StructuredPath
) -> None:
    """Models write properties in the schema's order: sorted, this verdict would come before its reasons."""
    nested = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}, "required": ["z"]}
    schema = {
        "type": "object",
        "properties": {"reasons": {"type": "array", "items": nested}, "answer": {"type": "boolean"}},
        "required": ["reasons", "answer"],
    }

    client.complete(ask(schema=schema, model=model, highest_path=highest))

    sent = json.dumps(fake.requests[0].body)
    assert 0 < sent.index('"reasons": {') < sent.index('"answer": {')
    assert 0 < sent.index('"z": {') < sent.index('"a": {')
