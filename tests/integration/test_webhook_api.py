"""Webhooks over HTTP: what administrators of a tenant can do, and what nobody gets to see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from factory import make_process, rows
from fakes.receiver import NETWORKS, Receiver
from fastapi.testclient import TestClient
from hooks import ask, endpoint, told

from models.store import inbox, outbox, processes, tokens, webhooks
from models.store.tokens import Scope
from models.store.webhooks import Event
from tasks.api import webhook_events
from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.settings import load_settings
from tasks.wiring import Runtime

WANTED = {"url": "https://hooks.example/in", "events": ["process.closed", "inbox.opened"]}


class Api:
    """An API whose callers need tokens."""

    def __init__(self, database_url: str, redis_url: str, networks: str = "") -> None:
        found = load_settings(
            {
                "VANCETOPE_DATABASE_URL": database_url,
                "VANCETOPE_REDIS_URL": redis_url,
                "VANCETOPE_WEBHOOK_NETWORKS": networks,
            }
        )
        self.runtime = Runtime(found, publisher_app(found))
        self.client = TestClient(create_app(self.runtime, open_to_loopback=False), raise_server_exceptions=False)

    def token(self, *scopes: Scope, tenant: str = "default") -> dict[str, str]:
        name = f"{tenant}-{'-'.join(scopes)}"
        _, secret = tokens.create(self.runtime.database, tenant, name, scopes)
        return {"Authorization": f"Bearer {secret}"}

    def __call__(self, method: str, path: str, status: int, who: dict[str, str], body: Any = None) -> Any:
        response = self.client.request(method, f"/v1/webhooks{path}", headers=who, json=body)
        assert response.status_code == status, response.text
        return response.json() if response.content else None


@pytest.fixture
def api(database_url: str, redis_url: str) -> Iterator[Api]:
    made = Api(database_url, redis_url)
    with made.client:
        yield made


@pytest.fixture
def admin(api: Api) -> dict[str, str]:
    return api.token(Scope.ADMIN)


def test_an_endpoint_from_beginning_to_end(api: Api, admin: dict[str, str]) -> None:
    made = api("POST", "", 201, admin, WANTED | {"description": "the shop", "project": "shop"})
    assert made["secret"].startswith("whsec_")
    path = f"/{made['id']}"
    shown = {name: value for name, value in made.items() if name != "secret"}
    assert api("GET", path, 200, admin) == shown
    assert api("GET", "", 200, admin) == [shown]
    assert (shown["events"], shown["project"], shown["enabled"]) == (WANTED["events"], "shop", True)

    changed = api("PATCH", path, 200, admin, {"enabled": False, "events": ["inbox.closed"]})
    assert changed == shown | {"enabled": False, "events": ["inbox.closed"]}
    rows(api.runtime.database, "UPDATE webhook_endpoints SET disabled_reason = 'the receiver answered 410 Gone'")
    assert api("GET", path, 200, admin)["disabledReason"] == "the receiver answered 410 Gone"
    # What is not mentioned stays.
    assert api("PATCH", path, 200, admin, {"description": "x"})["disabledReason"]
    assert api("PATCH", path, 200, admin, {"enabled": True})["disabledReason"] is None

    rotated = api("POST", f"{path}/rotate-secret", 200, admin)
    assert rotated["secret"] not in (made["secret"], None)
    assert rotated["previousSecretExpiresAt"] is not None
    assert api("POST", f"{path}/rotate-secret", 200, admin, {"keepHours": 0})["previousSecretExpiresAt"] is None

    api("DELETE", path, 204, admin)
    assert api("GET", "", 200, admin) == []
    assert api("DELETE", path, 404, admin)["code"] == "not_found"


def test_no_secret_is_ever_shown_again(api: Api, admin: dict[str, str]) -> None:
    made = api("POST", "", 201, admin, WANTED)
    path = f"/{made['id']}"
    tested = api("POST", f"{path}/test", 202, admin)
    answers = [
        api("GET", "", 200, admin),
        api("GET", path, 200, admin),
        api("PATCH", path, 200, admin, {"description": "x"}),
        api("GET", f"{path}/deliveries", 200, admin),
        api("GET", f"{path}/deliveries/{tested['id']}", 200, admin),
    ]
    assert "whsec_" not in str(answers)


def test_deliveries_are_paged_shown_and_sent_again(api: Api, admin: dict[str, str]) -> None:
    number, _ = endpoint(api.runtime.database)
    path = f"/{number}"
    ids = [api("POST", f"{path}/test", 202, admin)["id"] for _ in range(5)]
    first = api("GET", f"{path}/deliveries?limit=3", 200, admin)
    assert [each["id"] for each in first["items"]] == ids[:1:-1]
    rest = api("GET", f"{path}/deliveries?limit=3&cursor={first['nextCursor']}", 200, admin)
    assert ([each["id"] for each in rest["items"]], rest["nextCursor"]) == (ids[1::-1], None)
    assert api("GET", f"{path}/deliveries?cursor=x", 422, admin)["detail"] == "query.cursor: is none of ours"

    one = f"{path}/deliveries/{ids[0]}"
    found = api("GET", one, 200, admin)
    assert (found["state"], found["attempts"], found["type"]) == ("PENDING", 0, "webhook.test")
    assert found["payload"]["data"] == {"endpointId": number}
    assert found["payload"]["id"] == found["eventId"]
    rows(
        api.runtime.database,
        "UPDATE webhook_deliveries SET state = 'FAILED', finished_at = now(), error = 'no', attempts = 12"
        " WHERE id = %(id)s",
        id=ids[0],
    )
    assert api("GET", one, 200, admin)["nextAttemptAt"] is None
    assert [each["id"] for each in api("GET", f"{path}/deliveries?state=FAILED", 200, admin)["items"]] == [ids[0]]
    again = api("POST", f"{one}/retry", 202, admin)
    assert (again["state"], again["error"], again["attempts"]) == ("PENDING", None, 12)
    rows(api.runtime.database, "UPDATE webhook_deliveries SET lease_expires_at = now() + interval '1 min'")
    assert api("POST", f"{one}/retry", 409, admin)["code"] == "being_sent"
    api("PATCH", path, 200, admin, {"enabled": False})
    for where in (f"{one}/retry", f"{path}/test"):
        assert api("POST", where, 409, admin)["code"] == "webhook_disabled"
    assert api("GET", f"{path}/deliveries/{2**80}", 404, admin)["code"] == "not_found"


@pytest.mark.parametrize("scope", [Scope.READ, Scope.SUBMIT, Scope.ANSWER])
def test_whoever_is_no_administrator_sees_nothing(api: Api, scope: Scope) -> None:
    number, _ = endpoint(api.runtime.database)
    who = api.token(scope)
    for method, path in (
        ("GET", ""), ("POST", ""), ("GET", f"/{number}"), ("PATCH", f"/{number}"), ("DELETE", f"/{number}"),
        ("POST", f"/{number}/test"), ("POST", f"/{number}/rotate-secret"), ("GET", f"/{number}/deliveries"),
        ("GET", f"/{number}/deliveries/1"), ("POST", f"/{number}/deliveries/1/retry"),
    ):  # fmt: skip
        assert api(method, path, 403, who, WANTED if method == "POST" and not path else {})["code"] == "forbidden"


def test_another_tenants_endpoints_do_not_exist(api: Api) -> None:
    number, _ = endpoint(api.runtime.database)
    stranger = api.token(Scope.ADMIN, tenant="other")
    assert api("GET", "", 200, stranger) == []
    for method, path in (
        ("GET", f"/{number}"), ("PATCH", f"/{number}"), ("DELETE", f"/{number}"), ("POST", f"/{number}/test"),
        ("POST", f"/{number}/rotate-secret"), ("GET", f"/{number}/deliveries"), ("GET", f"/{2**70}"),
    ):  # fmt: skip
        assert api(method, path, 404, stranger, {})["code"] == "not_found"
    found = webhooks.get(api.runtime.database, "default", number)
    assert found is not None
    assert found.previous_expires_at is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1/in", "a loopback address"),
        ("https://[::1]/in", "a loopback address"),
        ("https://169.254.169.254/latest", "a link-local address"),
        ("https://10.1.2.3/", "a private address"),
        ("http://hooks.example/in", "only https"),
        ("https://hooks.example:22/", "port 22"),
        ("https://hooks.example:80/", "port 80"),
        ("https://ann:secret@hooks.example/", "user name or password"),
        ("ftp://hooks.example/", "only http and https"),
        ("hooks.example", "only http and https"),
        ("https://hooks.example/grüße", "percent-encoded"),
        ("https:///in", "names no host"),
    ],
)
def test_an_address_that_may_not_be_reached_is_refused_at_once(
    api: Api, admin: dict[str, str], url: str, why: str
) -> None:
    refused = api("POST", "", 422, admin, WANTED | {"url": url})
    assert (refused["code"], refused["errors"][0]["field"]) == ("invalid_request", "body.url")
    assert why in refused["detail"]
    number, _ = endpoint(api.runtime.database)
    assert why in api("PATCH", f"/{number}", 422, admin, {"url": url})["detail"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"events": []}, "body.events"),
        ({"events": ["process.opened"]}, "body.events.0"),
        ({"url": ""}, "body.url"),
        ({"secret": "whsec_mine"}, "body.secret"),
        ({"project": "../x"}, "body.project"),
    ],
)
def test_what_is_wrong_is_named(api: Api, admin: dict[str, str], change: dict[str, Any], field: str) -> None:
    refused = api("POST", "", 422, admin, WANTED | change)
    assert refused["errors"][0]["field"] == field


def test_a_tenant_has_so_many_endpoints_and_no_more(
    api: Api, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_ENDPOINTS", 2)
    endpoint(api.runtime.database, tenant="other")
    api("POST", "", 201, admin, WANTED)
    api("POST", "", 201, admin, WANTED)
    refused = api("POST", "", 409, admin, WANTED)
    assert refused["code"] == "too_many_webhooks"


def test_the_document_says_what_endpoints_are_sent(api: Api) -> None:
    database = api.runtime.database
    number, _ = endpoint(database)
    process = make_process(database)
    _, item = ask(database, process)
    inbox.answer(database, item, {"outcome": "UNDECIDABLE", "reason": "x"}, by="ada")
    processes.stop(database, process, lambda _: {"success": False})
    outbox.send_test(database, "default", number)
    document = api.client.get("/openapi.json").json()
    assert set(document["webhooks"]) == {*Event, outbox.TEST_EVENT}
    forms = {
        "process.closed": webhook_events.ProcessClosed, "inbox.opened": webhook_events.InboxOpened,
        "inbox.closed": webhook_events.InboxClosed, "webhook.test": webhook_events.WebhookTest,
    }  # fmt: skip
    events = told(database)
    assert [each["type"] for each in events] == ["inbox.opened", "inbox.closed", "process.closed", "webhook.test"]
    for event in events:
        form = forms[event["type"]]
        described = form.model_validate(event).model_dump(mode="json", by_alias=True)
        assert described.keys() == event.keys()
        assert described["data"].keys() == event["data"].keys()
        body = document["webhooks"][event["type"]]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body == {"$ref": f"#/components/schemas/{form.__name__}"}


def test_networks_of_the_installation_are_open_to_webhooks(database_url: str, redis_url: str) -> None:
    api = Api(database_url, redis_url, NETWORKS)
    with api.client, Receiver() as receiver:
        admin = api.token(Scope.ADMIN)
        made = api("POST", "", 201, admin, WANTED | {"url": receiver.url})
        api("POST", "", 422, admin, WANTED | {"url": "http://10.0.0.1/"})
        api("POST", f"/{made['id']}/test", 202, admin)
        assert api.runtime.webhooks.run() == 1
        assert receiver.requests[0].event["type"] == "webhook.test"
        (line,) = api("GET", f"/{made['id']}/deliveries", 200, admin)["items"]
        assert (line["state"], line["statusCode"]) == ("DELIVERED", 204)
