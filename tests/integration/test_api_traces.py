"""The caller's trace reaches the process: by the headers that tracing libraries send along, or by name."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.settings import load_settings
from tasks.wiring import Runtime

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"traceparent": PARENT, "tracestate": "a=1"}, {}, {"traceparent": PARENT, "tracestate": "a=1"}),
        ({"traceparent": PARENT}, {"traceContext": {"traceparent": OTHER}}, {"traceparent": OTHER}),
        ({"traceparent": PARENT, "tracestate": "a=" + "1" * 600}, {}, {"traceparent": PARENT}),
        ({}, {}, {}),
    ],
    ids=["headers", "the body is more explicit", "overlong", "none"],
)
def test_the_callers_trace_is_kept(
    headers: dict[str, str], body: dict[str, Any], expected: dict[str, str], database_url: str, redis_url: str
) -> None:
    settings = load_settings({"VANCETOPE_DATABASE_URL": database_url, "VANCETOPE_REDIS_URL": redis_url})
    runtime = Runtime(settings, publisher_app(settings))
    app = create_app(runtime, open_to_loopback=True)
    job = {"recipe": "jeltz", "params": {"prompt": "Hi", "schema": {"type": "object"}}} | body
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 50_000)) as client:
        response = client.post("/v1/processes", json=job, headers=headers)
        assert response.status_code == 201, response.text
        assert runtime.database.statement("SELECT trace_context FROM processes", {}) == [(expected,)]
