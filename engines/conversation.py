"""A conversation with tools, as engines keep it in their cursors: what the model called, and what it read of each call.

Pure. Bounded by :func:`bounded`; ids are repaired by :func:`called`, because providers refuse a conversation whose ids
are missing or the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engines.llm.base import LlmReply, Message, ToolCall

MAX_CALLS_AT_ONCE: Final = 8
TOO_MANY_AT_ONCE: Final = f"[tool error] not run: at most {MAX_CALLS_AT_ONCE} tools run at once; call it again"
_MAX_ARGUMENT_CHARS: Final = 1_050_000
"""Of one call: a document of the largest size still fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A tool call of the model and, once it ran, what the model reads of it."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    raw: str | None = None
    result: str | None = None

    @property
    def tool_call(self) -> ToolCall:
        return ToolCall(id=self.id, name=self.name, arguments=self.arguments, raw=self.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One reply that called tools, with its calls."""

    text: str
    calls: tuple[Called, ...]

    @property
    def characters(self) -> int:
        return len(self.text) + sum(len(call.result or "") + len(str(call.arguments)) for call in self.calls)


def to_json(exchanges: Iterable[Exchange]) -> list[dict[str, Any]]:
    """The exchanges as a cursor keeps them."""
    return [
        {
            "text": each.text,
            "calls": [
                {"id": c.id, "name": c.name, "arguments": c.arguments, "raw": c.raw, "result": c.result}
                for c in each.calls
            ],
        }
        for each in exchanges
    ]


def from_json(stored: Iterable[Mapping[str, Any]]) -> tuple[Exchange, ...]:
    """The exchanges of :func:`to_json`."""
    return tuple(Exchange(text=each["text"], calls=tuple(Called(**call) for call in each["calls"])) for each in stored)


def called(calls: tuple[ToolCall, ...], round_trips: int) -> tuple[Called, ...]:
    """The calls of a reply as they are kept: with ids that are there and differ."""
    kept: list[Called] = []
    for at, call in enumerate(calls):
        known = not call.id.strip() or any(call.id == other.id for other in kept)
        raw = _unusable(call)
        kept.append(
            Called(
                id=f"call-{round_trips}-{at}" if known else call.id,
                name=call.name[:64],
                arguments=call.arguments if raw is None else {},
                raw=raw,
            )
        )
    return tuple(kept)


def _unusable(call: ToolCall) -> str | None:
    """What the model wrote in place of usable arguments; ``None`` when they can be used."""
    if call.raw is not None:
        return call.raw[:500]
    try:
        size = len(json.dumps(call.arguments, ensure_ascii=False, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return "arguments with NaN or Infinity"
    return "arguments of more than a million characters" if size > _MAX_ARGUMENT_CHARS else None


def answered(exchanges: tuple[Exchange, ...], results: Iterable[str | None]) -> tuple[Exchange, ...]:
    """``exchanges`` with the results of the last one's calls, in their order."""
    *before, last = exchanges
    calls = tuple(replace(call, result=text) for call, text in zip(last.calls, results, strict=True))
    return (*before, replace(last, calls=calls))


def messages(exchanges: tuple[Exchange, ...], *, mark_last: bool) -> tuple[Message, ...]:
    """Each batch of calls followed by its results. mark_last: the last result asks for a cache breakpoint."""
    found: list[Message] = []
    for at, exchange in enumerate(exchanges, 1):
        calls = tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in exchange.calls)
        found.append(Message(role="assistant", content=exchange.text, tool_calls=calls))
        for number, call in enumerate(exchange.calls, 1):
            last = mark_last and at == len(exchanges) and number == len(exchange.calls)
            found.append(Message(role="tool", content=call.result or "", tool_call_id=call.id, cache=last))
    return tuple(found)


def raised_limit(reply: LlmReply, first: int, *, most: int | None = None, asked: int | None = None) -> int | None:
    """Twice the limit the reply was cut at, at most ``most`` and the model's ceiling; ``None`` if that raises nothing.

    first: what to ask for when nobody said how long an answer may be. asked: what was asked for, should the reply not
    say its limit.
    """
    limit = reply.output_limit or asked
    wanted = limit * 2 if limit else first
    for ceiling in (reply.output_ceiling, most):
        if ceiling is not None:
            wanted = min(wanted, ceiling)
    return wanted if limit is None or wanted > limit else None


def bounded(exchanges: tuple[Exchange, ...], limit: int) -> tuple[Exchange, ...]:
    """``exchanges`` within ``limit`` characters: results are left out from the oldest on, with a note in their place.

    The newest batch is only ever cut to an even share. Arguments and words of the model are cut last of all.
    """
    total = sum(each.characters for each in exchanges)
    kept = list(exchanges)
    for at in range(len(kept) - 1):
        if total <= limit:
            return tuple(kept)
        before = kept[at].characters
        kept[at] = _emptied(kept[at])
        total -= before - kept[at].characters
    for at in range(len(kept) - 1):
        if total <= limit:
            return tuple(kept)
        before = kept[at].characters
        kept[at] = _bare(kept[at])
        total -= before - kept[at].characters
    if total > limit and kept:
        share = max(200, (limit - (total - kept[-1].characters)) // (2 * len(kept[-1].calls)))
        kept[-1] = _shortened(kept[-1], share)
    return tuple(kept)


def halved(exchanges: tuple[Exchange, ...]) -> tuple[Exchange, ...] | None:
    """Half the conversation, for a model that refused its length; ``None`` when that makes it hardly shorter."""
    total = sum(each.characters for each in exchanges)
    shorter = bounded(exchanges, total // 2)
    return None if sum(each.characters for each in shorter) * 10 >= total * 9 else shorter


def _emptied(exchange: Exchange) -> Exchange:
    return replace(exchange, calls=tuple(replace(call, result=_left_out(call.result or "")) for call in exchange.calls))


def _left_out(result: str) -> str:
    if len(result) < 200:
        return result
    return f"[this result of {len(result):,} characters was left out to save room; call the tool again if you need it]"


def _bare(exchange: Exchange) -> Exchange:
    calls = tuple(
        call if len(str(call.arguments)) <= 300 else replace(call, arguments={}, raw=None) for call in exchange.calls
    )
    return replace(exchange, text=exchange.text[:300], calls=calls)


def _shortened(exchange: Exchange, share: int) -> Exchange:
    calls = tuple(
        replace(
            call,
            result=call.result
            if len(call.result or "") <= share
            else f"{(call.result or '')[:share]}\n[cut to save room]",
            arguments=call.arguments if len(str(call.arguments)) <= share else {},
        )
        for call in exchange.calls
    )
    return replace(exchange, text=exchange.text[:share], calls=calls)
