"""`valem ls`, `valem cat` and `valem put`: the model specs that are stored. They need PostgreSQL only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from engines.valem.spec.parse import parse_spec
from engines.valem.spec.validate import validate_spec
from models.store import model_specs as store
from tasks.cli.failures import FAILED, USAGE, CommandError
from tasks.cli.here import backend_settings
from tasks.cli.output import err, json_option, print_json, print_table
from tasks.cli.store import open_database
from tasks.cli.valem.files import evaluator, read_json

F = TypeVar("F", bound=Callable[..., Any])


def _project(command: F) -> F:
    command = click.option("--project", help="Default: VANCETOPE_PROJECT.")(command)
    return click.option("--tenant", help="Default: VANCETOPE_TENANT.")(command)


def _open(tenant: str | None, project: str | None) -> tuple[Any, str, str]:
    settings = backend_settings()
    return open_database(settings), tenant or settings.tenant, project or settings.project


@click.command("ls")
@_project
@json_option
def ls(tenant: str | None, project: str | None, as_json: bool) -> None:
    """The stored models, each with its newest version."""
    found = store.list_models(*_open(tenant, project))
    if as_json:
        print_json(
            [
                {"modelId": each.model_id, "version": each.version, "specVersion": each.spec_version,
                 "process": each.process_id, "createdAt": each.created_at}
                for each in found
            ]
        )  # fmt: skip
        return
    rows = [(each.model_id, each.version, each.spec_version, each.created_at, each.process_id) for each in found]
    empty = "no models; `vancetope run valem-generate` makes one"
    print_table(("model", "version", "spec version", "written", "by process"), rows, empty=empty)


@click.command("cat")
@click.argument("model_id", metavar="MODEL")
@click.option("--version", type=click.IntRange(min=1), help="An earlier version.")
@click.option("--evolution", is_flag=True, help="The change that led to the version, not the spec.")
@_project
@json_option
def cat(
    model_id: str, version: int | None, evolution: bool, tenant: str | None, project: str | None, as_json: bool
) -> None:
    """Print the spec of MODEL as it is stored."""
    found = store.get(*_open(tenant, project), model_id, version=version)
    if found is None:
        which = f"version {version} of it" if version else "such model"
        raise CommandError(f"{model_id}: there is no {which}: `vancetope valem ls` shows all", USAGE)
    if evolution and found.evolution is None:
        raise CommandError(f"{model_id}: version {found.version} was not made by an evolution", USAGE)
    print_json(found.evolution if evolution else found.spec, indent=None if as_json else 2)


@click.command("put")
@click.argument("file", metavar="FILE|-")
@_project
@json_option
@click.pass_context
def put(ctx: click.Context, /, file: str, tenant: str | None, project: str | None, as_json: bool) -> None:
    """Store the spec in FILE under its id: as version 1, or behind the newest one. One with errors is refused."""
    data = read_json(file, "FILE")
    spec = parse_spec(data)
    errors = [each for each in validate_spec(spec, evaluator=evaluator()) if each.is_error]
    if errors:
        raise CommandError(
            f"{errors[0].location}: {errors[0].message} ({len(errors)} errors: `vancetope valem validate` shows all)",
            FAILED,
        )
    database, tenant, project = _open(tenant, project)
    newest = store.get(database, tenant, project, spec.id)
    version = 1 if newest is None else newest.version + 1
    try:
        store.put(database, tenant, project, spec.id, data, version=version, spec_version=spec.version)
    except store.VersionConflict as conflict:
        raise CommandError(f"{conflict}: somebody else was first, look and try again", FAILED) from None
    if as_json:
        print_json({"modelId": spec.id, "version": version})
    else:
        err().print(f"{spec.id}, version {version}", markup=False)
