"""Parameters: nonsense is refused with a word about what would be right, numbers out of range are clamped."""

from __future__ import annotations

from typing import Any

import pytest

from engines.errors import InvalidParams
from engines.valem.cursor import Task
from engines.valem.engine import Valem
from engines.valem.params import read_params

GENERATE = {"task": "generate", "domainDescription": "A loan."}
EVOLVE = {"task": "evolve", "modelId": "loan", "evolutionRequest": "Add a fee."}
SPEC = {"id": "loan", "version": "1.0.0", "schema": {}}
INLINE = {"task": "evolve", "evolutionRequest": "x", "spec": SPEC}


def test_what_is_left_out_has_the_documented_value() -> None:
    params = read_params(GENERATE, "")
    limits = params.limits
    assert (limits.retries, limits.retries_hard, limits.round_trips, limits.stores) == (3, 6, 40, True)
    assert (params.max_tokens, params.max_tokens_hard, params.structured, params.cache) == (8_192, 16_384, True, True)
    assert dict(params.calls) == {"web_fetch": 5, "web_search": 3, "eval_jsonata": 25}
    assert (params.fetch_chars, params.search_results, params.expression_seconds) == (8_000, 5, 2.0)
    assert (params.include_view, params.model_id) == (False, None)
    assert read_params(EVOLVE, "").include_view is None, "automatic"


def test_the_goal_stands_for_a_missing_text() -> None:
    assert read_params({"task": "generate"}, " A loan. ").text == "A loan."
    assert (
        read_params({"task": "evolve", "modelId": "loan", "evolutionRequest": " "}, "Add a fee.").text == "Add a fee."
    )


def test_numbers_out_of_range_are_clamped() -> None:
    params = read_params(
        GENERATE | {"maxRetries": 99, "maxRetriesHard": 2, "maxRoundTrips": 41, "repairTemperatureMax": 7,
                    "maxTokens": 9_000, "maxTokensHard": 300, "webFetchCalls": -1, "expressionTimeoutMs": 1}, "",
    )  # fmt: skip
    assert (params.limits.retries, params.limits.retries_hard, params.limits.round_trips) == (20, 20, 40)
    assert (params.temperatures.most, params.max_tokens_hard, params.calls["web_fetch"]) == (2.0, 9_000, 0)
    assert params.expression_seconds == 0.05


@pytest.mark.parametrize(
    ("params", "field", "words"),
    [
        ({}, "task", "is missing; it must be 'generate' or 'evolve'"),
        (GENERATE | {"task": "guess"}, "task", 'is string "guess"'),
        ({"task": "generate"}, "domainDescription", "is missing"),
        (GENERATE | {"domainDescription": 5}, "domainDescription", "must be a text, not integer 5"),
        (GENERATE | {"domainDescription": "x" * 5_001}, "domainDescription", "5,001 characters; at most 5,000"),
        (GENERATE | {"modelId": "my model"}, "modelId", "is no model id"),
        (GENERATE | {"modelId": "1loan"}, "modelId", "is no model id"),
        (GENERATE | {"modelId": "a/b/c"}, "modelId", "is no model id"),
        (GENERATE | {"modelId": "loan@2"}, "modelId", "is no model id"),
        (GENERATE | {"spec": SPEC}, "spec", "valem-evolve"),
        (GENERATE | {"expectedVersion": 1}, "expectedVersion", "no version yet"),
        (GENERATE | {"includeView": "yes"}, "includeView", "must be true or false"),
        (GENERATE | {"maxRetries": "3"}, "maxRetries", "must be a whole number from 1 to 20"),
        (GENERATE | {"maxRetries": True}, "maxRetries", "must be a whole number"),
        (GENERATE | {"repairTemperature": "hot"}, "repairTemperature", "must be a number from 0 to 2"),
        (GENERATE | {"repairTemperature": float("nan")}, "repairTemperature", "must be a number"),
        ({"task": "evolve", "modelId": "loan"}, "evolutionRequest", "must describe the change"),
        ({"task": "evolve", "evolutionRequest": "x"}, "modelId", "or a whole spec as 'spec'"),
        (EVOLVE | {"spec": SPEC}, "modelId", "stands beside 'spec'"),
        ({"task": "evolve", "evolutionRequest": "x", "spec": "loan"}, "spec", "must be a model spec as an object"),
        (EVOLVE | {"expectedVersion": 0}, "expectedVersion", "('1.2.0'), not integer 0"),
        (EVOLVE | {"expectedVersion": True}, "expectedVersion", "not boolean true"),
        (
            {"task": "evolve", "evolutionRequest": "x", "spec": SPEC, "expectedVersion": 2},
            "expectedVersion",
            "has none",
        ),
    ],
)
def test_nonsense_is_refused_by_name(params: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        read_params(params, "")
    assert refused.value.field == field
    assert words in refused.value.message
    assert Valem().objection("", params) == refused.value.message


def test_what_is_asked_for_is_read() -> None:
    params = read_params(EVOLVE | {"expectedVersion": 3, "includeView": True}, "")
    assert (params.task, params.model_id, params.expected, params.include_view) == (Task.EVOLVE, "loan", 3, True)
    assert params.limits.model_id == "loan"
    params = read_params(INLINE | {"expectedVersion": "1.0.0"}, "")
    assert (params.spec, params.expected, params.limits.stores) == (SPEC, "1.0.0", False)
    assert Valem().objection("", GENERATE | {"modelId": "acme.eu/quote-1"}) is None
