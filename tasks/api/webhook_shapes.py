"""The objects of the API that are about webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from models.store.outbox import DeliveryState
from models.store.webhooks import Event
from tasks.api.shapes import EXAMPLE_ID, Shape, Wanted

_URL = "https://hooks.example.com/vancetope"
_SECRET = "whsec_Vv0d3mpJ5q1cGJmbXo0nQ9m7nL4TqkqVh1m2yqfJw0E="
_EVENTS: list[Any] = ["process.closed", "inbox.opened"]

Url = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2_000,
        description="An https address that is reached from the internet, at port 443 or 8443; others only as the"
        " installation allows (`VANCETOPE_WEBHOOK_NETWORKS`).",
        examples=[_URL],
    ),
]
Events = Annotated[
    list[Event], Field(min_length=1, max_length=len(Event), description="What it is told of.", examples=[_EVENTS])
]
Description = Annotated[str, Field(max_length=500, description="For people.", examples=["The shop"])]


class NewWebhook(Wanted):
    """An endpoint to be told of events."""

    url: Url
    events: Events
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] | None = Field(
        default=None, description="Of this project only. Default: of all of the tenant's."
    )
    description: Description = ""


class WebhookChange(Wanted):
    """What is to be different; whatever is absent stays."""

    url: Url | None = None
    events: Events | None = None
    description: Description | None = None
    enabled: bool | None = Field(
        default=None, description="A disabled one is sent nothing; what is pending rests until it is enabled again."
    )


class Webhook(Shape):
    """An endpoint, without its secret."""

    id: int
    url: str = Field(examples=[_URL])
    events: list[Event] = Field(examples=[_EVENTS])
    project: str | None
    description: str
    enabled: bool
    disabled_reason: str | None = Field(
        description="Why it is disabled, when nobody has asked for that.", examples=["the receiver answered 410 Gone"]
    )
    failing_since: datetime | None = Field(description="Since when no attempt has succeeded.")
    paused_until: datetime | None = Field(description="It has asked for a rest until then (`Retry-After`).")
    previous_secret_expires_at: datetime | None = Field(
        description="Until then the secret before the last rotation signs, too."
    )
    created_at: datetime


class WebhookWithSecret(Webhook):
    """The only answer that shows the secret."""

    secret: str = Field(description="The key of the signatures; it is not shown again.", examples=[_SECRET])


class Rotation(Wanted):
    """How to change over to a new secret."""

    keep_hours: float = Field(
        default=24, ge=0, le=720, description="For so long the secret before signs as well; 0 when it was disclosed."
    )


class WebhookDelivery(Shape):
    """What has become of an event at an endpoint."""

    id: int
    event_id: str = Field(description="The header `webhook-id`, the same for each attempt.", examples=["evt_5f0c1d"])
    type: str = Field(examples=["process.closed"])
    process_id: UUID | None = Field(examples=[EXAMPLE_ID])
    state: DeliveryState
    attempts: int
    next_attempt_at: datetime | None = Field(description="Of one that is PENDING.")
    attempted_at: datetime | None
    status_code: int | None = Field(description="Of the last answer.", examples=[500])
    error: str | None = Field(description="Of the last attempt.", examples=["answered 500: out of memory"])
    created_at: datetime
    finished_at: datetime | None


class WebhookDeliveryInFull(WebhookDelivery):
    """With what is sent."""

    payload: dict[str, Any] = Field(
        examples=[
            {
                "id": "evt_5f0c1d",
                "type": "process.closed",
                "timestamp": "2026-11-30T12:00:00.000Z",
                "tenant": "default",
                "project": "default",
                "data": {"processId": EXAMPLE_ID, "closeReason": "DONE", "result": {"success": True}},
            }
        ]
    )


class WebhookDeliveryPage(Shape):
    """``next_cursor`` is the `cursor` of the next page; `null` on the last one."""

    items: list[WebhookDelivery]
    next_cursor: str | None
