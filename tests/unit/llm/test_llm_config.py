"""Which model answers: aliases, fallbacks, explicit names, and the advice when nothing is configured."""

from __future__ import annotations

from typing import Any

import pytest

from engines.llm.base import ErrorKind, LlmError, LlmRequest, Message, ToolSpec
from engines.llm.catalogue import Catalogue
from engines.llm.config import LlmConfig, Selection

TOOL = ToolSpec(name="look", description="look", parameters={"type": "object"})


def choose(model: str, *, scripted: bool = False, tools: bool = False, **settings: Any) -> tuple[str, str]:
    request = LlmRequest(model=model, messages=(Message(role="user", content="x"),), tools=(TOOL,) if tools else ())
    candidate = Selection(LlmConfig(**settings), Catalogue.load(), scripted=scripted).choose(request)
    return candidate.provider_name, candidate.model


def test_alias_takes_the_first_configured_provider() -> None:
    assert choose("default:fast", api_keys={"anthropic": "k", "openai": "k"}) == ("anthropic", "claude-haiku-5-5")
    assert choose("default:fast", api_keys={"openai": "k"}) == ("openai", "gpt-6-luna")
    assert choose("default:deep", api_keys={"groq": "k"})[0] == "groq"


def test_blank_key_is_no_key() -> None:
    assert choose("default:fast", api_keys={"anthropic": "  ", "openai": "k"})[0] == "openai"


def test_keyless_provider_counts_once_it_is_named() -> None:
    assert choose("default:analyze", base_urls={"local": "http://127.0.0.1:9/v1"}) == ("local", "default")
    assert choose("default:analyze", base_urls={"compatible": "http://h/v1"}, models={"compatible": "qwen"}) == (
        "compatible",
        "qwen",
    )


def test_keyless_provider_named_outright_needs_no_configuration() -> None:
    assert choose("ollama:llama3:8b") == ("ollama", "llama3:8b")


def test_nothing_configured_says_what_to_set() -> None:
    with pytest.raises(LlmError) as caught:
        choose("default:fast")
    assert caught.value.kind is ErrorKind.NOT_CONFIGURED
    for words in (
        "VANCETOPE_OPENAI_API_KEY",
        "VANCETOPE_ANTHROPIC_API_KEY",
        "VANCETOPE_LLM_BASE_URL",
        "vancetope dev --local-model",
        "default:fast",
    ):
        assert words in caught.value.message


def test_explicit_provider_without_a_key_names_its_setting() -> None:
    with pytest.raises(LlmError, match="mistral: needs VANCETOPE_MISTRAL_API_KEY") as caught:
        choose("mistral:mistral-small")
    assert caught.value.kind is ErrorKind.NOT_CONFIGURED


def test_unknown_alias_names_the_nearest() -> None:
    with pytest.raises(LlmError, match="did you mean 'default:analyze'"):
        choose("default:analyse", api_keys={"openai": "k"})


def test_comma_list_is_tried_in_order() -> None:
    model = "anthropic:claude-opus-5, openai:gpt-4o"
    assert choose(model, api_keys={"openai": "k"}) == ("openai", "gpt-4o")
    assert choose(model, api_keys={"openai": "k", "anthropic": "k"}) == ("anthropic", "claude-opus-5")


def test_bare_name_finds_its_provider() -> None:
    assert choose("claude-sonnet-4-6", api_keys={"anthropic": "k"}) == ("anthropic", "claude-sonnet-4-6")


def test_bare_name_without_its_key_names_the_setting() -> None:
    with pytest.raises(LlmError, match="claude-sonnet-4-6: needs VANCETOPE_ANTHROPIC_API_KEY"):
        choose("claude-sonnet-4-6", api_keys={"openai": "k"})


def test_unknown_bare_name_goes_to_the_default_provider() -> None:
    assert choose("my-tune", api_keys={"openai": "k"}, default_provider="openai") == ("openai", "my-tune")


def test_own_defaults_and_aliases_win() -> None:
    keys = {"anthropic": "k", "openai": "k"}
    assert choose("default:fast", api_keys=keys, default_provider="openai", default_model="gpt-4o") == (
        "openai",
        "gpt-4o",
    )
    assert choose("default:fast", api_keys=keys, aliases={"default:fast": "openai:gpt-4.1"}) == ("openai", "gpt-4.1")


def test_own_default_that_cannot_be_reached_falls_back_to_the_catalogue() -> None:
    assert choose("default:fast", api_keys={"openai": "k"}, default_provider="mistral")[0] == "openai"


def test_aliases_that_refer_to_each_other_end_in_an_error() -> None:
    with pytest.raises(LlmError, match="refer to each other"):
        choose("default:a", aliases={"default:a": "default:b", "default:b": "default:a"})


def test_tools_skip_a_model_that_takes_none() -> None:
    model = "openai:gpt-6.1-sol, openai:gpt-6.1-terra"
    assert choose(model, api_keys={"openai": "k"}) == ("openai", "gpt-6.1-sol")
    assert choose(model, api_keys={"openai": "k"}, tools=True) == ("openai", "gpt-6.1-terra")
    with pytest.raises(LlmError, match="takes no tools"):
        choose("openai:gpt-6.1-sol", api_keys={"openai": "k"}, tools=True)


def test_a_script_answers_aliases_and_everything_unreachable() -> None:
    assert choose("default:fast", scripted=True, api_keys={"openai": "k"})[0] == "scripted"
    assert choose("mistral:x", scripted=True)[0] == "scripted"
    assert choose("openai:gpt-4o", scripted=True, api_keys={"openai": "k"})[0] == "openai"


def test_secrets_do_not_show() -> None:
    config = LlmConfig(api_keys={"openai": "sk-test-abc"})
    assert "sk-test-abc" not in repr(config) + str(config) + config.model_dump_json()
    assert config.secrets() == ("sk-test-abc",)


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="apikeys"):
        LlmConfig(apikeys={})  # type: ignore[call-arg]


@pytest.mark.parametrize("model", ["default:fast", "my-tune"])
def test_a_misspelt_default_provider_is_no_reason_to_take_another(model: str) -> None:
    with pytest.raises(LlmError, match=r"VANCETOPE_DEFAULT_PROVIDER: unknown provider 'opnai', did you mean 'openai'"):
        choose(model, api_keys={"openai": "k"}, default_provider="opnai")
