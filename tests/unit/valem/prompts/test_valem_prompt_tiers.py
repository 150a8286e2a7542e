"""Tiers: what is sent of them, how they are cached and recorded."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from engines.llm.anthropic_body import build_body
from engines.llm.catalogue import Catalogue
from engines.llm.openai import build_messages
from engines.llm.wire import Call
from engines.valem.prompts.evolve import evolution, repair_evolution, session_context
from engines.valem.prompts.generate import initial
from engines.valem.prompts.tiers import PromptParts
from engines.valem.schemas import submit_spec_tool

TOKEN = "0123456789abcdef"
SPEC = json.dumps({"id": "big", "schema": {"type": "object"}, "constants": {"text": "word " * 3000}})


def test_one_text_joins_the_tiers_and_skips_empty_ones() -> None:
    assert PromptParts(system="a", session_context="b", user="c").concatenated() == "a\n\nb\n\nc"
    assert PromptParts(system="a", user="c").concatenated() == "a\n\nc"
    assert PromptParts(system="a", session_context=" \n", user="c").concatenated() == "a\n\nc"


def test_each_tier_has_its_own_hash() -> None:
    hashes = PromptParts(system="a", session_context="", user="ü").hashes()
    assert hashes == {
        "session_context": hashlib.sha256(b"").hexdigest(),
        "system": hashlib.sha256(b"a").hexdigest(),
        "user": hashlib.sha256("ü".encode()).hexdigest(),
    }


def test_stable_tiers_become_marked_system_messages() -> None:
    messages = PromptParts(system="a", session_context="b", user="c").messages()
    assert [(message.role, message.content, message.cache) for message in messages] == [
        ("system", "a", True),
        ("system", "b", True),
        ("user", "c", False),
    ]
    assert [message["content"] for message in build_messages(messages, "system", several=True)] == ["a", "b", "c"]
    assert len(PromptParts(system="a", user="c").messages()) == 2


def test_without_caching_the_stable_tiers_are_one_plain_message() -> None:
    messages = PromptParts(system="a", session_context="b", user="c").messages(cache=False)
    assert [(message.role, message.content, message.cache) for message in messages] == [
        ("system", "a\n\nb", False),
        ("user", "c", False),
    ]


def body(parts: PromptParts, *, cache: bool = True) -> dict[str, Any]:
    candidate = Catalogue.load().candidate("anthropic", "claude-sonnet-4-6")
    tool = submit_spec_tool(evolution=True, include_view=False)
    return build_body(Call(candidate=candidate, messages=parts.messages(cache=cache), tools=(tool,), max_output=1000))


@pytest.mark.parametrize(("cache", "generation", "evolved"), [(True, 1, 2), (False, 0, 0)])
def test_one_breakpoint_for_each_stable_tier(cache: bool, generation: int, evolved: int) -> None:
    session = session_context(SPEC)
    first = body(initial("A ferry tariff", token=TOKEN), cache=cache)
    second = body(evolution("Raise the fee", session=session, token=TOKEN), cache=cache)
    assert json.dumps(first).count("cache_control") == generation
    assert json.dumps(second).count("cache_control") == evolved
    assert len(second["system"]) == max(1, evolved)


def test_the_cached_prefix_is_the_same_bytes_over_all_attempts() -> None:
    prefixes = set()
    for attempt in range(4):
        # A resumed session builds its context anew, from a spec whose keys came back in another order.
        spec = dict(sorted(json.loads(SPEC).items(), reverse=bool(attempt % 2)))
        paths = ["$.b", "$.a"] if attempt % 2 else ["$.a", "$.b"]
        session = session_context(json.dumps(spec, indent=attempt), paths, model_id="big")
        token = f"token{attempt:04}"
        parts = (
            repair_evolution("Raise", "{}", [("spec", f"bad {attempt}", None)], session=session, token=token)
            if attempt
            else evolution("Raise", session=session, token=token)
        )
        built = body(parts)
        prefixes.add(json.dumps([built["tools"], built["system"]]))
        hashes = parts.hashes()
        prefixes.add(f"{hashes['system']} {hashes['session_context']}")
    assert len(prefixes) == 2
