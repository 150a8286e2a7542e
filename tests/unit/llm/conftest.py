"""Fixtures of the LLM layer's tests: a fake provider over real HTTP, and clients pointed at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.provider import FakeProvider

from engines.llm.base import LlmRequest, Message
from engines.llm.client import RoutingClient, build_client, shutdown
from engines.llm.config import LlmConfig

OPENAI_KEY = "sk-test-abcdef123456"
ANTHROPIC_KEY = "sk-ant-test-zyx987654"


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider
        shutdown()


@pytest.fixture
def make_client(fake: FakeProvider) -> Callable[..., RoutingClient]:
    def make(**overrides: Any) -> RoutingClient:
        settings: dict[str, Any] = {
            "api_keys": {"openai": OPENAI_KEY, "anthropic": ANTHROPIC_KEY},
            "base_urls": {
                "openai": fake.openai_url,
                "anthropic": fake.anthropic_url,
                "compatible": fake.openai_url,
                "deepseek": fake.openai_url,
            },
        }
        client = build_client(LlmConfig(**{**settings, **overrides}))
        assert isinstance(client, RoutingClient)
        return client

    return make


@pytest.fixture
def client(make_client: Callable[..., RoutingClient]) -> RoutingClient:
    return make_client()


@pytest.fixture
def ask() -> Callable[..., LlmRequest]:
    """A request with one user message, and whatever else a test cares about."""

    def build(
        content: str = "hello", *, model: str = "openai:gpt-4.1-mini", system: str = "", **more: Any
    ) -> LlmRequest:
        messages = [Message(role="user", content=content)]
        if system:
            messages.insert(0, Message(role="system", content=system))
        return LlmRequest(**{"model": model, "messages": tuple(messages), **more})

    return build
