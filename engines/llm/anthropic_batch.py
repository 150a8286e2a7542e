"""Anthropic's message batches: the requests go up in one body, the results come down line by line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

import anthropic
import httpx2
from anthropic.types.messages import MessageBatch, batch_create_params

from engines.llm.anthropic import absorb_whole, map_error
from engines.llm.anthropic_body import build_body
from engines.llm.base import ErrorKind, LlmError
from engines.llm.batch import Answers, Progressed
from engines.llm.wire import Call, Progress

__all__ = ["Batches", "batch_body", "map_error", "read_answer"]

_SKEW: Final = timedelta(minutes=1)
_STATUS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status an error of this type has as the response to a call at once; others are faults of the server."""


def batch_body(call: Call) -> dict[str, Any]:
    """The body of the call, not streamed."""
    body = build_body(call)
    del body["stream"]
    return {**body, **body.pop("extra_body", {})}


def read_answer(answer: dict[str, Any], call: Call, progress: Progress) -> None:
    """Take a result in. Raises what the SDK would have raised for a call at once."""
    match answer.get("type"):
        case "succeeded":
            absorb_whole(anthropic.types.Message.construct(**(answer.get("message") or {})), call, progress)
        case "errored":
            body = answer.get("error") or {}
            nested = body.get("error") or {}
            status = _STATUS.get(str(nested.get("type")), 500)
            shown = httpx2.Response(status, request=httpx2.Request("POST", "batch:/v1/messages"))
            text = str(nested.get("message") or "no message")
            raise anthropic.APIStatusError(text, response=shown, body=body)
        case "expired":
            raise LlmError(ErrorKind.TIMEOUT, "the batch expired before the request was answered")
        case "canceled":
            raise LlmError(ErrorKind.TRANSPORT, "the batch was cancelled before the request was answered")
        case other:
            raise LlmError(ErrorKind.TRANSPORT, f"a result of an unknown type: {str(other)[:40]!r}")


class Batches:
    """See :class:`engines.llm.batch.Endpoint`."""

    def __init__(self, sdk: anthropic.AsyncAnthropic) -> None:
        self._sdk = sdk

    async def submit(self, key: str, bodies: Sequence[tuple[str, dict[str, Any]]]) -> str:
        requests = [{"custom_id": custom_id, "params": body} for custom_id, body in bodies]
        batch = await self._sdk.messages.batches.create(requests=cast("list[batch_create_params.Request]", requests))
        return batch.id

    async def find(self, key: str, *, since: datetime, requests: int, known: frozenset[str]) -> str | None:
        # The provider keeps no words of ours. Its answers will show by their custom ids whether the batch is ours.
        found: list[MessageBatch] = []
        async for batch in self._sdk.messages.batches.list(limit=100):
            if batch.created_at < since - _SKEW:  # the newest come first
                break
            if batch.id not in known and _size(batch) == requests:
                found.append(batch)
        return min(found, key=lambda each: abs(each.created_at - since)).id if found else None

    async def look(self, batch_id: str) -> Progressed:
        batch = await self._sdk.messages.batches.retrieve(batch_id)
        if batch.processing_status != "ended":
            return Progressed(outcome=None)
        counts = batch.request_counts
        if counts.expired:
            return Progressed(outcome="expired")
        return Progressed(outcome="cancelled" if counts.canceled else "completed")

    async def answers(self, batch_id: str) -> Answers:
        results = await self._sdk.messages.batches.results(batch_id)
        return [(line.custom_id, line.result.to_dict(mode="json")) async for line in results]

    async def cancel(self, batch_id: str) -> None:
        await self._sdk.messages.batches.cancel(batch_id)


def _size(batch: MessageBatch) -> int:
    counts = batch.request_counts
    return counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
