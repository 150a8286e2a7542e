"""Processes: submit, look at, wait for, stop."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from http import HTTPStatus
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any
from uuid import UUID, uuid5

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from uuid_utils.compat import uuid7

from models.records import NewProcess as Prepared
from models.records import ProcessStatus
from models.store import processes as store
from models.store import read
from models.store.plan import tree
from tasks.api import shapes
from tasks.api.access import Caller, Reader, Submitter
from tasks.api.parts import Here, Parts
from tasks.api.problems import Problem, not_found, responses
from tasks.api.waiting import events, until_closed
from tasks.control import resume_process, stop_process
from tasks.exporting import exported, file_name
from tasks.submission import Submission, parse_submission, prepare
from tasks.traces import sent_along

router = APIRouter(prefix="/v1/processes", tags=["processes"])

LONGEST_WAIT_SECONDS = 60.0
MAX_PLAN_NODES = 5_000
EXPORT_IN_MEMORY = 4_000_000
"""Bytes of an export; a larger one is put together on disk."""
_KEYS = UUID("5b6d1f0e-58a1-4b52-9a0e-6d7f4ce6a9d1")
"""Namespace of the ids made from idempotency keys."""

Page = Annotated[int, Query(ge=1, le=200, description="Largest number of items.")]


def _callers_trace(request: Request) -> dict[str, str]:
    return sent_along(request.headers.get)


CallersTrace = Annotated[dict[str, str], Depends(_callers_trace)]


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    summary="Submit a job",
    responses=responses(
        HTTPStatus.CONFLICT,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        others={200: {"model": shapes.Process, "description": "It was submitted before; nothing was changed."}},
    ),
)
def submit(
    wanted: shapes.NewProcess,
    here: Here,
    who: Submitter,
    trace: CallersTrace,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> shapes.Process:
    """Store the job and start it. Sent again with the same `id` or `Idempotency-Key`, it is the same process.

    409 when that id was used for something else.
    """
    submission = _submission(wanted, who, idempotency_key, trace)
    remarks: list[str] = []
    runtime = here.runtime
    process = prepare(submission, runtime.settings, runtime.engines, runtime.sources, remarks.append)
    turns = store.submit(here.runtime.database, [process])
    if turns:
        here.runtime.publisher.publish(turns)
    else:
        _same(here, process)
        response.status_code = HTTPStatus.OK
    response.headers["Location"] = f"/v1/processes/{process.id}"
    return _process(here, who, process.id).model_copy(update={"warnings": remarks})


@router.get("", summary="List processes")
def list_processes(
    here: Here,
    who: Reader,
    status: Annotated[ProcessStatus | None, Query()] = None,
    recipe: Annotated[str | None, Query(max_length=200)] = None,
    project: Annotated[str | None, Query(max_length=64)] = None,
    cursor: Annotated[str | None, Query(max_length=100, description="`nextCursor` of the page before.")] = None,
    limit: Page = 50,
) -> shapes.ProcessPage:
    """Top-level processes, the newest first."""
    try:
        before = read.Place.parse(cursor) if cursor else None
    except ValueError:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", "query.cursor: is none of ours") from None
    rows = read.page(
        here.runtime.database,
        tenant=who.tenant,
        project=project,
        status=status,
        recipe=recipe,
        before=before,
        limit=limit + 1,
    )
    more = len(rows) > limit
    items = [shapes.ProcessSummary.model_validate(row) for row in rows[:limit]]
    last = items[-1] if items else None
    place = read.Place(last.created_at, last.id).encode() if more and last else None
    return shapes.ProcessPage(items=items, next_cursor=place)


@router.get("/{process_id}", summary="Get a process", responses=responses(HTTPStatus.NOT_FOUND))
def get_process(process_id: UUID, here: Here, who: Reader) -> shapes.Process:
    return _process(here, who, process_id)


@router.get(
    "/{process_id}/result",
    summary="Get the result, or wait for it",
    responses=responses(
        HTTPStatus.NOT_FOUND, others={202: {"model": shapes.Result, "description": "It is not closed yet; ask again."}}
    ),
)
async def get_result(
    process_id: UUID,
    here: Here,
    who: Reader,
    response: Response,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds to wait for the process to close.")
    ] = 0,
) -> shapes.Result:
    """The result of a closed process. 202 while it is open: ask again, with `wait` the answer comes when it closes."""
    found = await until_closed(here, process_id, lambda row: _own(row, who), seconds=wait)
    if found is None:
        raise not_found(f"process {process_id}")
    status, result = found
    if result is None:
        response.status_code = HTTPStatus.ACCEPTED
        response.headers["Retry-After"] = "1"
    return shapes.Result(id=process_id, status=status["status"], close_reason=status["close_reason"], result=result)


@router.post("/{process_id}/stop", summary="Stop", responses=responses(HTTPStatus.NOT_FOUND))
def stop(process_id: UUID, here: Here, who: Submitter) -> shapes.Changed:
    """Close it and everything below it as STOPPED. Calls under way are aborted."""
    _known(here, who, process_id)
    return shapes.Changed(id=process_id, changed=bool(stop_process(here.runtime, process_id)))


@router.post("/{process_id}/suspend", summary="Suspend", responses=responses(HTTPStatus.NOT_FOUND))
def suspend(process_id: UUID, here: Here, who: Submitter) -> shapes.Changed:
    """No new turn begins until it is resumed. Calls under way end, and their results are kept."""
    _known(here, who, process_id)
    return shapes.Changed(id=process_id, changed=store.suspend(here.runtime.database, process_id))


@router.post("/{process_id}/resume", summary="Resume", responses=responses(HTTPStatus.NOT_FOUND))
def resume(process_id: UUID, here: Here, who: Submitter) -> shapes.Changed:
    """Let a suspended process go on."""
    _known(here, who, process_id)
    return shapes.Changed(id=process_id, changed=resume_process(here.runtime, process_id))


@router.get("/{process_id}/plan", summary="Get the task tree", responses=responses(HTTPStatus.NOT_FOUND))
def get_plan(
    process_id: UUID, here: Here, who: Reader, limit: Annotated[int, Query(ge=1, le=MAX_PLAN_NODES)] = 500
) -> shapes.Plan:
    """The nodes as they are now; of more than `limit` the upper ones, and those at work with the way up."""
    status = _known(here, who, process_id)
    picture = tree(here.runtime.database, process_id, limit=limit)
    rows = () if picture is None else picture.rows
    nodes = [shapes.PlanNode.model_validate(row) for row in rows]
    return shapes.Plan(nodes=nodes, cut=sum(status["nodes"].values()) > len(nodes))


@router.get(
    "/{process_id}/events",
    summary="Follow a process",
    response_class=Response,
    responses=responses(
        HTTPStatus.NOT_FOUND, others={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}
    ),
)
def follow(process_id: UUID, request: Request, here: Here, who: Reader) -> Response:
    """Server-sent events until it closes: `state` (status and close reason), `turn`, `chunk` (text as it is written).

    `state` is read from the database and always true; the others tell of progress while Redis is there, and any of
    them may be missed.
    """
    status = _known(here, who, process_id)
    return events(here, request, process_id, status["root_id"])


@router.get("/{process_id}/messages", summary="Get the history", responses=responses(HTTPStatus.NOT_FOUND))
def get_messages(process_id: UUID, here: Here, who: Reader, limit: Page = 100) -> list[shapes.ChatMessage]:
    """The newest messages, oldest first."""
    _known(here, who, process_id)
    found = read.messages(here.runtime.database, process_id, limit=limit)
    return [shapes.ChatMessage.model_validate(row) for row in found]


@router.get("/{process_id}/calls", summary="Get the ledger", responses=responses(HTTPStatus.NOT_FOUND))
def get_calls(process_id: UUID, here: Here, who: Reader) -> list[shapes.Call]:
    """Every provider call of the process and its sub-processes, in the order in which they were committed."""
    _known(here, who, process_id)
    return [shapes.Call.model_validate(row) for row in read.calls(here.runtime.database, process_id)]


@router.get(
    "/{process_id}/export",
    summary="Export a process",
    response_class=Response,
    responses=responses(
        HTTPStatus.NOT_FOUND, others={200: {"content": {"application/json": {"schema": {"type": "object"}}}}}
    ),
)
def get_export(process_id: UUID, here: Here, who: Reader) -> Response:
    """Everything about the whole tree of its top-level process as one JSON file, for `vancetope replay`."""
    root = _known(here, who, process_id)["root_id"]
    # To a file first: however slow the reader, the snapshot is not held open for it.
    with ExitStack() as unless_served:
        file = unless_served.enter_context(SpooledTemporaryFile(max_size=EXPORT_IN_MEMORY))
        for piece in exported(here.runtime.database, here.runtime.settings, root):
            file.write(piece.encode())
        file.seek(0)
        unless_served.pop_all()
    name = f'attachment; filename="{file_name(root)}"'
    return StreamingResponse(_pieces(file), media_type="application/json", headers={"Content-Disposition": name})


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(65_536):
            yield piece


def _submission(wanted: shapes.NewProcess, who: Caller, key: str | None, trace: dict[str, str]) -> Submission:
    process_id = wanted.id
    if key is not None:
        made = uuid5(_KEYS, hashlib.sha256(f"{who.tenant}\0{key}".encode()).hexdigest())
        if process_id is not None and process_id != made:
            detail = "either the body's id or the header Idempotency-Key says which process it is, not both"
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", detail)
        process_id = made
    body = wanted.model_dump(mode="json", exclude={"id"})
    body["trace_context"] = wanted.trace_context or trace
    return parse_submission({**body, "id": str(process_id or uuid7()), "tenant": who.tenant})


def _same(here: Parts, wanted: Prepared) -> None:
    """The id was there before: it must be the caller's, and of the same job."""
    found = read.submitted(here.runtime.database, wanted.id)
    job = {"tenant": wanted.tenant, "recipe": wanted.recipe_name, "goal": wanted.goal, "params": wanted.params}
    if found != job:
        detail = f"the id {wanted.id} was used before for another job; a new job needs a new id"
        raise Problem(HTTPStatus.CONFLICT, "id_in_use", detail)


def _own(status: dict[str, Any], who: Caller) -> bool:
    return bool(status["tenant"] == who.tenant)


def _known(here: Parts, who: Caller, process_id: UUID) -> dict[str, Any]:
    status = read.status(here.runtime.database, process_id)
    if status is None or not _own(status, who):
        raise not_found(f"process {process_id}")
    return status


def _process(here: Parts, who: Caller, process_id: UUID) -> shapes.Process:
    return shapes.Process.model_validate(_known(here, who, process_id))
