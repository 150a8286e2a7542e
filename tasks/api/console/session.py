"""Who looks at the console: the token of a cookie, or nobody on an open loopback. And forms that are really ours.

A form is accepted when the browser says that a page of this very site sent it *and* it carries the token that only such
a page can know: made from a random cookie and the session, so that planting the cookie is not enough.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import parse_qs, urlsplit

from fastapi import Depends, Request, Response

from models.store.tokens import Scope
from tasks.api.access import Caller, demand, identify
from tasks.api.problems import Problem

ROOT: Final = "/console"
TOKEN_COOKIE: Final = "vancetope_token"
SEED_COOKIE: Final = "vancetope_form"
FORM_FIELD: Final = "form_token"
MAX_FIELDS: Final = 2_000


def secret_of(request: Request) -> str | None:
    """The API token that the cookie holds."""
    return request.cookies.get(TOKEN_COOKIE) or None


def visitor(request: Request) -> Caller:
    """Dependency: who looks, with the scope read. 401 when somebody has to sign in."""
    found = identify(request, secret_of(request))
    request.state.caller = found
    demand(found, Scope.READ)
    return found


Visitor = Annotated[Caller, Depends(visitor)]


def form_token(request: Request) -> str:
    """What the forms of a page shown for this request must carry."""
    seed: str = request.state.seed
    return hmac.new(seed.encode(), (secret_of(request) or "").encode(), hashlib.sha256).hexdigest()


async def posted(request: Request) -> dict[str, str]:
    """Dependency: the fields of a form of ours, the last value of each name. 403 for any other form."""
    if not _from_here(request):
        raise Problem(HTTPStatus.FORBIDDEN, "foreign_form", "the form was not sent by a page of this console")
    try:
        fields = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", "the form cannot be read") from None
    form = {name: values[-1].replace("\r\n", "\n") for name, values in fields.items()}
    if not hmac.compare_digest(form.get(FORM_FIELD, "").encode(), form_token(request).encode()):
        detail = "the form is too old, or cookies are switched off: go back, load the page again and send it once more"
        raise Problem(HTTPStatus.FORBIDDEN, "old_form", detail)
    return form


Posted = Annotated[dict[str, str], Depends(posted)]


def _from_here(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == request.url.netloc


def plant_seed(request: Request) -> None:
    """Give the request the seed of its form tokens: the cookie's, or a new one that :func:`keep_seed` hands out."""
    held = request.cookies.get(SEED_COOKIE, "")
    request.state.seed = held if len(held) >= 32 else secrets.token_urlsafe(32)


def keep_seed(request: Request, response: Response) -> None:
    """Set the cookie when the browser does not have it yet."""
    if request.cookies.get(SEED_COOKIE) != request.state.seed:
        set_cookie(request, response, SEED_COOKIE, request.state.seed)


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """For this browser session, out of reach of scripts and of other sites."""
    secure = request.url.scheme == "https"
    response.set_cookie(name, value, path=ROOT, httponly=True, samesite="strict", secure=secure)
