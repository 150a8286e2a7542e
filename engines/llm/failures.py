"""From what a provider said when a call failed to an :class:`ErrorKind`, without any SDK.

Used by every wire: status, machine-readable code and text come in, one :class:`LlmError` comes out. Error texts are
cut, and keys and the caller's own prompt are taken out of them: they end up in result rows, logs and dashboards.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx2

from engines.llm.base import ErrorKind, LlmError, StructuredPath

MAX_RETRY_AFTER = 3_600.0
_MAX_TEXT = 600
_MAX_READ = 8_000
_SHORTEST_QUOTE = 8

_KEY_SHAPES = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|key|api)[-_][A-Za-z0-9_\-*]{6,}"
    r"|\bAIza[A-Za-z0-9_\-]{10,}"
    r"|(?i:\bbearer\s+)[A-Za-z0-9._\-~+/=*]{6,}"
    r"|(?i:\b(?:api[-_ ]?key|token|secret|password)\b[\"']?\s*[:=]\s*[\"']?)[^\s\"',;}]{4,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What a provider said, in wire-neutral words. ``status`` is ``None`` for an error inside a stream."""

    message: str
    status: int | None = None
    code: str = ""
    type: str = ""
    parameter: str | None = None
    headers: Mapping[str, str] | None = None


_QUOTA = (
    "insufficient_quota",
    "billing_hard_limit_reached",
    "contract_spend_limit_reached",
    "enforced_spend_limit_reached",
    "credit balance is too low",
)  # not «exceeded your current quota»: Gemini says so of an ordinary limit per minute
_CONTEXT = re.compile(
    r"context[_ ]length[_ ]exceeded|maximum context length|context window|prompt is too long|too many (?:input )?tokens"
    r"|exceed(?:s|ed)? (?:the )?(?:available |model'?s? )?(?:maximum )?context|input (?:length|tokens?).{0,40}exceed"
    r"|reduce the length of (?:the|your)",
    re.IGNORECASE,
)
_FILTER = re.compile(
    r"content[_ ]?(?:filter|management|policy)|responsible[_ ]?ai|safety (?:system|settings)", re.IGNORECASE
)
_SCHEMA = re.compile(
    r"grammar|json[_ ]?schema|response[_ ]?format|output_config|output_format|input_schema|structured output"
    r"|schema|strict",
    re.IGNORECASE,
)
_FORCING = re.compile(r"tool_choice|forced tool|forc(?:e|es|ing) (?:a )?tool", re.IGNORECASE)
_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
_PARAMETERS = (
    "temperature",
    "top_p",
    "top_k",
    *_TOKEN_LIMITS,
    "reasoning_effort",
    "stream_options",
    "thinking",
    "tool_choice",
)
_REFUSED = re.compile(
    r"unsupported|not support|does not support|deprecated|not permitted|unrecognized|unknown|unexpected|not allowed"
    r"|extra inputs|only the default|cannot be set|may not be|invalid parameter|removed",
    re.IGNORECASE,
)
_OVERLOADED = ("overloaded", "overloaded_error", "server_overloaded", "engine_overloaded")
_BY_TYPE = {
    "rate_limit_error": ErrorKind.RATE_LIMITED,
    "rate_limit_exceeded": ErrorKind.RATE_LIMITED,
    "overloaded_error": ErrorKind.OVERLOADED,
    "timeout_error": ErrorKind.TIMEOUT,
    "api_error": ErrorKind.TRANSPORT,
    "server_error": ErrorKind.TRANSPORT,
    "conflict_error": ErrorKind.TRANSPORT,
    "authentication_error": ErrorKind.AUTH,
    "permission_error": ErrorKind.AUTH,
    "billing_error": ErrorKind.AUTH,
    "insufficient_quota": ErrorKind.AUTH,
    "request_too_large": ErrorKind.REQUEST_TOO_LARGE,
    "invalid_request_error": ErrorKind.BAD_REQUEST,
    "not_found_error": ErrorKind.BAD_REQUEST,
}


def classify(complaint: Complaint, path: StructuredPath | None) -> tuple[ErrorKind, str | None]:
    """The kind of this failure and, for a refused parameter, its name."""
    text = f"{complaint.code} {complaint.type} {complaint.message}".lower()
    if any(word in text for word in _QUOTA):
        return ErrorKind.AUTH, None
    status = complaint.status
    if status is None or status < 400:
        status = None
    if status is not None and status not in (400, 404, 422):
        return _by_status(status, text, complaint), None
    if status is None and complaint.type in _BY_TYPE and complaint.type != "invalid_request_error":
        return _BY_TYPE[complaint.type], None
    if status is None and any(word in text for word in _OVERLOADED):
        return ErrorKind.OVERLOADED, None
    return _bad_request(complaint, text, path)


def _by_status(status: int, text: str, complaint: Complaint) -> ErrorKind:
    if status == 413 and _CONTEXT.search(text):
        return ErrorKind.CONTEXT_TOO_LONG
    fixed = {
        401: ErrorKind.AUTH,
        402: ErrorKind.AUTH,
        403: ErrorKind.AUTH,
        408: ErrorKind.TIMEOUT,
        409: ErrorKind.TRANSPORT,
        413: ErrorKind.REQUEST_TOO_LARGE,
        425: ErrorKind.TRANSPORT,
        429: ErrorKind.RATE_LIMITED,
        431: ErrorKind.REQUEST_TOO_LARGE,
        499: ErrorKind.TRANSPORT,
        501: ErrorKind.BAD_REQUEST,
        503: ErrorKind.OVERLOADED,
        504: ErrorKind.TIMEOUT,
        529: ErrorKind.OVERLOADED,
    }
    if status == 403 and _FILTER.search(text):
        return ErrorKind.CONTENT_FILTER
    if status in fixed:
        return fixed[status]
    if status >= 500:
        return ErrorKind.OVERLOADED if any(word in text for word in _OVERLOADED) else ErrorKind.TRANSPORT
    return _BY_TYPE.get(complaint.type, ErrorKind.BAD_REQUEST)


