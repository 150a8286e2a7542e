"""Webhooks: the endpoints of the tenant, and what each was told. For administrators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from models.store import outbox
from models.store import webhooks as store
from models.store.tokens import Scope
from models.store.webhooks import Endpoint
from tasks.api.access import Caller, demand
from tasks.api.console.pages import go, page
from tasks.api.console.session import Posted, Visitor
from tasks.api.parts import Here, Parts
from tasks.api.problems import Problem, not_found

router = APIRouter(prefix="/webhooks")

LISTED: Final = 50


@router.get("")
def webhooks_page(request: Request, here: Here, who: Visitor) -> Response:
    demand(who, Scope.ADMIN)
    return page(request, "webhooks.html", endpoints=store.endpoints(here.runtime.database, tenant=who.tenant))


@router.get("/{webhook_id}")
def webhook_page(request: Request, here: Here, who: Visitor, webhook_id: int) -> Response:
    """One endpoint and its newest deliveries."""
    endpoint = _known(here, who, webhook_id)
    found = outbox.deliveries(here.runtime.database, webhook_id, limit=LISTED)
    return page(request, "webhook.html", endpoint=endpoint, deliveries=found, listed=LISTED)


@router.post("/{webhook_id}/{action}")
def steer(here: Here, who: Visitor, form: Posted, webhook_id: int, action: str) -> Response:
    """Enable, disable or test an endpoint."""
    endpoint = _known(here, who, webhook_id)
    database = here.runtime.database
    if action in ("enable", "disable"):
        store.change(database, who.tenant, webhook_id, enabled=action == "enable")
    elif action == "test":
        _enabled(endpoint)
        outbox.send_test(database, who.tenant, webhook_id)
    else:
        raise not_found(f"action {action}")
    return go(f"/webhooks/{webhook_id}")


@router.post("/{webhook_id}/deliveries/{delivery_id}/retry")
def retry(here: Here, who: Visitor, form: Posted, webhook_id: int, delivery_id: int) -> Response:
    """Send it again, whatever has become of it. One that is being sent at this moment is left alone."""
    _enabled(_known(here, who, webhook_id))
    database = here.runtime.database
    if not 0 < delivery_id < 2**63 or outbox.delivery(database, webhook_id, delivery_id) is None:
        raise not_found(f"delivery {delivery_id}")
    outbox.retry(database, webhook_id, delivery_id)
    return go(f"/webhooks/{webhook_id}")


def _known(here: Parts, who: Caller, webhook_id: int) -> Endpoint:
    demand(who, Scope.ADMIN)
    found = store.get(here.runtime.database, who.tenant, webhook_id) if 0 < webhook_id < 2**63 else None
    if found is None:
        raise not_found(f"webhook {webhook_id}")
    return found


def _enabled(endpoint: Endpoint) -> None:
    if not endpoint.enabled:
        raise Problem(HTTPStatus.CONFLICT, "webhook_disabled", f"webhook {endpoint.id} is disabled: enable it first")
