"""What an answer must look like, by the question's type. Pure.

An answer is ``{"outcome": …, "value": …, "reason": …}``. ``DECIDED`` needs the value (a reason may go with it), the
other outcomes need the reason. An object without ``outcome`` is the value of a decision. Shapes of the value:

====================  ================================================================================================
``APPROVAL``          ``{"approved": true}``
``DECISION``          ``{"chosen": "…", "freeText": "…"}``, at least one; ``chosen`` is among ``payload.options`` if any
``FEEDBACK``          ``{"text": "…"}``
``ORDERING``          ``{"orderedIds": ["…", …]}``: each of ``payload.items`` once, if there are any
``STRUCTURE_EDIT``    ``{"value": …}``, any JSON but null
``OUTPUT_…``          ``{"approved": true, "text": "…"}``, at least one: the output is accepted or commented on
====================  ================================================================================================
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engines.errors import EngineError
from engines.inbox.words import Criticality, Decision, InputType
from engines.structured.text import describe, quote_all

MAX_ANSWER_CHARS: Final = 100_000
AUTO_DEFAULT: Final = "system:auto-default"

Payload = Mapping[str, Any]
Check = Callable[[dict[str, Any], Payload], dict[str, Any]]


class InvalidAnswer(EngineError):
    """The answer does not fit its question. The message says where, what was found, and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that fits its question."""

    outcome: Decision
    value: dict[str, Any] | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As stored and compared: without what is not there."""
        parts: dict[str, Any] = {"outcome": self.outcome.value, "value": self.value, "reason": self.reason}
        return {key: part for key, part in parts.items() if part is not None}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Answer:
        return cls(outcome=Decision(stored["outcome"]), value=stored.get("value"), reason=stored.get("reason"))


