"""What a model call is expected to cost before it is made, and what the ledger keeps of it afterwards. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engines.llm.base import LlmError, LlmReply, LlmRequest, StructuredPath, Usage
from engines.llm.catalogue import Candidate
from models.records import CallRecord


def learned(request: LlmRequest, transport: Mapping[str, Any]) -> LlmRequest:
    """The request with what earlier refusals of this node's calls have taught."""
    path = transport.get("path")
    without = transport.get("without")
    if path is None and not without:
        return request
    return replace(
        request,
        highest_path=StructuredPath(path) if path else request.highest_path,
        without=request.without | frozenset(without or ()),
    )


def estimate(request: LlmRequest, candidate: Candidate) -> tuple[int, float | None]:
    """Upper bound of a call in tokens and US dollars, for the reservation.

    ``None`` dollars: the model has no price and may cost anything. What runs on own machines costs nothing.
    """
    characters = sum(len(message.content) for message in request.messages)
    # Two characters per token is dense text; real prompts come to three or four, so this errs on the safe side.
    prompt = characters // 2 + 16
    output = min(request.max_output_tokens or candidate.spec.default_output, candidate.spec.max_output)
    prices = candidate.spec.prices
    if prices is not None:
        return prompt + output, prices.cost(Usage(input_tokens=prompt, output_tokens=output))
    is_free = candidate.provider.local or candidate.provider.wire == "scripted"
    return prompt + output, 0.0 if is_free else None


def finished_call(reply: LlmReply, attempt: int) -> CallRecord:
    """The ledger row of a call that ended with a reply."""
    usage = reply.usage
    return CallRecord(
        provider=reply.provider,
        model=reply.model,
        attempt=attempt,
        error_kind=None,
        stop_reason=reply.stop_reason or reply.stop.value,
        structured_path=reply.path.value if reply.path else None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_usd=reply.cost_usd,
        latency_ms=reply.latency_ms,
        reached_inference=True,
        lane=reply.lane,
    )


def failed_call(error: LlmError, attempt: int) -> CallRecord:
    """The ledger row of a call that failed; it may have cost something all the same."""
    usage = error.usage
    return CallRecord(
        provider=error.provider,
        model=error.model,
        attempt=attempt,
        error_kind=error.kind.value,
        stop_reason="",
        structured_path=error.path.value if error.path else None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_usd=error.cost_usd,
        latency_ms=error.latency_ms,
        reached_inference=error.reached_inference,
        lane=error.lane,
    )
