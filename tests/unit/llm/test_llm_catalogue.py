"""The catalogue: complete, overridable per field, and strict about what it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
from anthropic.types.model import Model as AnthropicModel

from engines.llm.base import Usage
from engines.llm.catalogue import Catalogue, CatalogueError


def test_bundled_catalogue_describes_every_anthropic_model_of_the_sdk() -> None:
    catalogue = Catalogue.load()
    literal = AnthropicModel.__args__[0].__args__  # type: ignore[attr-defined]
    known = {model for provider, model in catalogue.models() if provider == "anthropic"}
    # The preview model reached its end of life before this release.
    assert set(literal) - known == {"claude-mythos-preview"}


def test_every_alias_candidate_exists() -> None:
    catalogue = Catalogue.load()
    for candidates in catalogue.aliases.values():
        for candidate in candidates:
            if candidate.startswith("default:"):
                assert candidate in catalogue.aliases
                continue
            pair = catalogue.split(candidate)
            assert pair is not None, candidate
            provider, model = pair
            if provider in ("openai", "anthropic"):
                assert (provider, model) in catalogue.models()


def test_price_counts_cache_reads_and_writes_at_their_own_rates() -> None:
    prices = Catalogue.load().spec("anthropic", "claude-sonnet-4-6").prices
    assert prices is not None
    usage = Usage(
        input_tokens=1_000_000, output_tokens=1_000_000, cache_read_tokens=1_000_000, cache_write_tokens=1_000_000
    )
    assert prices.cost(usage) == pytest.approx(3 + 15 + 0.30 + 3.75)


def test_long_prompts_pay_the_long_rate_on_every_token() -> None:
    prices = Catalogue.load().spec("anthropic", "claude-haiku-5-5").prices
    assert prices is not None
    at_limit = Usage(input_tokens=60_000, cache_read_tokens=40_000, output_tokens=1_000)
    above = Usage(input_tokens=60_001, cache_read_tokens=40_000, output_tokens=1_000)
    assert prices.cost(at_limit) == pytest.approx((60_000 * 0.10 + 40_000 * 0.01 + 1_000 * 0.50) / 1e6)
    assert prices.cost(above) == pytest.approx((60_001 * 0.50 + 40_000 * 0.05 + 1_000 * 2.50) / 1e6)


def test_unknown_model_gets_the_providers_defaults_and_no_price() -> None:
    spec = Catalogue.load().spec("openai", "gpt-99")
    assert spec.max_tokens_parameter == "max_completion_tokens"
    assert spec.prices is None


def test_snapshot_is_the_same_model() -> None:
    catalogue = Catalogue.load()
    assert catalogue.spec("openai", "gpt-4o-2024-08-06") is catalogue.spec("openai", "gpt-4o")


def test_override_changes_one_field_and_keeps_the_others(tmp_path: Path) -> None:
    override = tmp_path / "mine.yaml"
    override.write_text(
        "models:\n"
        "  openai:\n"
        "    gpt-4o: {max_output: 1234, prices: {input: 1}}\n"
        "    my-tune: {context_window: 9000}\n"
        "aliases:\n"
        "  default:fast: ['openai:my-tune']\n"
    )
    bundled, merged = Catalogue.load(), Catalogue.load(override)
    before, after = bundled.spec("openai", "gpt-4o"), merged.spec("openai", "gpt-4o")
    assert (after.max_output, after.context_window) == (1234, before.context_window)
    assert after.prices is not None
    assert before.prices is not None
    assert (after.prices.input, after.prices.output) == (1, before.prices.output)
    assert merged.spec("openai", "my-tune").max_tokens_parameter == "max_completion_tokens"
    assert merged.aliases["default:fast"] == ("openai:my-tune",)
    assert "default:analyze" in merged.aliases


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models: {openai: {gpt-4o: {max_ouput: 1}}}", "max_output"),
        ("providers: {openai: {base_ur: x}}", "base_url"),
        ("models: {opnai: {gpt-4o: {}}}", "openai"),
        ("models: {openai: {gpt-4o: {prices: {inpt: 1}}}}", "input"),
        ("modells: {}", "models"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest_name(tmp_path: Path, text: str, expected: str) -> None:
    override = tmp_path / "mine.yaml"
    override.write_text(text)
    with pytest.raises(CatalogueError, match=rf"did you mean '{expected}'"):
        Catalogue.load(override)


def test_wrong_value_is_refused_with_its_place(tmp_path: Path) -> None:
    override = tmp_path / "mine.yaml"
    override.write_text("models: {openai: {gpt-4o: {cache_breakpoints: 5}}}")
    with pytest.raises(CatalogueError, match=r"models\.openai\.gpt-4o.*cache_breakpoints"):
        Catalogue.load(override)
