"""The page of one node: what it is for, what was said, done and paid in each of its turns; and the ways to it."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from models.store import console as store
from models.store import read
from tasks.api.access import Caller
from tasks.api.console.pages import go, page
from tasks.api.console.processes import known
from tasks.api.console.session import Visitor
from tasks.api.console.texts import plain
from tasks.api.parts import Here, Parts
from tasks.api.problems import not_found
from tasks.api.waiting import Row, events

router = APIRouter()

TURNS: Final = 100
MESSAGES: Final = 50
ARTIFACT_CHARS: Final = 50_000


@router.get("/nodes/{node_id}")
def to_node(here: Here, who: Visitor, node_id: int) -> Response:
    """To the page of a node, for whoever knows only its id, as a turn's message does."""
    return go(f"/processes/{_process_of(here, who, node_id)}/nodes/{node_id}")


@router.get("/nodes/{node_id}/process")
def to_process(here: Here, who: Visitor, node_id: int) -> Response:
    """To the page of the process that the node belongs to."""
    return go(f"/processes/{_process_of(here, who, node_id)}")


def _process_of(here: Parts, who: Caller, node_id: int) -> UUID:
    database = here.runtime.database
    process_id = store.process_of(database, node_id) if 0 < node_id < 2**63 else None
    state = read.state(database, process_id) if process_id is not None else None
    if process_id is None or state is None or state["tenant"] != who.tenant:
        raise not_found(f"node {node_id}")
    return process_id


@router.get("/processes/{process_id}/nodes/{node_id}")
def node_page(request: Request, here: Here, who: Visitor, process_id: UUID, node_id: int) -> Response:
    status = known(here, who, process_id)
    database = here.runtime.database
    found = store.node(database, node_id) if 0 < node_id < 2**63 else None
    if found is None or found["process_id"] != process_id:
        raise not_found(f"node {node_id} in the process {process_id}")
    own, below = store.node_cost(database, node_id)
    return page(
        request,
        "node.html",
        process=status,
        node=found,
        phases=store.node_phases(database, node_id, limit=TURNS),
        calls=store.node_calls(database, node_id, limit=TURNS),
        artifacts=store.node_artifacts(database, node_id, chars=ARTIFACT_CHARS),
        messages=store.node_messages(database, process_id, node_id, limit=MESSAGES),
        called=store.called(database, node_id, limit=TURNS),
        cost_usd=None if own is None and below is None else (own or 0) + (below or 0),
        below_usd=below,
        turns=TURNS,
    )


@router.get("/processes/{process_id}/nodes/{node_id}/events")
def follow_node(request: Request, here: Here, who: Visitor, process_id: UUID, node_id: int) -> Response:
    """What is told of one node: its turns, and the text of a call as it is written, harmless to look at."""
    root = known(here, who, process_id)["root_id"]

    def shown(event: Row) -> Row | None:
        if event.get("node") != node_id or event.get("process") != str(process_id):
            return None
        return event | {"text": plain(str(event["text"]))} if "text" in event else event

    return events(here, request, process_id, root, shown)
