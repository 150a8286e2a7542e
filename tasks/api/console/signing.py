"""Signing in with a token of the API, and out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from tasks.api.access import identify
from tasks.api.console.pages import go, page
from tasks.api.console.session import ROOT, TOKEN_COOKIE, Posted, set_cookie
from tasks.api.problems import Problem

router = APIRouter()

Next = Annotated[str, Query(alias="next", max_length=2_000)]


@router.get("/sign-in")
def sign_in_page(request: Request, to: Next = "") -> Response:
    # A link from elsewhere (Flower, a mail) comes without the cookie; a click here brings it along.
    came_from_elsewhere = request.headers.get("sec-fetch-site") in ("cross-site", "same-site")
    return page(request, "signin.html", to=_inside(to), error="", onward=came_from_elsewhere)


@router.post("/sign-in")
def sign_in(request: Request, form: Posted) -> Response:
    secret, to = form.get("token", "").strip(), _inside(form.get("next", ""))
    try:
        if not secret:
            raise Problem(HTTPStatus.UNAUTHORIZED, "unauthorized", "a token is needed")
        identify(request, secret)
    except Problem as problem:
        return page(request, "signin.html", code=problem.status, to=to, error=problem.detail, onward=False)
    response = RedirectResponse(to, status_code=HTTPStatus.SEE_OTHER)
    set_cookie(request, response, TOKEN_COOKIE, secret)
    return response


@router.post("/sign-out")
def sign_out(form: Posted) -> Response:
    response = go("/sign-in")
    response.delete_cookie(TOKEN_COOKIE, path=ROOT, httponly=True, samesite="strict")
    return response


def _inside(to: str) -> str:
    """Where to go after signing in: a page of the console, whatever a link says."""
    parts = urlsplit(to)
    inside = not parts.scheme and not parts.netloc and parts.path.startswith(f"{ROOT}/") and "\\" not in to
    return to if inside and to.isprintable() else f"{ROOT}/"
