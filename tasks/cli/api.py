"""`api`: the HTTP API and the web console, in the foreground."""

from __future__ import annotations

import ipaddress

import click

from tasks.api.app import create_app
from tasks.api.server import serve
from tasks.broker import publisher_app
from tasks.cli.here import backend_settings
from tasks.cli.output import err
from tasks.logs import configure
from tasks.wiring import Runtime


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
@click.option("--tokens-required", is_flag=True, help="Callers on this machine need a token, too.")
def api(host: str, port: int, tokens_required: bool) -> None:
    """Serve the HTTP API and the web console until Ctrl-C.

    On any other address than the loopback every caller needs a token.
    """
    settings = backend_settings()
    configure(level=settings.log_level, style=settings.log_format, secrets=settings.secrets())
    is_open = not tokens_required and is_loopback(host)
    app = create_app(Runtime(settings, publisher_app(settings)), open_to_loopback=is_open)
    who = "callers on this machine need no token" if is_open else "every caller needs a token"
    err().print(f"http://{host}:{port}/openapi.json, console http://{host}:{port}/console/; {who}", markup=False)
    serve(app, host=host, port=port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
