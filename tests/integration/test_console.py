"""The web console on a real PostgreSQL and Redis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from uuid import UUID, uuid4

import pytest
from factory import make_node, make_process, rows
from fastapi.testclient import TestClient
from plans import Stage, straight, submit_plan, subtasks
from rig import NO_REDIS

from models.store import documents, inbox, tokens
from models.store.tokens import Scope
from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.settings import load_settings
from tasks.wiring import Runtime

ORIGIN = "http://127.0.0.1:8000"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&lt;b&gt; \x1b[31mred \u202egnihton</pre>'


class Console:
    """A browser without scripts: keeps cookies, follows redirects, sends the forms that it finds."""

    def __init__(self, database_url: str, redis_url: str, *, is_open: bool = True, **settings: str) -> None:
        found = load_settings(
            {"VANCETOPE_DATABASE_URL": database_url, "VANCETOPE_REDIS_URL": redis_url}
            | {f"VANCETOPE_{name.upper()}": value for name, value in settings.items()}
        )
        self.runtime = Runtime(found, publisher_app(found))
        self.database = self.runtime.database
        app = create_app(self.runtime, open_to_loopback=is_open)
        self.client = TestClient(
            app, base_url=ORIGIN, client=("127.0.0.1", 50_000), raise_server_exceptions=False, follow_redirects=True
        )

    def get(self, path: str, status: int = 200, **headers: str) -> str:
        """A page's text, which has the headers and none of the things a policy would block."""
        response = self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        assert response.status_code == status, response.text
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert_clean(response.text)
        return response.text

    def send(self, page: str, path: str, status: int = 200, **fields: str) -> str:
        """Send the form of ``page`` (its path) as a browser would."""
        token = re.search(r'name="form_token" value="(\w+)"', self.get(page))
        assert token, f"no form on {page}"
        data = {"form_token": token[1], **fields}
        response = self.client.post(path, data=data, headers={"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"})
        assert response.status_code == status, response.text
        assert response.headers["content-security-policy"] == POLICY
        assert_clean(response.text)
        return response.text

    def sign_in(self, *scopes: Scope, tenant: str = "default") -> str:
        """As a new token; returns it."""
        _, secret = tokens.create(self.database, tenant, f"ann-{uuid4().hex[:6]}", scopes or (Scope.READ,))
        self.send("/console/sign-in", "/console/sign-in", token=secret)
        return secret


def assert_clean(page: str) -> None:
    assert not re.search(r"<script(?! src=\"/console/static/)", page), page
    assert not re.search(r"<[^>]* (on\w+|style)\s*=", page), page
    assert not re.search(r"<style|javascript:|<img|<iframe|<base", page), page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page), page


def ask(console: Console, kind: str, payload: str = "{}", *, tenant: str = "default", **columns: Any) -> int:
    """An open question of a node that is parked for it."""
    process = make_process(console.database, tenant=tenant)
    root = make_node(console.database, process, "parked")
    values: dict[str, Any] = {
        "tenant": tenant, "project": "default", "process": process, "node": root, "type": kind, "payload": payload,
        "title": "Which?", "body": "Say.", "owner": None,
    } | columns  # fmt: skip
    found = rows(
        console.database,
        "INSERT INTO inbox_items (tenant, project, process_id, node_id, originator, type, criticality, title, body,"
        " payload, owner, expires_at) VALUES (%(tenant)s, %(project)s, %(process)s, %(node)s, 'marvin', %(type)s,"
        " 'NORMAL', %(title)s, %(body)s, %(payload)s::json, %(owner)s, now() + interval '1 hour') RETURNING id",
        **values,
    )
    item: int = found[0][0]
    return item


def answer_of(console: Console, item: int) -> dict[str, Any] | None:
    found = inbox.get(console.database, item)
    assert found is not None
    return found.answer


@pytest.fixture
def console(database_url: str, redis_url: str) -> Iterator[Console]:
    made = Console(database_url, redis_url)
    with made.client:
        yield made


@pytest.fixture
def closed_console(database_url: str, redis_url: str) -> Iterator[Console]:
    made = Console(database_url, redis_url, is_open=False)
    with made.client:
        yield made


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    made = Stage(database_url)
    yield made
    made.close()


def test_every_page_is_there_without_anything_in_the_database(console: Console) -> None:
    assert "Nothing has been submitted yet" in console.get("/")
    for path in ("inbox", "documents", "ledger", "workers", "sign-in"):
        console.get(f"/console/{path}")
