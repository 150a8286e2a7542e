"""Batches, as those who send and fetch them see them. One statement each, safe with any number of collectors at once.

A batch is visited by one collector at a time: a visit takes the row for a while (``next_visit_at``) and numbers itself
(``visits``), and whatever it finds out is written only while no later visit has begun. The row is there before the
provider hears of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from models.records import CallRecord, Turn
from models.store.clean import Cleaner
from models.store.database import Database
from models.store.sweep import OPEN, repaired

GIVEN_UP_DAYS = 3
"""No provider takes longer than a day over a batch: one that cannot be asked for so long is not asked any more."""
KEPT_DAYS = 7
"""Batches that ended so long ago are forgotten, once nothing refers to them."""

# Requests of suspended processes wait with them: what is not sent yet costs nothing.
_RIPE = f"""
SELECT r.provider, r.model FROM batch_requests r JOIN processes p ON p.id = r.process_id AND p.status IN {OPEN}
 WHERE r.state = 'WAITING' GROUP BY 1, 2
HAVING count(*) >= %(size)s OR min(r.created_at) <= now() - make_interval(secs => %(wait)s)
"""

_COLLECT = f"""
WITH chosen AS MATERIALIZED (
  SELECT r.id, r.bytes FROM batch_requests r JOIN processes p ON p.id = r.process_id AND p.status IN {OPEN}
   WHERE r.state = 'WAITING' AND r.provider = %(provider)s AND r.model = %(model)s
   ORDER BY r.id LIMIT %(size)s FOR NO KEY UPDATE OF r SKIP LOCKED
), fitting AS MATERIALIZED (
  SELECT id FROM (SELECT id, sum(bytes) OVER (ORDER BY id) AS total, row_number() OVER (ORDER BY id) AS place
                    FROM chosen) c WHERE total <= %(max_bytes)s OR place = 1
), made AS (
  INSERT INTO batches (provider, model, requests)
  SELECT %(provider)s, %(model)s, count(*) FROM fitting HAVING count(*) > 0 RETURNING id
)
UPDATE batch_requests r SET state = 'SENT', batch_id = made.id FROM made, fitting WHERE r.id = fitting.id
RETURNING r.id
"""

_VISIT = """
UPDATE batches b SET visits = b.visits + 1, next_visit_at = now() + make_interval(secs => %(lease)s)
 WHERE b.id = (SELECT id FROM batches WHERE state <> 'ENDED' AND next_visit_at <= now()
                ORDER BY next_visit_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
RETURNING b.id, b.key, b.provider, b.model, b.state, b.provider_batch_id, b.requests, b.visits, b.failures,
          coalesce(b.submitted_at, b.created_at), b.cancelled_at IS NOT NULL,
          (SELECT count(*) FROM batch_requests r WHERE r.batch_id = b.id AND r.state = 'SENT'),
          b.created_at < now() - make_interval(days => %(given_up)s)
"""

_BODIES = "SELECT id, body FROM batch_requests WHERE batch_id = %(batch)s AND state = 'SENT' ORDER BY id"
_SENDING = """
UPDATE batches SET requests = %(requests)s, submitted_at = now() WHERE id = %(batch)s AND visits = %(visit)s
RETURNING id
"""
_SUBMITTED = """
UPDATE batches SET state = 'SUBMITTED', provider_batch_id = %(provider_batch_id)s, failures = 0, detail = NULL,
       next_visit_at = now() + make_interval(secs => %(seconds)s)
 WHERE id = %(batch)s AND visits = %(visit)s AND state = 'SUBMITTING' RETURNING id
"""
_PUT_OFF = """
UPDATE batches SET next_visit_at = now() + make_interval(secs => %(seconds)s),
       failures = CASE WHEN %(detail)s::text IS NULL THEN 0 ELSE failures + 1 END, detail = %(detail)s
 WHERE id = %(batch)s AND visits = %(visit)s RETURNING id
"""
_CANCELLED = "UPDATE batches SET cancelled_at = now() WHERE id = %(batch)s AND visits = %(visit)s RETURNING id"
# Also what was withdrawn gets its answer: it is paid for.
_ANSWER = """
UPDATE batch_requests r SET answer = a.answer, answered_at = now(),
       state = CASE WHEN r.state = 'SENT' THEN 'ANSWERED' ELSE r.state END
  FROM json_to_recordset(%(answers)s::json) AS a (id bigint, answer json)
 WHERE r.id = a.id AND r.batch_id = %(batch)s AND r.answer IS NULL
RETURNING r.id
"""
_END = """
WITH ended AS (
  UPDATE batches SET state = 'ENDED', outcome = %(outcome)s, detail = %(detail)s, ended_at = now()
   WHERE id = %(batch)s AND visits = %(visit)s AND state <> 'ENDED' RETURNING id
), left_out AS (
  UPDATE batch_requests r SET detail = %(detail)s,
         state = CASE WHEN %(missing)s::json IS NULL THEN 'REFUSED' ELSE 'ANSWERED' END,
         answer = %(missing)s::json, answered_at = CASE WHEN %(missing)s::json IS NULL THEN NULL ELSE now() END
    FROM ended WHERE r.batch_id = ended.id AND r.state = 'SENT'
)
SELECT id FROM ended
"""

# The clock itself: a node woken by another collector meanwhile is not woken again.
_WAKE = f"""
WITH ready AS (
  SELECT n.id FROM batch_requests r JOIN nodes n ON n.id = r.node_id AND n.turn = r.turn
   WHERE r.state IN ('ANSWERED', 'REFUSED') AND n.status = 'WAITING' AND n.lease_expires_at IS NULL
     AND n.due_at > clock_timestamp()
   ORDER BY n.id LIMIT %(batch)s OFFSET %(skip)s FOR NO KEY UPDATE OF n SKIP LOCKED
), woken AS (
  UPDATE nodes n SET due_at = now(), next_hint_at = now() + make_interval(secs => %(grace)s), hints = 0
    FROM ready WHERE n.id = ready.id
  RETURNING n.id, n.turn, n.process_id
)
SELECT w.id, w.turn, p.engine, p.priority, p.status IN {OPEN} FROM woken w JOIN processes p ON p.id = w.process_id
"""

# What its turn does not ask for any more: it was used, or the process was stopped, or its time was up.
_WITHDRAW_LEFT = """
UPDATE batch_requests r SET state = 'WITHDRAWN' FROM nodes n
 WHERE n.id = r.node_id AND n.turn <> r.turn AND r.state = 'SENT'
RETURNING r.id
"""
_CLEAR = """
WITH left_over AS (
  SELECT r.id FROM batch_requests r JOIN nodes n ON n.id = r.node_id AND n.turn <> r.turn
    LEFT JOIN batches b ON b.id = r.batch_id
   WHERE (r.answer IS NULL AND (b.id IS NULL OR b.state = 'ENDED'))
      OR (r.answer IS NOT NULL AND EXISTS (SELECT 1 FROM llm_calls c WHERE c.node_id = r.node_id AND c.turn = r.turn
                                                                      AND c.lane = 'batch'))
   LIMIT %(batch)s FOR UPDATE OF r SKIP LOCKED
)
DELETE FROM batch_requests r USING left_over WHERE r.id = left_over.id RETURNING r.id
"""
_LATE = """
SELECT r.id, r.attempt, r.provider, r.model, r.sent, r.answer,
       (extract(epoch FROM r.answered_at - r.created_at) * 1000)::bigint
  FROM batch_requests r JOIN nodes n ON n.id = r.node_id AND n.turn <> r.turn
 WHERE r.answer IS NOT NULL AND NOT EXISTS (SELECT 1 FROM llm_calls c WHERE c.node_id = r.node_id AND c.turn = r.turn
                                                                        AND c.lane = 'batch')
 ORDER BY r.id LIMIT %(batch)s
"""
# The request is deleted by whoever notes it, so that its cost is counted once. A root whose calls are counted pays.
_NOTE_LATE = """
WITH gone AS (
  DELETE FROM batch_requests WHERE id = %(id)s RETURNING node_id, turn, process_id, root_id
), noted AS (
  INSERT INTO llm_calls (node_id, turn, lane, process_id, root_id, attempt, provider, model, error_kind, stop_reason,
                         structured_path, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd,
                         latency_ms, reached_inference)
  SELECT node_id, turn, 'batch', process_id, root_id, %(attempt)s, %(provider)s, %(model)s, %(error)s, %(stop)s,
         %(path)s, %(input)s, %(output)s, %(cache_read)s, %(cache_write)s, %(cost)s::numeric, %(latency)s, %(reached)s
    FROM gone
  ON CONFLICT DO NOTHING RETURNING root_id
)
UPDATE processes p SET used_calls = used_calls + %(reached)s::boolean::int, used_tokens = used_tokens + %(tokens)s,
       used_cost_usd = used_cost_usd + coalesce(%(cost)s::numeric, 0)
  FROM noted
 WHERE p.id = noted.root_id AND (max_calls IS NOT NULL OR max_tokens IS NOT NULL OR max_cost_usd IS NOT NULL)
RETURNING p.id
"""
_DROP = "DELETE FROM batch_requests WHERE id = %(id)s RETURNING id"
_FORGET = """
DELETE FROM batches b WHERE b.state = 'ENDED' AND b.ended_at < now() - make_interval(days => %(days)s)
   AND NOT EXISTS (SELECT 1 FROM batch_requests r WHERE r.batch_id = b.id) RETURNING b.id
"""
_KNOWN = """
SELECT provider_batch_id FROM batches
 WHERE provider = %(provider)s AND provider_batch_id IS NOT NULL AND submitted_at >= %(since)s - interval '1 hour'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch being visited. ``wanted``: requests somebody still waits for; ``requests``: those it was sent with.

    sent_at: when somebody was last about to send it. old: made more than :data:`GIVEN_UP_DAYS` ago.
    """

    id: int
    key: UUID
    provider: str
    model: str
    state: str
    provider_batch_id: str | None
    requests: int
    visit: int
    failures: int
    sent_at: datetime
    cancelled: bool
    wanted: int
    old: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """An answer that came when its turn was over."""

    id: int
    attempt: int
    provider: str
    model: str
    sent: dict[str, Any]
    answer: dict[str, Any]
    waited_ms: int


def collect(database: Database, *, size: int, wait_seconds: float, max_bytes: int) -> int:
    """Put waiting requests into new batches, one model each: as soon as ``size`` of a model wait, or one has waited
    ``wait_seconds``. A batch has at most ``max_bytes`` unless it is one request. Returns how many went."""
    went = 0
    for provider, model in database.statement(_RIPE, {"size": size, "wait": wait_seconds}):
        params = {"provider": provider, "model": model, "size": size, "max_bytes": max_bytes}
        while found := database.statement(_COLLECT, params):
            went += len(found)
    return went


def visit(database: Database, *, lease_seconds: float) -> Batch | None:
    """The next batch to send or to ask for, ours for ``lease_seconds``."""
    rows = database.statement(_VISIT, {"lease": lease_seconds, "given_up": GIVEN_UP_DAYS})
    if not rows:
        return None
    row = rows[0]
    return Batch(
        id=row[0],
        key=row[1],
        provider=row[2],
        model=row[3],
        state=row[4],
        provider_batch_id=row[5],
        requests=row[6],
        visit=row[7],
        failures=row[8],
        sent_at=row[9],
        cancelled=row[10],
        wanted=row[11],
        old=row[12],
    )


def bodies(database: Database, batch: Batch) -> list[tuple[int, dict[str, Any]]]:
    """``(request id, body)`` of what is still wanted."""
    return [(row[0], row[1]) for row in database.statement(_BODIES, {"batch": batch.id})]


def sending(database: Database, batch: Batch, requests: int) -> bool:
    """Note how many are about to be sent. ``False``: somebody else visits the batch by now."""
    return bool(database.statement(_SENDING, {**_visit(batch), "requests": requests}))


def known_ids(database: Database, batch: Batch) -> frozenset[str]:
    """The provider's ids of its other batches, of those that may have been sent at the same time."""
    rows = database.statement(_KNOWN, {"provider": batch.provider, "since": batch.sent_at})
    return frozenset(row[0] for row in rows)


def submitted(database: Database, batch: Batch, provider_batch_id: str, *, seconds: float) -> bool:
    """The provider has it; ask again in ``seconds``. ``False``: somebody else visits the batch by now."""
    params = {**_visit(batch), "provider_batch_id": provider_batch_id, "seconds": seconds}
    return bool(database.statement(_SUBMITTED, params))


def provider_batch_id(database: Database, batch: Batch) -> str | None:
    """What is stored now."""
    rows = database.statement("SELECT provider_batch_id FROM batches WHERE id = %(batch)s", {"batch": batch.id})
    return rows[0][0] if rows else None


def put_off(database: Database, batch: Batch, *, seconds: float, problem: str | None = None) -> None:
    """Nothing to do before ``seconds`` have passed. problem: what went wrong, counted in ``failures``."""
    detail = None if problem is None else Cleaner().text(problem)
    database.statement(_PUT_OFF, {**_visit(batch), "seconds": seconds, "detail": detail})


def cancelled(database: Database, batch: Batch) -> None:
    """The provider was asked to cancel it."""
    database.statement(_CANCELLED, _visit(batch))


def answer(database: Database, batch: Batch, answers: Sequence[tuple[int, dict[str, Any]]]) -> int:
    """Keep these answers, of requests of this batch that have none yet. Returns how many they were."""
    dumped = Cleaner().json([{"id": request_id, "answer": given} for request_id, given in answers])
    return len(database.statement(_ANSWER, {"batch": batch.id, "answers": dumped}))


def end(
    database: Database,
    batch: Batch,
    outcome: str,
    *,
    detail: str | None = None,
    missing: dict[str, Any] | None = None,
) -> bool:
    """The batch is over. Requests without an answer get ``missing`` as theirs, or are refused for ``detail``."""
    cleaner = Cleaner()
    params = {
        **_visit(batch),
        "outcome": outcome,
        "detail": None if detail is None else cleaner.text(detail),
        "missing": None if missing is None else cleaner.json(missing),
    }
    return bool(database.statement(_END, params))


def wake(database: Database, *, batch: int) -> list[Turn]:
    """Nodes whose request is answered or refused are due. Returns their turns to publish."""
    return repaired(database, _WAKE, batch=batch)


def clear(database: Database, *, batch: int) -> list[Late]:
    """Withdraw what no turn waits for any more, and delete what is done with. Returns answers that came too late."""
    database.statement(_WITHDRAW_LEFT, {})
    database.statement(_CLEAR, {"batch": batch})
    database.statement(_FORGET, {"days": KEPT_DAYS})
    return [
        Late(id=row[0], attempt=row[1], provider=row[2], model=row[3], sent=row[4], answer=row[5], waited_ms=row[6])
        for row in database.statement(_LATE, {"batch": batch})
    ]


def note_late(database: Database, late: Late, call: CallRecord | None) -> None:
    """A late answer is used by nobody, but its cost belongs into the ledger. ``None``: it cannot be read."""
    if call is None:
        database.statement(_DROP, {"id": late.id})
        return
    params = {
        "id": late.id,
        "attempt": call.attempt,
        "provider": call.provider,
        "model": call.model,
        "error": call.error_kind,
        "stop": call.stop_reason,
        "path": call.structured_path,
        "input": call.input_tokens,
        "output": call.output_tokens,
        "cache_read": call.cache_read_tokens,
        "cache_write": call.cache_write_tokens,
        "cost": call.cost_usd,
        "latency": call.latency_ms,
        "reached": call.reached_inference,
        "tokens": call.tokens,
    }
    database.statement(_NOTE_LATE, params)


def _visit(batch: Batch) -> dict[str, Any]:
    return {"batch": batch.id, "visit": batch.visit}
