"""`migrate`: bring the database to this version."""

from __future__ import annotations

import click

from models.store import read
from tasks.cli.here import settings_here
from tasks.cli.output import json_option, out, print_json
from tasks.cli.store import open_database
from tasks.dev import migrate as migrations
from tasks.settings import SettingsError


@click.command()
@click.option("--revision", default="head", show_default=True, help="Up to this one.")
@json_option
def migrate(revision: str, as_json: bool) -> None:
    """Apply pending migrations, all or none. Safe to run from many places at once."""
    # Redis may not be there yet: only the database matters here.
    settings = settings_here().settings
    if settings.database_url is None:
        raise SettingsError("VANCETOPE_DATABASE_URL is not set, and no `vancetope dev` runs in this folder")
    database = open_database(settings)
    before = read.schema_revision(database)
    migrations.upgrade(settings.database, revision)
    after = read.schema_revision(database)
    if as_json:
        print_json({"before": before, "after": after})
    else:
        out().print(f"already at {after}" if before == after else f"{before or 'empty'} -> {after}", markup=False)
