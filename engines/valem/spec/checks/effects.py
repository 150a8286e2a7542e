"""Effects: what each executor needs, and that the expressions in them compile."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final

from engines.structured.text import quote, quote_all
from engines.valem.spec.checks.items import Expressions
from engines.valem.spec.checks.report import Report, check_address, check_expression, check_unique
from engines.valem.spec.records import Effect, ModelSpec

EXECUTORS: Final = ("caller", "server", "llm", "timer")
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


def check_effects(report: Report, spec: ModelSpec, found: Expressions, plugins: Collection[str] = ()) -> None:
    """plugins: executors that the installation has beyond :data:`EXECUTORS`."""
    seen: dict[str, str] = {}
    for index, effect in enumerate(spec.effects):
        at = f"effects[{index}]"
        if not effect.id.strip():
            report.error(f"{at}.id", "is blank: every effect has an id of its own")
        else:
            check_unique(report, f"{at}.id", effect.id, seen, "the effect")
        for key, text in _expressions(effect).items():
            expression = check_expression(report, f"{at}.{key}", text)
            if expression is not None:
                found[f"{at}.{key}"] = expression
        if effect.status_path is not None:
            check_address(report, f"{at}.statusPath", effect.status_path)
        for address in effect.response_set:
            check_address(report, f"{at}.response.set", address)
        _check_executor(report, at, effect, plugins)


def _expressions(effect: Effect) -> dict[str, str]:
    """What must compile. Values of ``response.set`` and texts with ``{ … }`` in urls are the shell's to read."""
    found = {"trigger": effect.trigger}
    optional = {"dedupeKey": effect.dedupe_key, "prompt": effect.prompt, "at": effect.at, "afterMs": effect.after_ms}
    found |= {key: text for key, text in optional.items() if text is not None}
    return found | {f"payload.{name}": text for name, text in effect.payload.items()}


def _check_executor(report: Report, at: str, effect: Effect, plugins: Collection[str]) -> None:
    match effect.executor:
        case "caller":
            if not (effect.emit or "").strip():
                report.error(f"{at}.emit", "is missing: the name of the event that the caller gets")
        case "server":
            _check_server(report, at, effect)
        case "llm":
            if not (effect.prompt or "").strip():
                report.error(f"{at}.prompt", "is missing: an expression that gives the text for the model")
        case "timer":
            if effect.at is None and effect.after_ms is None:
                report.error(at, "a timer needs at (a point in time) or afterMs (milliseconds from now)")
        case other if other not in plugins:
            known = (*EXECUTORS, *plugins)
            near = difflib.get_close_matches(other, known, n=1)
            hint = f"did you mean {quote(near[0])}?" if near else f"there are {quote_all(known)}"
            report.error(f"{at}.executor", f"the executor {quote(other)} is unknown or disabled", hint)


def _check_server(report: Report, at: str, effect: Effect) -> None:
    request, target = effect.request or {}, effect.target or {}
    given = [
        name
        for name, there in (
            ("request.url", bool(request.get("url"))),
            ("requests", bool(effect.requests)),
            ("target.ref", bool(target.get("ref"))),
        )
        if there
    ]
    if len(given) != 1:
        there = f"there are {quote_all(given)}" if given else "there is none"
        report.error(at, f"needs exactly one of request.url, requests and target.ref; {there}")
    for key, one in (("request", request), *((f"requests[{i}]", each) for i, each in enumerate(effect.requests or ()))):
        _check_request(report, f"{at}.{key}", one)
    if target and (("path" in target) == ("read" in target)):
        report.error(f"{at}.target", "has exactly one of path (what is written) and read (what is read)")
    if effect.body is not None and "path" not in target:
        report.error(f"{at}.body", "goes together with target.path only", "the body of a request is request.body")


def _check_request(report: Report, at: str, request: object) -> None:
    if not isinstance(request, Mapping):
        report.error(at, "must be an object with method and url")
        return
    read: Mapping[str, Any] = request
    method = read.get("method")
    if method is not None and (not isinstance(method, str) or method.upper() not in METHODS):
        report.error(f"{at}.method", f"{quote(str(method))} is no method: one of {', '.join(METHODS)}")
    if at.endswith("]") and not read.get("url"):
        report.error(f"{at}.url", "is missing")
