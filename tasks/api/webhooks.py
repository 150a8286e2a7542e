"""Webhooks: who is told of what, and what has become of it. For administrators of the tenant."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response

from engines.tools.guard import Forbidden
from models.store import outbox
from models.store import webhooks as store
from models.store.outbox import DeliveryState
from tasks.api import webhook_shapes as shapes
from tasks.api.access import Admin, Caller
from tasks.api.parts import Here, Parts
from tasks.api.problems import FieldError, Problem, not_found, responses

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])

_KNOWN = responses(HTTPStatus.NOT_FOUND)
_CHANGED = responses(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
_BUSY = responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    summary="Add an endpoint",
    responses=responses(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
)
def add_webhook(wanted: shapes.NewWebhook, here: Here, who: Admin, response: Response) -> shapes.WebhookWithSecret:
    """From now on it is told. The answer holds its secret, which is not shown again.

    Requests are signed by the Standard Webhooks specification. 409 when the tenant has too many endpoints.
    """
    _look_at(here, wanted.url)
    try:
        made, secret = store.create(
            here.runtime.database,
            who.tenant,
            wanted.url,
            wanted.events,
            project=wanted.project,
            description=wanted.description,
        )
    except store.TooManyEndpoints as error:
        raise Problem(HTTPStatus.CONFLICT, "too_many_webhooks", str(error)) from None
    response.headers["Location"] = f"/v1/webhooks/{made.id}"
    return _with_secret(made, secret)


@router.get("", summary="List endpoints")
def list_webhooks(here: Here, who: Admin) -> list[shapes.Webhook]:
    """All of the tenant's (a hundred at most), the oldest first."""
    return [_shown(each) for each in store.endpoints(here.runtime.database, tenant=who.tenant)]


@router.get("/{webhook_id}", summary="Get an endpoint", responses=_KNOWN)
def get_webhook(webhook_id: int, here: Here, who: Admin) -> shapes.Webhook:
    return _shown(_known(here, who, webhook_id))


@router.patch("/{webhook_id}", summary="Change an endpoint", responses=_CHANGED)
def change_webhook(webhook_id: int, wanted: shapes.WebhookChange, here: Here, who: Admin) -> shapes.Webhook:
    """Also to enable or disable it. Another address, and being enabled, is a new beginning for one that failed."""
    _known(here, who, webhook_id)
    if wanted.url is not None:
        _look_at(here, wanted.url)
    changed = store.change(
        here.runtime.database,
        who.tenant,
        webhook_id,
        url=wanted.url,
        events=wanted.events,
        description=wanted.description,
        enabled=wanted.enabled,
    )
    if changed is None:
        raise _unknown(webhook_id)
    return _shown(changed)


@router.delete("/{webhook_id}", status_code=HTTPStatus.NO_CONTENT, summary="Delete an endpoint", responses=_KNOWN)
def delete_webhook(webhook_id: int, here: Here, who: Admin) -> None:
    """It is told nothing more, not even what is pending."""
    _known(here, who, webhook_id)
    store.delete(here.runtime.database, who.tenant, webhook_id)


@router.post("/{webhook_id}/rotate-secret", summary="Make a new secret", responses=_CHANGED)
def rotate_webhook_secret(
    webhook_id: int, here: Here, who: Admin, wanted: shapes.Rotation | None = None
) -> shapes.WebhookWithSecret:
    """The answer holds the new secret. For a while each request has two signatures, of the new and of the old one."""
    _known(here, who, webhook_id)
    keep = (wanted or shapes.Rotation()).keep_hours * 3_600
    rotated = store.rotate(here.runtime.database, who.tenant, webhook_id, keep_seconds=keep)
    if rotated is None:
        raise _unknown(webhook_id)
    return _with_secret(*rotated)


@router.post("/{webhook_id}/test", status_code=HTTPStatus.ACCEPTED, summary="Send a test", responses=_BUSY)
def test_webhook(webhook_id: int, here: Here, who: Admin) -> shapes.WebhookDelivery:
    """Send an event `webhook.test` to this endpoint. 409 while it is disabled."""
    _enabled(_known(here, who, webhook_id))
    made = outbox.send_test(here.runtime.database, who.tenant, webhook_id)
    found = None if made is None else outbox.delivery(here.runtime.database, webhook_id, made)
    if found is None:
        raise _unknown(webhook_id)
    return shapes.WebhookDelivery.model_validate(_line(found[0]))


