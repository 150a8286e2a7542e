"""What models write instead of what they were asked for, turned into it: ``dict`` in, canonical ``dict`` out.

Nothing here raises, whatever the JSON. A value that cannot be used is left out; whether it is missed is decided by the
models of :mod:`engines.marvin.outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from engines.marvin.words import Criticality, InputType, Phase, ScopeAction, TaskKind

Raw = Mapping[str, Any]

_STEER_KEYS: Final = ("steerContent", "steer", "prompt", "query", "input", "content")
_NESTED_STEER_KEYS: Final = (("parameters", ("query", "prompt", "input")), ("args", ("query", "prompt")))


def with_known_token(phase: Phase, raw: Any) -> Any:
    """``raw`` with its action or verdict trimmed and in capitals; anything else as it is."""
    key = token_key(phase)
    if key is None or not isinstance(raw, dict) or not isinstance(raw.get(key), str):
        return raw
    return raw | {key: raw[key].strip().upper()}


def token_key(phase: Phase) -> str | None:
    """The property that holds what the model chose; ``None`` where there is nothing to choose."""
    return {Phase.CONCLUDE: None, Phase.VALIDATE: "verdict"}.get(phase, "action")


def canonical(phase: Phase, raw: Raw) -> dict[str, Any]:
    """The answer ``raw`` of ``phase`` in the form of the output models; surplus keys are gone."""
    return {"phase": phase.value, **_READERS[phase](raw)}


def post_actions(raw: Any) -> list[dict[str, Any]]:
    """The usable post-actions of a list as written by a model or a task's ``postActions``."""
    return [
        {"tool": tool, "args": clean_object(_first_object(entry, ("args", "params")))}
        for entry in _objects(raw)
        if (tool := _first_text(entry, ("tool", "toolName"))) is not None
    ]


def user_input(raw: Any) -> dict[str, Any] | None:
    """A question in canonical form; ``None`` when ``raw`` is none. A bare text is the question itself."""
    if isinstance(raw, str) and raw.strip():
        raw = {"title": raw}
    if not isinstance(raw, dict):
        return None
    question = {
        "type": _word(raw.get("type"), InputType, InputType.FEEDBACK),
        "title": text_or_none(raw.get("title")) or "",
        "body": text_or_none(raw.get("body")) or "",
        "criticality": _word(raw.get("criticality"), Criticality, Criticality.NORMAL),
        "payload": clean_object(raw.get("payload")),
    }
    return question if question["title"] or question["body"] or question["payload"] else None


def clean_object(value: Any) -> dict[str, Any]:
    """``value`` as an object without any key that begins with an underscore, at any depth: those are the engine's."""
    return _without_internals(value) if isinstance(value, dict) else {}


def text_or_none(value: Any) -> str | None:
    """``value`` when it is a text that says something, trimmed."""
    return value.strip() or None if isinstance(value, str) else None


def _decision(raw: Raw) -> dict[str, Any]:
    action = raw.get("action")
    return {
        "action": action,
        "recipeCall": _recipe_call(raw, flat=action == ScopeAction.CALL_RECIPE),
        "userInput": user_input(raw.get("userInput")),
        **_after_children(raw),
    }


def _after_children(raw: Raw) -> dict[str, Any]:
    return {
        "action": raw.get("action"),
        "newTasks": list(_new_tasks(raw.get("newTasks"))),
        "problem": text_or_none(raw.get("problem")),
        "reason": text_or_none(raw.get("reason")),
    }


def _conclusion(raw: Raw) -> dict[str, Any]:
    return {
        "result": raw.get("result"),
        "postActions": post_actions(raw.get("postActions")),
        "reason": text_or_none(raw.get("reason")),
    }


def _judgement(raw: Raw) -> dict[str, Any]:
    issues = raw.get("issues")
    listed = issues if isinstance(issues, list) else [issues]
    return {
        "verdict": raw.get("verdict"),
        "issues": [issue for entry in listed if (issue := text_or_none(entry)) is not None],
        "hint": text_or_none(raw.get("hint")),
        "reason": text_or_none(raw.get("reason")),
    }


_READERS: Final[dict[Phase, Callable[[Raw], dict[str, Any]]]] = {
    Phase.SCOPE: _decision,
    Phase.REFLECT: _decision,
    Phase.POST_CHILDREN: _after_children,
    Phase.CONCLUDE: _conclusion,
    Phase.VALIDATE: _judgement,
}


def _recipe_call(raw: Raw, *, flat: bool) -> dict[str, Any] | None:
    """The call, from its own object or (``flat``) with some or all of its parts beside the action."""
    given = raw.get("recipeCall")
    nested: Raw = given if isinstance(given, dict) else {}
    places = [nested, raw] if flat else [nested]
    names = [text_or_none(given), *(text_or_none(place.get("recipe")) for place in places)]
    recipe = next((name for name in names if name), None)
    steer = next((text for place in places for text in _steer_texts(place)), None)
    return {"recipe": recipe, "steerContent": steer} if recipe and steer else None


def _steer_texts(place: Raw) -> Iterator[str]:
    text = _first_text(place, _STEER_KEYS)
    if text is not None:
        yield text
    for key, names in _NESTED_STEER_KEYS:
        inner = place.get(key)
        text = _first_text(inner, names) if isinstance(inner, dict) else None
        if text is not None:
            yield text


def _new_tasks(raw: Any) -> Iterator[dict[str, Any]]:
    for entry in _objects(raw):
        goal = text_or_none(entry.get("goal"))
        kind = _kind(entry.get("taskKind", entry.get("kind")))
        if goal is not None and kind is not None:
            yield {"goal": goal, "taskKind": kind, "taskSpec": clean_object(entry.get("taskSpec"))}


def _kind(value: Any) -> TaskKind | None:
    if value is None or value == "":
        return TaskKind.WORKER
    return TaskKind(value.strip().upper()) if isinstance(value, str) and _is_word(value, TaskKind) else None


def _is_word(value: str, words: type[StrEnum]) -> bool:
    return value.strip().upper() in words.__members__


def _word(value: Any, words: type[StrEnum], otherwise: StrEnum) -> StrEnum:
    return words(value.strip().upper()) if isinstance(value, str) and _is_word(value, words) else otherwise


def _objects(raw: Any) -> Iterator[Raw]:
    entries: Iterable[Any] = raw if isinstance(raw, list) else [raw]
    return (entry for entry in entries if isinstance(entry, dict))


def _first_text(place: Raw, keys: Iterable[str]) -> str | None:
    return next((text for key in keys if (text := text_or_none(place.get(key))) is not None), None)


def _first_object(place: Raw, keys: Iterable[str]) -> Any:
    return next((place[key] for key in keys if isinstance(place.get(key), dict)), None)


def _without_internals(value: Any) -> Any:
    # Depth is bounded: replies nested deeper than engines.structured.checks.MAX_VALUE_DEPTH are refused before.
    if isinstance(value, dict):
        return {key: _without_internals(item) for key, item in value.items() if not key.startswith("_")}
    return [_without_internals(item) for item in value] if isinstance(value, list) else value