def _bad_request(complaint: Complaint, text: str, path: StructuredPath | None) -> tuple[ErrorKind, str | None]:
    native = path in (StructuredPath.STRICT, StructuredPath.LOOSE)
    named = complaint.parameter if complaint.parameter in _PARAMETERS else None
    if native and named == "tool_choice":
        named = None  # it forces the tool that carries the schema: the way is refused, not the parameter
    if named is not None and _is_refusal(complaint, text):
        return ErrorKind.SAMPLING_REJECTED, named
    if _CONTEXT.search(text):
        return ErrorKind.CONTEXT_TOO_LONG, None
    about = f"{complaint.parameter or ''} {text}"
    # Before looking for a parameter's name in the text: a schema may well have a property called "temperature".
    if native and (_SCHEMA.search(about) or _FORCING.search(about)):
        return ErrorKind.SCHEMA_REJECTED, None
    found = None if complaint.parameter else _first_named(text)
    if found is not None and _is_refusal(complaint, text):
        return ErrorKind.SAMPLING_REJECTED, found
    if _FILTER.search(text):
        return ErrorKind.CONTENT_FILTER, None
    return ErrorKind.BAD_REQUEST, None


def _is_refusal(complaint: Complaint, text: str) -> bool:
    return complaint.code in ("unsupported_parameter", "unsupported_value") or _REFUSED.search(text) is not None


def _first_named(text: str) -> str | None:
    """The parameter named first: in "Unsupported max_tokens. Use max_completion_tokens." the second is the remedy."""
    found = {name: match.start() for name in _PARAMETERS if (match := re.search(rf"\b{name}\b", text))}
    return min(found, key=found.__getitem__, default=None)


def retry_after(headers: Mapping[str, str] | None, *, now: float | None = None) -> float | None:
    """Seconds the provider asks to wait: never negative, at most an hour, ``None`` when it said nothing sensible."""
    if not headers:
        return None
    lowered = {name.lower(): value.strip() for name, value in headers.items()}
    seconds = _number(lowered.get("retry-after-ms"))
    if seconds is not None:
        seconds /= 1_000
    else:
        raw = lowered.get("retry-after")
        seconds = _number(raw)
        if seconds is None and raw:
            seconds = _until(raw, lowered.get("date"), now)
    if seconds is None or seconds < 0:
        return None
    return min(seconds, MAX_RETRY_AFTER)


def _number(raw: str | None) -> float | None:
    if not raw or not re.fullmatch(r"-?\d{1,12}(\.\d{1,6})?", raw):
        return None
    return float(raw)


def _until(raw: str, date: str | None, now: float | None) -> float | None:
    target = _timestamp(raw)
    if target is None:
        return None
    # The provider's own clock where it told us, so that a skewed local clock does not turn 3 s into an hour.
    reference = _timestamp(date) if date else None
    if reference is None:
        reference = time.time() if now is None else now
    return max(0.0, target - reference)


def _timestamp(raw: str) -> float | None:
    try:
        return parsedate_to_datetime(raw).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def redact(text: str, secrets: Iterable[str] = (), quoted: Iterable[str] = ()) -> str:
    """``text`` without keys, without anything key-shaped, without lines of the prompt, and not endlessly long."""
    text = text[:_MAX_READ]
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    for passage in quoted:
        for line in (passage, *passage.splitlines()):
            line = line.strip()
            if len(line) >= _SHORTEST_QUOTE and line in text:
                text = text.replace(line, "[prompt]")
    text = _KEY_SHAPES.sub("[redacted]", text)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def transport_kind(error: BaseException) -> ErrorKind | None:
    """The kind of an exception below any SDK (HTTP client, socket, decoding); ``None`` when it is none of those."""
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return ErrorKind.TIMEOUT
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return ErrorKind.NOT_CONFIGURED
    if isinstance(error, httpx2.HTTPError | httpx2.StreamError | httpx2.CookieConflict | OSError | EOFError):
        return ErrorKind.TRANSPORT
    # A body or an event that is no JSON or no UTF-8: something between us and the provider garbled it.
    if isinstance(error, ValueError):
        return ErrorKind.TRANSPORT
    return None


_NEVER_SENT = (httpx2.ConnectTimeout, httpx2.ConnectError, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


def never_sent(error: BaseException | None) -> bool:
    """Whether the request certainly did not reach the provider (so its structured path is not to blame)."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, _NEVER_SENT):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def build(
    complaint: Complaint,
    *,
    path: StructuredPath | None,
    kind: ErrorKind | None = None,
    secrets: Iterable[str] = (),
    quoted: Iterable[str] = (),
) -> LlmError:
    """The :class:`LlmError` for ``complaint``; ``kind`` overrides the classification."""
    parameter = None
    if kind is None:
        kind, parameter = classify(complaint, path)
    status = complaint.status if complaint.status is not None and complaint.status >= 400 else None
    label = f"HTTP {status}: " if status is not None else ""
    return LlmError(
        kind,
        f"{label}{redact(complaint.message, secrets, quoted) or kind.value}",
        retry_after=retry_after(complaint.headers),
        status=status,
        parameter=parameter,
        path=path,
    )