@router.get("/{webhook_id}/deliveries", summary="List deliveries", responses=_CHANGED)
def list_webhook_deliveries(
    webhook_id: int,
    here: Here,
    who: Admin,
    state: Annotated[DeliveryState | None, Query()] = None,
    cursor: Annotated[str | None, Query(max_length=20, description="`nextCursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Largest number of items.")] = 50,
) -> shapes.WebhookDeliveryPage:
    """What the endpoint was told in the last 30 days, the newest first."""
    _known(here, who, webhook_id)
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and int(cursor) < 2**63):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", "query.cursor: is none of ours")
    rows = outbox.deliveries(
        here.runtime.database,
        webhook_id,
        state=state,
        before=None if cursor is None else int(cursor),
        limit=limit + 1,
    )
    items = [shapes.WebhookDelivery.model_validate(_line(row)) for row in rows[:limit]]
    return shapes.WebhookDeliveryPage(items=items, next_cursor=str(items[-1].id) if len(rows) > limit else None)


@router.get("/{webhook_id}/deliveries/{delivery_id}", summary="Get a delivery", responses=_KNOWN)
def get_webhook_delivery(webhook_id: int, delivery_id: int, here: Here, who: Admin) -> shapes.WebhookDeliveryInFull:
    """With what was sent."""
    found, payload = _delivered(here, who, webhook_id, delivery_id)
    return shapes.WebhookDeliveryInFull.model_validate(_line(found) | {"payload": payload})


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/retry",
    status_code=HTTPStatus.ACCEPTED,
    summary="Send again",
    responses=_BUSY,
)
def retry_webhook_delivery(webhook_id: int, delivery_id: int, here: Here, who: Admin) -> shapes.WebhookDelivery:
    """Send it now, whatever has become of it, under the same event id. One that was given up is tried once more.

    409 while the endpoint is disabled, and while it is being sent.
    """
    _delivered(here, who, webhook_id, delivery_id)
    _enabled(_known(here, who, webhook_id))
    if not outbox.retry(here.runtime.database, webhook_id, delivery_id):
        raise Problem(HTTPStatus.CONFLICT, "being_sent", f"delivery {delivery_id} is being sent at this moment")
    return shapes.WebhookDelivery.model_validate(_line(_delivered(here, who, webhook_id, delivery_id)[0]))


def _look_at(here: Parts, url: str) -> None:
    """An address that can never be reached is refused at once; what its name leads to is checked at each attempt."""
    try:
        here.runtime.webhook_guard.look_at(url)
    except Forbidden as error:
        detail = f"body.url: {error}"
        errors = [FieldError(field="body.url", message=str(error))]
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", detail, errors=errors) from None


def _known(here: Parts, who: Caller, webhook_id: int) -> store.Endpoint:
    # A bigint: a larger number is no endpoint of ours, and no statement for PostgreSQL.
    found = store.get(here.runtime.database, who.tenant, webhook_id) if -(2**63) <= webhook_id < 2**63 else None
    if found is None:
        raise _unknown(webhook_id)
    return found


def _delivered(
    here: Parts, who: Caller, webhook_id: int, delivery_id: int
) -> tuple[outbox.WebhookDelivery, dict[str, object]]:
    _known(here, who, webhook_id)
    is_one = -(2**63) <= delivery_id < 2**63
    found = outbox.delivery(here.runtime.database, webhook_id, delivery_id) if is_one else None
    if found is None:
        raise not_found(f"delivery {delivery_id} of webhook {webhook_id}")
    return found


def _enabled(endpoint: store.Endpoint) -> None:
    if not endpoint.enabled:
        detail = f"webhook {endpoint.id} is disabled: enable it first"
        raise Problem(HTTPStatus.CONFLICT, "webhook_disabled", detail)


def _unknown(webhook_id: int) -> Problem:
    return not_found(f"webhook {webhook_id}")


def _fields(endpoint: store.Endpoint) -> dict[str, object]:
    names = (
        "id", "url", "project", "description", "enabled", "disabled_reason", "failing_since", "paused_until",
        "created_at",
    )  # fmt: skip
    events = [event for event in store.Event if event in endpoint.events]
    previous = endpoint.previous_expires_at
    found = {name: getattr(endpoint, name) for name in names}
    return found | {"events": events, "previous_secret_expires_at": previous}


def _shown(endpoint: store.Endpoint) -> shapes.Webhook:
    return shapes.Webhook.model_validate(_fields(endpoint))


def _with_secret(endpoint: store.Endpoint, secret: str) -> shapes.WebhookWithSecret:
    return shapes.WebhookWithSecret.model_validate(_fields(endpoint) | {"secret": secret})


def _line(delivery: outbox.WebhookDelivery) -> dict[str, object]:
    names = (
        "id", "event_id", "type", "process_id", "state", "attempts", "attempted_at", "status_code", "error",
        "created_at", "finished_at",
    )  # fmt: skip
    pending = delivery.state is DeliveryState.PENDING
    found = {name: getattr(delivery, name) for name in names}
    return found | {"next_attempt_at": delivery.due_at if pending else None}
