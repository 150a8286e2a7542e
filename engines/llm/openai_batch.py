"""OpenAI's batches: a file of requests goes up, a batch of it is made, and files of answers and errors come down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import httpx2
import openai

from engines.llm.base import ErrorKind, LlmError
from engines.llm.batch import Answers, Progressed
from engines.llm.openai import absorb_whole, build_body, map_error
from engines.llm.wire import Call, Progress

__all__ = ["Batches", "batch_body", "map_error", "read_answer"]

_ENDPOINT: Final = "/v1/chat/completions"
_KEY: Final = "vancetope_batch"
_STREAMING: Final = ("stream", "stream_options")
_SKEW_SECONDS: Final = 600
"""How far the provider's clock may be behind ours."""
_OUTCOMES: Final = {"completed": "completed", "expired": "expired", "cancelled": "cancelled", "failed": "failed"}
_ERRORS: Final = {"batch_expired": ErrorKind.TIMEOUT}


def batch_body(call: Call) -> dict[str, Any]:
    """The body of the call, not streamed."""
    return {name: value for name, value in build_body(call).items() if name not in _STREAMING}


def read_answer(answer: dict[str, Any], call: Call, progress: Progress) -> None:
    """Take a line of the output or error file in. Raises what the SDK would have raised for a call at once."""
    error = answer.get("error")
    if error:
        code = str(error.get("code") or "")
        raise LlmError(_ERRORS.get(code, ErrorKind.TRANSPORT), f"{code}: {error.get('message') or 'no answer'}")
    response = answer.get("response") or {}
    status, body = response.get("status_code"), response.get("body") or {}
    if status != 200:
        text = f"Error code: {status}"
        shown = httpx2.Response(int(status or 500), request=httpx2.Request("POST", f"batch:{_ENDPOINT}"))
        raise openai.APIStatusError(text, response=shown, body=body.get("error", body))
    absorb_whole(body, call, progress)


class Batches:
    """See :class:`engines.llm.batch.Endpoint`."""

    def __init__(self, sdk: openai.AsyncOpenAI) -> None:
        self._sdk = sdk

    async def submit(self, key: str, bodies: Sequence[tuple[str, dict[str, Any]]]) -> str:
        lines = (
            json.dumps({"custom_id": custom_id, "method": "POST", "url": _ENDPOINT, "body": body}, ensure_ascii=False)
            for custom_id, body in bodies
        )
        content = "\n".join(lines).encode()
        uploaded = await self._sdk.files.create(file=(f"{key}.jsonl", content), purpose="batch")
        batch = await self._sdk.batches.create(
            completion_window="24h", endpoint=_ENDPOINT, input_file_id=uploaded.id, metadata={_KEY: key}
        )
        return batch.id

    async def find(self, key: str, *, since: datetime, requests: int, known: frozenset[str]) -> str | None:
        async for batch in self._sdk.batches.list(limit=100):
            if (batch.metadata or {}).get(_KEY) == key:
                return batch.id
            if batch.created_at < since.timestamp() - _SKEW_SECONDS:  # the newest come first
                break
        return None

    async def look(self, batch_id: str) -> Progressed:
        batch = await self._sdk.batches.retrieve(batch_id)
        problems = batch.errors.data if batch.errors is not None else None
        detail = "; ".join(f"{each.code}: {each.message}" for each in problems or ()) or None
        return Progressed(outcome=_OUTCOMES.get(batch.status), detail=detail)

    async def answers(self, batch_id: str) -> Answers:
        batch = await self._sdk.batches.retrieve(batch_id)
        found: Answers = []
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id:
                content = await self._sdk.files.content(file_id)
                lines = (json.loads(line) for line in content.content.split(b"\n") if line.strip())
                found += [(str(line.get("custom_id")), line) for line in lines]
        return found

    async def cancel(self, batch_id: str) -> None:
        await self._sdk.batches.cancel(batch_id)
