"""Recordings: what a turn got from outside comes back from them as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines.base import ToolResult
from engines.llm.base import ErrorKind, LlmError, LlmReply, LlmRequest, Message, StopKind, StructuredPath, ToolCall
from models.store.recordings import packed, unpacked
from models.transition import WriteDocument
from tasks import recording
from tasks.accounting import failed_call, finished_call
from tasks.recording import asked, error_of, line_digests, reply_of, result_of
from tasks.replay.cast import _changes


def stored(value: dict[str, Any]) -> dict[str, Any]:
    return unpacked(packed(value))


def request(*texts: str, **fields: Any) -> LlmRequest:
    return LlmRequest(model="m", messages=tuple(Message(role="user", content=each) for each in texts), **fields)


def test_a_reply_comes_back_with_what_the_ledger_has_of_it() -> None:
    reply = LlmReply(
        text='{"a": "ü\u0000"}',
        tool_calls=(ToolCall(id="1", name="t", arguments={"b": [1, 2.5, None]}), ToolCall(id="", name="u", arguments={},
                                                                                         raw="[")),
        stop=StopKind.LENGTH,
        stop_reason="max_tokens",
        provider="p",
        model="m",
        path=StructuredPath.LOOSE,
        cost_usd=0.5,
        latency_ms=7,
        output_limit=100,
        output_ceiling=200,
    )  # fmt: skip
    assert reply_of(stored({"reply": recording._reply(reply)}), finished_call(reply, 1)) == reply


def test_arguments_that_are_no_json_stay_unusable() -> None:
    call = ToolCall(id="1", name="t", arguments={"b": float("nan")})
    reply = LlmReply(text="", tool_calls=(call,))
    found = reply_of(stored({"reply": recording._reply(reply)}), finished_call(reply, 1))
    assert found.tool_calls == (ToolCall(id="1", name="t", arguments={}, raw="arguments with NaN or Infinity"),)


def test_a_failed_call_comes_back() -> None:
    error = LlmError(
        ErrorKind.RATE_LIMITED, "slow down", retry_after=3.5, status=429, provider="p", model="m", parameter="top_p",
        path=StructuredPath.STRICT, partial_text="half", cost_usd=0.1, latency_ms=9, reached_inference=True,
    )  # fmt: skip
    found = error_of(stored({"error": recording._error(error)}), failed_call(error, 1))
    assert vars(found) == vars(error)
    nobody = LlmError(ErrorKind.NOT_CONFIGURED, "no key")
    assert vars(error_of(stored({"error": recording._error(nobody)}), None)) == vars(nobody)


@pytest.mark.parametrize("documents", [(), (WriteDocument(path="a.md", kind="text", content="x", time_at=1),)])
def test_a_tools_result_comes_back_with_its_documents(documents: tuple[WriteDocument, ...]) -> None:
    result = ToolResult(text="found", ok=False, documents=documents)
    assert result_of(stored(recording._result(result))) == result


def test_what_was_asked_is_kept_as_digests_and_not_as_text() -> None:
    secret = "the patient's name\nand address"
    kept = asked(request(secret, schema={"type": "object"}))
    assert "patient" not in json.dumps(kept)
    assert asked(request(secret, schema={"type": "object"})) == kept
    assert asked(request(secret, schema={"type": "array"})) != kept
    assert asked(request(secret + " ", schema={"type": "object"})) != kept
    assert len(line_digests(secret)) == 8


def test_the_new_lines_of_a_prompt_are_found() -> None:
    was = asked(request("one\ntwo\nthree", "same"))
    changes = list(_changes(was, request("one\n2\nthree", "same")))
    assert changes == ["message 1 (user): recorded 13 characters, now 11", "  line 2 is new: 2"]
    assert list(_changes(was, request("one\nthree", "same", "more"))) == [
        "message 1 (user): recorded 13 characters, now 9",
        "  no line is new: some were left out, or stand elsewhere",
        "message 3 (user): new, 4 characters",
    ]
    assert list(_changes(was, request("one\ntwo\nthree"))) == ["1 messages more were recorded"]
