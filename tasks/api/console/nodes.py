"""The page of one node: what it is for, what was said, done and paid in each of its turns."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from models.store import console as store
from tasks.api.console.pages import page
from tasks.api.console.processes import known
from tasks.api.console.session import Visitor
from tasks.api.parts import Here
from tasks.api.problems import not_found

router = APIRouter()

TURNS: Final = 100
MESSAGES: Final = 50
ARTIFACT_CHARS: Final = 50_000


@router.get("/processes/{process_id}/nodes/{node_id}")
def node_page(request: Request, here: Here, who: Visitor, process_id: UUID, node_id: int) -> Response:
    status = known(here, who, process_id)
    database = here.runtime.database
    found = store.node(database, node_id) if 0 < node_id < 2**63 else None
    if found is None or found["process_id"] != process_id:
        raise not_found(f"node {node_id} in the process {process_id}")
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
        turns=TURNS,
    )
