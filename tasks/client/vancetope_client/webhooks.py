"""For receivers of webhooks: is this request from the backend, and what does it say."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

from vancetope_client.errors import WebhookRefused

_PREFIX = "whsec_"
_NAMES = ("webhook-id", "webhook-timestamp", "webhook-signature")


def verify_webhook(
    secret: str,
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance: float = 300.0,
    now: float | None = None,
) -> dict[str, Any]:
    """The event of a request that the backend has signed: ``{"id", "type", "timestamp", "tenant", "project", "data"}``.

    secret: ``whsec_…``, as it was shown when the endpoint was made. headers: of the request, in any spelling. body: the
    very bytes that came; JSON that was parsed and written again is another text. tolerance: seconds by which the time
    of sending may differ from this machine's clock (``now``).

    The same event may come more than once; ``event["id"]`` tells. Raises :class:`WebhookRefused`, and ``ValueError``
    for a secret that is none.
    """
    key = _key(secret)
    event_id, timestamp, signatures = _parts(headers)
    content = body.encode() if isinstance(body, str) else bytes(body)
    expected = hmac.new(key, f"{event_id}.{timestamp}.".encode() + content, hashlib.sha256).digest()
    wanted = ("v1," + base64.b64encode(expected).decode()).encode()
    if not any(hmac.compare_digest(wanted, each.encode("utf-8", "replace")) for each in signatures.split(" ")):
        raise WebhookRefused("no signature fits the secret and the body")
    drift = (time.time() if now is None else now) - timestamp
    if abs(drift) > tolerance:
        raise WebhookRefused(f"the request is {abs(drift):.0f} s {'old' if drift > 0 else 'ahead of this clock'}")
    try:
        event = json.loads(content)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise WebhookRefused("the body is no JSON object")
    return event


def _key(secret: str) -> bytes:
    try:
        if not secret.startswith(_PREFIX):
            raise ValueError
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"a signing secret is {_PREFIX} and a key in base64") from None


def _parts(headers: Mapping[str, str]) -> tuple[str, int, str]:
    found = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in _NAMES if name not in found]
    if missing:
        raise WebhookRefused(f"the request has no {', '.join(missing)}")
    event_id, timestamp, signatures = (found[name] for name in _NAMES)
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 16):
        raise WebhookRefused("webhook-timestamp is no number of seconds")
    return event_id, int(timestamp), signatures
