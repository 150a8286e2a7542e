"""A model's reply as the JSON text of a spec or an evolution, with the mistakes that leave no doubt put right.

In this order: extract, collapse line ends, mend the structure, mend expressions, fill in a missing constraint policy.
Each step that changed something is reported; running the whole of it on its own result changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from engines.structured.extract import after_leading_thought
from engines.structured.text import shorten
from engines.valem.repair import jsontext, locations
from engines.valem.repair.expression import bound_variables, edited, repair_expression
from engines.valem.repair.jsontext import Path

MAX_CHARS: Final = 1_000_000
"""A longer reply is returned as it came."""
_SHOWN: Final = 400
_POLICY: Final = '"policy":"rollback"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that was changed, for the audit trail.

    where: the place in the document (``derivations[0].expr``), empty for the text as a whole. steps: what was done.
    before, after: the expression, or the text as a whole cut in the middle.
    """

    where: str
    steps: tuple[str, ...]
    before: str
    after: str

    def as_json(self) -> dict[str, Any]:
        return {"where": self.where, "steps": list(self.steps), "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Repaired:
    """text: the mended reply. changes: in the order they were made; none: it came as it is."""

    text: str
    changes: tuple[Change, ...] = ()


def repair(reply: str) -> Repaired:
    """``reply`` mended. Never raises; what cannot be mended stays for the parser to name."""
    if len(reply) > MAX_CHARS:
        return Repaired(reply)
    steps: tuple[Callable[[str], Repaired], ...] = (
        partial(_on_whole_text, "extract", jsontext.extract),
        partial(_on_whole_text, "line ends", jsontext.collapse_line_ends),
        partial(_on_whole_text, "structure", jsontext.mend_structure),
        mend_expressions,
        fill_in_policy,
    )
    text = reply
    changes: tuple[Change, ...] = ()
    for step in steps:
        done = step(text)
        text, changes = done.text, changes + done.changes
    return Repaired(text, changes)


def is_truncated(reply: str) -> bool:
    """Whether a reply that could not be parsed looks cut off: it does not end in a brace, or braces stay open.

    Reasoning in front, and code fences, do not count. Plain prose counts as cut off, too: it holds no object at all.
    """
    text = after_leading_thought(reply.strip())
    if text.endswith("```"):
        text = text[:-3].rstrip()
    start = text.find("{")
    if start < 0 or not text.endswith("}"):
        return True
    return jsontext.brace_depth(text[start:]) != 0


def mend_expressions(text: str) -> Repaired:
    """The expressions of a spec or evolution mended in place, everything else byte for byte the same.

    In a text that is no JSON object, strings count as expressions by their key alone.
    """
    document = jsontext.parse_object(text)
    counts = locations.is_expression if document is not None else locations.is_expression_key
    bound = _library_names(document or {})
    edits: list[tuple[int, int, str]] = []
    changes: list[Change] = []
    for found in jsontext.walk(text):
        if not isinstance(found, jsontext.Text) or not counts(found.path):
            continue
        before = jsontext.decoded(text[found.start : found.end])
        result = repair_expression(before, bound, perhaps_plain=locations.perhaps_plain(found.path))
        if result.steps:
            edits.append((found.start, found.end, jsontext.encoded(result.text)))
            changes.append(Change(where=_where(found.path), steps=result.steps, before=before, after=result.text))
    return Repaired(edited(text, edits), tuple(changes))


def fill_in_policy(text: str) -> Repaired:
    """A constraint without a policy is meant to hold: it rolls back. An explicit ``null`` is left for the validator."""
    if jsontext.parse_object(text) is None:
        return Repaired(text)
    edits: list[tuple[int, int, str]] = []
    changes: list[Change] = []
    for found in jsontext.walk(text):
        if isinstance(found, jsontext.Text) or not locations.is_constraint(found.path) or "policy" in found.keys:
            continue
        edits.append((found.last_end, found.last_end, f",{_POLICY}" if found.keys else _POLICY))
        changes.append(Change(where=_where(found.path), steps=("policy",), before="", after=_POLICY))
    return Repaired(edited(text, edits), tuple(changes))


def _on_whole_text(step: str, mend: Callable[[str], str], text: str) -> Repaired:
    mended = mend(text)
    if mended == text:
        return Repaired(text)
    before, after = shorten(text, _SHOWN), shorten(mended, _SHOWN)
    return Repaired(mended, (Change(where="", steps=(step,), before=before, after=after),))


def _library_names(document: dict[str, Any]) -> frozenset[str]:
    """The variables that the library's own definitions bind: a function of that name is not invented."""
    names: frozenset[str] = frozenset()
    for library in (document.get("library"), document.get("newLibrary")):
        for definition in _definitions(library):
            names |= bound_variables(definition)
    return names


def _definitions(library: Any) -> Iterator[str]:
    if isinstance(library, str):
        yield library
    elif isinstance(library, dict):
        yield from _definitions(library.get("define"))
        layers = library.get("layers")
        for layer in layers if isinstance(layers, list) else ():
            yield from _definitions(layer if isinstance(layer, str | dict) else None)


def _where(path: Path) -> str:
    """``derivations[0].expr``; a key that is no plain word is quoted."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif step.isidentifier():
            parts.append(f".{step}" if parts else step)
        else:
            parts.append(f"[{json.dumps(step, ensure_ascii=False)}]")
    return "".join(parts)
