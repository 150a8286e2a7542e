"""`models`: what is known of models, and which of them can be used here."""

from __future__ import annotations

from typing import Any

import click

from engines.llm.base import LlmError, LlmRequest, Message
from engines.llm.catalogue import Catalogue
from engines.llm.config import Selection
from tasks.cli.here import settings_here
from tasks.cli.output import err, json_option, print_json, print_table


@click.command()
@click.option("--usable", "only_usable", is_flag=True, help="Only what can be used here.")
@json_option
def models(only_usable: bool, as_json: bool) -> None:
    """The model catalogue: limits, prices, abilities; usable ones are marked.

    Usable means that the provider's key or address is set (its word is not checked: `vancetope doctor` does not spend).
    """
    config = settings_here().settings.llm()
    catalogue = Catalogue.load(config.catalogue_path)
    selection = Selection(config, catalogue, scripted=config.scripted_path is not None)
    rows = [_row(catalogue, selection, provider, model) for provider, model in catalogue.models()]
    listed = {row["provider"] for row in rows}
    rows += [
        _row(catalogue, selection, provider, spec.default_model or "(any)")
        for provider, spec in catalogue.providers.items()
        if provider not in listed
    ]
    rows = [row for row in rows if not row.pop("snapshot") and (row["usable"] or not only_usable)]
    aliases = {alias: _meaning(selection, alias) for alias in catalogue.aliases}
    if as_json:
        print_json({"models": rows, "aliases": aliases})
        return
    print_table(
        ("model", "usable", "context", "output", "$/M in", "$/M out", "schema", "thinking"),
        [
            (
                f"{row['provider']}:{row['model']}",
                row["usable"],
                row["contextWindow"],
                row["maxOutput"],
                row["priceInput"],
                row["priceOutput"],
                row["structuredOutput"],
                row["thinking"],
            )
            for row in rows
        ],
        empty="no model can be used here: `vancetope doctor` says what to set",
    )
    err().print()
    for alias, meaning in aliases.items():
        err().print(f"{alias:<18} {meaning or 'nothing is configured for it'}", markup=False, soft_wrap=True)


def _row(catalogue: Catalogue, selection: Selection, provider: str, model: str) -> dict[str, Any]:
    spec = catalogue.spec(provider, model)
    return {
        "provider": provider,
        "model": model,
        "snapshot": model in spec.names,
        "usable": selection.usable(provider),
        "contextWindow": spec.context_window,
        "maxOutput": spec.max_output,
        "priceInput": spec.prices.input if spec.prices else None,
        "priceOutput": spec.prices.output if spec.prices else None,
        "structuredOutput": spec.structured_output,
        "thinking": spec.thinking,
        "needs": catalogue.providers[provider].key_setting or catalogue.providers[provider].base_url_setting,
    }


def _meaning(selection: Selection, alias: str) -> str | None:
    try:
        found = selection.choose(LlmRequest(model=alias, messages=(Message(role="user", content=""),)))
    except LlmError:
        return None
    return f"{found.provider_name}:{found.model}"
