"""From a provider's complaint to an error kind: E1 (retry-after), E2, E6, E7, B10, A17 and C18."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from engines.llm.base import ErrorKind, StructuredPath
from engines.llm.failures import Complaint, build, classify, redact, retry_after


@dataclass(frozen=True)
class Case:
    name: str
    complaint: Complaint
    kind: ErrorKind
    parameter: str | None = None
    path: StructuredPath | None = None


def said(message: str, status: int | None = 400, **more: str) -> Complaint:
    return Complaint(message=message, status=status, **more)  # type: ignore[arg-type]


STRICT = StructuredPath.STRICT
CASES = [
    Case("rate limit", said("slow down", 429), ErrorKind.RATE_LIMITED),
    Case("quota is no rate limit", said("no money", 429, code="insufficient_quota"), ErrorKind.AUTH),
    Case("spend limit", said("limit", 429, code="contract_spend_limit_reached"), ErrorKind.AUTH),
    Case("credit", said("Your credit balance is too low to access the API"), ErrorKind.AUTH),
    Case("gemini per minute", said("You exceeded your current quota, retry in 3s", 429), ErrorKind.RATE_LIMITED),
    Case("unauthorised", said("bad key", 401), ErrorKind.AUTH),
    Case("payment", said("pay", 402), ErrorKind.AUTH),
    Case("forbidden", said("no", 403), ErrorKind.AUTH),
    Case("529", said("busy", 529), ErrorKind.OVERLOADED),
    Case("503", said("busy", 503), ErrorKind.OVERLOADED),
    Case("overloaded under another status", said("overloaded_error", 500), ErrorKind.OVERLOADED),
    Case("500", said("oops", 500), ErrorKind.TRANSPORT),
    Case("502", said("bad gateway", 502), ErrorKind.TRANSPORT),
    Case("520", said("cloudflare", 520), ErrorKind.TRANSPORT),
    Case("408", said("slow", 408), ErrorKind.TIMEOUT),
    Case("504", said("slow", 504), ErrorKind.TIMEOUT),
    Case("409", said("conflict", 409), ErrorKind.TRANSPORT),
    Case("413", said("too big", 413), ErrorKind.REQUEST_TOO_LARGE),
    Case("413 about tokens", said("prompt is too long: 300000 tokens", 413), ErrorKind.CONTEXT_TOO_LONG),
    Case("openai context", said("too long", code="context_length_exceeded"), ErrorKind.CONTEXT_TOO_LONG),
    Case(
        "openai context in words",
        said("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."),
        ErrorKind.CONTEXT_TOO_LONG,
    ),
    Case("anthropic context", said("prompt is too long: 215000 tokens > 200000 maximum"), ErrorKind.CONTEXT_TOO_LONG),
    Case(
        "anthropic context with max_tokens",
        said("input length and `max_tokens` exceed context limit: 199000 + 20000 > 200000"),
        ErrorKind.CONTEXT_TOO_LONG,
    ),
    Case(
        "llama.cpp context",
        said("the request exceeds the available context size. try increasing the context size"),
        ErrorKind.CONTEXT_TOO_LONG,
    ),
    Case("grammar", said("The compiled grammar is too large"), ErrorKind.SCHEMA_REJECTED, path=STRICT),
    Case("grammar without a native path", said("The compiled grammar is too large"), ErrorKind.BAD_REQUEST),
    Case(
        "openai strict schema with a property called temperature",
        said(
            "Invalid schema for response_format 'answer': In context=('properties', 'temperature'), 'minimum' is "
            "not permitted.",
            parameter="response_format",
        ),
        ErrorKind.SCHEMA_REJECTED,
        path=STRICT,
    ),
    Case(
        "anthropic bounds",
        said("output_config.format.schema: For 'integer' type, properties maximum, minimum are not supported"),
        ErrorKind.SCHEMA_REJECTED,
        path=STRICT,
    ),
    Case(
        "response_format unavailable",
        said("This response_format type is unavailable now"),
        ErrorKind.SCHEMA_REJECTED,
        path=StructuredPath.LOOSE,
    ),
    Case(
        "forced tool while thinking",
        said("Thinking may not be enabled when tool_choice forces tool use."),
        ErrorKind.SCHEMA_REJECTED,
        path=StructuredPath.LOOSE,
    ),
    Case(
        "temperature deprecated",
        said("`temperature` is deprecated for this model."),
        ErrorKind.SAMPLING_REJECTED,
        "temperature",
    ),
    Case(
        "temperature unknown to the API version",
        said("temperature: Extra inputs are not permitted"),
        ErrorKind.SAMPLING_REJECTED,
        "temperature",
        STRICT,
    ),
    Case(
        "temperature fixed",
        said(
            "Unsupported value: 'temperature' does not support 0.2 with this model. "
            "Only the default (1) value is supported.",
            parameter="temperature",
            code="unsupported_value",
        ),
        ErrorKind.SAMPLING_REJECTED,
        "temperature",
        STRICT,
    ),
    Case("top_p", said("top_p is not supported with this model"), ErrorKind.SAMPLING_REJECTED, "top_p"),
    Case(
        "max_tokens renamed",
        said(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            code="unsupported_parameter",
        ),
        ErrorKind.SAMPLING_REJECTED,
        "max_tokens",
    ),
    Case(
        "old server",
        said("Unrecognized request argument supplied: max_completion_tokens"),
        ErrorKind.SAMPLING_REJECTED,
        "max_completion_tokens",
    ),
    Case("stream options", said("unknown field stream_options", 422), ErrorKind.SAMPLING_REJECTED, "stream_options"),
    Case(
        "limit too high is no refusal of the parameter",
        said("max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens"),
        ErrorKind.BAD_REQUEST,
    ),
    Case("filter", said("The response was filtered", code="content_filter"), ErrorKind.CONTENT_FILTER),
    Case("content policy", said("violates content policy", code="content_policy_violation"), ErrorKind.CONTENT_FILTER),
    Case("no such model", said("The model `gpt-99` does not exist", 404), ErrorKind.BAD_REQUEST),
    Case("stream: overloaded", said("Overloaded", None, type="overloaded_error"), ErrorKind.OVERLOADED),
    Case("stream: api error", said("Internal", None, type="api_error"), ErrorKind.TRANSPORT),
    Case("stream: rate", said("slow", None, type="rate_limit_error"), ErrorKind.RATE_LIMITED),
    Case("stream under status 200", said("Overloaded", 200, type="overloaded_error"), ErrorKind.OVERLOADED),
    Case("unknown status", said("teapot", 418), ErrorKind.BAD_REQUEST),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_classification(case: Case) -> None:
    assert classify(case.complaint, case.path) == (case.kind, case.parameter)


DATE = "Mon, 30 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"Retry-After": "2.5"}, 2.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "abc"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "86400"}, 3600.0),
        ({"retry-after": "9" * 40}, None),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:07 GMT", "date": DATE}, 7.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Tue, 30 Nov 2027 12:00:00 GMT", "date": DATE}, 3600.0),
        ({"retry-after-ms": "abc", "retry-after": "4"}, 4.0),
        ({}, None),
        (None, None),
    ],
)
def test_retry_after(headers: dict[str, str] | None, expected: float | None) -> None:
    assert retry_after(headers) == expected


def test_retry_after_date_without_the_servers_clock_uses_ours() -> None:
    noon = 1_796_040_000.0
    assert retry_after({"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT"}, now=noon) == 30.0


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-test-abc. Find yours",
        "Incorrect API key provided: sk-proj-****************wxyz.",
        "header Authorization: Bearer eyJhbGciOiJI.payload.sig refused",
        "api_key=hunter2hunter2 is wrong",
        "connect to http://user:pa55word@proxy:3128 failed",
        "key AIzaSyA1234567890abcdefgh invalid",
    ],
)
def test_keys_are_taken_out(text: str) -> None:
    clean = redact(text)
    assert "[redacted]" in clean
    for secret in ("sk-test-abc", "wxyz", "eyJhbGciOiJI", "hunter2", "pa55word", "AIzaSy"):
        assert secret not in clean


def test_configured_keys_and_the_prompt_are_taken_out_whatever_they_look_like() -> None:
    clean = redact(
        "key plainword refused for: Say SECRET-123 now", ("plainword",), ("first line\n  Say SECRET-123 now\n",)
    )
    assert "plainword" not in clean
    assert "SECRET-123" not in clean


def test_error_text_has_a_bounded_length() -> None:
    error = build(Complaint(message="x" * 100_000, status=400), path=None)
    assert len(error.message) < 700
