"""Documents of a project: those that plans wrote and those they read."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from engines.documents.paths import RESERVED_PREFIXES, normalise_path
from models.store import documents as store
from models.store.tokens import Scope
from tasks.api import shapes
from tasks.api.access import Caller, Reader, Submitter
from tasks.api.parts import Here, Parts
from tasks.api.problems import Problem, not_found, responses

router = APIRouter(prefix="/v1/documents", tags=["documents"])

Project = Annotated[str | None, Query(max_length=64, description="Default: the installation's.")]


@router.get("", summary="List documents")
def list_documents(
    here: Here,
    who: Reader,
    prefix: Annotated[str, Query(max_length=500)] = "",
    project: Project = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
) -> list[shapes.DocumentLine]:
    """The documents whose path begins with `prefix`, by path."""
    found = store.list_documents(here.runtime.database, *_place(here, who, project), prefix=prefix, limit=limit)
    return [shapes.DocumentLine.model_validate(each) for each in found]


@router.get("/{path:path}", summary="Get a document", responses=responses(HTTPStatus.NOT_FOUND))
def get_document(
    path: str,
    here: Here,
    who: Reader,
    project: Project = None,
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Default: the newest.")] = None,
) -> shapes.Document:
    place = normalise_path(path)
    found = store.get(here.runtime.database, *_place(here, who, project), place, version=version)
    if found is None:
        raise not_found(f"document {place}" + (f" in version {version}" if version else ""))
    return shapes.Document.model_validate(found)


@router.put("/{path:path}", summary="Store a document", responses=responses(HTTPStatus.UNPROCESSABLE_ENTITY))
def put_document(
    path: str, wanted: shapes.NewDocument, here: Here, who: Submitter, project: Project = None
) -> shapes.Version:
    """Create it, or give it its next version. What engines keep for themselves (`recipes/…`, `_…`) needs admin."""
    place = _writable(path, who)
    version = store.put(
        here.runtime.database,
        *_place(here, who, project),
        place,
        wanted.content,
        kind=wanted.kind,
        title=wanted.title,
        mime=wanted.mime,
    )
    return shapes.Version(path=place, version=version)


@router.delete(
    "/{path:path}",
    summary="Delete a document",
    status_code=HTTPStatus.NO_CONTENT,
    responses=responses(HTTPStatus.NOT_FOUND),
)
def delete_document(path: str, here: Here, who: Submitter, project: Project = None) -> None:
    """With all its versions. What engines keep for themselves (`recipes/…`, `_…`) needs admin."""
    place = _writable(path, who)
    if not store.remove(here.runtime.database, *_place(here, who, project), place):
        raise not_found(f"document {place}")


def _writable(path: str, who: Caller) -> str:
    place = normalise_path(path)
    if place.split("/")[0] in RESERVED_PREFIXES and not who.may(Scope.ADMIN):
        detail = f"{place}: what engines keep for themselves is written with the scope admin only"
        raise Problem(HTTPStatus.FORBIDDEN, "forbidden", detail)
    return place


def _place(here: Parts, who: Caller, project: str | None) -> tuple[str, str]:
    return who.tenant, project or here.runtime.settings.project
