"""The OpenAPI document is true: thousands of requests made from it find nothing that it does not say."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from processes import eventually
from schemathesis.specs.openapi.checks import positive_data_acceptance

from models.store import tokens
from models.store.tokens import Scope
from tasks.api.app import create_app
from tasks.broker import publisher_app
from tasks.settings import load_settings
from tasks.wiring import Runtime


@pytest.fixture
def api_schema(database_url: str, redis_url: str) -> Iterator[Any]:
    """The document of an API that serves on a port of its own, with a token that may do everything."""
    found = load_settings(
        {
            "VANCETOPE_DATABASE_URL": database_url,
            "VANCETOPE_REDIS_URL": redis_url,
            "VANCETOPE_API_REQUESTS_PER_MINUTE": "0",
        }
    )
    runtime = Runtime(found, publisher_app(found))
    _, secret = tokens.create(runtime.database, "default", "everything", [Scope.ADMIN])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(create_app(runtime, open_to_loopback=False), log_config=None, timeout_graceful_shutdown=5)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        eventually(lambda: server.started, "the API serves")
        schema = schemathesis.openapi.from_url(
            f"http://127.0.0.1:{port}/openapi.json", headers={"Authorization": f"Bearer {secret}"}
        )
        # The stream of events ends with its process: it has tests of its own.
        runtime.sweeper.sweep()  # or the probe rightly says that nobody works here
        yield schema.exclude(path_regex="/events$")
        server.should_exit = True
        thread.join(10)


def test_every_answer_is_what_the_document_says(api_schema: Any) -> None:
    tried = 0
    for found in api_schema.get_all_operations():
        operation = found.ok()

        @settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            # What fits the document may still be refused for what it means: a recipe nobody has, a path leading out.
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        check()
        tried += 1
    assert tried >= 20
