"""`recipes`: which there are, what they say, whether they are right. Needs neither PostgreSQL nor Redis."""

from __future__ import annotations

import json
from pathlib import Path

import click

from engines.errors import EngineError, InvalidSchema
from engines.recipes.cascade import check_engine, list_recipes, resolve
from engines.recipes.model import Recipe, parse_recipe
from engines.structured.schema import compile_schema
from tasks.cli.asked import read_file
from tasks.cli.failures import FAILED
from tasks.cli.here import Here, settings_here
from tasks.cli.output import json_option, out, plain, print_fields, print_json, print_table
from tasks.submission import recipe_sources
from tasks.wiring import load_engines


@click.group()
def recipes() -> None:
    """List, show and check recipes: the bundled ones and those of VANCETOPE_RECIPES_DIR."""


_TENANT = click.option("--tenant", help="Default: VANCETOPE_TENANT.")
_PROJECT = click.option("--project", help="Default: VANCETOPE_PROJECT.")


def _names(here: Here, tenant: str | None, project: str | None) -> tuple[str, str]:
    return tenant or here.settings.tenant, project or here.settings.project


@recipes.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also unlisted and internal ones.")
@_TENANT
@_PROJECT
@json_option
def ls(everything: bool, tenant: str | None, project: str | None, as_json: bool) -> None:
    """The recipes that `run` knows here."""
    here = settings_here()
    found = list_recipes(recipe_sources(here.settings, *_names(here, tenant, project)))
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
                    "source": each.recipe.source if each.recipe else None,
                    "error": each.error,
                }
                for each in shown
            ]
        )
        return
    rows = [
        (each.name, each.recipe.engine, each.recipe.summary) if each.recipe else (each.name, "broken", each.error)
        for each in shown
    ]
    print_table(("recipe", "engine", "what it does"), rows, empty="no recipes")


@recipes.command("show")
@click.argument("name")
@_TENANT
@_PROJECT
@json_option
def show(name: str, tenant: str | None, project: str | None, as_json: bool) -> None:
    """One recipe in full, as a job would use it."""
    here = settings_here()
    recipe = resolve(name, recipe_sources(here.settings, *_names(here, tenant, project)))
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
        checked = [(str(file), _problems(lambda file=file: parse_recipe(file.stem, _read(file), str(file)), here))
                   for file in files]  # fmt: skip
    else:
        sources = recipe_sources(here.settings, *_names(here, tenant, project))
        names = sorted({name for source in sources for name in source.names()})
        checked = [(name, _problems(lambda name=name: resolve(name, sources), here)) for name in names]
    if as_json:
        print_json([{"recipe": name, "problems": problems} for name, problems in checked])
    else:
        rows = [(name, "problem" if problems else "ok", "; ".join(problems)) for name, problems in checked]
        print_table(("recipe", "state", "problems"), rows, empty="no recipes")
    ctx.exit(FAILED if any(problems for _, problems in checked) else 0)


def _read(file: Path) -> str:
    return read_file(str(file), "recipe")


def _problems(load: object, here: Here) -> list[str]:
    assert callable(load)
    try:
        recipe: Recipe = load()
        check_engine(recipe, load_engines(here.settings.engines))
        if recipe.json_schema is not None:
            compile_schema(recipe.json_schema)
    except InvalidSchema as error:
        return [f"schema {pointer or '/'}: {text}" for pointer, text in error.problems]
    except EngineError as error:
        return [error.message]
    except click.ClickException as error:
        return [error.message]
    return list(recipe.warnings)
