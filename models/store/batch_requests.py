"""Model calls that wait for a batch, as the turn sees them: look, file and park, give the wait up.

A request is its (node, turn)'s: parked, the node keeps its turn, and when it is claimed again the same turn finds what
became of the request. Nothing is deleted here; ``models.store.batches`` clears away what no turn asks for any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.records import Lease
from models.store.clean import Cleaner
from models.store.database import Database

_LOOK = """
SELECT coalesce(root.batch_until > now(), false), r.id, r.state, r.provider, r.model, r.sent, r.answer, r.detail,
       (extract(epoch FROM coalesce(r.answered_at, now()) - r.created_at) * 1000)::bigint
  FROM processes root LEFT JOIN batch_requests r ON r.node_id = %(node)s AND r.turn = %(turn)s
 WHERE root.id = %(root)s
"""

# Due at the end of the lane: whoever wakes the node before then has its answer. A new fence, as for every turn that is
# given back: a heartbeat under way must not lease it again.
_PARK = """
WITH parked AS (
  UPDATE nodes n SET status = 'WAITING', lease_owner = NULL, lease_expires_at = NULL, fence = n.fence + 1, hints = 0,
         due_at = root.batch_until, next_hint_at = root.batch_until
    FROM processes root
   WHERE root.id = %(root)s AND root.batch_until > now()
     AND n.id = %(node)s AND n.turn = %(turn)s AND n.fence = %(fence)s AND n.settled_at IS NULL
  RETURNING n.id
), filed AS (
  INSERT INTO batch_requests (node_id, turn, process_id, root_id, attempt, provider, model, sent, body, bytes)
  SELECT parked.id, %(turn)s, %(process)s, %(root)s, %(attempt)s, %(provider)s, %(model)s, %(sent)s::json,
         %(body)s::json, %(bytes)s FROM parked
  ON CONFLICT (node_id, turn) DO NOTHING
)
SELECT id FROM parked
"""

_WITHDRAW = """
UPDATE batch_requests SET state = 'WITHDRAWN' WHERE id = %(id)s AND state IN ('WAITING', 'SENT') RETURNING id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed:
    """A request of this very turn. ``answer`` is the provider's, as it came; ``waited_ms`` until then or until now."""

    id: int
    state: str
    provider: str
    model: str
    sent: dict[str, Any]
    answer: dict[str, Any] | None
    detail: str | None
    waited_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """``open``: the lane's deadline has not passed, by the database's clock."""

    open: bool
    filed: Filed | None


def look(database: Database, lease: Lease) -> Lane:
    """What the batch lane has for this turn."""
    rows = database.statement(_LOOK, {"root": lease.root_id, "node": lease.node_id, "turn": lease.turn})
    if not rows:
        return Lane(open=False, filed=None)
    is_open, request_id, state, provider, model, sent, answer, detail, waited = rows[0]
    if request_id is None:
        return Lane(open=is_open, filed=None)
    filed = Filed(
        id=request_id,
        state=state,
        provider=provider,
        model=model,
        sent=sent,
        answer=answer,
        detail=detail,
        waited_ms=min(max(waited, 0), 2**31 - 1),
    )
    return Lane(open=is_open, filed=filed)


def park(
    database: Database,
    lease: Lease,
    *,
    attempt: int,
    provider: str,
    model: str,
    sent: dict[str, Any],
    body: dict[str, Any],
) -> bool:
    """File the request and let go of its node, together or not at all. The turn keeps its number, and what is reserved
    stays reserved. ``False``: the lease was lost, or the lane's deadline has passed."""
    cleaner = Cleaner()
    dumped = cleaner.json(body)
    params = {
        "root": lease.root_id,
        "process": lease.process_id,
        "node": lease.node_id,
        "turn": lease.turn,
        "fence": lease.fence,
        "attempt": attempt,
        "provider": cleaner.text(provider),
        "model": cleaner.text(model),
        "sent": cleaner.json(sent),
        "body": dumped,
        "bytes": len(dumped.encode()),
    }
    return bool(database.statement(_PARK, params))


def withdraw(database: Database, request_id: int) -> bool:
    """Wait no longer. ``False``: it is answered or refused meanwhile."""
    return bool(database.statement(_WITHDRAW, {"id": request_id}))
