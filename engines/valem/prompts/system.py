"""The system tier: the rules of writing a spec, with the view's part when a view is wanted. Made once per process."""

from __future__ import annotations

import functools
import json
from typing import Any

from engines.valem.prompts.resources import one_line_json, table, text
from engines.valem.view_catalogue import ComponentGroup, ViewCatalogue, view_catalogue


@functools.cache
def system_text(*, include_view: bool) -> str:
    """The rules; the same bytes for every call with the same view mode."""
    rules = (
        text("system.md")
        .replace("{{dialect}}", _dialect())
        .replace("{{patterns}}", _rules("patterns"))
        .replace("{{worked}}", one_line_json("worked.json"))
    )
    return f"{rules}\n\n{_view()}" if include_view else rules


def _dialect() -> str:
    data = table("dialect.yaml")
    sample = json.dumps(data["sample"], ensure_ascii=False, separators=(",", ":"))
    wrong = "\n".join(f"- not `{pair['wrong']}`, but `{pair['right']}`" for pair in data["absent"])
    return (
        f"These do not exist or mean something else here:\n{wrong}\n"
        f"What usually goes wrong; the results are for `{sample}`:\n{_rules('rules')}\n"
        f"Functions (others may not exist): {'; '.join(data['functions'])}."
    )


def _rules(key: str) -> str:
    return "\n".join(f"- {rule['say']}\n  {_examples(rule['examples'])}" for rule in table("dialect.yaml")[key])


def _examples(examples: list[dict[str, Any]]) -> str:
    return "; ".join(f"`{example['expr']}` → {_result(example)}" for example in examples)


def _result(example: dict[str, Any]) -> str:
    if example.get("missing"):
        return "missing"
    if example.get("error"):
        return "error"
    return json.dumps(example["gives"], ensure_ascii=False)


def _view() -> str:
    catalogue = view_catalogue()
    return (
        text("view.md")
        .replace("{{every}}", ", ".join(catalogue.every))
        .replace("{{catalogue}}", "\n".join(_group(group, catalogue) for group in catalogue.groups))
        .replace("{{example}}", one_line_json("view_example.json"))
    )


def _group(group: ComponentGroup, catalogue: ViewCatalogue) -> str:
    types = " ".join(
        f"{each.name} ({'; '.join((each.about, ', '.join(each.own)) if each.own else (each.about,))})"
        for each in catalogue.types.values()
        if each.group == group.name
    )
    return f"- {group.name}: {group.about}; {', '.join(group.fields)}. {types}"
