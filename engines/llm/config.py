"""What a deployment says about its LLM providers, and the choice of model that follows from it.

No environment is read here: the settings module builds an :class:`LlmConfig` and hands it over.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from engines.llm.base import ErrorKind, LlmError, LlmRequest
from engines.llm.catalogue import ALIAS_PREFIX, Candidate, Catalogue

COMPATIBLE = "compatible"
SCRIPTED = "scripted"
_MAX_ALIAS_DEPTH = 4
_MAX_CACHED = 1_000


class LlmConfig(BaseModel):
    """Keys, addresses, models and limits. Immutable; secrets never show in its ``repr``.

    api_keys: provider name -> key. An empty key counts as not given.
    base_urls: provider name -> address, instead of the catalogue's. Naming a keyless provider here (``local``,
        ``ollama``, ``compatible``) is what makes the aliases use it.
    models: provider name -> model meant by ``provider:default``.
    aliases: alias -> what it stands for (a comma list), instead of the catalogue's candidates.
    default_provider / default_model: every ``default:*`` alias without an entry in ``aliases`` goes here first.
    connect_timeout, inactivity_timeout, total_timeout: seconds until connected, without a sign of life, and altogether.
    scripted_path: answers come from this file, and every ``default:*`` alias means it.
    catalogue_path: a file merged over the bundled catalogue.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    api_keys: Mapping[str, SecretStr] = Field(default_factory=dict)
    base_urls: Mapping[str, str] = Field(default_factory=dict)
    models: Mapping[str, str] = Field(default_factory=dict)
    aliases: Mapping[str, str] = Field(default_factory=dict)
    default_provider: str | None = None
    default_model: str | None = None
    connect_timeout: float = Field(default=10.0, gt=0)
    inactivity_timeout: float = Field(default=60.0, gt=0)
    total_timeout: float = Field(default=600.0, gt=0)
    scripted_path: Path | None = None
    catalogue_path: Path | None = None

    @field_validator("base_urls")
    @classmethod
    def _no_blank_urls(cls, urls: Mapping[str, str]) -> Mapping[str, str]:
        return {name: url.strip().rstrip("/") for name, url in urls.items() if url.strip()}

    def key(self, provider: str) -> str | None:
        secret = self.api_keys.get(provider)
        value = secret.get_secret_value().strip() if secret is not None else ""
        return value or None

    def secrets(self) -> tuple[str, ...]:
        """Every key, longest first: what must never appear in an error text."""
        values = {secret.get_secret_value().strip() for secret in self.api_keys.values()}
        return tuple(sorted((value for value in values if value), key=len, reverse=True))


