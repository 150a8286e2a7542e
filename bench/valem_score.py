"""``make valem-score``: what a model makes of a set of domains, with valem's own loop and checks.

::

    python -m bench.valem_score --model anthropic:claude-sonnet-4-6 --only loan --only order

For every domain: whether a spec came out, in how many attempts, whether it is valid, whether the lint of its view finds
nothing, whether its embedded tests pass, and what it cost. The scores of two models are comparable when they were asked
for the same domains with the same parameters. Runs here, turn by turn, without queue or database.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from engines.llm.base import LlmClient, LlmReply, LlmRequest
from engines.llm.client import build_client, shutdown
from engines.recipes.cascade import effective_params, resolve
from engines.valem.engine import Valem
from tasks.cli.here import settings_here
from tasks.cli.valem.session import Session
from tasks.cookbook import recipe_sources
from tasks.toolbox import Toolbox, load_tools

DOMAINS = Path(__file__).with_name("valem_domains.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One domain. generated: a valid spec of which a model can be created came out. Money is ``None`` when unknown."""

    domain: str
    generated: bool
    attempts: int
    lint_clean: bool
    tests: int
    tests_failing: int
    calls: int
    tokens: int
    cost_usd: float | None
    seconds: float
    error: str = ""

    @property
    def tests_pass(self) -> bool:
        """Whether it tests itself, and all of that passes."""
        return self.generated and self.tests > 0 and not self.tests_failing


class Counting:
    """A client that adds up what its calls cost."""

    def __init__(self, client: LlmClient) -> None:
        self._client = client
        self.calls = self.tokens = 0
        self.cost: float | None = 0.0

    def complete(self, request: LlmRequest, **options: Any) -> LlmReply:
        reply = self._client.complete(request, **options)
        self.calls += 1
        self.tokens += reply.usage.input_tokens + reply.usage.output_tokens
        self.cost = None if self.cost is None or reply.cost_usd is None else self.cost + reply.cost_usd
        return reply


def score(domain: str, description: str, client: LlmClient, asked: Mapping[str, Any]) -> Score:
    """Have a spec for ``description`` generated, and judge it. asked: further parameters of ``valem-generate``."""
    settings = settings_here().settings
    sources = recipe_sources(settings)
    recipe = resolve("valem-generate", sources(settings.tenant, settings.project))
    params = effective_params(recipe, {**asked, "domainDescription": description, "modelId": domain}).params
    tools = load_tools(settings)
    counting = Counting(client)
    session = Session(engine=Valem(tools.specs()), client=counting, toolbox=Toolbox(tools, None, sources))  # type: ignore[arg-type]
    began = time.monotonic()
    result = session.run(recipe, params)
    spec = result.get("spec") or {}
    return Score(
        domain=domain,
        generated=bool(result["success"]),
        attempts=result["attempts"],
        lint_clean=bool(result["success"]) and not any("viewDefinition" in each for each in result["warnings"]),
        tests=len(spec.get("tests", ())),
        tests_failing=len(result.get("failingTests", ())),
        calls=counting.calls,
        tokens=counting.tokens,
        cost_usd=counting.cost,
        seconds=time.monotonic() - began,
        error="" if result["success"] else f"{result['error']}: {result['message']}",
    )


def card(scores: Sequence[Score]) -> str:
    """The scores as a Markdown table, with a line for all."""
    head = "| domain | generated | attempts | lint clean | tests pass | calls | tokens | US$ | s |"
    rows = [head, "|---|---|--:|---|---|--:|--:|--:|--:|"]
    for each in scores:
        tests = f"{each.tests - each.tests_failing} of {each.tests}" if each.generated else ""
        cost = "" if each.cost_usd is None else f"{each.cost_usd:.4f}"
        rows.append(
            f"| {each.domain} | {_mark(each.generated)} | {each.attempts} | {_mark(each.lint_clean)} |"
            f" {_mark(each.tests_pass)} {tests} | {each.calls} | {each.tokens:,} | {cost} | {each.seconds:.0f} |"
        )
    made, clean, passed = (
        f"{sum(getattr(each, name) for each in scores)} of {len(scores)}"
        for name in ("generated", "lint_clean", "tests_pass")
    )
    rows.append(
        f"| **all** | {made} | {sum(each.attempts for each in scores)} | {clean} | {passed} |"
        f" {sum(each.calls for each in scores)} | {sum(each.tokens for each in scores):,} |"
        f" {sum(each.cost_usd or 0 for each in scores):.4f} | {sum(each.seconds for each in scores):.0f} |"
    )
    return "\n".join([*rows, *(f"\n{each.domain}: {each.error}" for each in scores if each.error)])


def _mark(good: bool) -> str:
    return "yes" if good else "no"


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0 when every domain got a spec."""
    parser = argparse.ArgumentParser(prog="valem-score", description="Score a model on generating Valem specs.")
    parser.add_argument("--model", help="an alias (default:analyze), provider:model, or a model's name")
    parser.add_argument("--domains", type=Path, default=DOMAINS, help="a YAML file: id -> description")
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="this domain (repeatable)")
    parser.add_argument("--view", action="store_true", help="ask for a view as well")
    parser.add_argument("--output", type=Path, help="write the scores there as JSON")
    given = parser.parse_args(words)
    domains: dict[str, str] = yaml.safe_load(given.domains.read_text(encoding="utf-8"))
    unknown = sorted(set(given.only) - set(domains))
    if unknown:
        parser.error(f"there is no domain {unknown[0]!r}: {', '.join(domains)}")
    asked = {"includeView": given.view} | ({"model": given.model} if given.model else {})
    client = build_client(settings_here().settings.llm())
    scores = []
    try:
        for domain, description in domains.items():
            if given.only and domain not in given.only:
                continue
            print(f"{domain} …", file=sys.stderr, flush=True)
            scores.append(score(domain, description, client, asked))
    finally:
        shutdown()
    print(card(scores))
    if given.output is not None:
        given.output.write_text(json.dumps([asdict(each) for each in scores], indent=2) + "\n", encoding="utf-8")
    return 0 if all(each.generated for each in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
