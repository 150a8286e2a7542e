"""Sending what waits in the batch lane, and fetching its answers: the part of the lane that talks to providers.

Beat asks for one round every now and then. Any number of rounds may run at once, each batch is visited by one of them;
none holds a turn or a lease of one. A crash at any point costs time, and at most one batch paid twice: the row is there
before the provider hears of the batch, and the provider is asked for it before it is sent again.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Final

from engines.llm.base import ErrorKind, LlmError, LlmReply, LlmRequest
from engines.llm.batch import BatchClient, missing
from engines.llm.catalogue import Candidate
from models.records import CallRecord
from models.store import batches as store
from models.store.batches import Batch, Late
from models.store.clean import NotStorable
from models.store.database import Database, DatabaseUnavailable
from tasks import faults
from tasks.accounting import failed_call, finished_call
from tasks.meter import BATCHES, Meter
from tasks.publish import Publisher

log = logging.getLogger(__name__)

MAX_BYTES: Final = 100_000_000
"""Largest batch; the providers' own limits are about twice that."""
LEASE_SECONDS: Final = 900.0
"""Longer than everything one visit does takes at most."""
ROUND_SECONDS: Final = 20.0
"""No further batch is visited by a round that has lasted so long; the next one goes on."""
LONGEST_PAUSE_SECONDS: Final = 600.0
ANSWERS_AT_ONCE: Final = 200
ROWS_AT_ONCE: Final = 500

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_PASSING: Final = frozenset(
    {ErrorKind.RATE_LIMITED, ErrorKind.OVERLOADED, ErrorKind.TIMEOUT, ErrorKind.TRANSPORT, ErrorKind.CANCELLED}
)
"""What may be otherwise the next time. Everything else sends the requests to the normal lane."""


