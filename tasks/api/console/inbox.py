"""Questions to people: the list, and a form for each type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from engines.errors import EngineError
from engines.inbox.answers import Answer, answer_text
from engines.inbox.words import Decision, InputType
from models.records import InboxItem, ItemStatus
from models.store import inbox as store
from models.store.clean import NotStorable
from models.store.tokens import Scope
from tasks.api.access import Caller, demand
from tasks.api.console.answers import OUTPUTS, answer_of, choices, structure
from tasks.api.console.pages import go, page
from tasks.api.console.session import Posted, Visitor
from tasks.api.parts import Here, Parts
from tasks.api.problems import not_found
from tasks.inbox import answer_item, dismiss_item, explained

router = APIRouter(prefix="/inbox")

LISTED: Final = 100


@router.get("")
def inbox_page(
    request: Request,
    here: Here,
    who: Visitor,
    status: Annotated[ItemStatus, Query()] = ItemStatus.PENDING,
    project: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """The questions of the tenant, the pressing ones first."""
    wanted = project.replace("\0", "").strip()
    found = store.items(here.runtime.database, who.tenant, wanted or None, status=status, limit=LISTED)
    return page(
        request, "inbox.html", items=found, status=status.value, project=wanted,
        statuses=[each.value for each in ItemStatus], listed=LISTED,
    )  # fmt: skip


@router.get("/{item_id}")
def item_page(request: Request, here: Here, who: Visitor, item_id: int) -> Response:
    return _form(request, who, known(here, who, item_id))


@router.post("/{item_id}/answer")
def answer(request: Request, here: Here, who: Visitor, form: Posted, item_id: int) -> Response:
    """Store the answer; one that does not fit is shown again with what is wrong."""
    demand(who, Scope.ANSWER)
    item = known(here, who, item_id)
    try:
        raw = answer_of(InputType(item.type), item.payload, form)
        found = answer_item(here.runtime, item_id, raw, by=_by(who, form), tenant=who.tenant)
    except (EngineError, NotStorable) as error:
        return _form(request, who, item, typed=form, error=str(getattr(error, "message", error)), code=422)
    if not found.accepted:
        current = known(here, who, item_id)
        return _form(request, who, current, typed=form, error=explained(item_id, found), code=409)
    return go(f"/inbox/{item_id}")


@router.post("/{item_id}/dismiss")
def dismiss(request: Request, here: Here, who: Visitor, form: Posted, item_id: int) -> Response:
    """Close it without an answer: its task ends as failed."""
    demand(who, Scope.ANSWER)
    known(here, who, item_id)
    found = dismiss_item(here.runtime, item_id, by=_by(who, form), tenant=who.tenant)
    if not found.accepted:
        current = known(here, who, item_id)
        return _form(request, who, current, typed=form, error=explained(item_id, found), code=409)
    return go(f"/inbox/{item_id}")


def known(here: Parts, who: Caller, item_id: int) -> InboxItem:
    """The question. 404 for those of other tenants, too."""
    found = store.get(here.runtime.database, item_id) if 0 < item_id < 2**63 else None
    if found is None or found.tenant != who.tenant:
        raise not_found(f"question {item_id}")
    return found


def _by(who: Caller, form: Mapping[str, str]) -> str:
    return form.get("by", "").strip()[:200] or who.name


def _form(
    request: Request,
    who: Caller,
    item: InboxItem,
    *,
    typed: Mapping[str, str] | None = None,
    error: str = "",
    code: int = 200,
) -> Response:
    kind = InputType(item.type)
    return page(
        request,
        "item.html",
        code=code,
        item=item,
        is_output=kind in OUTPUTS,
        choices=choices(kind, item.payload),
        structure=structure(item.payload),
        outcomes=[each.value for each in Decision],
        answered=None if item.answer is None else answer_text(kind, Answer.from_json(item.answer)),
        typed=dict(typed or {}),
        by=item.owner or who.name,
        error=error,
    )
