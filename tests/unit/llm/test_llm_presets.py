"""The named providers: reachable with their key alone, each with its default model, address and quirks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.provider import Answer, FakeProvider

from engines.llm.base import ErrorKind, LlmError, LlmRequest, Message, StructuredPath, ToolSpec
from engines.llm.catalogue import Catalogue
from engines.llm.client import RoutingClient
from engines.llm.policy import FailureCounts, StepDown, next_step
from tasks.settings import load_settings

Make = Callable[..., RoutingClient]
Ask = Callable[..., LlmRequest]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LOOK = ToolSpec(name="look", description="Looks.", parameters={"type": "object"})
PRESETS = {
    "anthropic": ("claude-sonnet-4-6", "https://api.anthropic.com"),
    "openai": ("gpt-4o", "https://api.openai.com/v1"),
    "ollama": ("llama3.1", "http://127.0.0.1:11434/v1"),
    "openrouter": ("anthropic/claude-sonnet-5", "https://openrouter.ai/api/v1"),
    "groq": ("openai/gpt-oss-120b", "https://api.groq.com/openai/v1"),
    "mistral": ("mistral-large-latest", "https://api.mistral.ai/v1"),
    "gemini": ("gemini-flash-latest", "https://generativelanguage.googleapis.com/v1beta/openai"),
    "cerebras": ("llama-3.3-70b", "https://api.cerebras.ai/v1"),
}
COMPATIBLE = sorted(set(PRESETS) - {"anthropic"})


def reach(make_client: Make, fake: FakeProvider, name: str) -> RoutingClient:
    """A client whose provider ``name`` is the fake server, with a key only where the provider wants one."""
    url = fake.anthropic_url if name == "anthropic" else fake.openai_url
    keys = {name: f"key-of-{name}"} if Catalogue.load().providers[name].key_needed else {}
    return make_client(api_keys=keys, base_urls={name: url})


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_each_preset_has_an_address_and_a_default_model(name: str) -> None:
    preset = Catalogue.load().providers[name]
    assert (preset.default_model, preset.base_url) == PRESETS[name]


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"ollama"}))
def test_the_key_of_the_environment_reaches_its_provider(name: str) -> None:
    setting = f"VANCETOPE_{name.upper()}_API_KEY"
    assert Catalogue.load().providers[name].key_setting == setting
    assert load_settings({setting: "k-1"}).llm().key(name) == "k-1"


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_default_model_is_asked_with_the_providers_key(
    make_client: Make, fake: FakeProvider, ask: Ask, name: str
) -> None:
    reply = reach(make_client, fake, name).complete(ask(model=f"{name}:default"))
    sent = fake.requests[0]
    assert (sent.body["model"], reply.provider) == (PRESETS[name][0], name)
    shown = sent.headers.get("x-api-key") or sent.headers["authorization"].removeprefix("Bearer ")
    assert shown == ("none" if name == "ollama" else f"key-of-{name}")


def test_a_configured_model_wins_over_the_presets(make_client: Make, fake: FakeProvider, ask: Ask) -> None:
    client = make_client(
        api_keys={"mistral": "k"}, base_urls={"mistral": fake.openai_url}, models={"mistral": "mistral-tiny"}
    )
    client.complete(ask(model="mistral:default"))
    assert fake.requests[0].body["model"] == "mistral-tiny"


@pytest.mark.parametrize("name", COMPATIBLE)
def test_only_openrouter_is_told_which_application_calls(
    make_client: Make, fake: FakeProvider, ask: Ask, name: str
) -> None:
    reach(make_client, fake, name).complete(ask(model=f"{name}:default"))
    headers = fake.requests[0].headers
    assert ("http-referer" in headers, headers.get("x-title")) == (
        (True, "vancetope") if name == "openrouter" else (False, None)
    )


@pytest.mark.parametrize("name", ["groq", "cerebras", "gemini", "ollama"])
@pytest.mark.parametrize("choice", ["auto", "none"])
def test_no_response_format_beside_tools_where_the_pair_is_refused(
    make_client: Make, fake: FakeProvider, ask: Ask, name: str, choice: str
) -> None:
    client = reach(make_client, fake, name)
    model = f"{name}:default"
    beside = client.complete(ask(model=model, schema=SCHEMA, tools=(LOOK,), tool_choice=choice))
    alone = client.complete(ask(model=model, schema=SCHEMA))
    first, second = (request.body for request in fake.requests)
    assert ("response_format" in first, "tools" in first, beside.path) == (False, True, StructuredPath.PROMPT)
    assert '"required"' in first["messages"][0]["content"]
    assert "response_format" in second
    assert alone.path is not StructuredPath.PROMPT


def test_openai_takes_a_response_format_beside_tools(make_client: Make, fake: FakeProvider, ask: Ask) -> None:
    reach(make_client, fake, "openai").complete(ask(model="openai:gpt-4o", schema=SCHEMA, tools=(LOOK,)))
    assert {"response_format", "tools"} <= set(fake.requests[0].body)


@pytest.mark.parametrize(
    "message",
    [
        "response_format is not supported by this server",
        "Unrecognized request argument supplied: response_format",
        "json_schema is only available for grammar-enabled builds",
    ],
)
def test_a_local_server_that_refuses_the_format_gets_the_schema_in_the_prompt(
    make_client: Make, fake: FakeProvider, ask: Ask, message: str
) -> None:
    client = reach(make_client, fake, "ollama")
    refuses = Answer(status=400, body={"error": {"message": message}})
    fake.rule(lambda request: "response_format" in request.body, refuses)
    path, paths = StructuredPath.STRICT, []
    while path is not StructuredPath.PROMPT:
        with pytest.raises(LlmError) as caught:
            client.complete(ask(model="ollama:default", schema=SCHEMA, highest_path=path))
        assert caught.value.kind is ErrorKind.SCHEMA_REJECTED
        step = next_step(caught.value, FailureCounts(), jitter=0.0)
        assert isinstance(step, StepDown)
        assert step.path is not None
        path = step.path
        paths.append(path)
    reply = client.complete(ask(model="ollama:default", schema=SCHEMA, highest_path=path))
    assert paths == [StructuredPath.LOOSE, StructuredPath.PROMPT]
    assert (reply.text, reply.path) == ('{"n": 1}', StructuredPath.PROMPT)


def test_mistral_gets_no_field_it_does_not_know(make_client: Make, fake: FakeProvider, ask: Ask) -> None:
    reach(make_client, fake, "mistral").complete(ask(model="mistral:default", max_output_tokens=50))
    assert set(fake.requests[0].body) == {"model", "messages", "stream", "max_tokens"}


def test_stable_tiers_stay_apart_only_where_several_system_messages_are_known(
    make_client: Make, fake: FakeProvider
) -> None:
    messages = (
        Message(role="system", content="rules", cache=True),
        Message(role="system", content="session", cache=True),
        Message(role="user", content="go"),
    )
    for name in COMPATIBLE:
        reach(make_client, fake, name).complete(LlmRequest(model=f"{name}:default", messages=messages))
    counts = {name: len(request.body["messages"]) for name, request in zip(COMPATIBLE, fake.requests, strict=True)}
    assert counts == {name: 3 if name in ("openai", "openrouter") else 2 for name in COMPATIBLE}
