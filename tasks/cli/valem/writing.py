"""`valem generate` and `valem evolve`: a model writes or changes a spec, here and now, without any queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from engines.llm.client import build_client, shutdown
from engines.recipes.cascade import effective_params, resolve
from engines.recipes.params import check_params
from engines.structured.text import one_line, shorten
from engines.valem.engine import Valem
from models.transition import Transition
from tasks.cli.asked import pair, read_words
from tasks.cli.failures import FAILED, USAGE, CommandError
from tasks.cli.here import settings_here
from tasks.cli.output import err, json_option, plain, print_json
from tasks.cli.valem.files import read_json
from tasks.cli.valem.session import Session
from tasks.cookbook import recipe_sources
from tasks.toolbox import Toolbox, load_tools

_OPTIONS = (
    click.option("--model", help="An alias (default:analyze), provider:model, or a model's name."),
    click.option("--view/--no-view", "view", default=None, help="Whether the spec is to have a view."),
    click.option("--param", "param", multiple=True, metavar="KEY=VALUE", help="Any parameter; JSON where it parses."),
    click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write the spec there."),
    click.option("--quiet", "-q", is_flag=True, help="No progress on standard error."),
)


def _writing(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("generate")
@click.argument("description", metavar="TEXT|@FILE|-")
@click.option("--model-id", metavar="ID", help="The spec's id; without it the model chooses one.")
@_writing
@json_option
@click.pass_context
def generate(ctx: click.Context, /, description: str, model_id: str | None, **options: Any) -> None:
    """Write a spec for the domain that is described. Exit code 1 when none holds in the end.

    The spec goes to standard output or to --output; with --json the whole result goes to standard output.
    """
    given = {"domainDescription": read_words(description, "TEXT"), "modelId": model_id}
    ctx.exit(_run("valem-generate", given, **options))


@click.command("evolve")
@click.argument("file", metavar="FILE|-")
@click.argument("request", metavar="TEXT|@FILE")
@_writing
@json_option
@click.pass_context
def evolve(ctx: click.Context, /, file: str, request: str, **options: Any) -> None:
    """Change the spec in FILE as the text asks. Exit code 1 when no change holds in the end.

    FILE itself stays as it is unless --output names it. With --json the change is in the result as well.
    """
    given = {"spec": read_json(file, "FILE"), "evolutionRequest": read_words(request, "TEXT")}
    ctx.exit(_run("valem-evolve", given, **options))


def _run(
    name: str,
    given: dict[str, Any],
    *,
    model: str | None,
    view: bool | None,
    param: tuple[str, ...],
    output: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    settings = settings_here().settings
    sources = recipe_sources(settings)
    recipe = resolve(name, sources(settings.tenant, settings.project))
    asked = {**dict(map(pair, param)), **given, "model": model, "includeView": view}
    asked = {key: value for key, value in asked.items() if value is not None}
    check_params(asked, recipe, Valem.param_names)
    params = effective_params(recipe, asked).params
    tools = load_tools(settings)
    engine = Valem(tools.specs())
    objection = engine.objection("", params)
    if objection is not None:
        raise CommandError(objection, USAGE)
    toolbox = Toolbox(tools, None, sources)
    session = Session(engine=engine, client=build_client(settings.llm()), toolbox=toolbox)
    if not quiet:
        session.report = _report
    try:
        wrapper = session.run(recipe, params)
    finally:
        shutdown()
    _deliver(wrapper, output, quiet=quiet, as_json=as_json)
    return 0 if wrapper["success"] else FAILED


def _report(transition: Transition) -> None:
    """A line for each turn: what it did, and what follows."""
    note = transition.note
    told = note.output if isinstance(note.output, dict) else {}
    parts = [str(told.get("did") or told.get("error") or ""), str(told.get("next") or "")]
    err().print(plain(f"{note.iteration:>2} {note.phase:<8} {' → '.join(filter(None, parts))}"), markup=False)
    for problem in told.get("problems", ()):
        err().print(plain(f"            {shorten(one_line(problem), 160)}"), markup=False)


def _deliver(wrapper: dict[str, Any], output: Path | None, *, quiet: bool, as_json: bool) -> None:
    spec = wrapper.get("spec")
    if wrapper["success"] and output is not None:
        output.write_text(json.dumps(spec, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(wrapper)
    elif not wrapper["success"]:
        err().print(plain(f"{wrapper['error']}: {wrapper['message']}"), markup=False)
    elif output is None:
        print_json(spec, indent=2)
    if wrapper["success"] and not quiet:
        for failing in wrapper["failingTests"]:
            err().print(plain(f"still failing: {failing}"), markup=False)
