"""The list of processes, and the page of one with its living plan."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from models.records import ProcessStatus
from models.store import console as store
from models.store import processes as steering
from models.store import read
from models.store.tokens import Scope
from tasks.api.access import Caller, demand
from tasks.api.console.pages import go, page
from tasks.api.console.session import ROOT, Posted, Visitor
from tasks.api.console.tree import Ids, Look, grown, look
from tasks.api.parts import Here, Parts
from tasks.api.problems import Problem, not_found
from tasks.api.waiting import Row, events
from tasks.control import resume_process, stop_process

router = APIRouter()

PAGE: Final = 50
MESSAGES: Final = 30
MESSAGE_CHARS: Final = 4_000
Text = Annotated[str, Query(max_length=200)]


@router.get("/")
def processes_page(
    request: Request,
    here: Here,
    who: Visitor,
    status: Annotated[str, Query(max_length=20)] = "",
    recipe: Text = "",
    project: Text = "",
    cursor: Text = "",
) -> Response:
    """Top-level processes, the newest first."""
    chosen = {"status": status, "recipe": recipe.strip(), "project": project.strip()}
    if status and status not in ProcessStatus.__members__:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", f"there is no status {status!r}")
    rows = _found(here, who, chosen, before=_place(cursor), limit=PAGE + 1)
    shown = rows[:PAGE]
    last = read.Place(shown[-1]["created_at"], shown[-1]["id"]).encode() if shown else ""
    kept = {name: value for name, value in chosen.items() if value}
    return page(
        request,
        "processes.html",
        rows=_lines(here, shown),
        chosen=chosen,
        statuses=[each.value for each in ProcessStatus],
        is_first=not cursor,
        first=f"{ROOT}/?{urlencode(kept)}",
        more=len(rows) > PAGE,
        older=f"{ROOT}/?{urlencode(kept | {'cursor': last})}",
        rows_at=f"{ROOT}/rows?{urlencode(kept)}",
        page_size=PAGE,
    )


@router.get("/rows")
def rows_part(
    request: Request,
    here: Here,
    who: Visitor,
    wanted: Annotated[list[UUID], Query(alias="row", max_length=PAGE)] = [],  # noqa: B006
    after: Annotated[str | None, Query(max_length=200)] = None,
    status: Annotated[str, Query(max_length=20)] = "",
    recipe: Text = "",
    project: Text = "",
) -> Response:
    """Rows of the list that are looked at, as they are now; with ``after`` those that are newer than it before them.

    An empty ``after`` is older than everything.
    """
    database = here.runtime.database
    newer: list[dict[str, Any]] = []
    if after is not None:
        chosen = {"status": status, "recipe": recipe.strip(), "project": project.strip()}
        newer = _found(here, who, chosen, after=_place(after), limit=PAGE)
    known_rows = read.summaries(database, wanted, tenant=who.tenant)
    return page(request, "_rows.html", rows=_lines(here, [*newer, *known_rows]))


def _found(
    here: Parts,
    who: Caller,
    chosen: dict[str, str],
    *,
    limit: int,
    before: read.Place | None = None,
    after: read.Place | None = None,
) -> list[dict[str, Any]]:
    wanted = {name: _storable(value) or None for name, value in chosen.items()}
    return read.page(
        here.runtime.database,
        tenant=who.tenant,
        status=wanted["status"],
        recipe=wanted["recipe"],
        project=wanted["project"],
        before=before,
        after=after,
        limit=limit,
    )


def _lines(here: Parts, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with what the list shows besides."""
    about = store.glimpses(here.runtime.database, [row["id"] for row in rows])
    nothing = {"about": "", "nodes": 0, "calls": 0, "cost_usd": 0}
    return [
        row | about.get(row["id"], nothing) | {"place": read.Place(row["created_at"], row["id"]).encode()}
        for row in rows
    ]


def _place(text: str) -> read.Place | None:
    try:
        return read.Place.parse(text) if text else None
    except ValueError:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", "the address is none of ours") from None