def parse_answer(kind: InputType, payload: Payload, raw: Any) -> Answer:
    """The answer in ``raw`` to a question of this type. Raises :class:`InvalidAnswer`."""
    if not isinstance(raw, dict):
        raise _wrong("", raw, f"an object: {_SHAPES[kind][0]}")
    try:
        size = len(json.dumps(raw, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        raise InvalidAnswer("answer: is no JSON (it may hold NaN or an infinity); JSON would be right") from None
    if size > MAX_ANSWER_CHARS:
        raise InvalidAnswer(f"answer: has {size:,} characters as JSON, at most {MAX_ANSWER_CHARS:,} would be right")
    if "outcome" not in raw:
        return Answer(outcome=Decision.DECIDED, value=_value(kind, payload, raw))
    _only(raw, "", ("outcome", "value", "reason", "answeredBy"))
    outcome = _outcome(raw["outcome"])
    reason = _text(raw, "reason", "")
    if outcome is Decision.DECIDED:
        return Answer(outcome=outcome, value=_value(kind, payload, raw.get("value")), reason=reason)
    if raw.get("value") is not None:
        raise _wrong("/value", raw["value"], f"nothing: {outcome} has a reason and no value")
    if reason is None:
        raise _wrong("/reason", raw.get("reason"), f"why not, as text ({outcome} needs a reason)")
    return Answer(outcome=outcome, reason=reason)


def default_answer(kind: InputType, criticality: Criticality, payload: Payload) -> Answer | None:
    """The answer a question gives itself: LOW and a ``default`` that fits. A bare value stands for its shape."""
    if criticality is not Criticality.LOW or payload.get("default") is None:
        return None
    default = payload["default"]
    try:
        return parse_answer(kind, payload, default if _is_shaped(kind, default) else {_SHAPES[kind][1]: default})
    except InvalidAnswer:
        return None


def answer_text(kind: InputType, answer: Answer) -> str:
    """The answer in words, for prompts and people."""
    if answer.outcome is not Decision.DECIDED:
        return f"No decision ({answer.outcome}): {answer.reason}"
    value = answer.value or {}
    parts: list[str] = []
    if "approved" in value:
        parts.append("approved" if value["approved"] else "not approved")
    if "chosen" in value:
        parts.append(value["chosen"])
    parts += [value[key] for key in ("freeText", "text") if key in value]
    parts += [f"{place}. {each}" for place, each in enumerate(value.get("orderedIds", ()), start=1)]
    if kind is InputType.STRUCTURE_EDIT:
        parts.append(json.dumps(value.get("value"), ensure_ascii=False, indent=2))
    if answer.reason:
        parts.append(f"Reason: {answer.reason}")
    return "\n".join(parts)


def shape_of(kind: InputType) -> str:
    """The value's shape in words, for help and messages."""
    return _SHAPES[kind][0]


# --- shapes -----------------------------------------------------------------------------------------------------------


def _approval(value: dict[str, Any], payload: Payload) -> dict[str, Any]:
    return {"approved": _flag(value)}


def _decision(value: dict[str, Any], payload: Payload) -> dict[str, Any]:
    found = {key: said for key in ("chosen", "freeText") if (said := _text(value, key, "/value")) is not None}
    if not found:
        raise _wrong("/value", value, "chosen or freeText, as text that says something")
    options = _ids(payload.get("options"))
    if options and "chosen" in found and found["chosen"] not in options:
        raise _wrong("/value/chosen", found["chosen"], f"one of {quote_all(options)}, or freeText instead")
    return found


def _feedback(value: dict[str, Any], payload: Payload) -> dict[str, Any]:
    said = _text(value, "text", "/value")
    if said is None:
        raise _wrong("/value/text", value.get("text"), "text that says something")
    return {"text": said}


def _ordering(value: dict[str, Any], payload: Payload) -> dict[str, Any]:
    ids = value.get("orderedIds")
    if not isinstance(ids, list) or not ids or not all(isinstance(each, str) and each for each in ids):
        raise _wrong("/value/orderedIds", ids, "an array of texts, at least one")
    twice = [each for each, count in Counter(ids).items() if count > 1]
    if twice:
        raise InvalidAnswer(f"answer/value/orderedIds: has {quote_all(twice)} twice; each id once would be right")
    asked = _ids(payload.get("items"))
    if asked and set(ids) != set(asked):
        lacks, surplus = [each for each in asked if each not in ids], [each for each in ids if each not in asked]
        said = [f"lacks {quote_all(lacks)}"] if lacks else []
        said += [f"has {quote_all(surplus)}, which was not asked about"] if surplus else []
        raise InvalidAnswer(f"answer/value/orderedIds: {' and '.join(said)}; each of {quote_all(asked)} would be right")
    return {"orderedIds": ids}


def _structure(value: dict[str, Any], payload: Payload) -> dict[str, Any]:
    if value.get("value") is None:
        raise _wrong("/value/value", value.get("value"), "the edited structure, any JSON but null")
    return {"value": value["value"]}


def _output(value: dict[str, Any], payload: Payload) -> dict[str, Any]:
    found: dict[str, Any] = {"approved": _flag(value)} if "approved" in value else {}
    said = _text(value, "text", "/value")
    if said is not None:
        found["text"] = said
    if not found:
        raise _wrong("/value", value, "approved (true or false), or a comment as text")
    return found


_OUTPUT: Final = (
    '{"approved": true or false, "text": "a comment"}, at least one',
    "approved",
    ("approved", "text"),
    _output,
)
_SHAPES: Final[dict[InputType, tuple[str, str, tuple[str, ...], Check]]] = {
    InputType.APPROVAL: ('{"approved": true or false}', "approved", ("approved",), _approval),
    InputType.DECISION: (
        '{"chosen": "an option", "freeText": "…"}, at least one', "chosen", ("chosen", "freeText"), _decision,
    ),
    InputType.FEEDBACK: ('{"text": "…"}', "text", ("text",), _feedback),
    InputType.ORDERING: ('{"orderedIds": ["…", "…"]}', "orderedIds", ("orderedIds",), _ordering),
    InputType.STRUCTURE_EDIT: ('{"value": any JSON}', "value", ("value",), _structure),
    InputType.OUTPUT_TEXT: _OUTPUT,
    InputType.OUTPUT_IMAGE: _OUTPUT,
    InputType.OUTPUT_DOCUMENT: _OUTPUT,
}  # fmt: skip
"""By type: the shape in words, the key a bare default stands for, the allowed keys, the check."""


def _value(kind: InputType, payload: Payload, value: Any) -> dict[str, Any]:
    words, _, keys, check = _SHAPES[kind]
    if not isinstance(value, dict):
        raise _wrong("/value", value, words)
    _only(value, "/value", keys)
    return check(value, payload)


def _is_shaped(kind: InputType, default: Any) -> bool:
    if not isinstance(default, dict):
        return False
    return "outcome" in default or (bool(default) and set(default) <= set(_SHAPES[kind][2]))


def _outcome(raw: Any) -> Decision:
    try:
        return Decision(raw.strip().upper() if isinstance(raw, str) else raw)
    except ValueError:
        raise _wrong("/outcome", raw, f"one of {', '.join(Decision)}") from None


def _flag(value: dict[str, Any]) -> bool:
    flag = value.get("approved")
    if not isinstance(flag, bool):
        raise _wrong("/value/approved", flag, "true or false")
    return flag


def _text(holder: dict[str, Any], key: str, at: str) -> str | None:
    """A text that says something, or ``None`` when there is none. Raises for what is no text."""
    said = holder.get(key)
    if said is None:
        return None
    if not isinstance(said, str):
        raise _wrong(f"{at}/{key}", said, "text")
    return said.strip() or None


def _only(holder: dict[str, Any], at: str, keys: tuple[str, ...]) -> None:
    surplus = [key for key in holder if key not in keys]
    if surplus:
        raise InvalidAnswer(
            f"answer{at}: has {quote_all(surplus)}, which means nothing here; only {quote_all(keys)} would be right"
        )


def _ids(listed: Any) -> list[str]:
    """The ids of options or items: texts, or objects with an ``id``, ``value`` or ``label``."""
    found: list[str] = []
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            each = next(
                (each[key] for key in ("id", "value", "label", "title") if isinstance(each.get(key), str)), None
            )
        if isinstance(each, str) and each.strip():
            found.append(each.strip())
    return found


def option_ids(kind: InputType, payload: Payload) -> list[str]:
    """What can be chosen (DECISION) or must be put in order (ORDERING); empty when the question does not say."""
    return _ids(payload.get("items" if kind is InputType.ORDERING else "options"))


def _wrong(at: str, found: Any, right: str) -> InvalidAnswer:
    shown = "nothing" if found is None else describe(found)
    return InvalidAnswer(f"answer{at}: found {shown}; {right} would be right")
