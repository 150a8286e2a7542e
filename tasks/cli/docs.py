"""`docs`: a project's documents, those that plans wrote and those they read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from engines.documents.paths import normalise_path
from models.store import documents as store
from tasks.cli.asked import STDIN, read_file, read_stdin
from tasks.cli.failures import USAGE, CommandError
from tasks.cli.here import backend_settings
from tasks.cli.output import err, json_option, out, plain, print_json, print_table
from tasks.cli.store import open_database

F = TypeVar("F", bound=Callable[..., Any])

_MIMES = {".json": "application/json", ".yaml": "application/yaml", ".yml": "application/yaml"}


@click.group()
def docs() -> None:
    """List, print, store and delete documents; plans read and write them by path."""


def _project(command: F) -> F:
    command = click.option("--project", help="Default: VANCETOPE_PROJECT.")(command)
    return click.option("--tenant", help="Default: VANCETOPE_TENANT.")(command)


def _open(tenant: str | None, project: str | None) -> tuple[Any, str, str]:
    settings = backend_settings()
    return open_database(settings), tenant or settings.tenant, project or settings.project


@docs.command("ls")
@click.argument("prefix", default="")
@click.option("--all", "everything", is_flag=True, help="Also drafts and other documents of the engines.")
@_project
@json_option
def ls(prefix: str, everything: bool, tenant: str | None, project: str | None, as_json: bool) -> None:
    """The documents whose path begins with PREFIX."""
    found = [
        each
        for each in store.list_documents(*_open(tenant, project), prefix=prefix)
        if everything or prefix.startswith("_") or not each.path.startswith("_")
    ]
    if as_json:
        names = ("path", "version", "kind", "title", "characters", "updated_at")
        print_json([{name: getattr(each, name) for name in names} for each in found])
        return
    rows = [(each.path, each.version, each.kind, each.characters, each.updated_at, each.title) for each in found]
    columns = ("path", "version", "kind", "characters", "changed", "title")
    print_table(columns, rows, empty="no documents; --all shows drafts too")


@docs.command("cat")
@click.argument("path")
@click.option("--version", type=click.IntRange(min=1), help="An earlier version.")
@_project
@json_option
def cat(path: str, version: int | None, tenant: str | None, project: str | None, as_json: bool) -> None:
    """Print the document at PATH as it is stored."""
    place = normalise_path(path)
    found = store.get(*_open(tenant, project), place, version=version)
    if found is None:
        which = f"version {version} of it" if version else "such document"
        raise CommandError(f"{place}: there is no {which}: `vancetope docs ls --all` shows all", USAGE)
    if as_json:
        names = ("path", "version", "kind", "title", "mime", "content")
        print_json({name: getattr(found, name) for name in names})
    else:
        # A terminal obeys control characters, a file keeps them.
        content = plain(found.content) if out().is_terminal else found.content
        click.echo(content, nl=not content.endswith("\n"))


@docs.command("put")
@click.argument("path")
@click.argument("file", metavar="FILE|-")
@click.option("--kind", default="text", show_default=True, help="A list, tree or records document says so itself.")
@click.option("--title", help="Shown in lists and to templates.")
@_project
@json_option
def put(
    path: str, file: str, kind: str, title: str | None, tenant: str | None, project: str | None, as_json: bool
) -> None:
    """Store FILE (- is standard input) at PATH; a document that is there gets its next version."""
    place = normalise_path(path)
    content = read_stdin("FILE") if file == STDIN else read_file(file, "FILE")
    mime = _MIMES.get(Path(place).suffix.lower(), "text/markdown")
    version = store.put(*_open(tenant, project), place, content, kind=kind, title=title, mime=mime)
    if as_json:
        print_json({"path": place, "version": version})
    else:
        err().print(f"{place}, version {version}", markup=False)


@docs.command("rm")
@click.argument("path")
@_project
@json_option
def rm(path: str, tenant: str | None, project: str | None, as_json: bool) -> None:
    """Delete the document at PATH with all its versions."""
    place = normalise_path(path)
    removed = store.remove(*_open(tenant, project), place)
    if as_json:
        print_json({"path": place, "removed": removed})
    elif not removed:
        raise CommandError(f"{place}: there is no such document", USAGE)


@docs.command("export")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("prefix", default="")
@_project
@json_option
def export(folder: Path, prefix: str, tenant: str | None, project: str | None, as_json: bool) -> None:
    """Write the documents whose path begins with PREFIX as files below FOLDER. Files that are there are replaced."""
    database, tenant, project = _open(tenant, project)
    written: list[str] = []
    for each in store.list_documents(database, tenant, project, prefix=prefix):
        found = store.get(database, tenant, project, each.path)
        if found is None:
            continue  # deleted meanwhile
        # Stored paths are normal already; one that was written past the engines must not lead out of the folder.
        target = folder / normalise_path(found.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(found.content, encoding="utf-8")
        written.append(found.path)
    if as_json:
        print_json({"folder": str(folder), "paths": written})
    else:
        err().print(f"{len(written)} documents below {folder}", markup=False)
