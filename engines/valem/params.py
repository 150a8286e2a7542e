"""The caller's parameters, checked: early, when a process is submitted, and again in every turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engines.errors import InvalidParams
from engines.structured.text import describe, quote
from engines.valem.cursor import Task
from engines.valem.machine import MAX_RETRIES, MAX_RETRIES_HARD, MAX_ROUND_TRIPS, Limits, Temperatures
from engines.valem.spec.identity import is_id
from engines.valem.spec.parse import SpecParseError, parse_spec

PARAM_NAMES: Final = frozenset(
    {
        *("task", "modelId", "domainDescription", "includeView", "spec", "expectedVersion", "evolutionRequest"),
        *("prompt", "model", "lang", "maxRetries", "maxRetriesHard", "maxTokens", "maxTokensHard"),
        *("generationTemperature", "repairTemperature", "repairTemperatureStep", "repairTemperatureMax"),
        *("structuredOutput", "promptCache", "maxRoundTrips", "webFetchCalls", "webFetchChars", "webSearchCalls"),
        *("webSearchResults", "evalCalls", "expressionTimeoutMs", "toolSeconds", "checkSeconds"),
        *("conversationChars", "maxDescriptionChars"),
    }
)
"""Every parameter the engine reads by itself."""
DEFAULT_MODEL: Final = "default:analyze"
MAX_DESCRIPTION_CHARS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What a process is to do, and within which bounds.

    text: the domain's description, or the request for a change. model_id: asked for, or of the stored model. spec: the
    one given to be evolved. expected: the stored version (a number) or the spec's own (a text) it must have.
    include_view: ``None`` means: if the spec that is evolved has one. calls: how often each tool may be called in the
    whole session. check_seconds: for one check of an answer, all its tests together.
    """

    task: Task
    text: str
    model: str
    model_id: str | None
    spec: Mapping[str, Any] | None
    expected: int | str | None
    include_view: bool | None
    limits: Limits
    temperatures: Temperatures
    max_tokens: int
    max_tokens_hard: int
    structured: bool
    cache: bool
    calls: Mapping[str, int]
    fetch_chars: int
    search_results: int
    tool_seconds: float
    check_seconds: float
    expression_seconds: float


def read_params(params: Mapping[str, Any], goal: str) -> Params:
    """Check what the caller gave; the goal or ``prompt`` stand for a missing text. Raises :class:`InvalidParams`.

    Numbers out of their range become the nearest one inside it; what is no number at all is refused.
    """
    task = _task(params)
    text = _words(params, "evolutionRequest" if task is Task.EVOLVE else "domainDescription", goal)
    model_id = _model_id(params)
    spec = _spec(params, task, model_id)
    retries = _whole(params, "maxRetries", MAX_RETRIES, 1, 20)
    max_tokens = _whole(params, "maxTokens", 8_192, 256, 1_000_000)
    return Params(
        task=task,
        text=text,
        model=_text(params, "model") or DEFAULT_MODEL,
        model_id=model_id,
        spec=spec,
        expected=_expected(params, task, spec is not None),
        include_view=_flag(params, "includeView", None if task is Task.EVOLVE else False),
        limits=Limits(
            task=task,
            retries=retries,
            retries_hard=max(retries, _whole(params, "maxRetriesHard", MAX_RETRIES_HARD, 1, 30)),
            round_trips=_whole(params, "maxRoundTrips", MAX_ROUND_TRIPS, 0, MAX_ROUND_TRIPS),
            conversation_chars=_whole(params, "conversationChars", 120_000, 8_000, 600_000),
            model_id=model_id,
            stores=spec is None,
        ),
        temperatures=Temperatures(
            generation=_number(params, "generationTemperature", 0.0, 0.0, 2.0),
            repair=_number(params, "repairTemperature", 0.2, 0.0, 2.0),
            step=_number(params, "repairTemperatureStep", 0.15, 0.0, 1.0),
            most=_number(params, "repairTemperatureMax", 0.8, 0.0, 2.0),
        ),
        max_tokens=max_tokens,
        max_tokens_hard=max(max_tokens, _whole(params, "maxTokensHard", 16_384, 256, 1_000_000)),
        structured=bool(_flag(params, "structuredOutput", True)),
        cache=bool(_flag(params, "promptCache", True)),
        calls={
            "web_fetch": _whole(params, "webFetchCalls", 5, 0, 50),
            "web_search": _whole(params, "webSearchCalls", 3, 0, 50),
            "eval_jsonata": _whole(params, "evalCalls", 25, 0, 200),
        },
        fetch_chars=_whole(params, "webFetchChars", 8_000, 500, 20_000),
        search_results=_whole(params, "webSearchResults", 5, 1, 20),
        tool_seconds=float(_whole(params, "toolSeconds", 60, 1, 600)),
        check_seconds=float(_whole(params, "checkSeconds", 60, 5, 600)),
        expression_seconds=_whole(params, "expressionTimeoutMs", 2_000, 50, 30_000) / 1_000,
    )


