"""Calls in batches: what goes into one, what is asked of the provider, and answers read as those of calls at once.

A call that travels in a batch is prepared here as JSON and answered hours later, maybe in another process: between the
two lies a row, not a connection. Asking the provider is the business of whoever collects the rows.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType, ModuleType
from typing import Any, Final, Protocol, TypeVar

from engines.llm import ladder, runtime
from engines.llm.base import BATCH_LANE, ErrorKind, LlmError, LlmReply, LlmRequest, StructuredPath
from engines.llm.calls import complete_error, make_call, make_reply, verdict
from engines.llm.catalogue import Candidate
from engines.llm.client import RoutingClient
from engines.llm.wire import Call, Progress

log = logging.getLogger(__name__)
T = TypeVar("T")

_MODULES: Final = MappingProxyType({"openai": "engines.llm.openai_batch", "anthropic": "engines.llm.anthropic_batch"})
_MISSING: Final = "missing"
SEND_SECONDS: Final = 300.0
ASK_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call as the provider gets it. ``sent``: what reading its answer needs to know. Both are JSON."""

    body: dict[str, Any]
    sent: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """How far a batch is. outcome of an ended one: completed, expired, cancelled, or failed (then without results)."""

    outcome: str | None
    detail: str | None = None

    @property
    def ended(self) -> bool:
        return self.outcome is not None


Answers = list[tuple[str, dict[str, Any]]]
"""``(custom id, answer as the provider gave it)``, in any order."""


class Endpoint(Protocol):
    """A provider's batches. Raises whatever its SDK raises; never retries."""

    async def submit(self, key: str, bodies: Sequence[tuple[str, dict[str, Any]]]) -> str:
        """Send ``(custom id, body)`` as one batch that carries ``key``. Returns the provider's id of it."""
        ...

    async def find(self, key: str, *, since: datetime, requests: int, known: frozenset[str]) -> str | None:
        """The id of a batch sent at ``since`` with this key, so that it is not sent twice. Where the provider keeps no
        keys: of those with as many requests and none of the ``known``, the one made nearest to that time."""
        ...

    async def look(self, batch_id: str) -> Progressed: ...

    async def answers(self, batch_id: str) -> Answers:
        """Of an ended batch."""
        ...

    async def cancel(self, batch_id: str) -> None: ...


def missing(why: str) -> dict[str, Any]:
    """In place of an answer that never came."""
    return {_MISSING: why}


class BatchClient:
    """Batches of the providers that ``client`` reaches. Blocks the calling thread; safe to share between threads.

    Everything that fails does so with :class:`LlmError`.
    """

    def __init__(self, client: RoutingClient) -> None:
        self._client = client

    @staticmethod
    def takes(candidate: Candidate) -> bool:
        """Whether calls to this model can travel in batches."""
        return candidate.provider.batch and candidate.provider.wire in _MODULES

    def candidate(self, provider: str, model: str) -> Candidate:
        """The model a stored request was made for."""
        return self._client.known(provider, model)

    def prepare(self, request: LlmRequest, candidate: Candidate) -> Prepared:
        """``request`` as a member of a batch."""
        planned = ladder.plan(request, candidate)
        call = make_call(request, candidate, planned)
        body = _module(candidate).batch_body(call)
        sent = {
            "path": planned.path.value if planned.path is not None else None,
            "without": sorted(request.without),
            "outputLimit": body.get("max_tokens", call.max_output),
        }
        return Prepared(body=body, sent=sent)

    def recall(
        self, request: LlmRequest, candidate: Candidate, sent: dict[str, Any], answer: dict[str, Any], waited_ms: int
    ) -> LlmReply:
        """The reply that ``answer`` is to ``request``, or the :class:`LlmError`, as if the call had just been made.

        waited_ms: from the request to its answer; it becomes the latency.
        """
        path = StructuredPath(sent["path"]) if sent.get("path") else None
        request = replace(
            request, highest_path=path or request.highest_path, without=frozenset(sent.get("without") or ())
        )
        planned = ladder.plan(request, candidate)
        call = make_call(request, candidate, planned)
        progress = Progress(output_limit=sent.get("outputLimit"))
        error = _read(answer, call, progress, candidate, self._client.secrets) or verdict(progress)
        if error is not None:
            raise complete_error(error, call, progress, waited_ms, planned, lane=BATCH_LANE)
        reply = make_reply(call, progress, waited_ms, planned, lane=BATCH_LANE)
        return reply if reply.path is not None else replace(reply, path=path)

    def submit(self, candidate: Candidate, key: str, bodies: Sequence[tuple[str, dict[str, Any]]]) -> str:
        """Send a batch. Returns the provider's id of it. An error of kind timeout or transport leaves open whether the
        provider has it: :meth:`find` says."""
        return self._run(candidate, self._endpoint(candidate).submit(key, bodies), SEND_SECONDS)

    def find(
        self, candidate: Candidate, key: str, *, since: datetime, requests: int, known: frozenset[str]
    ) -> str | None:
        """See :meth:`Endpoint.find`."""
        work = self._endpoint(candidate).find(key, since=since, requests=requests, known=known)
        return self._run(candidate, work, ASK_SECONDS)

    def look(self, candidate: Candidate, batch_id: str) -> Progressed:
        """How far the batch is."""
        return self._run(candidate, self._endpoint(candidate).look(batch_id), ASK_SECONDS)

    def answers(self, candidate: Candidate, batch_id: str) -> Answers:
        """All answers of an ended batch."""
        return self._run(candidate, self._endpoint(candidate).answers(batch_id), SEND_SECONDS)

    def cancel(self, candidate: Candidate, batch_id: str) -> None:
        """Ask the provider to stop. What is answered already stays so, and is paid."""
        self._run(candidate, self._endpoint(candidate).cancel(batch_id), ASK_SECONDS)

    def _endpoint(self, candidate: Candidate) -> Endpoint:
        wire: Any = self._client.wire(candidate)
        endpoint: Endpoint = _module(candidate).Batches(wire.sdk)
        return endpoint

    def _run(self, candidate: Candidate, work: Coroutine[Any, Any, T], seconds: float) -> T:
        failed: LlmError
        try:
            return runtime.current().run(_within(work, seconds), None)
        except runtime.Aborted:
            failed = LlmError(ErrorKind.CANCELLED, "this process is going down")
        except Exception as error:
            known = _module(candidate).map_error(error, secrets=self._client.secrets)
            if known is None:
                raise
            failed = known
        raise failed


def _module(candidate: Candidate) -> ModuleType:
    return importlib.import_module(_MODULES[candidate.provider.wire])


async def _within(work: Coroutine[Any, Any, T], seconds: float) -> T:
    async with asyncio.timeout(seconds):
        return await work


def _read(
    answer: dict[str, Any], call: Call, progress: Progress, candidate: Candidate, secrets: tuple[str, ...]
) -> LlmError | None:
    if _MISSING in answer:
        return LlmError(ErrorKind.TRANSPORT, str(answer[_MISSING]))
    module = _module(candidate)
    try:
        module.read_answer(answer, call, progress)
    except Exception as error:
        path = call.native.path if call.native is not None else None
        quoted = [message.content for message in call.messages]
        known: LlmError | None = module.map_error(error, path=path, secrets=secrets, quoted=quoted)
        if known is None:
            # It lies in a row: reading it again would fail again, a new answer may be better.
            log.exception("a batch's answer is in no form we know")
            known = LlmError(ErrorKind.TRANSPORT, "the batch's answer is in no form we know")
        return known
    return None
