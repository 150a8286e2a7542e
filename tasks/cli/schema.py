"""`schema check`: what each provider would make of a JSON Schema, before anything is paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from engines.errors import InvalidSchema
from engines.llm.base import LlmError, LlmRequest, Message
from engines.llm.catalogue import Candidate, Catalogue
from engines.llm.config import Selection
from engines.structured.native import Dialect, NativePlan, plan_native
from engines.structured.schema import CompiledSchema, compile_schema
from tasks.cli.asked import read_schema
from tasks.cli.failures import FAILED, UNREACHABLE, CommandError
from tasks.cli.here import settings_here
from tasks.cli.output import json_option, out, plain, print_json, print_table


@click.group()
def schema() -> None:
    """Check JSON Schemas."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The path a schema takes at some models, all alike."""

    models: tuple[str, ...]
    dialect: Dialect
    plan: NativePlan


@schema.command("check")
@click.argument("file", metavar="FILE|-")
@click.option("--model", help="Only this model: an alias, provider:model, or a name.")
@json_option
@click.pass_context
def check(ctx: click.Context, /, file: str, model: str | None, as_json: bool) -> None:
    """Which path (strict, loose, prompt) each provider takes for a schema, why, and what only our validator holds.

    strict: the provider holds the model to the schema. loose: it is told the schema and promises little. prompt: the
    schema is text. Every answer is validated here on every path. Exit code 1 when the schema is refused.
    """
    document = read_schema(file)
    try:
        compiled = compile_schema(document)
    except InvalidSchema as error:
        problems = [{"pointer": pointer or "/", "problem": text} for pointer, text in error.problems]
        if as_json:
            print_json({"accepted": False, "problems": problems})
        else:
            print_table(("where", "problem"), [tuple(each.values()) for each in problems], empty="")
        ctx.exit(FAILED)
    forecasts = [_for_model(compiled, model)] if model else _for_all(compiled)
    if as_json:
        print_json({"accepted": True, "sha256": compiled.sha256, "paths": [_as_json(each) for each in forecasts]})
        return
    out().print("accepted: every answer will be validated against it here", style="green")
    for each in forecasts:
        _print(each)


def _for_model(compiled: CompiledSchema, model: str) -> Forecast:
    config = settings_here().settings.llm()
    catalogue = Catalogue.load(config.catalogue_path)
    selection = Selection(config, catalogue, scripted=config.scripted_path is not None)
    pair = catalogue.split(model)
    try:
        # A named model can be forecast without its key.
        candidate = catalogue.candidate(*pair) if pair else selection.choose(_question(model, compiled.schema))
    except LlmError as error:
        raise CommandError(error.message, UNREACHABLE) from None
    return _forecast(compiled, (f"{candidate.provider_name}:{candidate.model}",), candidate)


def _question(model: str, wanted: dict[str, Any]) -> LlmRequest:
    return LlmRequest(model=model, messages=(Message(role="user", content=""),), schema=wanted)


def _for_all(compiled: CompiledSchema) -> list[Forecast]:
    """One forecast per kind of model: those that answer alike stand together."""
    catalogue = Catalogue.load(settings_here().settings.catalogue_file)
    alike: dict[Dialect, list[str]] = {}
    example: dict[Dialect, Candidate] = {}
    named = set()
    for provider, model in catalogue.models():
        candidate = catalogue.candidate(provider, model)
        # Snapshots are the same model under another name.
        if candidate.provider.wire == "scripted" or model in candidate.spec.names:
            continue
        named.add(provider)
        alike.setdefault(dialect_of(candidate), []).append(f"{provider}:{model}")
        example[dialect_of(candidate)] = candidate
    for provider, spec in catalogue.providers.items():
        if spec.wire == "scripted":
            continue
        candidate = catalogue.candidate(provider, spec.default_model or "default")
        rest = f"{provider}:{'others' if provider in named else 'any'}"
        if dialect_of(candidate) not in example or rest not in alike[dialect_of(candidate)]:
            alike.setdefault(dialect_of(candidate), []).append(rest)
            example.setdefault(dialect_of(candidate), candidate)
    return [_forecast(compiled, tuple(models), example[dialect]) for dialect, models in alike.items()]


def dialect_of(candidate: Candidate) -> Dialect:
    """The best that a model of the catalogue can do with a schema."""
    ability = candidate.spec.structured_output
    if ability == "none":
        return "none"
    if candidate.provider.dialect == "anthropic":
        return "anthropic_strict" if ability == "strict" else "anthropic_tool"
    return "openai_strict" if ability == "strict" else "openai_loose"


def _forecast(compiled: CompiledSchema, models: tuple[str, ...], candidate: Candidate) -> Forecast:
    dialect = dialect_of(candidate)
    return Forecast(models, dialect, plan_native(compiled, dialect))


def _as_json(each: Forecast) -> dict[str, Any]:
    return {
        "models": list(each.models),
        "dialect": each.dialect,
        "path": each.plan.path.value,
        "reasons": list(each.plan.reasons),
        "heldLocally": list(each.plan.held_locally),
        "sentSchema": each.plan.sent_schema,
    }


def _print(each: Forecast) -> None:
    console = out()
    console.print()
    console.print(f"{each.plan.path.value:<7} {each.dialect}", style="bold")
    console.print(f"  models     {', '.join(each.models)}", markup=False)
    for reason in each.plan.reasons:
        console.print(f"  why        {plain(reason)}", markup=False)
    if each.plan.held_locally == ("",):
        console.print("  held here  the whole schema: the provider promises nothing on this path", markup=False)
    elif each.plan.held_locally:
        console.print(f"  held here  {plain(', '.join(each.plan.held_locally))}", markup=False)
