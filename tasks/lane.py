"""The batch lane, as a turn goes through it: its call is filed and its node parked, or the answer is here, or neither.

The same turn runs twice: once to file the request, and again when the answer has come, as if it had just been asked.
Where no batch can be had (provider, deadline, refusal) the call is made at once, and the turn's record says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engines.llm.base import CancelToken, ChunkSink, LlmError, LlmReply, LlmRequest
from engines.llm.batch import BatchClient
from engines.llm.catalogue import Candidate
from models.store import batch_requests as store
from models.store.clean import NotStorable
from models.store.database import Database
from tasks import faults
from tasks.attempt import Attempt
from tasks.lessons import Lessons
from tasks.retry import Postponed, nothing_paid

TOO_LATE = "no batch has answered before the lane's deadline"
CLOSED = "the lane's deadline has passed"


class Parked(Postponed):
    """The node waits for its batch, and its lease is given up already. Control flow."""

    def __init__(self) -> None:
        super().__init__(0.0)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of a batch in the place of its provider: a client that needs no network."""

    batches: BatchClient
    candidate: Candidate
    sent: dict[str, Any]
    answer: dict[str, Any]
    waited_ms: int

    def complete(
        self, request: LlmRequest, *, cancel: CancelToken | None = None, on_chunk: ChunkSink | None = None
    ) -> LlmReply:
        return self.batches.recall(request, self.candidate, self.sent, self.answer, self.waited_ms)


class BatchLane:
    """The lane of one worker process. ``batches``: ``None`` where no provider can be asked for any."""

    def __init__(self, database: Database, batches: BatchClient | None, lessons: Lessons) -> None:
        self._database = database
        self._batches = batches
        self._lessons = lessons

    def answered(self, attempt: Attempt) -> Candidate | None:
        """Let ``attempt`` take the answer to its call, if a batch has brought it. Returns who was asked.

        What has waited in vain is withdrawn.
        """
        if attempt.view.process.batch_until is None:
            return None
        with nothing_paid("batch lane not looked at"):
            lane = store.look(self._database, attempt.claim.lease)
        filed = lane.filed
        if filed is None:
            attempt.lane_note = None if lane.open else CLOSED
            return None
        if filed.answer is not None and self._batches is not None:
            try:
                candidate = self._batches.candidate(filed.provider, filed.model)
            except LlmError as error:
                attempt.lane_note = f"the batch's answer cannot be read: {error.message}"
                return None
            attempt.client = Answered(self._batches, candidate, filed.sent, filed.answer, filed.waited_ms)
            return candidate
        with nothing_paid("call not withdrawn from its batch"):
            if filed.state in ("WAITING", "SENT") and not store.withdraw(self._database, filed.id):
                raise Postponed(0.0)  # answered at this very moment
        attempt.lane_note = filed.detail or TOO_LATE
        return None

    def park(self, attempt: Attempt, need_attempt: int, request: LlmRequest, candidate: Candidate) -> None:
        """File the call and let go of the node: raises :class:`Parked`. Returns when the call is to be made at once."""
        if attempt.view.process.batch_until is None or attempt.lane_note is not None:
            return
        if self._batches is None or not self._batches.takes(candidate):
            attempt.lane_note = f"{candidate.provider_name} has no batches"
            return
        prepared = self._batches.prepare(self._lessons.apply(request, candidate), candidate)
        with nothing_paid("call not filed for a batch"):
            try:
                parked = store.park(
                    self._database,
                    attempt.claim.lease,
                    attempt=need_attempt,
                    provider=candidate.provider_name,
                    model=candidate.model,
                    sent=prepared.sent,
                    body=prepared.body,
                )
            except NotStorable as error:
                attempt.lane_note = f"the request cannot be stored: {error}"
                return
        if not parked:
            raise Postponed(0.0)  # the lease is lost, or the lane has closed at this very moment
        faults.reach("after_park")
        raise Parked
