"""What is known of providers and models, from ``catalogue.yaml`` and an optional override file.

Code asks a :class:`ModelSpec` what a model can do; no code anywhere looks at a model's name.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engines.errors import EngineError
from engines.llm.base import Usage

Wire = Literal["openai", "anthropic", "scripted"]
ALIAS_PREFIX = "default:"


class CatalogueError(EngineError):
    """The catalogue or its override cannot be used: the message names file and key, and the nearest valid one."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LongPrices(_Strict):
    """The rates of a whole request once its prompt is longer than ``above`` tokens, cached ones included."""

    above: int
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class Prices(_Strict):
    """USD per million tokens. A missing cache rate means such tokens cost what plain input costs."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    long: LongPrices | None = None

    def cost(self, usage: Usage) -> float:
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        rates: Prices | LongPrices = self.long if self.long is not None and prompt > self.long.above else self
        read = rates.input if rates.cache_read is None else rates.cache_read
        write = rates.input if rates.cache_write is None else rates.cache_write
        total = (
            usage.input_tokens * rates.input
            + usage.output_tokens * rates.output
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * write
        )
        return total / 1_000_000


class ModelSpec(_Strict):
    """What one model can do. Every field has a cautious default, so a model that nobody described still works."""

    names: tuple[str, ...] = ()
    """Further names (dated snapshots) of the same model."""
    context_window: int = 32_768
    max_output: int = 8_192
    default_output: int = 4_096
    prices: Prices | None = None
    structured_output: Literal["strict", "loose", "none"] = "none"
    loose_style: Literal["json_schema", "tool"] = "json_schema"
    """How the loose rung is sent: a non-strict response format, or a tool that the model is made to call."""
    forced_tool_choice: Literal["always", "without_thinking", "never"] = "never"
    tools: Literal["always", "without_thinking", "never"] = "always"
    format_beside_tools: bool = False
    """Whether a response format may stand in the same request as tools; many servers refuse the pair, or ignore one."""
    thinking: Literal["none", "budget", "adaptive", "effort"] = "none"
    thinking_default_on: bool = False
    thinking_off: str | None = None
    """The value that switches thinking off; ``None`` when nothing has to be sent or nothing can be."""
    accepts_sampling: bool = False
    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    several_system_messages: bool = False
    """Whether stable system messages may stay apart; many chat templates know only one."""
    cache_breakpoints: int = Field(default=0, ge=0, le=4)
    cache_minimum_tokens: int = 1_024


class ProviderSpec(_Strict):
    """How a provider is reached. ``defaults`` describes every model of it that is not listed."""

    wire: Wire
    base_url: str | None = None
    key_setting: str | None = None
    base_url_setting: str | None = None
    key_needed: bool = True
    local: bool = False
    dialect: Literal["openai", "anthropic"] = "openai"
    """Whose rules a schema is shaped for on the native rungs."""
    default_model: str | None = None
    stream_usage: bool = True
    """Whether the server understands ``stream_options`` (some refuse unknown fields)."""
    inactivity_timeout: float | None = None
    """Seconds of silence this provider needs at least: a model on this machine may read a long prompt for minutes."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    batch: bool = False
    """Whether the provider takes batches, as the API of this wire has them."""
    batch_price_factor: float = Field(default=0.5, ge=0, le=1)
    """What a call in a batch costs of the price of a call at once."""
    defaults: Mapping[str, Any] = Field(default_factory=dict)


