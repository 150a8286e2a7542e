"""Jeltz on the turn protocol, without a store: what it asks for, and what it makes of the outcome."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from engines.base import Abandoned, AskModel, BudgetSpent, Decided, ModelFailed, ModelReplied, Outcome
from engines.jeltz.engine import Jeltz
from engines.llm.base import ErrorKind, LlmError, LlmReply, LlmRequest, StopKind
from engines.recipes.cascade import BundledRecipes, effective_params, resolve
from engines.recipes.model import parse_recipe
from models.records import NodeStatus, NodeView, ProcessView, View
from models.transition import AppendMessage, CloseProcess, Transition

S1 = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ENGINE = Jeltz()
PROCESS_ID = UUID("01900000-0000-7000-8000-000000000001")


def view(params: dict[str, Any], *, recipe: str | None = None, cursor: dict[str, Any] | None = None) -> View:
    parsed = resolve("jeltz", [BundledRecipes()]) if recipe is None else parse_recipe("own", recipe, "own.yaml")
    return View(
        node=NodeView(
            id=1,
            parent_id=None,
            depth=0,
            order_key=(),
            kind="ROOT",
            goal="",
            status=NodeStatus.RUNNING,
            phase="ANSWER",
            cursor=cursor or {},
            transport={},
            turn=1,
            losses=0,
            spawned_calls=0,
        ),
        process=ProcessView(
            id=PROCESS_ID,
            root_id=PROCESS_ID,
            parent_node_id=None,
            tenant="t",
            project="p",
            owner=None,
            engine="jeltz",
            recipe_name=parsed.name,
            goal="",
            params=effective_params(parsed, params).params,
            recipe=parsed.model_dump(mode="json", by_alias=True),
            limits_counted=False,
            deadline_at=None,
            overdue=False,
            priority=3,
            trace_context={},
            callback=None,
        ),
    )


def asked(at: View) -> LlmRequest:
    need = ENGINE.prepare(at)
    assert isinstance(need, AskModel)
    return need.request


def closing(transition: Transition) -> dict[str, Any]:
    closes = [effect for effect in transition.effects if isinstance(effect, CloseProcess)]
    assert len(closes) == 1
    assert json.loads(closes[0].message) == closes[0].result
    return closes[0].result


def reply(text: str, **more: Any) -> ModelReplied:
    return ModelReplied(reply=LlmReply(text=text, model="m", **more))


def failed(kind: ErrorKind, message: str = "because") -> ModelFailed:
    return ModelFailed(error=LlmError(kind, message))


def play(params: dict[str, Any], outcomes: list[Outcome]) -> tuple[dict[str, Any], list[LlmRequest]]:
    """Run the whole process against given outcomes; returns the wrapper and every request made."""
    cursor: dict[str, Any] = {}
    requests = []
    for outcome in outcomes:
        at = view(params, cursor=cursor)
        requests.append(asked(at))
        transition = ENGINE.decide(at, outcome)
        # What the store would do to the cursor between two turns.
        cursor = json.loads(json.dumps(transition.cursor))
        if transition.settled:
            return closing(transition), requests
    raise AssertionError("not finished after the last outcome")


GOOD = {"prompt": "How many?", "schema": S1}


@dataclass(frozen=True)
class Refused:
    id: str
    params: dict[str, Any]
    error: str
    names: str


REFUSED = [
    Refused("no prompt", {"schema": S1}, "invalid_params", "prompt"),
    Refused("blank prompt", {"prompt": " \n", "schema": S1}, "invalid_params", "prompt"),
    Refused("prompt is no text", {"prompt": 7, "schema": S1}, "invalid_params", "prompt"),
    Refused("no schema", {"prompt": "q"}, "invalid_params", "schema"),
    Refused("schema is text", {"prompt": "q", "schema": '{"type":"object"}'}, "invalid_params", "schema"),
    Refused("array on top", {"prompt": "q", "schema": {"type": "array"}}, "invalid_schema", "/"),
    Refused("true on top", {"prompt": "q", "schema": True}, "invalid_schema", "object"),
    Refused("list on top", {"prompt": "q", "schema": []}, "invalid_schema", "object"),
    Refused(
        "reference",
        {"prompt": "q", "schema": {"type": "object", "properties": {"a": {"$ref": "file:///etc/hostname"}}}},
        "invalid_schema",
        "/properties/a",
    ),
    Refused(
        "bad pattern",
        {"prompt": "q", "schema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}},
        "invalid_schema",
        "/properties/a/pattern",
    ),
    Refused("model is no text", {**GOOD, "model": 3}, "invalid_params", "model"),
    Refused("temperature out of range", {**GOOD, "temperature": 9}, "invalid_params", "temperature"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.id)
def test_bad_parameters_end_in_a_wrapper_without_a_call(case: Refused) -> None:
    need = ENGINE.prepare(view(case.params))
    assert isinstance(need, Decided)
    wrapper = closing(need.transition)
    assert wrapper["success"] is False
    assert wrapper["attempts"] == 0
    assert wrapper["error"] == case.error
    assert case.names in wrapper["message"]


def test_the_request_carries_schema_prompt_and_model() -> None:
    request = asked(view({**GOOD, "model": "openai:gpt-x", "temperature": 0.2, "maxOutputTokens": 99}))
    assert request.schema == S1
    assert request.model == "openai:gpt-x"
    assert (request.temperature, request.max_output_tokens) == (0.2, 99)
    assert request.messages[-1].role == "user"
    assert request.messages[-1].content == "How many?"
    assert json.dumps(S1, indent=2) in request.messages[0].content


def test_the_recipe_brings_model_schema_and_examples() -> None:
    at = view(
        {"prompt": "text"},
        recipe="description: d\nengine: jeltz\nparams: {model: 'default:analyze'}\n"
        "schema: {type: object, properties: {n: {type: integer}}}\n"
        "examples: [{input: one, output: {n: 1}}]\n",
    )
    request = asked(at)
    assert request.model == "default:analyze"
    assert [(message.role, message.content) for message in request.messages[1:]] == [
        ("user", "one"),
        ("assistant", '{"n": 1}'),
        ("user", "text"),
    ]


def test_prompt_variables_are_rendered_and_the_question_never_is() -> None:
    recipe = (
        "description: d\nengine: jeltz\n"
        "promptPrefix: |\n  S={{ schema_json }} P={{ prompt }} M={{ model }} T={{ params.tone }} R={{ recipe }}"
        " V={{ provider }} L={{ lang }} O={{ mode }} E={{ engine }}\n"
    )
    params = {"prompt": "{{ 7*7 }} {% raw %}", "schema": S1, "model": "m:x", "tone": "dry", "lang": "German"}
    at = view(params, recipe=recipe)
    request = asked(at)
    system = request.messages[0].content
    assert '"n"' in system
    assert "P={{ 7*7 }} {% raw %}" in system
    assert "M=m:x T=dry R=own V=m L=German O=structured E=jeltz" in system
    assert request.messages[-1].content == "{{ 7*7 }} {% raw %}"
    assert "49" not in system


def test_valid_first_reply() -> None:
    wrapper, requests = play(GOOD, [reply('{"n": 1}')])
    assert wrapper == {"success": True, "attempts": 1, "data": {"n": 1}, "model": "m"}
    assert len(requests) == 1


def test_a_violation_is_quoted_and_corrected_by_path() -> None:
    wrapper, requests = play(GOOD, [reply('{"n": "many"}'), reply('{"n": 2}')])
    assert wrapper["attempts"] == 2
    assert wrapper["data"] == {"n": 2}
    assistant, correction = requests[1].messages[-2:]
    assert (assistant.role, assistant.content) == ("assistant", '{"n": "many"}')
    assert "/n" in correction.content
    assert "integer" in correction.content


def test_an_array_is_corrected_not_accepted() -> None:
    wrapper, requests = play(GOOD, [reply("[1, 2]"), reply('{"n": 2}')])
    assert wrapper["attempts"] == 2
    assert len(requests) == 2


def test_always_invalid() -> None:
    wrapper, requests = play(GOOD, [reply('{"n": "a"}'), reply('{"n": "b"}'), reply('{"n": "c"}')])
    assert wrapper["error"] == "max_attempts_exceeded"
    assert wrapper["lastInvalid"] == {"n": "c"}
    # Only the last rejected answer is ever quoted: the conversation does not grow with the attempts.
    assert len(requests[1].messages) == len(requests[2].messages)
    assert '"a"' not in requests[2].messages[-2].content


def test_a_cut_answer_raises_the_limit_and_is_not_echoed() -> None:
    cut = '{"n": ' + "1" * 3000
    wrapper, requests = play(
        GOOD,
        [
            reply(cut, stop=StopKind.LENGTH, output_limit=16, output_ceiling=40),
            reply(cut, stop=StopKind.LENGTH, output_limit=32, output_ceiling=40),
            reply(cut, stop=StopKind.LENGTH, output_limit=40, output_ceiling=40),
        ],
    )
    assert [request.max_output_tokens for request in requests] == [None, 32, 40]
    assert wrapper["error"] == "truncated"
    assert "truncated" in wrapper["message"]
    assert wrapper["lastInvalid"]
    sizes = [sum(len(message.content) for message in request.messages) for request in requests]
    assert sizes[2] <= sizes[0] + 1500


def test_a_cut_answer_that_would_pass_after_repair_is_no_success() -> None:
    schema = {
        "type": "object",
        "properties": {"subject": {"type": "string"}, "text": {"type": "string"}},
        "required": ["subject", "text"],
    }
    text = '{"subject":"Hi","text":"Hello Bob,I hop'
    wrapper, _ = play(
        {"prompt": "q", "schema": schema, "maxAttempts": 1}, [reply(text, stop=StopKind.LENGTH, output_limit=16)]
    )
    assert wrapper["error"] == "truncated"


def test_the_only_attempt_in_violation() -> None:
    wrapper, _ = play({**GOOD, "maxAttempts": 1}, [reply('{"n": "a"}')])
    assert wrapper["error"] == "schema_violation"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (ErrorKind.REFUSAL, "refusal"),
        (ErrorKind.CONTENT_FILTER, "content_filter"),
        (ErrorKind.AUTH, "llm_error"),
        (ErrorKind.OVERLOADED, "llm_error"),
        (ErrorKind.EMPTY, "llm_error"),
    ],
)
def test_failures_of_the_provider(kind: ErrorKind, error: str) -> None:
    wrapper, requests = play(GOOD, [failed(kind, "no can do")])
    assert wrapper["error"] == error
    assert wrapper["attempts"] == 1
    assert "no can do" in wrapper["message"]
    assert len(requests) == 1


def test_nothing_configured_costs_no_attempt_and_says_what_to_set() -> None:
    wrapper, _ = play(GOOD, [failed(ErrorKind.NOT_CONFIGURED, "set VANCETOPE_OPENAI_API_KEY")])
    assert wrapper["attempts"] == 0
    assert "VANCETOPE_OPENAI_API_KEY" in wrapper["message"]


def test_a_provider_failure_keeps_the_earlier_invalid_answer() -> None:
    wrapper, _ = play(GOOD, [reply('{"n": "a"}'), failed(ErrorKind.OVERLOADED)])
    assert wrapper["error"] == "llm_error"
    assert wrapper["attempts"] == 2
    assert wrapper["lastInvalid"] == {"n": "a"}


def test_a_conversation_grown_too_long_is_sent_again_without_the_quotation() -> None:
    wrapper, requests = play(
        GOOD,
        [
            reply("x" * 30_000),
            failed(ErrorKind.CONTEXT_TOO_LONG),
            reply('{"n": 1}'),
        ],
    )
    assert wrapper["success"] is True
    assert wrapper["attempts"] == 2
    assert len(requests[1].messages) == len(requests[2].messages) + 1


def test_still_too_long_without_the_quotation_is_the_end() -> None:
    wrapper, requests = play(
        GOOD,
        [reply("x" * 30_000), failed(ErrorKind.CONTEXT_TOO_LONG), failed(ErrorKind.CONTEXT_TOO_LONG, "8192 tokens")],
    )
    assert wrapper["error"] == "llm_error"
    assert "8192 tokens" in wrapper["message"]
    assert len(requests) == 3


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (BudgetSpent(limit="at most 3 calls"), "budget_exceeded"),
        (Abandoned(why="3 workers were lost"), "internal_error"),
    ],
)
def test_ends_forced_from_outside_are_labelled(outcome: Outcome, error: str) -> None:
    transition = ENGINE.decide(view(GOOD), outcome)
    wrapper = closing(transition)
    assert wrapper["error"] == error
    assert transition.note.forced is True


def test_the_history_tells_the_whole_conversation() -> None:
    first = ENGINE.decide(view(GOOD), reply('{"n": "a"}'))
    kinds = [(effect.role, effect.kind) for effect in first.effects if isinstance(effect, AppendMessage)]
    assert kinds == [("user", "prompt"), ("assistant", "reply"), ("system", "correction")]
    second = ENGINE.decide(view(GOOD, cursor=first.cursor), reply('{"n": 1}'))
    assert not [effect for effect in second.effects if isinstance(effect, AppendMessage)]


def test_a_stop_reports_the_attempts_made() -> None:
    cursor = ENGINE.decide(view(GOOD), reply('{"n": "a"}')).cursor
    wrapper = ENGINE.wrapper(cursor, error="stopped", message="stopped on request")
    assert wrapper == {
        "success": False,
        "attempts": 1,
        "error": "stopped",
        "message": "stopped on request",
        "lastInvalid": {"n": "a"},
    }


def test_the_engine_folder_explains_itself() -> None:
    readme = (Path(__file__).parents[3] / "engines" / "jeltz" / "README.md").read_text(encoding="utf-8")
    for name in ("prompt", "schema", "maxAttempts", "model", "temperature", "maxOutputTokens"):
        assert f"`{name}`" in readme