def _task(params: Mapping[str, Any]) -> Task:
    value = params.get("task")
    task = next((task for task in Task if task.value == value), None)
    if task is None:
        found = "is missing" if value is None else f"is {describe(value)}"
        raise InvalidParams("task", f"{found}; it must be 'generate' or 'evolve'")
    return task


def _words(params: Mapping[str, Any], name: str, goal: str) -> str:
    given = _text(params, name)
    text = given or goal.strip() or _text(params, "prompt")
    if not text:
        what = "the domain" if name == "domainDescription" else "the change"
        raise InvalidParams(name, f"is missing; it must describe {what} in words (the goal would do as well)")
    most = _whole(params, "maxDescriptionChars", MAX_DESCRIPTION_CHARS, 100, 100_000)
    if len(text) > most:
        raise InvalidParams(
            name if given else "goal",
            f"has {len(text):,} characters; at most {most:,} are accepted (maxDescriptionChars)",
        )
    return text


def _model_id(params: Mapping[str, Any]) -> str | None:
    model_id = _text(params, "modelId")
    if model_id is not None and not is_id(model_id):
        raise InvalidParams(
            "modelId",
            f"{quote(model_id)} is no model id: a name like 'loan' or with a namespace like 'acme.eu/loan',"
            " each part a letter and then letters, digits, '_' or '-'",
        )
    return model_id


def _spec(params: Mapping[str, Any], task: Task, model_id: str | None) -> Mapping[str, Any] | None:
    spec = params.get("spec")
    if task is Task.GENERATE:
        if spec is not None:
            raise InvalidParams("spec", "is for evolving a spec; the recipe valem-evolve does that")
        return None
    if spec is None:
        if model_id is None:
            raise InvalidParams("modelId", "is missing; give the id of a stored model, or a whole spec as 'spec'")
        return None
    if not isinstance(spec, Mapping):
        raise InvalidParams("spec", f"must be a model spec as an object, not {describe(spec)}")
    try:
        parse_spec(spec)
    except SpecParseError as error:
        raise InvalidParams("spec", f"is no model spec: {error.message}") from None
    if model_id is not None:
        raise InvalidParams("modelId", "stands beside 'spec'; give one of the two: which spec is meant?")
    return spec


def _expected(params: Mapping[str, Any], task: Task, inline: bool) -> int | str | None:
    expected = params.get("expectedVersion")
    if expected is None:
        return None
    if task is Task.GENERATE:
        raise InvalidParams("expectedVersion", "is for evolving a model; a new one has no version yet")
    if isinstance(expected, str) and expected.strip():
        return expected.strip()
    if isinstance(expected, int) and not isinstance(expected, bool) and expected >= 1:
        if inline:
            raise InvalidParams(
                "expectedVersion", f"{expected} is the number of a stored version; a spec given whole has none"
            )
        return expected
    raise InvalidParams(
        "expectedVersion",
        f"must be the number of the stored version (3) or the spec's own version ('1.2.0'), not {describe(expected)}",
    )


def _text(params: Mapping[str, Any], name: str) -> str | None:
    value = params.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidParams(name, f"must be a text, not {describe(value)}")
    return value.strip() or None if value is not None else None


def _whole(params: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = params.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParams(name, f"must be a whole number from {low:,} to {high:,}, not {describe(value)}")
    return min(max(value, low), high)


def _number(params: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = params.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise InvalidParams(name, f"must be a number from {low:g} to {high:g}, not {describe(value)}")
    return float(min(max(value, low), high))


def _flag(params: Mapping[str, Any], name: str, default: bool | None) -> bool | None:
    value = params.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidParams(name, f"must be true or false, not {describe(value)}")
    return value
