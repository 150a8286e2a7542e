"""The web console: pages for the people who watch, answer and stop. An application of its own within the API's.

It reads and does what the API reads and does, with the same tokens; only the faces differ: pages, forms, cookies.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from engines.errors import EngineError
from models.store.clean import NotStorable
from models.store.database import DatabaseUnavailable
from tasks.api.console import documents, inbox, ledger, nodes, processes, signing, webhooks, workers
from tasks.api.console.pages import HEADERS, page
from tasks.api.console.session import ROOT, keep_seed, plant_seed
from tasks.api.problems import Problem

log = logging.getLogger(__name__)

MAX_FORM_BYTES: Final = 1_000_000


def install(app: FastAPI) -> None:
    """Put the console into ``app``, whose state it shares."""
    console = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, max_body_size=MAX_FORM_BYTES)
    console.state = app.state
    console.middleware("http")(_guard)
    for kind, handler in (
        (Problem, _problem),
        (RequestValidationError, _invalid),
        (HTTPException, _http),
        (EngineError, _refused),
        (NotStorable, _refused),
        (DatabaseUnavailable, _unavailable),
        (Exception, _unexpected),
    ):
        console.add_exception_handler(kind, handler)
    for module in (processes, nodes, inbox, documents, ledger, workers, webhooks, signing):
        console.include_router(module.router)
    console.mount("/static", StaticFiles(packages=[("tasks.api.console", "static")]))
    app.mount(ROOT, console)

    @app.get("/", include_in_schema=False)
    def to_console() -> Response:
        return RedirectResponse(f"{ROOT}/")


async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    plant_seed(request)
    response = await call_next(request)
    is_file = request.url.path.startswith(f"{ROOT}/static/")
    if not is_file:
        keep_seed(request, response)
    response.headers.update(HEADERS | {"Cache-Control": "no-cache" if is_file else "no-store"})
    return response


def _shown(request: Request, status: HTTPStatus, detail: str) -> Response:
    if "hx-request" in request.headers:
        # Part of a page that is shown: its old content is better than a page within the page.
        return Response(status_code=status.value)
    return page(request, "problem.html", code=status.value, title=status.phrase, detail=detail)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    if error.status is HTTPStatus.UNAUTHORIZED:
        return _to_sign_in(request)
    response = _shown(request, error.status, error.detail)
    response.headers.update(error.headers)
    return response


def _to_sign_in(request: Request) -> Response:
    target = f"{ROOT}/sign-in"
    if "hx-request" in request.headers:
        return Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"HX-Redirect": target})
    if request.method == "GET":
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        target += f"?next={quote(here, safe='')}"
    return RedirectResponse(target, status_code=HTTPStatus.SEE_OTHER)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    parts = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()[:5]]
    return _shown(request, HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(parts))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    return _shown(request, status, "there is no such page" if status is HTTPStatus.NOT_FOUND else str(error.detail))


async def _refused(request: Request, error: Exception) -> Response:
    return _shown(request, HTTPStatus.UNPROCESSABLE_ENTITY, str(getattr(error, "message", error)))


async def _unavailable(request: Request, error: Exception) -> Response:
    log.warning("the database does not answer", extra={"error": str(error)})
    return _shown(request, HTTPStatus.SERVICE_UNAVAILABLE, "the database does not answer; nothing is lost, try again")


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("request failed", exc_info=error, extra={"path": request.url.path})
    request.state.caller = None
    response = _shown(request, HTTPStatus.INTERNAL_SERVER_ERROR, "the request failed; it is in the log")
    # This one is made outside of the guard.
    response.headers.update(HEADERS)
    return response
