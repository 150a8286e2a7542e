"""One turn being worked on, and the client it calls."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Protocol

from engines.base import Engine, Need, Outcome
from engines.llm.base import LlmClient, LlmRequest
from engines.llm.catalogue import Candidate
from models.records import CallRecord, View
from models.store.claim import Claim, Keep
from tasks.heartbeat import Cancel
from tasks.observe import Watch


def fresh_nonce() -> str:
    """The token of a claim's fences: nobody who wrote a text before can know it."""
    return secrets.token_hex(4)


class Client(LlmClient, Protocol):
    """A client that can also say beforehand who would answer."""

    def candidate(self, request: LlmRequest) -> Candidate: ...


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One turn being worked on. What was reserved and what was called stay known when deciding about it fails."""

    engine: Engine
    claim: Claim
    cancel: Cancel
    watch: Watch
    client: LlmClient
    """Who answers a call: the providers, or a batch that has."""
    call: CallRecord | None = None
    """The call made, for the ledger."""
    need: Need | None = None
    """What the engine asked for."""
    outcome: Outcome | None = None
    """What came of it: what the engine decided about last, or the failure after which the call is made again."""
    keep: Keep | None = None
    """Set when the node's next turn is to follow at once in the same task."""
    lane_note: str | None = None
    """Why the call of a job in the batch lane is made in the normal one."""

    @property
    def view(self) -> View:
        return self.claim.view

    @property
    def record(self) -> CallRecord | None:
        """The call as the ledger and the audit trail keep it."""
        if self.call is None or self.lane_note is None:
            return self.call
        return replace(self.call, lane_note=self.lane_note)

    def see(self, view: View) -> None:
        """Go on with a view that says more."""
        self.claim = replace(self.claim, view=view)
