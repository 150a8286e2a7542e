"""Endpoints and their outbox, for tests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from factory import claimed, make_node, make_process, rows

from models.records import Reason
from models.store import webhooks
from models.store.commit import commit_turn
from models.store.database import Database
from models.store.webhooks import Event
from models.transition import AskUser, PhaseNote, Transition, park

NOTE = PhaseNote(phase="S", iteration=1)
EVERYTHING = tuple(Event)


def endpoint(
    database: Database, url: str = "https://hooks.example/in", *, tenant: str = "default", **fields: Any
) -> tuple[int, str]:
    """A new endpoint that is told everything: its id and its secret."""
    made, secret = webhooks.create(database, tenant, url, fields.pop("events", EVERYTHING), **fields)
    return made.id, secret


def told(database: Database, endpoint_id: int | None = None) -> list[dict[str, Any]]:
    """What is in the outbox, the oldest first."""
    return [
        row[0]
        for row in rows(
            database,
            "SELECT payload FROM webhook_deliveries WHERE %(id)s::bigint IS NULL OR endpoint_id = %(id)s ORDER BY id",
            id=endpoint_id,
        )
    ]


def closings(database: Database) -> list[tuple[str, str]]:
    """``(process, close reason)`` of each closing that is told."""
    found = [each["data"] for each in told(database) if each["type"] == "process.closed"]
    return [(each["processId"], each["closeReason"]) for each in found]


def commit(database: Database, node: int, step: Transition) -> None:
    commit_turn(database, claimed(database, node), step, call=None, elapsed_seconds=0.0)


def question(ttl: float = 60.0, **fields: Any) -> AskUser:
    base: dict[str, Any] = {
        "type": "DECISION", "criticality": "NORMAL", "title": "Which city?", "body": "Both are fine.",
        "payload": {"options": ["Graz", "Linz"]}, "ttl_seconds": ttl, "originator": "probe:x", "tags": ("travel",),
    }  # fmt: skip
    return AskUser(**(base | fields))


def asking(**fields: Any) -> Transition:
    return park("S", {}, note=NOTE, reason=Reason.ASKED, effects=(question(**fields),))


def ask(database: Database, process: UUID | None = None, **fields: Any) -> tuple[int, int]:
    """A node that asks by its commit: the node and the question."""
    node = make_node(database, process or make_process(database))
    commit(database, node, asking(**fields))
    return node, rows(database, "SELECT id FROM inbox_items WHERE node_id = %(id)s", id=node)[0][0]
