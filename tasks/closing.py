"""The result of a process that somebody else than its engine closes: stopped, poisoned, or crashed to the last."""

from __future__ import annotations

import logging
from typing import Any

from engines.base import Engine

log = logging.getLogger(__name__)


def wrapper_of(engine: Engine | None, cursor: dict[str, Any], *, error: str, message: str) -> dict[str, Any]:
    """The engine's own wording, or plain words when it is not loaded here or fails at that too: closing must not."""
    if engine is not None:
        try:
            return engine.wrapper(cursor, error=error, message=message)
        except Exception:
            log.exception("engine failed to word a result", extra={"engine": engine.name})
    return {"success": False, "attempts": 0, "error": error, "message": message}
