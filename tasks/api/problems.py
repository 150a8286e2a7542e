"""Errors as ``application/problem+json`` (RFC 9457): one form for all of them, with a code programs can rely on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from engines.errors import EngineError
from models.store.clean import NotStorable
from models.store.database import DatabaseUnavailable

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class FieldError(BaseModel):
    """One field at fault."""

    field: str = Field(description="Where: `body.limits.maxCalls`, `query.limit`.", examples=["body.recipe"])
    message: str = Field(description="What is wrong there, and what would be right.", examples=["Field required"])


class ProblemDetails(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(default="about:blank", description="Always `about:blank`: `code` tells the kinds apart.")
    title: str = Field(description="The HTTP status in words.", examples=["Not Found"])
    status: int = Field(description="The HTTP status.", examples=[404])
    detail: str = Field(description="What happened, for people.", examples=["there is no process 0190…"])
    code: str = Field(description="What happened, for programs.", examples=["not_found"])
    errors: list[FieldError] = Field(default_factory=list, description="Each field at fault, of an invalid request.")


class Problem(Exception):
    """Ends a request with this problem."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.errors, self.headers = tuple(errors), dict(headers or {})


def not_found(what: str) -> Problem:
    """404. The same for what is not there and for what belongs to another tenant."""
    return Problem(HTTPStatus.NOT_FOUND, "not_found", f"there is no {what}")


RESPONSE: Final[dict[str, Any]] = {
    "description": "Any other problem",
    "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}}},
}
Responses = dict[int | str, dict[str, Any]]


def responses(*statuses: HTTPStatus, others: Responses | None = None) -> Responses:
    """The problems that an operation may answer with, for the OpenAPI document; ``others``: answers that are none."""
    found: Responses = {status.value: RESPONSE | {"description": status.phrase} for status in statuses}
    return found | (others or {})


def install(app: FastAPI) -> None:
    """Give every error of ``app`` this form."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(EngineError, _refused)
    app.add_exception_handler(NotStorable, _not_storable)
    app.add_exception_handler(DatabaseUnavailable, _unavailable)
    app.add_exception_handler(Exception, _unexpected)


def answer(problem: Problem) -> JSONResponse:
    """The response of a problem."""
    body = ProblemDetails(
        title=problem.status.phrase,
        status=problem.status.value,
        detail=problem.detail,
        code=problem.code,
        errors=list(problem.errors),
    )
    return JSONResponse(
        body.model_dump(mode="json", exclude_defaults=False),
        status_code=problem.status.value,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


async def _problem(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Problem)
    return answer(error)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # Without the values: a prompt or a secret does not belong into an answer or a log.
    errors = [
        FieldError(field=".".join(str(part) for part in each["loc"]), message=str(each["msg"]))
        for each in error.errors()[:50]
    ]
    detail = "; ".join(f"{each.field}: {each.message}" for each in errors[:5])
    return answer(Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", detail, errors=errors))


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    headers = dict(error.headers or {})
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        # Of every route of the path: Starlette names those of the first one only.
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return answer(Problem(status, status.name.lower(), str(error.detail), headers=headers))


def _methods(request: Request) -> set[str]:
    found: set[str] = set()
    for route in request.app.state.operations:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return found


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EngineError)
    return answer(Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "refused", error.message))


async def _not_storable(_: Request, error: Exception) -> JSONResponse:
    return answer(Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "not_storable", str(error)))


async def _unavailable(_: Request, error: Exception) -> JSONResponse:
    log.warning("the database does not answer", extra={"error": str(error)})
    detail = "the database does not answer; nothing is lost, try again"
    return answer(Problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail, headers={"Retry-After": "5"}))


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("request failed", exc_info=error, extra={"path": request.url.path})
    return answer(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", "the request failed; it is in the log"))
