"""What endpoints are sent, for the part `webhooks` of the OpenAPI document. Nothing here is called."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header
from pydantic import Field

from tasks.api.shapes import EXAMPLE_ID, Shape

router = APIRouter(generate_unique_id_function=lambda route: route.name)


class _Told(Shape):
    """What all events have."""

    id: str = Field(description="The same for each attempt and each endpoint.", examples=["evt_5f0c1d"])
    timestamp: datetime = Field(description="When it happened.")
    tenant: str
    project: str | None


class ClosedProcess(Shape):
    """A job that is over."""

    process_id: UUID = Field(examples=[EXAMPLE_ID])
    status: Literal["CLOSED"]
    close_reason: Literal["DONE", "FAILED", "STOPPED"]
    engine: str = Field(examples=["jeltz"])
    recipe: str = Field(examples=["extract-event"])
    owner: str | None
    created_at: datetime
    closed_at: datetime
    result: dict[str, Any] = Field(
        description="The wrapper; of one above 16,384 bytes only `success`, `attempts`, `error`, `oversize` (true) and"
        " `bytes`: get it with `GET /v1/processes/{id}/result`.",
        examples=[{"success": True, "data": {"title": "Standup"}, "attempts": 1}],
    )


class ProcessClosed(_Told):
    """A job has its result."""

    type: Literal["process.closed"]
    data: ClosedProcess


class Question(Shape):
    """A question to a person, without its text and its answer: `GET /v1/inbox/{id}` has them."""

    item_id: int
    status: Literal["PENDING", "ANSWERED", "DISMISSED", "EXPIRED"]
    resolved_by: Literal["USER", "AUTO_DEFAULT", "EXPIRY", "PROCESS"] | None
    answered_by: str | None
    type: str = Field(examples=["DECISION"])
    criticality: str = Field(examples=["NORMAL"])
    title: str
    owner: str | None
    tags: list[str]
    process_id: UUID = Field(examples=[EXAMPLE_ID])
    root_id: UUID = Field(description="The job it belongs to.", examples=[EXAMPLE_ID])
    node_id: int
    created_at: datetime
    expires_at: datetime
    closed_at: datetime | None


class InboxOpened(_Told):
    """A question waits for a person."""

    type: Literal["inbox.opened"]
    data: Question


class InboxClosed(_Told):
    """A question was answered, dismissed or withdrawn, has expired, or was closed with its process."""

    type: Literal["inbox.closed"]
    data: Question


class TestedEndpoint(Shape):
    """The endpoint that is tried."""

    endpoint_id: int


class WebhookTest(_Told):
    """Somebody asked for it."""

    type: Literal["webhook.test"]
    data: TestedEndpoint


EventId = Annotated[str, Header(alias="webhook-id", description="Keep those you have handled: it may come again.")]
SentAt = Annotated[int, Header(alias="webhook-timestamp", description="Of the attempt, in seconds since 1970.")]
Signatures = Annotated[
    str,
    Header(
        alias="webhook-signature",
        description="`v1,` and the HMAC-SHA256 of `id.timestamp.body` in base64; two of them after a rotation.",
    ),
]
_ANSWER: dict[str, Any] = {
    "status_code": HTTPStatus.NO_CONTENT,
    "response_description": "Any 2xx within 15 seconds: taken. Anything else: tried again, for three days.",
}


@router.post("process.closed", summary="A job is closed", **_ANSWER)
def process_closed(event: ProcessClosed, id_: EventId, at: SentAt, signatures: Signatures) -> None:
    """However it was closed. Root processes only: what they call is their own business."""


@router.post("inbox.opened", summary="A question waits", **_ANSWER)
def inbox_opened(event: InboxOpened, id_: EventId, at: SentAt, signatures: Signatures) -> None:
    """Of sub-processes, too."""


@router.post("inbox.closed", summary="A question is closed", **_ANSWER)
def inbox_closed(event: InboxClosed, id_: EventId, at: SentAt, signatures: Signatures) -> None:
    """Also one that its own default has answered, which was never open."""


@router.post("webhook.test", summary="A test", **_ANSWER)
def webhook_test(event: WebhookTest, id_: EventId, at: SentAt, signatures: Signatures) -> None:
    """To one endpoint, whatever events it wants."""