class Selection:
    """Turns the ``model`` of a request into concrete candidates, best first. Pure and cached; safe to share."""

    def __init__(self, config: LlmConfig, catalogue: Catalogue, *, scripted: bool) -> None:
        self._config = config
        self._catalogue = catalogue
        self._scripted = scripted
        self._cache: dict[str, tuple[Candidate, ...]] = {}

    def choose(self, request: LlmRequest) -> Candidate:
        """The model that answers ``request``. Raises ``not_configured``, saying what to set, when nothing can."""
        candidates = self._cache.get(request.model)
        if candidates is None:
            if len(self._cache) >= _MAX_CACHED:  # names come from callers: no growth without end
                self._cache.clear()
            candidates = self._cache[request.model] = self._resolve(request.model)
        if not request.tools:
            return candidates[0]
        for candidate in candidates:
            if candidate.spec.tools != "never":
                return candidate
        raise LlmError(
            ErrorKind.NOT_CONFIGURED,
            f"{candidates[0].provider_name}:{candidates[0].model} takes no tools over this API; choose another model",
            provider=candidates[0].provider_name,
            model=candidates[0].model,
        )

    def usable(self, provider: str) -> bool:
        """Whether calls to this provider can be tried at all: it has its key, or needs none and was named."""
        spec = self._catalogue.providers.get(provider)
        if spec is None:
            return False
        if spec.wire == "scripted":
            return self._scripted
        if spec.key_needed:
            return self._config.key(provider) is not None
        return provider in self._config.base_urls or provider == self._config.default_provider

    def _resolve(self, name: str) -> tuple[Candidate, ...]:
        found: list[Candidate] = []
        notes: list[str] = []
        for part in (piece.strip() for piece in name.split(",")):
            if part:
                found.extend(self._expand(part, notes, 0))
        if found:
            return tuple({(candidate.provider_name, candidate.model): candidate for candidate in found}.values())
        if self._scripted:
            # A script stands in for everything that cannot be reached: demos and tests run recipes as they are.
            return (self._catalogue.candidate(SCRIPTED, name),)
        raise LlmError(ErrorKind.NOT_CONFIGURED, self._advice(name, notes))

    def _expand(self, name: str, notes: list[str], depth: int) -> list[Candidate]:
        if depth > _MAX_ALIAS_DEPTH:
            notes.append(f"{name}: aliases refer to each other")
            return []
        if name.startswith(ALIAS_PREFIX):
            return self._expand_alias(name, notes, depth)
        pair = self._catalogue.split(name)
        if pair is not None:
            return self._concrete(*pair, notes, explicit=depth == 0)
        owners = self._catalogue.providers_of(name)
        usable = [owner for owner in owners if self.usable(owner)]
        if usable:
            return [self._catalogue.candidate(owner, name) for owner in usable]
        if self._config.default_provider:
            return self._concrete(self._known(self._config.default_provider), name, notes, explicit=False)
        if not owners and self.usable(COMPATIBLE):
            return [self._catalogue.candidate(COMPATIBLE, name)]
        missing = f"needs {self._need(owners[0])}" if owners else "no such model here; write provider:model"
        notes.append(f"{name}: {missing}")
        return []

    def _expand_alias(self, name: str, notes: list[str], depth: int) -> list[Candidate]:
        own = self._config.aliases.get(name)
        if own is not None:
            parts: list[str] = [piece.strip() for piece in own.split(",") if piece.strip()]
        elif self._scripted:
            return [self._catalogue.candidate(SCRIPTED, name)]
        elif self._config.default_provider or self._config.default_model:
            parts = [self._own_default(), *self._catalogue.aliases.get(name, ())]
        elif name in self._catalogue.aliases:
            parts = list(self._catalogue.aliases[name])
        else:
            notes.append(self._catalogue.unknown_alias(name))
            return []
        return [candidate for part in parts for candidate in self._expand(part, notes, depth + 1)]

    def _own_default(self) -> str:
        provider, model = self._config.default_provider, self._config.default_model
        if provider:
            self._known(provider)
        if provider and model:
            return f"{provider}:{model}"
        return f"{provider}:default" if provider else str(model)

    def _known(self, provider: str) -> str:
        """``provider`` when there is one of this name. A misspelt default must not quietly mean another one."""
        if provider not in self._catalogue.providers:
            advice = f"VANCETOPE_DEFAULT_PROVIDER: {self._catalogue.unknown_provider(provider)}"
            raise LlmError(ErrorKind.NOT_CONFIGURED, advice)
        return provider

    def _concrete(self, provider: str, model: str, notes: list[str], *, explicit: bool) -> list[Candidate]:
        spec = self._catalogue.providers[provider]
        reachable = self.usable(provider) or (explicit and not spec.key_needed and spec.base_url is not None)
        if not reachable:
            notes.append(f"{provider}: needs {self._need(provider)}")
            return []
        if model == "default":
            model = self._config.models.get(provider) or spec.default_model or "default"
        return [self._catalogue.candidate(provider, model)]

    def _need(self, provider: str) -> str:
        spec = self._catalogue.providers[provider]
        if spec.key_needed:
            return spec.key_setting or f"an API key for {provider}"
        return spec.base_url_setting or f"a base URL for {provider}"

    def _advice(self, name: str, notes: list[str]) -> str:
        detail = "; ".join(dict.fromkeys(notes))
        return (
            f"no configured model for {name!r} ({detail}). "
            "Set VANCETOPE_OPENAI_API_KEY or VANCETOPE_ANTHROPIC_API_KEY, or VANCETOPE_LLM_BASE_URL for any "
            "OpenAI-compatible server, or run the local model: "
            "make install, then vancetope dev --local-model"
        )
