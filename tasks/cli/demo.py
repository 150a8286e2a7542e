"""`demo`: real jobs on a backend of their own."""

from __future__ import annotations

from pathlib import Path

import click

from tasks.cli.output import json_option
from tasks.dev.demo import run_demo


@click.command()
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Keep the data here (default: nowhere)."
)
@click.option("--scripted", is_flag=True, help="Canned answers instead of a model.")
@json_option
@click.pass_context
def demo(ctx: click.Context, folder: Path | None, scripted: bool, as_json: bool) -> None:
    """Start a backend of its own, run real jobs over the example texts, show the results, stop.

    It uses a provider whose key or URL is set, else the local model, else canned answers, and says which.
    """
    ctx.exit(run_demo(folder=folder, scripted=scripted, as_json=as_json))
