"""Templates, and what every page has."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from models.store import inbox
from models.store.database import DatabaseUnavailable
from models.store.tokens import Scope
from tasks.api.access import Caller
from tasks.api.console import texts
from tasks.api.console.session import ROOT, form_token, secret_of

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # The whole address stays here; not "no-referrer", which takes the Origin from forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates: everything that is put into them is escaped, and its control characters are made visible."""
    made = Environment(
        loader=PackageLoader("tasks.api.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        name: getattr(texts, name) for name in ("when", "lasted", "money", "number", "as_json", "cut", "brief")
    }
    made.globals["root"] = ROOT
    return made


def _harmless(value: Any) -> Any:
    return texts.plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def page(request: Request, template: str, /, *, code: int = 200, **values: Any) -> Response:
    """A page or a part of one. Its templates know ``who`` (the caller or ``None``), ``may`` and ``form_token``."""
    who: Caller | None = getattr(request.state, "caller", None)
    text = environment().get_template(template).render(
        who=who,
        may=_permits(who),
        form_token=form_token(request),
        has_session=secret_of(request) is not None,
        questions=_questions(request, who) if who is not None and not template.startswith("_") else 0,
        **values,
    )  # fmt: skip
    return HTMLResponse(text, status_code=code)


def go(path: str) -> Response:
    """To a page of the console, after a form."""
    return RedirectResponse(f"{ROOT}{path}", status_code=303)


def _permits(who: Caller | None) -> dict[str, bool]:
    return {scope.value: who is not None and who.may(scope) for scope in Scope}


def _questions(request: Request, who: Caller) -> int:
    try:
        return inbox.pending(request.app.state.parts.runtime.database, who.tenant)
    except DatabaseUnavailable:
        # The page that says so has a heading, too.
        return 0
