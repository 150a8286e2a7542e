"""The HTTP API and the web console: one application for any number of processes; all state is in PostgreSQL."""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import redis.asyncio
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from tasks.api import (
    catalogue,
    documents,
    health,
    inbox,
    metrics,
    problems,
    processes,
    retention,
    webhook_events,
    webhooks,
)
from tasks.api.console import app as console
from tasks.api.exposition import Metrics
from tasks.api.parts import Parts
from tasks.api.problems import ProblemDetails
from tasks.api.rate import RateLimit
from tasks.wiring import Runtime

MAX_BODY_OVERHEAD: Final = 65_536
"""What a request may have beyond the largest submission: other fields, escapes."""

_DESCRIPTION: Final = """
Jobs for think engines: submit, wait for the result, follow, answer questions, read documents and costs.

Every error is `application/problem+json` with a stable `code`. Send `Authorization: Bearer vt_…`, a token of
`vancetope tokens create`. A token belongs to a tenant and sees nothing of others.
"""


def create_app(runtime: Runtime, *, open_to_loopback: bool) -> FastAPI:
    """The application. ``runtime`` is closed with it. open_to_loopback: callers on this machine need no token.

    ``app.state.closing`` is for its server to set before it waits for open responses (``tasks.api.server``).
    """
    closing = threading.Event()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        listener = redis.asyncio.Redis.from_url(
            runtime.settings.redis, socket_connect_timeout=2, socket_keepalive=True, max_connections=1_000
        )
        limit = RateLimit(runtime.redis, runtime.settings.api_requests_per_minute)
        app.state.parts = Parts(runtime, limit, listener, open_to_loopback, Metrics(runtime), closing)
        try:
            yield
        finally:
            await listener.aclose()
            runtime.close()

    app = FastAPI(
        title="vancetope",
        version=importlib.metadata.version("vancetope"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        # Pages that load scripts from elsewhere have no place beside people's data.
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        max_body_size=2 * runtime.settings.max_input_bytes + MAX_BODY_OVERHEAD,
        responses={"default": problems.RESPONSE},
    )
    app.state.closing = closing
    app.middleware("http")(_protect)
    problems.install(app)
    parts = (processes, inbox, documents, webhooks, catalogue, retention, health, metrics)
    routers = [each.router for each in parts]
    app.state.operations = [route for router in routers for route in router.routes]
    for router in routers:
        app.include_router(router)
    console.install(app)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with the form that all errors have here in the place of its own."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            openapi_version=app.openapi_version,
            description=app.description,
            routes=app.routes,
            webhooks=webhook_events.router.routes,
        )
        known = made["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            known.pop(name, None)
        form = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
        known |= {**form.pop("$defs"), ProblemDetails.__name__: form}
        for path in made["paths"].values():
            for operation in path.values():
                if "422" in operation["responses"]:
                    operation["responses"]["422"] = problems.RESPONSE | {"description": "Invalid request"}
        for told in made["webhooks"].values():
            # What a receiver answers is the receiver's.
            told["post"]["responses"] = {code: told["post"]["responses"][code] for code in ("204",)}
        app.openapi_schema = made
    return app.openapi_schema


def _operation_id(route: APIRoute) -> str:
    return route.name


async def _protect(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Cache-Control", "no-store")
    allowance: Any = getattr(request.state, "allowance", None)
    if allowance is not None and allowance.per_minute:
        response.headers.setdefault("RateLimit-Policy", f"{allowance.per_minute};w=60")
    return response
