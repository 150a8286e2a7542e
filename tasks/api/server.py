"""Serving the application until the process is told to end, and then ending without cutting anybody off."""

from __future__ import annotations

import signal
import socket
import sys
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

GRACE_SECONDS: Final = 10
"""How long responses under way may take after SIGTERM or Ctrl-C."""


class _Server(uvicorn.Server):
    """Tells the application first: event streams and long polls end by themselves, and nothing has to be cancelled."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app = self.config.app
        assert isinstance(app, FastAPI)
        app.state.closing.set()
        await super().shutdown(sockets)


def serve(app: FastAPI, *, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C. Exits with 0 after either, and with 3 when it could not start."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    # Uvicorn handles signals itself and raises them once more at its end, for whoever had a handler before.
    signal.signal(signal.SIGTERM, end)
    config = uvicorn.Config(
        app, host=host, port=port, log_config=None, server_header=False, timeout_graceful_shutdown=GRACE_SECONDS
    )
    server = _Server(config)
    try:
        server.run()
    except KeyboardInterrupt:
        return
    if not server.started:
        sys.exit(3)
