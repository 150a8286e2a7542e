"""`recipes`: which there are, what they say, whether they are right. Where no backend is known, without documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import click

from engines.errors import EngineError, InvalidSchema
from engines.ford import queries as structured_query
from engines.recipes.cascade import RecipeSource, list_recipes, resolve
from engines.recipes.model import Recipe, normalise_name, parse_recipe
from engines.structured.schema import compile_schema
from engines.tools.web_search import WebSearch
from models.store import documents
from tasks.cli.asked import read_file
from tasks.cli.failures import FAILED, USAGE, CommandError
from tasks.cli.here import Here, backend_settings, settings_here
from tasks.cli.output import err, json_option, out, plain, print_fields, print_json, print_table
from tasks.cli.store import open_database
from tasks.cookbook import recipe_path, recipe_sources
from tasks.submission import check_recipe
from tasks.toolbox import load_tools
from tasks.wiring import load_engines


@click.group()
def recipes() -> None:
    """List, show, check and store recipes: a project's documents, its tenant's, VANCETOPE_RECIPES_DIR, bundled ones."""


_TENANT = click.option("--tenant", help="Default: VANCETOPE_TENANT.")
_PROJECT = click.option("--project", help="Default: VANCETOPE_PROJECT.")


def _cascade(here: Here, tenant: str | None, project: str | None) -> Sequence[RecipeSource]:
    settings = here.settings
    database = None if settings.database_url is None else open_database(settings)
    if database is None:
        err().print("no backend is known here: recipes among documents are not shown", style="dim")
    return recipe_sources(settings, database)(tenant or settings.tenant, project or settings.project)


@recipes.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also unlisted and internal ones.")
@_TENANT
@_PROJECT
@json_option
def ls(everything: bool, tenant: str | None, project: str | None, as_json: bool) -> None:
    """The recipes that `run` knows here."""
    found = list_recipes(_cascade(settings_here(), tenant, project))
    shown = [
        each for each in found if each.recipe is None or everything or (each.recipe.listed and not each.recipe.internal)
    ]
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "engine": each.recipe.engine if each.recipe else None,
                    "summary": each.recipe.summary if each.recipe else None,
                    "layer": each.layer,
                    "source": each.recipe.source if each.recipe else None,
                    "error": each.error,
                }
                for each in shown
            ]
        )
        return
    rows = [
        (each.name, each.layer, each.recipe.engine, each.recipe.summary)
        if each.recipe
        else (each.name, each.layer, "broken", each.error)
        for each in shown
    ]
    print_table(("recipe", "from", "engine", "what it does"), rows, empty="no recipes")


@recipes.command("show")
@click.argument("name")
@_TENANT
@_PROJECT
@json_option
def show(name: str, tenant: str | None, project: str | None, as_json: bool) -> None:
    """One recipe in full, as a job would use it."""
    recipe = resolve(name, _cascade(settings_here(), tenant, project))
    if as_json:
        print_json(recipe.model_dump(mode="json", by_alias=True))
        return
    limits = recipe.limits.model_dump(by_alias=True, exclude_none=True)
    print_fields(
        [
            ("recipe", recipe.name),
            ("title", recipe.title),
            ("engine", recipe.engine),
            ("from", recipe.source),
            ("params", ", ".join(f"{key}={json.dumps(value)}" for key, value in recipe.params.items())),
            ("limits", ", ".join(f"{key}={value}" for key, value in limits.items())),
            ("tags", ", ".join(recipe.tags)),
            ("examples", len(recipe.examples) or None),
        ]
    )
    console = out()
    console.print("\n" + plain(recipe.description.rstrip()), markup=False)
    if recipe.prompt_prefix:
        console.print("\nprompt", style="bold")
        console.print(plain(recipe.prompt_prefix.rstrip()), markup=False)
    if recipe.json_schema is not None:
        console.print("\nschema", style="bold")
        print_json(recipe.json_schema, indent=2)


@recipes.command("check")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@_TENANT
@_PROJECT
@json_option
@click.pass_context
def check(
    ctx: click.Context, /, files: tuple[Path, ...], tenant: str | None, project: str | None, as_json: bool
) -> None:
    """Check recipe FILES, or all recipes known here. Exit code 1 when one is wrong."""
    here = settings_here()
    if files:
        checked = [(str(file), _problems(partial(_parsed, file), here)) for file in files]
    else:
        sources = _cascade(here, tenant, project)
        names = sorted({name for source in sources for name in source.names()})
        checked = [(name, _problems(partial(resolve, name, sources), here)) for name in names]
    if as_json:
        print_json([{"recipe": name, "problems": problems} for name, problems in checked])
    else:
        rows = [(name, "problem" if problems else "ok", "; ".join(problems)) for name, problems in checked]
        print_table(("recipe", "state", "problems"), rows, empty="no recipes")
    ctx.exit(FAILED if any(problems for _, problems in checked) else 0)


@recipes.command("put")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_TENANT
@click.option("--project", help="Default: VANCETOPE_PROJECT; _tenant stores for all projects of the tenant.")
@json_option
def put(files: tuple[Path, ...], tenant: str | None, project: str | None, as_json: bool) -> None:
    """Check recipe FILES and store them as documents of the project, where they win over all others.

    The file's name is the recipe's. With one wrong file nothing is stored. `vancetope docs rm recipes/NAME.yaml` takes
    one away again.
    """
    settings = backend_settings()
    here = Here(settings)
    for file in files:
        problems = _problems(partial(_parsed, file), here)
        if problems:
            raise CommandError(f"nothing was stored: {'; '.join(problems)}", USAGE)
    database = open_database(settings)
    stored = []
    for file in files:
        path = recipe_path(normalise_name(file.stem))
        place = (tenant or settings.tenant, project or settings.project, path)
        version = documents.put(database, *place, _read(file), mime="application/yaml")
        stored.append({"path": path, "version": version})
    if as_json:
        print_json(stored)
        return
    for each in stored:
        err().print(f"{each['path']}, version {each['version']}", markup=False)


def _read(file: Path) -> str:
    return read_file(str(file), "recipe")


def _unknown_tools(recipe: Recipe, here: Here) -> list[str]:
    """Tools the recipe names that are not installed here; one that only lacks its setting is known."""
    named = (*(recipe.allowed_tools or ()), *recipe.allowed_tools_add, *recipe.allowed_tools_remove)
    if not named:
        return []
    known = {spec.name for spec in load_tools(here.settings).specs()} | {structured_query.NAME, WebSearch.name}
    problems = []
    for name in named:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            problems.append(f"{recipe.source}: there is no tool {name!r} here: {hint}")
    return problems


def _parsed(file: Path) -> Recipe:
    return parse_recipe(file.stem, _read(file), str(file))


def _problems(load: Callable[[], Recipe], here: Here) -> list[str]:
    try:
        recipe = load()
        check_recipe(recipe, load_engines(here.settings.engines))
        unknown = _unknown_tools(recipe, here)
        if unknown:
            return unknown
        if recipe.json_schema is not None:
            compile_schema(recipe.json_schema)
    except InvalidSchema as error:
        return [f"schema {pointer or '/'}: {text}" for pointer, text in error.problems]
    except EngineError as error:
        return [error.message]
    except click.ClickException as error:
        return [error.message]
    return list(recipe.warnings)
