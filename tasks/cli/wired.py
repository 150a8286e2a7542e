"""The parts of the application that a command needs to submit, stop or resume."""

from __future__ import annotations

from typing import Any

import click

from tasks.broker import publisher_app
from tasks.settings import Settings
from tasks.wiring import Runtime


def open_runtime(settings: Settings) -> Runtime:
    """Engines, database and publisher for this command, closed when it ends. Starts no thread and runs no turn."""
    app = publisher_app(settings)
    runtime = Runtime(settings.model_copy(update={"database_pool_size": 2}), app)

    def close() -> None:
        runtime.close()
        app.close()

    click.get_current_context().call_on_close(close)
    return runtime


def workers_answering(app: Any, *, timeout: float = 1.0) -> list[str]:
    """The names of the workers that answer a ping in time; empty when the broker is away too."""
    try:
        replies = app.control.ping(timeout=timeout)
    except Exception:
        return []
    return sorted(name for reply in replies for name in reply)
