"""From a model's raw reply to data an engine may keep, or to what is wrong with it.

Policies: exactly one object is an answer. Several objects are one answer if the valid ones among them are equal. A list
of exactly one object is unwrapped (``repaired``), a string holding JSON is decoded once. Duplicate keys are never
resolved. A reply cut off at its token limit counts only if its JSON is complete as it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engines.structured.checks import Violation, scan
from engines.structured.correction import excerpt
from engines.structured.extract import Candidate, complete_json, extract
from engines.structured.schema import CompiledSchema
from engines.structured.text import describe
from engines.structured.verdict import identity

LAST_INVALID_CHARS = 20_000
"""Raw text kept of a reply that could not be read; the middle of a longer one is left out."""
ONE_OBJECT = "exactly one JSON object"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says.

    data: the valid object (whole-number floats of integer places as integers, nothing else changed), or ``None``.
    violations: what is wrong, never empty when ``data`` is ``None``.
    repaired: the reply's JSON had to be mended or unwrapped to be read.
    hints: notes about ``format``; only for valid data.
    last_invalid: for a rejected reply, its parsed value, or its text (shortened) when it has no value JSON could store.
    """

    data: dict[str, Any] | None
    violations: tuple[Violation, ...] = ()
    repaired: bool = False
    hints: tuple[str, ...] = ()
    last_invalid: Any = None

    @property
    def ok(self) -> bool:
        return self.data is not None


@dataclass(frozen=True, slots=True)
class _Checked:
    candidate: Candidate
    value: Any
    violations: tuple[Violation, ...]
    repaired: bool


def read_reply(
    text: str,
    schema: CompiledSchema,
    *,
    truncated: bool = False,
    restore: Callable[[Any], Any] | None = None,
) -> Reading:
    """Read ``text`` against ``schema``. Never raises, whatever the text.

    truncated: the provider stopped at its output limit. restore: applied to each parsed object before it is validated
    (a native plan's ``restore``).
    """
    if truncated:
        return _read_truncated(text, schema, restore)
    extraction = extract(text)
    checked = [_check(candidate, schema, restore) for candidate in extraction.candidates]
    objects = [one for one in checked if isinstance(one.value, dict)]
    valid = [one for one in objects if not one.violations]
    if extraction.broken and (valid or not objects):
        return _unreadable(text, extraction.broken)
    if not checked:
        return _unreadable(text, "no JSON object" if text.strip() else "an empty reply")
    if len({identity(one.value) for one in valid}) > 1:
        return _unreadable(text, f"{len(valid)} different objects")
    if valid:
        return _accepted(valid[0], schema)
    return _rejected(text, objects or checked)


def _read_truncated(text: str, schema: CompiledSchema, restore: Callable[[Any], Any] | None) -> Reading:
    complete = complete_json(text)
    if complete is None:
        return _unreadable(text, "a reply cut off before its end")
    checked = _check(complete, schema, restore)
    if checked.repaired:
        return _unreadable(text, "a reply cut off at its limit")
    return _rejected(text, [checked]) if checked.violations else _accepted(checked, schema)


def _check(candidate: Candidate, schema: CompiledSchema, restore: Callable[[Any], Any] | None) -> _Checked:
    value, repaired = candidate.value, candidate.repaired
    pointer_prefix = ""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value, repaired, pointer_prefix = value[0], True, "/0"
    if candidate.problems:
        doubled = tuple(
            Violation(pointer.removeprefix(pointer_prefix), problem, "each key once")
            for pointer, problem in candidate.problems
        )
        return _Checked(candidate, value, doubled, repaired)
    if not isinstance(value, dict):
        return _Checked(candidate, value, (Violation("", describe(value), ONE_OBJECT),), repaired)
    violations = schema.validate(value)
    if violations and restore is not None:
        value = restore(value)
        violations = schema.validate(value)
    return _Checked(candidate, value, violations, repaired)


def _accepted(checked: _Checked, schema: CompiledSchema) -> Reading:
    data = schema.normalise(checked.value)
    return Reading(data, repaired=checked.repaired, hints=schema.format_hints(data))


def _rejected(text: str, checked: list[_Checked]) -> Reading:
    """All were invalid: the last is what the model ended on."""
    last = checked[-1]
    violations = last.violations
    if len(checked) > 1:
        violations = (Violation("", f"{len(checked)} objects, none of them valid", ONE_OBJECT), *violations)
    return Reading(None, violations, last.repaired, last_invalid=_storable(last, text))


def _storable(checked: _Checked, text: str) -> Any:
    """The rejected value, or the text when the value cannot be stored as JSON or says less than the text."""
    unsound = checked.candidate.problems or scan(checked.value)
    return excerpt(text, LAST_INVALID_CHARS) if unsound else checked.value


def _unreadable(text: str, found: str) -> Reading:
    return Reading(None, (Violation("", found, ONE_OBJECT),), last_invalid=excerpt(text, LAST_INVALID_CHARS))
