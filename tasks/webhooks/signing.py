"""Signatures by the Standard Webhooks specification (1.0.0), symmetric: HMAC-SHA256 of ``id.timestamp.body``."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

from models.store.webhooks import PREFIX


def headers_of(event_id: str, timestamp: int, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """The three headers. timestamp: of the attempt, seconds since the epoch. Each of ``secrets`` signs, in their order.

    Raises ``ValueError`` for a secret that is none.
    """
    content = f"{event_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_signature(content, secret) for secret in secrets),
    }


def _signature(content: bytes, secret: str) -> str:
    if not secret.startswith(PREFIX):
        raise ValueError(f"a signing secret begins with {PREFIX}")
    key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    return "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
