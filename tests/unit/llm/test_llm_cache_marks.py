"""Cache breakpoints on the Anthropic wire: E12 (never too many) and E13 (byte-stable, and none below the minimum)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from engines.llm.anthropic_body import build_body
from engines.llm.base import Message, StructuredPath, ToolCall, ToolSpec
from engines.llm.catalogue import Catalogue
from engines.llm.wire import Call, Native

LONG = "word " * 6000


def body(*messages: Message, model: str = "claude-opus-5", **more: Any) -> dict[str, Any]:
    candidate = Catalogue.load().candidate("anthropic", model)
    return build_body(Call(candidate=candidate, messages=messages, max_output=100, **more))


def marks(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(marks(item) for item in value.values())
    return sum(marks(item) for item in value) if isinstance(value, list) else 0


def evolve_session(results: int, *, cache_results: bool = True) -> tuple[Message, ...]:
    calls = tuple(ToolCall(id=f"t{i}", name="look", arguments={"q": i}) for i in range(results))
    return (
        Message(role="system", content=LONG, cache=True),
        Message(role="system", content="session " + LONG, cache=True),
        Message(role="user", content="go", cache=True),
        Message(role="assistant", content="", tool_calls=calls, cache=True),
        *(Message(role="tool", content="seen", tool_call_id=call.id, cache=cache_results) for call in calls),
    )


@pytest.mark.parametrize("results", range(1, 11))
def test_never_more_than_four_marks_however_many_parallel_results(results: int) -> None:
    built = body(*evolve_session(results))
    assert marks(built) == 4
    assert marks(built["system"]) >= 1
    assert marks(built["messages"][-1]) == 1
    assert "cache_control" in built["messages"][-1]["content"][-1]


def test_marks_stay_where_they_were_asked_for() -> None:
    built = body(*evolve_session(3, cache_results=False)[:3])
    assert [("cache_control" in block) for block in built["system"]] == [True, True]
    assert marks(built["messages"]) == 1


def test_prefix_under_the_minimum_gets_no_mark_and_a_note(caplog: pytest.LogCaptureFixture) -> None:
    short = "word " * 300
    with caplog.at_level(logging.INFO, logger="engines.llm.anthropic_body"):
        built = body(Message(role="system", content=short, cache=True), Message(role="user", content="hi"))
    assert marks(built) == 0
    assert "under the minimum of 512" in caplog.text


def test_minimum_is_the_models_own() -> None:
    # About 1,250 tokens: enough for Opus 5 (512), too little for Haiku 4.5 (4,096).
    messages = (Message(role="system", content="word " * 1000, cache=True), Message(role="user", content="hi"))
    assert marks(body(*messages, model="claude-opus-5")) == 1
    assert marks(body(*messages, model="claude-haiku-4-5")) == 0


def test_tools_count_towards_the_prefix() -> None:
    tool = ToolSpec(name="look", description=LONG, parameters={"type": "object"})
    messages = (Message(role="system", content="short", cache=True), Message(role="user", content="hi"))
    assert marks(body(*messages, tools=(tool,))) == 1


def test_order_of_keywords_and_arguments_does_not_change_a_byte() -> None:
    def with_order(reverse: bool) -> str:
        def ordered(**items: Any) -> dict[str, Any]:
            return dict(sorted(items.items(), reverse=reverse))

        schema = ordered(
            type="object", properties={"b": ordered(type="string", title="t"), "a": ordered(type="integer", title="t")}
        )
        tool = ToolSpec(name="look", description="d", parameters=schema)
        native = Native(path=StructuredPath.STRICT, name="answer", schema=schema)
        call = ToolCall(id="t", name="look", arguments=ordered(x=1, y=ordered(p=1, q=2)))
        messages = (
            Message(role="system", content=LONG, cache=True),
            Message(role="user", content="go"),
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content="r", tool_call_id="t"),
        )
        return json.dumps(body(*messages, tools=(tool,), native=native))

    assert with_order(False) == with_order(True)


def test_cached_blocks_are_the_same_bytes_in_the_next_repair() -> None:
    first = body(*evolve_session(1)[:3])
    second = body(*evolve_session(1)[:2], Message(role="user", content="something else, later"))
    assert json.dumps(first["system"]) == json.dumps(second["system"])


def test_the_schema_instruction_does_not_touch_the_cached_block() -> None:
    cached = Message(role="system", content=LONG, cache=True)
    added = Message(role="system", content="Answer with JSON.")
    plain = body(cached, Message(role="user", content="hi"))
    built = body(cached, added, Message(role="user", content="hi"))
    assert built["system"][0] == plain["system"][0]