class _File(_Strict):
    providers: Mapping[str, ProviderSpec]
    models: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    aliases: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One concrete model of one provider."""

    provider_name: str
    provider: ProviderSpec
    model: str
    spec: ModelSpec


class Catalogue:
    """The merged, validated catalogue. Immutable; share it freely."""

    def __init__(self, data: _File, origin: str) -> None:
        self.providers = data.providers
        self.aliases = data.aliases
        self._specs: dict[tuple[str, str], ModelSpec] = {}
        self._defaults: dict[str, ModelSpec] = {}
        for name, provider in data.providers.items():
            self._defaults[name] = _model(dict(provider.defaults), f"{origin}: providers.{name}.defaults")
        for provider_name, models in data.models.items():
            if provider_name not in data.providers:
                problem = _unknown("provider", provider_name, data.providers)
                raise CatalogueError(f"{origin}: models.{provider_name}: {problem}")
            defaults = dict(data.providers[provider_name].defaults)
            for model_name, fields in models.items():
                where = f"{origin}: models.{provider_name}.{model_name}"
                spec = _model({**defaults, **(fields or {})}, where)
                for alias in (model_name, *spec.names):
                    self._specs[(provider_name, alias)] = spec
        self._bare: dict[str, list[str]] = {}
        for provider_name, model_name in self._specs:
            self._bare.setdefault(model_name, []).append(provider_name)

    @classmethod
    def load(cls, override: Path | None = None) -> Catalogue:
        """The bundled catalogue, with ``override`` (YAML of the same shape) merged over it field by field."""
        if override is None:
            return _bundled()
        try:
            loaded = yaml.safe_load(override.read_text(encoding="utf-8")) or {}
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise CatalogueError(f"{override}: cannot be read: {error}") from None
        if not isinstance(loaded, dict):
            raise CatalogueError(f"{override}: must be a mapping with providers, models and aliases")
        return cls.from_data(_merge(_bundled_data(), loaded), origin=str(override))

    @classmethod
    def from_data(cls, data: Mapping[str, Any], *, origin: str = "catalogue") -> Catalogue:
        try:
            return cls(_File.model_validate(data), origin)
        except ValidationError as error:
            raise CatalogueError(_explain(error, origin, _File)) from None

    def models(self) -> list[tuple[str, str]]:
        """Every described ``(provider, model)`` pair, snapshots included."""
        return sorted(self._specs)

    def spec(self, provider: str, model: str) -> ModelSpec:
        """What is known of this model; an unknown one gets its provider's defaults."""
        return self._specs.get((provider, model)) or self._defaults[provider]

    def candidate(self, provider: str, model: str) -> Candidate:
        return Candidate(provider, self.providers[provider], model, self.spec(provider, model))

    def providers_of(self, model: str) -> list[str]:
        """The providers that list a model of this bare name."""
        return self._bare.get(model, [])

    def split(self, name: str) -> tuple[str, str] | None:
        """``provider:model`` as a pair; ``None`` when the part before the colon is no provider (``llama3:8b``)."""
        provider, colon, model = name.partition(":")
        return (provider, model) if colon and model and provider in self.providers else None

    def unknown_provider(self, name: str) -> str:
        return _unknown("provider", name, self.providers)

    def unknown_alias(self, name: str) -> str:
        return _unknown("alias", name, self.aliases)


def _model(fields: dict[str, Any], where: str) -> ModelSpec:
    try:
        return ModelSpec.model_validate(fields)
    except ValidationError as error:
        raise CatalogueError(_explain(error, where, ModelSpec)) from None


def _explain(error: ValidationError, where: str, root: type[BaseModel]) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        path = ".".join(str(part) for part in problem["loc"])
        text = problem["msg"]
        if problem["type"] == "extra_forbidden":
            text = _unknown("key", str(problem["loc"][-1]), _fields_at(root, problem["loc"][:-1]))
        lines.append(f"{where}: {path}: {text}")
    return "; ".join(lines)


def _fields_at(root: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys allowed at ``path``: enough of a walk for the shapes of this file."""
    names: dict[str, type[BaseModel]] = {"prices": Prices, "long": LongPrices, "providers": ProviderSpec}
    model = root
    for part in path:
        model = names.get(str(part), model)
    return list(model.model_fields)


def _unknown(what: str, name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, [str(item) for item in known], n=1, cutoff=0.5)
    hint = f", did you mean {near[0]!r}?" if near else f" (known: {', '.join(sorted(str(item) for item in known))})"
    return f"unknown {what} {name!r}{hint}"


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


@functools.cache
def _bundled_data() -> dict[str, Any]:
    text = resources.files("engines.llm").joinpath("catalogue.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.safe_load(text)
    return data


@functools.cache
def _bundled() -> Catalogue:
    return Catalogue.from_data(_bundled_data(), origin="catalogue.yaml")