class Collector:
    """One round is :meth:`collect`."""

    def __init__(
        self,
        *,
        database: Database,
        batches: BatchClient,
        publisher: Publisher,
        meter: Meter,
        size: int,
        wait_seconds: float,
        poll_seconds: float,
        lease_seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._batches = batches
        self._publisher = publisher
        self._meter = meter
        self._size = size
        self._wait_seconds = wait_seconds
        self._poll_seconds = poll_seconds
        self._lease_seconds = lease_seconds
        self._clock = clock

    def collect(self) -> int:
        """Clear away, put waiting requests into batches, send and ask for batches, wake who is answered. Returns how
        many batches were visited."""
        try:
            return self._round()
        except DatabaseUnavailable as error:
            log.warning("batches interrupted", extra={"error": str(error)})
            return 0

    def _round(self) -> int:
        until = self._clock() + ROUND_SECONDS
        self._clear()
        store.collect(self._database, size=self._size, wait_seconds=self._wait_seconds, max_bytes=MAX_BYTES)
        visited = 0
        while self._clock() < until and (batch := store.visit(self._database, lease_seconds=self._lease_seconds)):
            visited += 1
            self._visit(batch)
            self._wake()
        if not visited:
            self._wake()
        return visited

    def _clear(self) -> None:
        for late in store.clear(self._database, batch=ROWS_AT_ONCE):
            call = self._cost_of(late)
            try:
                store.note_late(self._database, late, call)
            except NotStorable:
                store.note_late(self._database, late, None)
            log.info("a batch's answer came too late", extra={"request": late.id, "cost": call and call.cost_usd})

    def _cost_of(self, late: Late) -> CallRecord | None:
        """The late answer's row of the ledger; what its question was does not matter for that."""
        request = LlmRequest(model=f"{late.provider}:{late.model}", messages=())
        try:
            candidate = self._batches.candidate(late.provider, late.model)
            reply: LlmReply = self._batches.recall(request, candidate, late.sent, late.answer, late.waited_ms)
        except LlmError as error:
            # What no model has worked on has cost nothing, and nobody has waited for it.
            return failed_call(error, late.attempt) if error.reached_inference else None
        except Exception:
            log.exception("a late answer cannot be read", extra={"request": late.id})
            return None
        return finished_call(reply, late.attempt)

    def _wake(self) -> None:
        while turns := store.wake(self._database, batch=ROWS_AT_ONCE):
            self._publisher.publish(turns)

    # -- one batch ---------------------------------------------------------------------------------------------------

    def _visit(self, batch: Batch) -> None:
        try:
            candidate = self._batches.candidate(batch.provider, batch.model)
            if batch.state == "SUBMITTING":
                self._send(batch, candidate)
            else:
                self._ask(batch, candidate)
        except LlmError as error:
            self._failed(batch, error)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            log.exception("batch cannot be handled", extra={"batch": batch.id})
            self._put_off(batch, f"{type(error).__name__}: {error}")

    def _failed(self, batch: Batch, error: LlmError) -> None:
        what = {"batch": batch.id, "provider": batch.provider, "kind": error.kind.value, "error": error.message}
        if batch.state == "SUBMITTED" and batch.old:
            log.error("batch given up", extra=what)
            self._end(batch, "expired", error.message, missing(f"the batch cannot be asked for: {error.message}"))
            return
        # What the provider has is paid for, and asked for as long as it may be there.
        if batch.state == "SUBMITTED" or error.kind in _PASSING:
            log.warning("batch put off", extra=what)
            self._put_off(batch, error.message, error.retry_after)
            return
        log.error("batch refused, its calls are made at once", extra=what)
        self._end(batch, "refused", f"{batch.provider} refuses the batch: {error.message}")

    def _put_off(self, batch: Batch, problem: str, retry_after: float | None = None) -> None:
        pause = min(self._poll_seconds * 2.0 ** min(batch.failures, 16), LONGEST_PAUSE_SECONDS)
        store.put_off(self._database, batch, seconds=max(pause, retry_after or 0.0), problem=problem)

    def _send(self, batch: Batch, candidate: Candidate) -> None:
        found = None
        if batch.visit > 1:
            # Somebody may have sent it and not come back to say so.
            known = store.known_ids(self._database, batch)
            found = self._batches.find(
                candidate, str(batch.key), since=batch.sent_at, requests=batch.requests, known=known
            )
            if found is not None:
                log.warning("a batch was sent before", extra={"batch": batch.id, "provider_batch": found})
        if found is None:
            bodies = [(self._custom_id(batch, number), body) for number, body in store.bodies(self._database, batch)]
            if not bodies:
                self._end(batch, "withdrawn", None)
                return
            if not store.sending(self._database, batch, len(bodies)):
                return
            faults.reach("before_batch")
            found = self._batches.submit(candidate, str(batch.key), bodies)
            faults.reach("after_batch")
        if store.submitted(self._database, batch, found, seconds=self._poll_seconds):
            return
        # We took too long, and somebody else has visited the batch: found ours there, or sent it once more.
        kept = store.provider_batch_id(self._database, batch)
        if kept not in (None, found):
            log.warning("a batch was sent twice", extra={"batch": batch.id, "kept": kept, "cancelled": found})
            self._batches.cancel(candidate, found)

    def _ask(self, batch: Batch, candidate: Candidate) -> None:
        batch_id = batch.provider_batch_id or ""
        progress = self._batches.look(candidate, batch_id)
        if not progress.ended:
            if not batch.wanted and not batch.cancelled:
                self._batches.cancel(candidate, batch_id)
                store.cancelled(self._database, batch)
            store.put_off(self._database, batch, seconds=self._poll_seconds)
            return
        outcome = progress.outcome or "failed"
        if outcome == "failed":
            self._end(batch, outcome, f"{batch.provider} refuses the batch: {progress.detail or 'no reason given'}")
            return
        self._keep(batch, self._batches.answers(candidate, batch_id))
        faults.reach("after_answers")
        self._end(batch, outcome, progress.detail, missing(f"the batch ended ({outcome}) without an answer"))

    def _keep(self, batch: Batch, answers: list[tuple[str, dict[str, object]]]) -> None:
        prefix = self._custom_id(batch, "")
        ours = [
            (int(custom_id.removeprefix(prefix)), given)
            for custom_id, given in answers
            if custom_id.startswith(prefix) and _NUMBER.fullmatch(custom_id.removeprefix(prefix))
        ]
        for start in range(0, len(ours), ANSWERS_AT_ONCE):
            piece = ours[start : start + ANSWERS_AT_ONCE]
            try:
                store.answer(self._database, batch, piece)
            except NotStorable:
                for number, given in piece:
                    self._keep_one(batch, number, given)

    def _keep_one(self, batch: Batch, number: int, given: dict[str, object]) -> None:
        try:
            store.answer(self._database, batch, [(number, given)])
        except NotStorable as error:
            store.answer(self._database, batch, [(number, missing(f"the answer cannot be stored: {error}"))])

    def _end(self, batch: Batch, outcome: str, detail: str | None, nothing: dict[str, object] | None = None) -> None:
        if store.end(self._database, batch, outcome, detail=detail, missing=nothing):
            self._meter.count(BATCHES, batch.provider, outcome)
            log.info("batch ended", extra={"batch": batch.id, "outcome": outcome, "requests": batch.requests})

    @staticmethod
    def _custom_id(batch: Batch, number: int | str) -> str:
        return f"{batch.key}-{number}"
