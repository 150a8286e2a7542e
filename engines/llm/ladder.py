"""Which rung of the structured-output ladder a call takes, and the way back from what was sent to what was asked for.

Strict (the provider holds the model to the schema), loose (a non-strict format or a tool), prompt (the schema is text).
The local validator has the last word on every rung; this module only decides what is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engines.errors import InvalidSchema
from engines.llm.base import LlmRequest, Message, StructuredPath
from engines.llm.catalogue import Candidate
from engines.llm.wire import Native
from engines.structured.native import Dialect, plan_native
from engines.structured.schema import compile_schema

_ORDER = (StructuredPath.STRICT, StructuredPath.LOOSE, StructuredPath.PROMPT)
_CEILING = {
    "strict": StructuredPath.STRICT,
    "loose": StructuredPath.LOOSE,
    "none": StructuredPath.PROMPT,
}

_INSTRUCTION = """\
Answer with exactly one JSON object and nothing else: no prose around it, no code fence, no comments.
It has to be valid against this JSON Schema: every required property present, every value of the type it asks for.

{schema}"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the schema of one request travels. ``path`` is ``None`` when the request has no schema."""

    path: StructuredPath | None
    messages: tuple[Message, ...]
    native: Native | None = None
    reasons: tuple[str, ...] = ()
    """Why not a higher rung."""
    restore: Callable[[str], str] | None = None
    """Turns the reply's text back into terms of the caller's schema; text that is no clean JSON stays as it is."""


def plan(request: LlmRequest, candidate: Candidate) -> Plan:
    """The best rung for this schema, this model and what was learned of the two. Never raises for a bad schema."""
    if request.schema is None:
        return Plan(None, request.messages)
    ceiling = _lowest(_CEILING[candidate.spec.structured_output], request.highest_path)
    # The answer tool would stand among tools that do things: without a word about it, models do not tell them apart.
    alone = bool(request.tools) and candidate.spec.loose_style == "tool" and not request.answer_beside_tools
    if ceiling is StructuredPath.LOOSE and alone:
        ceiling = StructuredPath.PROMPT
    if request.tools and not candidate.spec.format_beside_tools:
        return _prompt(request, ("this model takes no response format beside tools",))
    if ceiling is StructuredPath.PROMPT:
        return _prompt(request, ())
    try:
        native = plan_native(compile_schema(request.schema), _dialect(candidate), ceiling)
    except InvalidSchema as error:
        # The engine vets schemas before it calls; one that slipped through still gets an answer to validate.
        return _prompt(request, (str(error),))
    path = _lowest(native.path, ceiling)
    if path is StructuredPath.PROMPT or native.sent_schema is None:
        return _prompt(request, tuple(native.reasons))
    if path is StructuredPath.LOOSE and alone:
        return _prompt(request, (*native.reasons, "a tool for the answer does not go together with other tools"))
    sent = Native(path=path, name=_name(request.schema_name), schema=native.sent_schema)
    return Plan(path, request.messages, sent, tuple(native.reasons), native.restore_text)


def shows_schema(messages: tuple[Message, ...], schema: dict[str, Any]) -> bool:
    """Whether some message contains the schema as JSON, in one of the usual layouts."""
    layouts = {
        json.dumps(schema, indent=2, ensure_ascii=False),
        json.dumps(schema, indent=2, ensure_ascii=False, sort_keys=True),
        json.dumps(schema, ensure_ascii=False),
        json.dumps(schema, ensure_ascii=False, separators=(",", ":")),
        json.dumps(schema, ensure_ascii=False, separators=(",", ":"), sort_keys=True),
    }
    return any(layout in message.content for message in messages for layout in layouts)


def _prompt(request: LlmRequest, reasons: tuple[str, ...]) -> Plan:
    messages = request.messages
    schema = request.schema or {}
    shown = request.schema_in_prompt
    if shown is None:
        shown = shows_schema(messages, schema)
    if not shown:
        text = _INSTRUCTION.format(schema=json.dumps(schema, indent=2, ensure_ascii=False))
        last = max((index for index, message in enumerate(messages) if message.role == "system"), default=-1)
        # A message of its own, after the system text, so that a cached system block keeps its bytes.
        messages = (*messages[: last + 1], Message(role="system", content=text), *messages[last + 1 :])
    return Plan(StructuredPath.PROMPT, messages, None, reasons)


def _dialect(candidate: Candidate) -> Dialect:
    strict = candidate.spec.structured_output == "strict"
    if candidate.provider.dialect == "anthropic":
        return "anthropic_strict" if strict else "anthropic_tool"
    return "openai_strict" if strict else "openai_loose"


def _lowest(first: StructuredPath, second: StructuredPath) -> StructuredPath:
    return max(first, second, key=_ORDER.index)


def _name(name: str) -> str:
    """A name every provider takes: letters, digits, underscore and dash, at most 64."""
    clean = "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)[:64]
    return clean or "answer"
