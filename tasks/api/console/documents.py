"""Documents of a project: the list, one with its versions, and what changed between two of them."""

from __future__ import annotations

import difflib
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from engines.documents.paths import normalise_path
from models.records import StoredDocument
from models.store import documents as store
from tasks.api.access import Caller
from tasks.api.console.pages import page
from tasks.api.console.session import Visitor
from tasks.api.parts import Here, Parts
from tasks.api.problems import not_found

router = APIRouter(prefix="/documents")

LISTED: Final = 500
SHOWN_CHARS: Final = 200_000
COMPARED_CHARS: Final = 300_000
COMPARED_LINES: Final = 4_000
"""Longer documents are not compared: the time it takes grows with the square."""

Project = Annotated[str, Query(max_length=64)]
Path = Annotated[str, Query(max_length=1_000)]
Number = Annotated[int, Query(ge=1, le=2**31 - 1)]


@router.get("")
def documents_page(request: Request, here: Here, who: Visitor, project: Project = "", prefix: Path = "") -> Response:
    """The documents whose path begins with ``prefix``, by path."""
    place = _place(here, who, project)
    wanted = prefix.replace("\0", "").strip()
    found = store.list_documents(here.runtime.database, *place, prefix=wanted, limit=LISTED + 1)
    return page(
        request, "documents.html", documents=found[:LISTED], cut=len(found) > LISTED, project=place[1], prefix=wanted,
        listed=LISTED,
    )  # fmt: skip


@router.get("/view")
def document_page(
    request: Request, here: Here, who: Visitor, path: Path, project: Project = "", version: Number | None = None
) -> Response:
    place = _place(here, who, project)
    found = _known(here, place, path, version)
    versions = store.versions(here.runtime.database, *place, found.path)
    return page(request, "document.html", document=found, versions=versions, project=place[1], shown_chars=SHOWN_CHARS)


@router.get("/compare")
def compare_page(
    request: Request,
    here: Here,
    who: Visitor,
    path: Path,
    old: Number,
    new: Number,
    project: Project = "",
) -> Response:
    """What changed from version ``old`` to ``new``."""
    place = _place(here, who, project)
    before, after = (_known(here, place, path, version) for version in (old, new))
    too_long = any(
        len(each.content) > COMPARED_CHARS or each.content.count("\n") > COMPARED_LINES for each in (before, after)
    )
    return page(
        request, "compare.html", document=after, old=old, new=new, project=place[1], too_long=too_long,
        lines=[] if too_long else changed(before.content, after.content),
    )  # fmt: skip


def changed(before: str, after: str) -> list[tuple[str, str]]:
    """``(kind, line)``: ``added``, ``removed``, ``same`` (three lines around a change) and ``spot``."""
    kinds = {"+": "added", "-": "removed", " ": "same", "@": "spot"}
    found = list(difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=3))[2:]
    return [(kinds[line[0]], line if line[0] == "@" else line[1:]) for line in found]


def _known(here: Parts, place: tuple[str, str], path: str, version: int | None) -> StoredDocument:
    normal = normalise_path(path)
    found = store.get(here.runtime.database, *place, normal, version=version)
    if found is None:
        raise not_found(f"document {normal}" + (f" in version {version}" if version else ""))
    return found


def _place(here: Parts, who: Caller, project: str) -> tuple[str, str]:
    return who.tenant, project.replace("\0", "").strip() or here.runtime.settings.project
