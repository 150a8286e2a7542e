"""Questions to people: list, answer, dismiss."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response

from models.records import InboxItem, ItemStatus
from models.store import inbox as store
from models.store.inbox import Outcome
from models.store.inbox import Resolution as Resolved
from tasks.api import shapes
from tasks.api.access import Answerer, Caller, Reader
from tasks.api.parts import Here, Parts
from tasks.api.problems import Responses, not_found, responses
from tasks.inbox import answer_item, dismiss_item, explained

router = APIRouter(prefix="/v1/inbox", tags=["inbox"])

_REFUSED: Responses = {
    409: {"model": shapes.Resolution, "description": "It is resolved already, or belongs to somebody else."}
}
By = Annotated[str | None, Query(min_length=1, max_length=200, description="Who answers. Default: the token's name.")]


@router.get("", summary="List questions")
def list_items(
    here: Here,
    who: Reader,
    project: Annotated[str | None, Query(max_length=64)] = None,
    status: Annotated[ItemStatus | None, Query(description="Default: open ones.")] = ItemStatus.PENDING,
    owner: Annotated[str | None, Query(max_length=200, description="This person's and everybody's.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> list[shapes.Item]:
    """The questions of a project, the pressing ones first."""
    found = store.items(
        here.runtime.database,
        who.tenant,
        project or here.runtime.settings.project,
        status=status,
        owner=owner,
        limit=limit,
    )
    return [shapes.Item.model_validate(item) for item in found]


@router.get("/{item_id}", summary="Get a question", responses=responses(HTTPStatus.NOT_FOUND))
def get_item(item_id: int, here: Here, who: Reader) -> shapes.Item:
    return shapes.Item.model_validate(_known(here, who, item_id))


@router.post(
    "/{item_id}/answer",
    summary="Answer a question",
    responses=responses(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY, others=_REFUSED),
)
def answer(
    item_id: int, given: shapes.Answer, here: Here, who: Answerer, response: Response, by: By = None
) -> shapes.Resolution:
    """The first answer that fits is the one that counts; its task goes on at once."""
    _known(here, who, item_id)
    found = answer_item(here.runtime, item_id, given.answer, by=by or who.name, tenant=who.tenant)
    return _told(item_id, found, response)


@router.post(
    "/{item_id}/dismiss", summary="Dismiss a question", responses=responses(HTTPStatus.NOT_FOUND, others=_REFUSED)
)
def dismiss(item_id: int, here: Here, who: Answerer, response: Response, by: By = None) -> shapes.Resolution:
    """Close it without an answer: its task ends as failed."""
    _known(here, who, item_id)
    return _told(item_id, dismiss_item(here.runtime, item_id, by=by or who.name, tenant=who.tenant), response)


def _told(item_id: int, found: Resolved, response: Response) -> shapes.Resolution:
    if found.outcome is Outcome.UNKNOWN:
        raise not_found(f"question {item_id}")
    if not found.accepted:
        response.status_code = HTTPStatus.CONFLICT
    status = None if found.item is None or found.outcome is Outcome.FOREIGN else found.item.status.value
    return shapes.Resolution(outcome=found.outcome.value, message=explained(item_id, found), status=status)


def _known(here: Parts, who: Caller, item_id: int) -> InboxItem:
    # A bigint: a larger number is no item of ours, and no statement for PostgreSQL.
    found = store.get(here.runtime.database, item_id) if -(2**63) <= item_id < 2**63 else None
    if found is None or found.tenant != who.tenant:
        raise not_found(f"question {item_id}")
    return found
