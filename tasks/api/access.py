"""Who calls and what they may do: bearer tokens with scopes, and nothing without one except on the loopback."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from models.store import tokens
from models.store.tokens import Scope
from tasks.api.parts import Parts
from tasks.api.problems import Problem
from tasks.api.rate import Allowance

_BEARER: Final = HTTPBearer(
    auto_error=False, scheme_name="token", description="A token of `vancetope tokens create`: `Bearer vt_…`."
)
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whoever sent the request. Everything they see and do is within ``tenant``."""

    tenant: str
    name: str
    scopes: frozenset[Scope]
    token_id: int | None = None

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes


def caller(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
) -> Caller:
    """Dependency: the caller, within their rate. 401 without a token that works, 429 with too many requests."""
    return identify(request, None if credentials is None else credentials.credentials)


def identify(request: Request, secret: str | None) -> Caller:
    """Whoever shows ``secret`` (``None``: nothing), within their rate. Raises :class:`Problem` like :func:`caller`."""
    parts: Parts = request.app.state.parts
    if secret is not None:
        found = tokens.use(parts.runtime.database, secret)
        if found is None:
            raise _unauthorised("the token is unknown, revoked or expired")
        known = Caller(tenant=found.tenant, name=found.name, scopes=found.scopes, token_id=found.id)
    elif parts.open_to_loopback and _is_local(request):
        known = Caller(tenant=parts.runtime.settings.tenant, name="local", scopes=frozenset({Scope.ADMIN}))
    else:
        raise _unauthorised("a token is needed: `vancetope tokens create NAME`, then the header Authorization: Bearer")
    allowance = parts.rate.take(known.token_id)
    request.state.allowance = allowance
    if not allowance.granted:
        raise _too_many(allowance)
    return known


def needs(scope: Scope) -> Callable[[Caller], Caller]:
    """Dependency: a caller with ``scope``. 403 for others."""

    def checked(found: Annotated[Caller, Depends(caller)]) -> Caller:
        demand(found, scope)
        return found

    return checked


def scraper(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None
) -> None:
    """Dependency: a caller who may see figures of the whole installation, so no token of a tenant that is a guest here.

    With ``metrics_open`` also a caller without a token that comes straight from a private network.
    """
    settings = request.app.state.parts.runtime.settings
    if credentials is None and settings.metrics_open and _is_inside(request):
        return
    found = caller(request, credentials)
    if not found.may(Scope.READ) or found.tenant != settings.tenant:
        detail = (
            f"this needs a token of the tenant {settings.tenant} with the scope read: it shows figures of all tenants"
        )
        raise Problem(HTTPStatus.FORBIDDEN, "forbidden", detail)


def demand(found: Caller, scope: Scope) -> None:
    """403 unless the caller has ``scope``."""
    if not found.may(scope):
        held = ", ".join(sorted(found.scopes))
        detail = f"this needs the scope {scope.value}; the token {found.name!r} has {held}"
        raise Problem(HTTPStatus.FORBIDDEN, "forbidden", detail)


Reader = Annotated[Caller, Depends(needs(Scope.READ))]
Submitter = Annotated[Caller, Depends(needs(Scope.SUBMIT))]
Answerer = Annotated[Caller, Depends(needs(Scope.ANSWER))]
Admin = Annotated[Caller, Depends(needs(Scope.ADMIN))]


def _is_local(request: Request) -> bool:
    """From this machine, to it by a local name, and from no page of another site: a name of theirs may resolve here."""
    if request.url.hostname not in _LOCAL_NAMES:
        return False
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.url.netloc:
        return False
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _is_inside(request: Request) -> bool:
    """From an address that is not routed in the internet, and passed on by no proxy, which has such an address, too."""
    if any(name in request.headers for name in ("forwarded", "x-forwarded-for", "x-real-ip", "via")):
        return False
    try:
        return request.client is not None and not ipaddress.ip_address(request.client.host).is_global
    except ValueError:
        return False


def _unauthorised(detail: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def _too_many(allowance: Allowance) -> Problem:
    wait = max(1, round(allowance.retry_seconds))
    detail = f"more than {allowance.per_minute} requests in a minute; try again in {wait} s"
    return Problem(HTTPStatus.TOO_MANY_REQUESTS, "too_many_requests", detail, headers={"Retry-After": str(wait)})