@router.get("/processes/{process_id}")
def process_page(
    request: Request,
    here: Here,
    who: Visitor,
    process_id: UUID,
    opened: Annotated[Ids, Query(alias="open")] = [],  # noqa: B006
    whole: Annotated[Ids, Query(alias="all")] = [],  # noqa: B006
    shut: Ids = [],  # noqa: B006
    q: Text = "",
) -> Response:
    """Everything about one process."""
    status = known(here, who, process_id)
    return page(request, "process.html", **_shown(here, status, look(opened, whole, shut, q)), fresh=False)


@router.get("/processes/{process_id}/live")
def live_part(
    request: Request,
    here: Here,
    who: Visitor,
    process_id: UUID,
    opened: Annotated[Ids, Query(alias="open")] = [],  # noqa: B006
    whole: Annotated[Ids, Query(alias="all")] = [],  # noqa: B006
    shut: Ids = [],  # noqa: B006
    q: Text = "",
    seen: Text = "",
) -> Response:
    """What moves on the page of a process: facts and plan; head and messages only when they are not as ``seen``."""
    status = known(here, who, process_id)
    shown = _shown(here, status, look(opened, whole, shut, q))
    return page(request, "_live.html", **shown, fresh=shown["seen"] != seen)


@router.get("/processes/{process_id}/events")
def follow(request: Request, here: Here, who: Visitor, process_id: UUID) -> Response:
    """When something of a process has changed, for the page's script: not what, which it reads by itself."""
    return events(here, request, process_id, known(here, who, process_id)["root_id"], _that_it_moves)


def _that_it_moves(event: Row) -> Row | None:
    """Without the text that is being written and without the plan's picture: a large tree tells much of both."""
    if event.get("kind") == "chunk":
        return None
    return {key: event[key] for key in ("kind", "process", "node", "turn") if key in event}


@router.get("/processes/{process_id}/stop")
def confirm_stop(request: Request, here: Here, who: Visitor, process_id: UUID) -> Response:
    """Asks once more: a stop is for good."""
    demand(who, Scope.SUBMIT)
    return page(request, "stop.html", process=known(here, who, process_id))


@router.post("/processes/{process_id}/{action}")
def steer(here: Here, who: Visitor, form: Posted, process_id: UUID, action: str) -> Response:
    """Stop, suspend or resume."""
    demand(who, Scope.SUBMIT)
    known(here, who, process_id)
    match action:
        case "stop":
            stop_process(here.runtime, process_id)
        case "suspend":
            steering.suspend(here.runtime.database, process_id)
        case "resume":
            resume_process(here.runtime, process_id)
        case _:
            raise not_found(f"action {action}")
    return go(f"/processes/{process_id}")


def known(here: Parts, who: Caller, process_id: UUID) -> dict[str, Any]:
    """The process's status. 404 for those of other tenants, too."""
    status = read.status(here.runtime.database, process_id)
    if status is None or status["tenant"] != who.tenant:
        raise not_found(f"process {process_id}")
    return status


def _shown(here: Parts, status: dict[str, Any], seen: Look) -> dict[str, Any]:
    database, process_id = here.runtime.database, status["id"]
    rows = store.outline(
        database, process_id, opened=seen.opened, whole=seen.whole, sought=_storable(seen.sought) or None
    )
    messages = read.messages(database, process_id, limit=MESSAGES)
    wrapper = read.result(database, process_id) if status["status"] == "CLOSED" else None
    submitted = read.submitted(database, process_id) or {"goal": "", "params": {}}
    return {
        "process": status,
        "submitted": submitted,
        "plan": grown(rows, seen),
        "found": sum(row.wanted for row in rows) if seen.sought else None,
        "look": seen,
        "address": f"{ROOT}/processes/{process_id}",
        "messages": messages,
        "message_chars": MESSAGE_CHARS,
        "result": wrapper,
        "seen": f"{messages[-1]['id'] if messages else 0}-{status['status']}",
        "caller": None if status["parent_node_id"] is None else _caller(here, status["parent_node_id"]),
    }


def _caller(here: Parts, node_id: int) -> str:
    return f"{ROOT}/processes/{store.process_of(here.runtime.database, node_id)}/nodes/{node_id}"


def _storable(text: str) -> str:
    """``text`` as PostgreSQL can compare it."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
