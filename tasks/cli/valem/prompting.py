"""`valem prompt`: what would be sent to a model, tier by tier, without sending it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from engines.valem.prompts import evolve, generate
from engines.valem.prompts.feedback import Failure, Remark
from engines.valem.prompts.tiers import PromptParts
from engines.valem.spec.dump import dump_spec
from tasks.cli.asked import read_words
from tasks.cli.failures import USAGE, CommandError
from tasks.cli.output import json_option, out, plain, print_json
from tasks.cli.valem.files import read_spec

_TOKEN = "0123456789ab"
"""In the place of the random token of the fences; the same each time, so that prompts can be compared."""

_GENERATION = ("initial", "validation", "truncated", "tests", "lint", "initial-state")
_EVOLUTION = ("evolution", "evolution-repair")


@click.command("prompt")
@click.option("--type", "kind", type=click.Choice([*_GENERATION, *_EVOLUTION]), default="initial", show_default=True)
@click.option("--domain", metavar="TEXT|@FILE|-", help="The domain's description.")
@click.option("--request", "wish", metavar="TEXT|@FILE", help="The change that is asked for, of an evolution.")
@click.option("--spec", metavar="FILE", help="The spec that is repaired or evolved.")
@click.option("--rejected", metavar="TEXT|@FILE", help="The evolution that was rejected.")
@click.option("--problem", "problems", multiple=True, metavar="[WHERE:] TEXT", help="What was wrong (repeatable).")
@click.option("--model-id", metavar="ID", help="The spec's id.")
@click.option("--view", is_flag=True, help="With the catalogue of view components.")
@click.option("--tier", type=click.Choice(["system", "session", "user"]), help="Print this tier alone.")
@json_option
def prompt(
    kind: str,
    domain: str | None,
    wish: str | None,
    spec: str | None,
    rejected: str | None,
    problems: tuple[str, ...],
    model_id: str | None,
    view: bool,
    tier: str | None,
    as_json: bool,
) -> None:
    """Print the prompt of --type: the rules (system), the current spec of an evolution (session), the task (user).

    Costs nothing and asks nobody. With --json the tiers come with their hashes, as the record of a call keeps them.
    """
    if kind in _EVOLUTION:
        parts = _evolution(kind, wish, spec, rejected, problems, model_id, view)
    else:
        parts = _generation(kind, domain, spec, problems, model_id, view)
    tiers = {"system": parts.system, "session": parts.session_context, "user": parts.user}
    if as_json:
        print_json({**({tier: tiers[tier]} if tier else tiers), "sha256": parts.hashes()}, indent=2)
    elif tier:
        click.echo(plain(tiers[tier]))
    else:
        for name, content in tiers.items():
            if content:
                out().rule(f"{name}, {len(content):,} characters", style="dim")
                click.echo(plain(content))


def _generation(
    kind: str, domain: str | None, spec: str | None, problems: tuple[str, ...], model_id: str | None, view: bool
) -> PromptParts:
    common: dict[str, Any] = {"token": _TOKEN, "model_id": model_id, "include_view": view}
    if kind in ("initial", "truncated"):
        build: Callable[..., PromptParts] = generate.initial if kind == "initial" else generate.repair_truncated
        return build(_words(domain, "--domain", kind), **common)
    previous = _previous(spec, kind)
    match kind:
        case "validation":
            return generate.repair_validation(_remarks(problems, kind), previous, **common)
        case "tests":
            failures: list[Failure] = [(where, text, None, None) for where, text, _ in _remarks(problems, kind)]
            return generate.repair_tests(failures, previous, **common)
        case "lint":
            return generate.repair_lint(_remarks(problems, kind), previous, **common)
        case _:
            return generate.repair_initial_state(_remarks(problems, kind), previous, **common)


def _evolution(
    kind: str,
    wish: str | None,
    spec: str | None,
    rejected: str | None,
    problems: tuple[str, ...],
    model_id: str | None,
    view: bool,
) -> PromptParts:
    request = _words(wish, "--request", kind)
    current = json.loads(_previous(spec, kind))
    derived = [each["path"] for each in current.get("derivations", ())]
    session = evolve.session_context(json.dumps(current), derived, model_id=model_id or current.get("id"))
    if kind == "evolution":
        return evolve.evolution(request, session=session, token=_TOKEN, include_view=view)
    refused = _words(rejected, "--rejected", kind)
    remarks = _remarks(problems, kind)
    return evolve.repair_evolution(request, refused, remarks, session=session, token=_TOKEN, include_view=view)


def _words(given: str | None, option: str, kind: str) -> str:
    if given is None:
        raise CommandError(f"{option} is missing: the prompt {kind!r} is made of it", USAGE)
    return read_words(given, option)


def _previous(spec: str | None, kind: str) -> str:
    if spec is None:
        raise CommandError(f"--spec is missing: the prompt {kind!r} shows a spec", USAGE)
    return json.dumps(dump_spec(read_spec(spec)), ensure_ascii=False, indent=2)


def _remarks(problems: tuple[str, ...], kind: str) -> list[Remark]:
    if not problems:
        raise CommandError(f"--problem is missing: the prompt {kind!r} says what was wrong", USAGE)
    pairs = (each.partition(":") for each in problems)
    return [(where.strip(), text.strip(), None) if text else ("spec", where.strip(), None) for where, _, text in pairs]
