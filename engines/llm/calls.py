"""From a request to a call, and from what came back of it to a reply or an error. Pure, the same for every lane."""

from __future__ import annotations

from typing import Any

from engines.llm import ladder
from engines.llm.base import BATCH_LANE, NORMAL_LANE, ErrorKind, LlmError, LlmReply, LlmRequest, StopKind
from engines.llm.catalogue import Candidate
from engines.llm.wire import Call, Progress


def make_call(request: LlmRequest, candidate: Candidate, planned: ladder.Plan) -> Call:
    """Every choice made: what the model takes and the caller asks for."""
    spec = candidate.spec
    wanted = request.max_output_tokens if request.max_output_tokens is not None else spec.default_output
    sampling = spec.accepts_sampling and "temperature" not in request.without
    return Call(
        candidate=candidate,
        messages=planned.messages,
        tools=request.tools,
        tool_choice=request.tool_choice,
        native=planned.native,
        temperature=request.temperature if sampling else None,
        max_output=max(1, min(wanted, spec.max_output)),
        thinking_tokens=request.thinking_tokens,
        without=request.without,
    )


def verdict(progress: Progress) -> LlmError | None:
    """The error that a normally ended call amounts to when it brought no answer."""
    said = "".join(progress.refusal).strip()
    text = progress.whole_text
    if progress.verdict is ErrorKind.CONTEXT_TOO_LONG:
        return LlmError(ErrorKind.CONTEXT_TOO_LONG, "the answer was cut where the context window ends")
    if progress.verdict is ErrorKind.CONTENT_FILTER:
        return LlmError(ErrorKind.CONTENT_FILTER, f"the provider filtered the answer ({progress.stop_reason})")
    if progress.verdict is not None:
        return LlmError(progress.verdict, said or text.strip() or "the model refused", partial_text=said or text)
    if not text.strip() and not progress.tool_calls and progress.stop is not StopKind.LENGTH:
        return LlmError(ErrorKind.EMPTY, f"the model answered nothing (stop reason {progress.stop_reason!r})")
    return None


def make_reply(
    call: Call, progress: Progress, latency: int, planned: ladder.Plan, *, lane: str = NORMAL_LANE
) -> LlmReply:
    """The answer in the caller's terms, with what it cost in its lane. latency: milliseconds."""
    return LlmReply(
        text=planned.restore(progress.whole_text) if planned.restore is not None else progress.whole_text,
        tool_calls=tuple(progress.tool_calls),
        stop=progress.stop or StopKind.OTHER,
        stop_reason=progress.stop_reason or "",
        provider=call.candidate.provider_name,
        model=progress.model or call.candidate.model,
        path=planned.path,
        latency_ms=latency,
        output_limit=progress.output_limit,
        output_ceiling=call.candidate.spec.max_output,
        lane=lane,
        **_spent(call, progress, lane),
    )


def complete_error(
    error: LlmError, call: Call, progress: Progress, latency: int, planned: ladder.Plan, *, lane: str = NORMAL_LANE
) -> LlmError:
    """``error`` with what else is known of its call."""
    error.lane = lane
    error.provider = call.candidate.provider_name
    error.model = progress.model or call.candidate.model
    error.latency_ms = latency
    error.partial_text = error.partial_text or progress.whole_text
    error.reached_inference = error.reached_inference or progress.reached
    if error.path is None and progress.reached:
        error.path = planned.path
    for name, value in _spent(call, progress, lane).items():
        setattr(error, name, value)
    return error


def _spent(call: Call, progress: Progress, lane: str) -> dict[str, Any]:
    """Usage and cost. A call whose provider told no usage has an unknown cost, not a cost of zero."""
    if progress.usage is None:
        return {}
    prices = call.candidate.spec.prices
    share = call.candidate.provider.batch_price_factor if lane == BATCH_LANE else 1.0
    return {"usage": progress.usage, "cost_usd": prices.cost(progress.usage) * share if prices is not None else None}
