"""The options of `run` and `submit`: what a person asks for, as a checked submission."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tasks.cli.failures import USAGE, CommandError

F = TypeVar("F", bound=Callable[..., Any])

STDIN = "-"

_OPTIONS = (
    click.option("--prompt", metavar="TEXT|@FILE|-", help="The question; @FILE reads a file, - standard input."),
    click.option("--schema", metavar="FILE|-", help="A JSON Schema file, or the schema itself as {...}."),
    click.option("--param", "param", multiple=True, metavar="KEY=VALUE", help="Any parameter; JSON where it parses."),
    click.option("--recipes", metavar="A,B,…", help="Recipes a plan may call (availableRecipes)."),
    click.option("--domain", metavar="TEXT|@FILE|-", help="What valem-generate is to model (domainDescription)."),
    click.option("--request", metavar="TEXT|@FILE|-", help="The change valem-evolve is to make (evolutionRequest)."),
    click.option("--model-id", metavar="ID", help="The spec to generate or evolve (modelId)."),
    click.option("--max-attempts", type=click.IntRange(1, 10), help="Answers to ask for before giving up."),
    click.option(
        "--model",
        help="An alias (default:fast), provider:model, or a model's name. With --request a name"
        " without a colon is the stored spec to evolve.",
    ),
    click.option("--goal", default="", help="What it is for, in words; shown in lists and to planning engines."),
    click.option("--priority", type=click.Choice(["high", "normal", "low"]), default=None),
    click.option("--lane", type=click.Choice(["normal", "batch"]), help="batch: calls cost half and may take a day."),
    click.option(
        "--batch-deadline",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="With --lane batch: how long to wait for batches, from now; then calls are made at once.",
    ),
    click.option("--max-calls", type=click.IntRange(min=1), help="Hard budget of model calls."),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Hard budget of tokens."),
    click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), help="Hard budget in US dollars."),
    click.option("--deadline", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="From now."),
    click.option("--tenant", help="Default: VANCETOPE_TENANT."),
    click.option("--project", help="Default: VANCETOPE_PROJECT."),
    click.option("--owner", help="Whose job it is: shown in lists, and whom a plan's questions go to."),
)


def submission_options(command: F) -> F:
    """All options that describe one submission; the command gets them as keyword arguments for :func:`payload`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def payload(
    *,
    prompt: str | None,
    schema: str | None,
    param: tuple[str, ...],
    recipes: str | None,
    domain: str | None,
    request: str | None,
    model_id: str | None,
    max_attempts: int | None,
    model: str | None,
    goal: str,
    priority: str | None,
    lane: str | None,
    batch_deadline: float | None,
    max_calls: int | None,
    max_tokens: int | None,
    max_cost: float | None,
    deadline: float | None,
    tenant: str | None,
    project: str | None,
    owner: str | None,
) -> dict[str, Any]:
    """The options as a ``vancetope.submit`` payload without recipe and id; what was not given is left out."""
    if prompt == STDIN and schema == STDIN:
        raise click.UsageError("--prompt - and --schema - cannot both read standard input: put one into a file")
    params = dict(pair(text) for text in param)
    if request is not None and model_id is None and model is not None and ":" not in model:
        model, model_id = None, model
    named = {
        "prompt": None if prompt is None else read_words(prompt, "--prompt"),
        "schema": None if schema is None else read_schema(schema),
        "domainDescription": None if domain is None else read_words(domain, "--domain"),
        "evolutionRequest": None if request is None else read_words(request, "--request"),
        "modelId": model_id,
        "availableRecipes": None if recipes is None else _names(recipes),
        "maxAttempts": max_attempts,
        "model": model,
    }
    twice = sorted(name for name, value in named.items() if value is not None and name in params)
    if twice:
        raise click.UsageError(f"{twice[0]!r} is given twice: as an option and as --param")
    limits = {
        "maxCalls": max_calls,
        "maxTokens": max_tokens,
        "maxCostUsd": max_cost,
        "deadlineSeconds": deadline,
    }
    asked: dict[str, Any] = {
        "params": {**params, **_given(named)},
        "limits": _given(limits),
        "goal": goal,
        "priority": priority,
        "lane": lane,
        "batchDeadlineSeconds": batch_deadline,
        "tenant": tenant,
        "project": project,
        "owner": owner,
    }
    return {key: value for key, value in asked.items() if value not in (None, {}, "")}


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def pair(text: str) -> tuple[str, Any]:
    """``KEY=VALUE`` of a ``--param``: JSON where it parses, else a text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.UsageError(f"--param {text!r}: must be KEY=VALUE")
    try:
        return key.strip(), json.loads(value, parse_constant=_no_constant)
    except ValueError:
        return key.strip(), value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def read_words(given: str, option: str) -> str:
    """A text: as it stands, from ``@FILE``, or from standard input for ``-``. ``@@`` begins a text with one ``@``."""
    if given == STDIN:
        return read_stdin(option)
    if given.startswith("@@"):
        return given[1:]
    return read_file(given[1:], option) if given.startswith("@") else given


def read_schema(given: str) -> Any:
    """A JSON document from a file, standard input, or the argument itself when it begins with a brace."""
    if given == STDIN:
        return parse_json(read_stdin("--schema"), "standard input")
    if given.lstrip().startswith("{"):
        return parse_json(given, "--schema")
    return parse_json(read_file(given, "--schema"), given)


def parse_json(text: str, where: str) -> Any:
    """Strict JSON. The error names line and column."""
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        message = f"{where}: line {error.lineno}, column {error.colno}: {error.msg}: it must be JSON"
        raise CommandError(message, USAGE) from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{where}: {error or 'nested too deeply'}", USAGE) from None


def read_file(name: str, option: str) -> str:
    """A text file. The error says which option meant it."""
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{option}: {name} is not UTF-8 text (byte {error.start})", USAGE) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CommandError(f"{option}: {name}: {reason}", USAGE) from None


def read_stdin(option: str) -> str:
    """All of standard input, with a remark when a person would have to type it."""
    if sys.stdin.isatty():
        click.echo(f"{option} reads standard input; end with Ctrl-D", err=True)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise CommandError(f"{option}: standard input is not UTF-8 text (byte {error.start})", USAGE) from None
