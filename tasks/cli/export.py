"""`export`: a job with everything it owns as one JSON file."""

from __future__ import annotations

from pathlib import Path

import click

from models.store.export import root_of
from tasks.cli.failures import USAGE, CommandError
from tasks.cli.here import backend_settings
from tasks.cli.output import err, json_option, print_json
from tasks.cli.store import open_database, process_id
from tasks.exporting import exported


@click.command()
@click.argument("identity", metavar="ID")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: standard output.")
@json_option
def export(identity: str, output: Path | None, as_json: bool) -> None:
    """Write a job with its whole tree to one JSON file, for `vancetope replay`.

    Nodes, turns, calls, messages, questions with their answers, documents and model specs read and written, results. Of
    a sub-process the top-level job is exported. With --json and -o a line says what was written.
    """
    settings = backend_settings()
    database = open_database(settings)
    given = process_id(database, identity)
    root = root_of(database, given)
    if root is None:
        raise CommandError(f"there is no job {given} in this database: `vancetope list` shows the newest", USAGE)
    if root != given:
        err().print(f"{given} is a sub-process: its top-level job {root} is exported", markup=False)
    pieces = exported(database, settings, root)
    if output is None:
        # An export is UTF-8 whatever the terminal is.
        for piece in pieces:
            click.echo(piece.encode(), nl=False)
        return
    try:
        with output.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}", USAGE) from None
    size = output.stat().st_size
    if as_json:
        print_json({"root": root, "file": str(output), "bytes": size})
    else:
        err().print(f"{output}: {size:,} bytes", markup=False)
