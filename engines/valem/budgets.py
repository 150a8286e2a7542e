"""What a session's tools may cost: a budget for each, shared by all attempts. A call made before costs nothing.

A tool whose budget is used up stays on offer, because the list of tools is the beginning of every cached prompt;
calling it gives a text that says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engines.base import ToolResult
from engines.conversation import MAX_CALLS_AT_ONCE, TOO_MANY_AT_ONCE, Called
from engines.valem.cursor import Spending

REMEMBERED: Final = frozenset({"web_fetch", "web_search"})
"""Tools whose answers are kept for the session: the same address or the same words again cost nothing."""
GUIDANCE: Final = "get_domain_guidance"
_MAX_REMEMBERED_CHARS: Final = 120_000
_LIMIT: Final = (
    "[limit] {name} may be used {most} times in this session, and has been. Go on with what you know; calling it again"
    " changes nothing."
)


@dataclass(frozen=True, slots=True)
class Run:
    """The call is made."""

    call: Called


@dataclass(frozen=True, slots=True)
class Told:
    """The model reads ``text`` without a call."""

    text: str


@dataclass(frozen=True, slots=True)
class Same:
    """The result of the call at ``index`` of the batch: it is the same one."""

    index: int


Plan = Run | Told | Same


def plan(calls: Sequence[Called], spending: Spending, budgets: Mapping[str, int]) -> tuple[Plan, ...]:
    """What becomes of each call of a batch. Tools without a budget are always run."""
    spent = dict(spending.calls)
    first: dict[str, int] = {}
    plans: list[Plan] = []
    for index, call in enumerate(calls):
        if index >= MAX_CALLS_AT_ONCE:
            plans.append(Told(TOO_MANY_AT_ONCE))
            continue
        most = budgets.get(call.name)
        if most is None:
            plans.append(Run(call))
            continue
        name = _key(call)
        if name in spending.remembered:
            plans.append(Told(spending.remembered[name]))
        elif name in first:
            plans.append(Same(first[name]))
        elif spent.get(call.name, 0) >= most:
            plans.append(Told(_LIMIT.format(name=call.name, most=most)))
        else:
            spent[call.name] = spent.get(call.name, 0) + 1
            plans.append(Run(call))
            if name:
                first[name] = index
    return tuple(plans)


def settle(
    plans: Sequence[Plan], results: Sequence[ToolResult], spending: Spending, budgets: Mapping[str, int]
) -> tuple[tuple[str, ...], Spending]:
    """What the model reads of each call, and the spending afterwards. ``results``: those of the calls that were run."""
    spent, remembered = dict(spending.calls), dict(spending.remembered)
    room = _MAX_REMEMBERED_CHARS - sum(len(text) for text in remembered.values())
    ran = iter(results)
    topics = spending.topics
    texts: list[str] = []
    for each in plans:
        match each:
            case Told():
                texts.append(each.text)
            case Same():
                texts.append(texts[each.index])
            case Run():
                result = next(ran)
                texts.append(result.text)
                if each.call.name == GUIDANCE and result.ok:
                    topics += _topics(each.call)
                if each.call.name in budgets:
                    spent[each.call.name] = spent.get(each.call.name, 0) + 1
                name = _key(each.call)
                # What failed may be tried again, at its price.
                if name and result.ok and len(result.text) <= room:
                    remembered[name] = result.text
                    room -= len(result.text)
    return tuple(texts), Spending(calls=spent, remembered=remembered, topics=tuple(dict.fromkeys(topics)))


def _topics(call: Called) -> tuple[str, ...]:
    named = call.arguments.get("topics")
    return tuple(each for each in named if isinstance(each, str)) if isinstance(named, list) else ()


def _key(call: Called) -> str:
    """What makes two calls of a tool the same one; empty for a tool whose answers are not kept."""
    if call.name not in REMEMBERED or call.raw is not None:
        return ""
    said = json.dumps({key: _plain(value) for key, value in call.arguments.items()}, sort_keys=True)
    return f"{call.name}:{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _plain(value: Any) -> Any:
    return " ".join(value.split()) if isinstance(value, str) else value
