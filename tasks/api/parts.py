"""What every request handler needs, made once per process."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated

import redis.asyncio
from fastapi import Depends, Request

from tasks.api.exposition import Metrics
from tasks.api.rate import RateLimit
from tasks.wiring import Runtime


@dataclass(frozen=True, slots=True)
class Parts:
    """open_to_loopback: callers on this machine need no token. listener: subscribes to progress channels.

    closing: set when the server has been told to end; whoever waits or streams comes to an end by itself then.
    """

    runtime: Runtime
    rate: RateLimit
    listener: redis.asyncio.Redis
    open_to_loopback: bool
    metrics: Metrics
    closing: threading.Event


def parts(request: Request) -> Parts:
    found: Parts = request.app.state.parts
    return found


Here = Annotated[Parts, Depends(parts)]
