"""Forms of the inbox: what a question offers, and what a person's fields mean as an answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engines.inbox.answers import InvalidAnswer, option_ids, shape_of
from engines.inbox.words import Decision, InputType
from tasks.jsonable import jsonable

OUTPUTS: Final = (InputType.OUTPUT_TEXT, InputType.OUTPUT_IMAGE, InputType.OUTPUT_DOCUMENT)
_STRUCTURES: Final = ("structure", "value", "current", "default")


@dataclass(frozen=True, slots=True)
class Choice:
    """Something to choose or to put in order. ``field``: the name of its own field in the form."""

    id: str
    label: str
    about: str
    field: str


def choices(kind: InputType, payload: Mapping[str, Any]) -> list[Choice]:
    """The options of a DECISION, the items of an ORDERING; empty when the question does not say."""
    name = "items" if kind is InputType.ORDERING else "options"
    listed = payload.get(name)
    found: list[Choice] = []
    for entry in listed if isinstance(listed, list) else ():
        for identity in option_ids(kind, {name: [entry]}):
            if identity not in [each.id for each in found]:
                label, about = _words(entry, identity)
                found.append(Choice(identity, label, about, f"place.{len(found)}"))
    return found


def structure(payload: Mapping[str, Any]) -> str:
    """What is to be edited, as JSON; empty when the question brings nothing."""
    value = next((payload[name] for name in _STRUCTURES if payload.get(name) is not None), None)
    return "" if value is None else json.dumps(jsonable(value), ensure_ascii=False, indent=2)


def answer_of(kind: InputType, payload: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """The answer in a form's fields, for ``parse_answer``. Raises :class:`InvalidAnswer` for fields that mean none."""
    reason = form.get("reason", "").strip()
    outcome = form.get("outcome", Decision.DECIDED)
    if outcome != Decision.DECIDED:
        return {"outcome": outcome, "reason": reason}
    value = _value(kind, payload, form)
    return {"outcome": Decision.DECIDED.value, "value": value} | ({"reason": reason} if reason else {})


def _value(kind: InputType, payload: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    said = {name: form[name] for name in ("text", "chosen", "freeText") if form.get(name, "").strip()}
    match kind:
        case InputType.APPROVAL:
            return _approval(form)
        case InputType.DECISION:
            return {name: said[name] for name in ("chosen", "freeText") if name in said}
        case InputType.FEEDBACK:
            return {"text": said.get("text", "")}
        case InputType.ORDERING:
            return {"orderedIds": _ordered(payload, form)}
        case InputType.STRUCTURE_EDIT:
            return _edited(form.get("value", ""))
        case InputType.OUTPUT_TEXT | InputType.OUTPUT_IMAGE | InputType.OUTPUT_DOCUMENT:
            return _approval(form) | ({"text": said["text"]} if "text" in said else {})


def _approval(form: Mapping[str, str]) -> dict[str, Any]:
    given = form.get("approved")
    return {"approved": given == "yes"} if given in ("yes", "no") else {}


def _ordered(payload: Mapping[str, Any], form: Mapping[str, str]) -> list[str]:
    offered = choices(InputType.ORDERING, payload)
    if not offered:
        return [line.strip() for line in form.get("ordered", "").splitlines() if line.strip()]
    places: dict[int, Choice] = {}
    for choice in offered:
        given = form.get(choice.field, "").strip()
        if not given.isdecimal() or not 1 <= int(given[:9]) <= len(offered):
            raise InvalidAnswer(f"{choice.label}: a place from 1 to {len(offered)} would be right")
        if (taken := places.get(int(given))) is not None:
            raise InvalidAnswer(f"{taken.label} and {choice.label} are both at {given}; a place each would be right")
        places[int(given)] = choice
    return [places[place].id for place in sorted(places)]


def _edited(text: str) -> dict[str, Any]:
    try:
        return {"value": json.loads(text)}
    except (ValueError, RecursionError) as error:
        shape = shape_of(InputType.STRUCTURE_EDIT)
        raise InvalidAnswer(f"the structure is no JSON ({error}); {shape} would be right") from None


def _words(entry: Any, identity: str) -> tuple[str, str]:
    if not isinstance(entry, dict):
        return identity, ""
    said = {key: text for key, text in entry.items() if isinstance(text, str)}
    label = next((said[key] for key in ("label", "title", "name", "text") if key in said), identity)
    return label, next((said[key] for key in ("description", "details", "summary") if key in said), "")
