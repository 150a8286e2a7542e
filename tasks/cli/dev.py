"""`dev`: the whole backend on this machine, in the foreground."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click
from rich.text import Text

from tasks.cli.failures import UNREACHABLE, CommandError
from tasks.cli.output import json_option, out, plain, print_json
from tasks.dev.stack import DevOptions, find_running, run_dev
from tasks.dev.state import FOLDER
from tasks.settings import load_settings

_READY = "ready"
_COLOURS = ("cyan", "green", "magenta", "blue", "yellow", "bright_cyan", "bright_magenta")


@click.command()
@click.option("--workers", type=click.IntRange(min=0), default=1, show_default=True, help="Worker processes.")
@click.option(
    "--concurrency", "-c", type=click.IntRange(min=1), default=8, show_default=True, help="Turns at once each."
)
@click.option("--pool", type=click.Choice(["threads", "prefork", "solo"]), default="threads", show_default=True)
@click.option("--beat/--no-beat", default=True, help="The sweeper's clock; more than one does no harm.")
@click.option("--flower", is_flag=False, flag_value=5555, default=None, type=click.IntRange(0, 65535), metavar="[PORT]",
              help="Also Flower, by default on port 5555.")  # fmt: skip
@click.option("--api", is_flag=False, flag_value=8000, default=8000, show_default=True, type=click.IntRange(0, 65535),
              metavar="PORT", help="The HTTP API's port; another one when it is taken.")  # fmt: skip
@click.option("--no-api", is_flag=True, help="Without the HTTP API.")
@click.option("--local-model/--no-local-model", default=None, help="Default: where this machine can.")
@click.option("--model-path", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Any GGUF file.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, show_default=True)
@click.option("--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO")
@click.option("--status", "only_status", is_flag=True, help="Say what runs in the folder, and exit.")
@json_option
@click.pass_context
def dev(
    ctx: click.Context,
    workers: int,
    concurrency: int,
    pool: str,
    beat: bool,
    flower: int | None,
    api: int,
    no_api: bool,
    local_model: bool | None,
    model_path: Path | None,
    folder: Path,
    log_level: str,
    only_status: bool,
    as_json: bool,
) -> None:
    """Run PostgreSQL, Redis, a local model, workers and beat in the foreground until Ctrl-C.

    Everything lives in --folder and survives restarts. PostgreSQL or Redis named by VANCETOPE_DATABASE_URL or
    VANCETOPE_REDIS_URL are used instead of starting one. Other commands in this folder find the stack by themselves.
    """
    if only_status:
        _say_status(folder, as_json)
        return
    # Checked here, before every child would fail on them by itself.
    settings = load_settings()
    wish: Literal["yes", "no", "auto"] = "auto" if local_model is None else "yes" if local_model else "no"
    options = DevOptions(
        folder=folder,
        workers=workers,
        concurrency=concurrency,
        pool=pool,
        beat=beat,
        api_port=None if no_api else api,
        flower_port=flower,
        local_model=wish,
        local_model_path=model_path or settings.local_model_path,
        database_url=settings.database_url.get_secret_value() if settings.database_url else None,
        redis_url=settings.redis_url.get_secret_value() if settings.redis_url else None,
        postgres_bindir=_path("VANCETOPE_POSTGRES_BINDIR"),
        redis_server=_path("VANCETOPE_REDIS_SERVER"),
        log_level=log_level,
        environment={} if "VANCETOPE_LOG_FORMAT" in os.environ or as_json else {"VANCETOPE_LOG_FORMAT": "text"},
    )
    ctx.exit(run_dev(options, DevLog()))


def _path(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value) if value else None


def _say_status(folder: Path, as_json: bool) -> None:
    state = find_running(folder)
    if state is None:
        raise CommandError(f"no stack runs in {folder.absolute()}: `vancetope dev` starts one", UNREACHABLE)
    if as_json:
        known = asdict(state)
        print_json({key: known[key] for key in known if key not in ("database_url", "redis_url")})
        return
    out().print(state.summary(), markup=False)


class DevLog:
    """The stack's log lines with coloured origins, and where to look next once everything is up."""

    def __init__(self) -> None:
        self._console = out()
        self._colours: dict[str, str] = {}

    def __call__(self, name: str, line: str) -> None:
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        try:
            self._console.print(Text.assemble((f"{name:<11}", colour), (" │ ", "dim"), plain(line)), soft_wrap=True)
            if name == "stack" and line.startswith(_READY):
                self._where_next()
        except (BrokenPipeError, ValueError):
            # The terminal is gone; the stack lives until it is told to stop.
            return

    def _where_next(self) -> None:
        text = (
            "\nIn another terminal, in this folder:\n"
            '  vancetope run extract-event --prompt "Ada signed in at 2026-05-04 09:12"\n'
            "  vancetope recipes ls        what else can be run\n"
            "  vancetope list              the newest jobs; status, watch, result, calls, history take an id\n"
            "  vancetope doctor            is everything well?\n"
            "In a browser: the address of the api above.\n"
        )
        self._console.print(text, markup=False, soft_wrap=True)
