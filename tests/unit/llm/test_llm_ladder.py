"""The choice of rung: capability, what was learned, tools, and what the prompt already shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines.llm.base import LlmRequest, Message, StructuredPath, ToolSpec
from engines.llm.catalogue import Candidate, Catalogue
from engines.llm.ladder import plan

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "é": {"type": "string"}}, "required": ["n"]}
USER = Message(role="user", content="hi")
TOOL = ToolSpec(name="look", description="d", parameters={"type": "object"})


def candidate(name: str) -> Candidate:
    catalogue = Catalogue.load()
    pair = catalogue.split(name)
    assert pair is not None
    return catalogue.candidate(*pair)


def request(*messages: Message, **more: Any) -> LlmRequest:
    return LlmRequest(**{"model": "m", "messages": messages or (USER,), "schema": SCHEMA, **more})


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("openai:gpt-6-luna", StructuredPath.STRICT),
        ("anthropic:claude-haiku-5-5", StructuredPath.STRICT),
        ("local:default", StructuredPath.STRICT),
        ("mistral:mistral-large-latest", StructuredPath.STRICT),
        ("deepseek:deepseek-chat", StructuredPath.LOOSE),
        ("openrouter:x/y", StructuredPath.LOOSE),
    ],
)
def test_rung_follows_the_capability(model: str, path: StructuredPath) -> None:
    planned = plan(request(), candidate(model))
    assert planned.path is path
    assert planned.native is not None
    assert planned.native.path is path


@pytest.mark.parametrize("highest", list(StructuredPath))
def test_no_rung_above_what_was_learned(highest: StructuredPath) -> None:
    assert plan(request(highest_path=highest), candidate("openai:gpt-6-luna")).path is highest


def test_no_schema_no_rung() -> None:
    planned = plan(request(schema=None), candidate("openai:gpt-4o"))
    assert (planned.path, planned.native, planned.messages) == (None, None, (USER,))


def test_schema_our_validator_refuses_still_travels_in_the_prompt() -> None:
    planned = plan(request(schema={"type": "object", "$ref": "#"}), candidate("openai:gpt-4o"))
    assert planned.path is StructuredPath.PROMPT
    assert "$ref" in " ".join(planned.reasons)


def test_answer_tool_is_not_mixed_with_other_tools() -> None:
    with_tools = request(tools=(TOOL,), highest_path=StructuredPath.LOOSE)
    assert plan(with_tools, candidate("anthropic:claude-opus-5")).path is StructuredPath.PROMPT
    assert plan(with_tools, candidate("openai:gpt-4o")).path is StructuredPath.LOOSE


def prompt_plan(*messages: Message, **more: Any) -> tuple[Message, ...]:
    return plan(request(*messages, highest_path=StructuredPath.PROMPT, **more), candidate("openai:gpt-4o")).messages


def test_instruction_goes_after_the_system_text_as_a_message_of_its_own() -> None:
    system = Message(role="system", content="Be brief.", cache=True)
    messages = prompt_plan(system, USER)
    assert [message.role for message in messages] == ["system", "system", "user"]
    assert messages[0] is system
    assert json.dumps(SCHEMA, indent=2, ensure_ascii=False) in messages[1].content


@pytest.mark.parametrize(
    "shown",
    [
        json.dumps(SCHEMA, indent=2, ensure_ascii=False),
        json.dumps(SCHEMA, indent=2, ensure_ascii=False, sort_keys=True),
        json.dumps(SCHEMA, ensure_ascii=False, separators=(",", ":")),
    ],
)
def test_schema_that_is_shown_already_is_not_shown_twice(shown: str) -> None:
    system = Message(role="system", content=f"Follow this:\n{shown}\nNothing else.")
    assert prompt_plan(system, USER) == (system, USER)


def test_flag_decides_over_detection() -> None:
    system = Message(role="system", content=json.dumps(SCHEMA, indent=2, ensure_ascii=False))
    assert len(prompt_plan(USER, schema_in_prompt=True)) == 1
    assert len(prompt_plan(system, USER, schema_in_prompt=False)) == 3
