"""Every setting of a deployment, read once from the environment: ``VANCETOPE_<FIELD>``. Unknown ones are refused."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, IPvAnyNetwork, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from engines.llm.config import LlmConfig
from models.ages import Ages

PREFIX = "VANCETOPE_"
# Read by others (the tests, the drill's fault points, the embedded stack), so known without being a field.
_FOREIGN = ("VANCETOPE_TEST_", "VANCETOPE_FAULT", "VANCETOPE_POSTGRES_BINDIR", "VANCETOPE_REDIS_SERVER")

_SCHEMES = {"database": ("postgresql", "postgres"), "redis": ("redis", "rediss", "unix")}

Seconds = Annotated[float, Field(gt=0)]


class SettingsError(Exception):
    """The environment holds an unknown or malformed setting. The message names each one and what would be right."""


class Settings(BaseSettings):
    """The settings. Secrets never show in its ``repr``. Durations are seconds, money US dollars."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    database_url: SecretStr | None = None
    """PostgreSQL, ``postgresql://user:password@host:port/name``. Required by workers, beat and most commands."""
    redis_url: SecretStr | None = None
    """Broker, result backend, progress channel and provider limits: ``redis://:password@host:port/0``."""
    result_backend_url: SecretStr | None = None
    """Celery's result backend; default: ``redis_url``."""
    database_pool_size: Annotated[int, Field(ge=1, le=200)] = 8
    """Connections per worker process. A turn holds one only during its two statements, never during a call."""

    tenant: str = "default"
    project: str = "default"
    recipes_dir: Path | None = None
    """Recipes of this installation; they win over the bundled ones."""
    engines: str = ""
    """Further engines: comma separated ``module:attribute`` of objects that implement ``engines.base.Engine``."""

    lease_seconds: Annotated[float, Field(ge=1)] = 30.0
    """How long a turn belongs to a worker that shows no sign of life. Calls may be far longer: heartbeats extend it."""
    turn_burst: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many due turns of the same node one task may run; 1 is one turn per message."""
    turn_burst_seconds: Seconds = 10.0
    """A burst takes no further turn after this long."""
    sweep_seconds: Seconds = 1.0
    sweep_batch: Annotated[int, Field(ge=1, le=10000)] = 500
    retention_days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """Processes are deleted so long after they were closed, once their result was handed over. Unset: never. This and
    the next are for tenants without a policy of their own (`vancetope retention`)."""
    retention_artifacts_days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """The texts of nodes (artifacts, messages, recorded replies) go so long after it was closed. Unset: with it."""
    commit_patience_seconds: Seconds = 120.0
    """How long a worker keeps trying to commit a paid reply while PostgreSQL is away."""

    max_input_bytes: Annotated[int, Field(ge=1024)] = 1_000_000
    """Largest submission (prompt, schema and parameters together, as JSON)."""
    max_result_message_bytes: Annotated[int, Field(ge=1024)] = 65_536
    """Larger result wrappers are not put into Celery's result backend whole; the client fetches them in pieces."""
    result_expires_seconds: Annotated[int, Field(ge=60)] = 86_400
    max_calls: Annotated[int, Field(ge=1, le=2_000_000_000)] | None = None
    """Default budget of a process that brings none: provider calls, its sub-processes included."""
    max_tokens: Annotated[int, Field(ge=1, le=10**15)] | None = None
    max_cost_usd: Annotated[float, Field(gt=0, le=1e7)] | None = None
    deadline_seconds: Annotated[float, Field(gt=0, le=315_360_000)] | None = None

    provider_concurrency: Annotated[int, Field(ge=0)] = 0
    """Calls at the same time per provider over all workers; 0 means no limit."""
    breaker_failures: Annotated[int, Field(ge=0)] = 8
    """Consecutive overload, time-out or transport failures after which a provider is left alone; 0 switches it off."""
    breaker_seconds: Seconds = 15.0
    """How long it is left alone before one probe is let through."""

    batch_deadline_seconds: Annotated[float, Field(gt=0, le=31_536_000)] = 86_400.0
    """How long a job in the batch lane waits for batches altogether, if it does not say; then it calls at once."""
    batch_wait_seconds: Seconds = 60.0
    """A model's waiting requests are sent as a batch when the oldest has waited so long, or ``batch_size`` wait."""
    batch_size: Annotated[int, Field(ge=1, le=50_000)] = 1_000
    """Most requests in one batch."""
    batch_poll_seconds: Seconds = 30.0
    """How often waiting requests are looked at, and providers asked for each batch."""

    openai_api_key: SecretStr | None = None
    anthropic_api_key: SecretStr | None = None
    openrouter_api_key: SecretStr | None = None
    groq_api_key: SecretStr | None = None
    cerebras_api_key: SecretStr | None = None
    deepseek_api_key: SecretStr | None = None
    gemini_api_key: SecretStr | None = None
    mistral_api_key: SecretStr | None = None
    openai_base_url: str | None = None
    anthropic_base_url: str | None = None
    ollama_base_url: str | None = None
    vllm_base_url: str | None = None
    llm_base_url: str | None = None
    """Any OpenAI-compatible server; ``llm_api_key`` and ``llm_model`` go with it."""
    llm_api_key: SecretStr | None = None
    llm_model: str | None = None
    local_model_url: str | None = None
    """The built-in local model's server, set by ``vancetope dev``."""
    local_model_path: Path | None = None
    """Any GGUF file for the local model instead of the packaged one."""
    default_provider: str | None = None
    default_model: str | None = None
    scripted_file: Path | None = None
    """Answers come from this file instead of a model: tests and offline demonstrations."""
    catalogue_file: Path | None = None
    """Merged over the bundled model catalogue: prices, limits, capabilities, aliases."""
    search_url: str | None = None
    """JSON search service for the tool ``web_search``, with ``{query}`` where the words go. Unset: no such tool."""
    search_api_key: SecretStr | None = None
    search_key_header: str = "Authorization"
    """The header that carries ``search_api_key`` as it is."""
    connect_timeout_seconds: Seconds = 10.0
    inactivity_timeout_seconds: Seconds = 60.0
    call_timeout_seconds: Seconds = 600.0

    api_requests_per_minute: Annotated[int, Field(ge=0)] = 600
    """Requests per token of the HTTP API, in bursts of as many; 0 means no limit."""
    webhook_networks: Annotated[tuple[IPvAnyNetwork, ...], NoDecode] = ()
    """Webhooks may go to these networks although they are not public, also by http and at any port: comma separated,
    ``10.20.0.0/16,127.0.0.1/32``. Everywhere else only https to public addresses."""
    flower_url: str | None = None
    """Where people reach Flower; the console's page of workers links to it."""
    console_url: str | None = None
    """Where people reach the console, ``https://host/console``; Flower's pages link to it."""

    metrics_open: bool = False
    """``/metrics`` answers callers of private networks without a token, unless a proxy has passed them on."""
    otel_endpoint: str | None = None
    """Where traces go by OTLP over HTTP: ``http://collector:4318``. Unset: nowhere, OpenTelemetry is not loaded."""
    otel_capture_content: bool = False
    """Prompts, replies, tool arguments and results become part of the traces."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "text"] = "json"

    @field_validator("database_url", "redis_url", "result_backend_url")
    @classmethod
    def _is_an_address(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is None:
            return None
        schemes = _SCHEMES["database" if info.field_name == "database_url" else "redis"]
        scheme, separator, rest = value.get_secret_value().partition("://")
        if not separator or not rest or scheme not in schemes:
            raise ValueError(f"must be an address that begins with {' or '.join(f'{each}://' for each in schemes)}")
        return value

    @field_validator("recipes_dir")
    @classmethod
    def _is_a_folder(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_dir():
            raise ValueError(f"there is no folder {value}")
        return value

    @field_validator("retention_artifacts_days")
    @classmethod
    def _no_longer_than_the_process(cls, value: float | None, info: ValidationInfo) -> float | None:
        keep = info.data.get("retention_days")
        if value is not None and keep is not None and value > keep:
            raise ValueError(f"must be at most VANCETOPE_RETENTION_DAYS, {keep:g}: texts cannot outlive their process")
        return value

    @field_validator("search_url")
    @classmethod
    def _with_query(cls, value: str | None) -> str | None:
        if value is not None and ("{query}" not in value or not value.startswith(("http://", "https://"))):
            raise ValueError("must be an http or https address with {query} where the words go")
        return value

    @field_validator("otel_endpoint")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must be an http or https address, like http://collector:4318 (OTLP over HTTP, not gRPC)")
        return value

    @field_validator("flower_url", "console_url")
    @classmethod
    def _is_a_page(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must be an http or https address")
        return value

    @field_validator("webhook_networks", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @property
    def database(self) -> str:
        return _required(self.database_url, "database_url", "postgresql://user:password@host:5432/vancetope")

    @property
    def redis(self) -> str:
        return _required(self.redis_url, "redis_url", "redis://:password@host:6379/0")

    @property
    def result_backend(self) -> str:
        return self.result_backend_url.get_secret_value() if self.result_backend_url else self.redis

    def llm(self) -> LlmConfig:
        """The part of the settings the LLM layer needs."""
        keys = {
            "openai": self.openai_api_key,
            "anthropic": self.anthropic_api_key,
            "openrouter": self.openrouter_api_key,
            "groq": self.groq_api_key,
            "cerebras": self.cerebras_api_key,
            "deepseek": self.deepseek_api_key,
            "gemini": self.gemini_api_key,
            "mistral": self.mistral_api_key,
            "compatible": self.llm_api_key,
        }
        urls = {
            "openai": self.openai_base_url,
            "anthropic": self.anthropic_base_url,
            "ollama": self.ollama_base_url,
            "vllm": self.vllm_base_url,
            "compatible": self.llm_base_url,
            "local": self.local_model_url,
        }
        return LlmConfig(
            api_keys={name: key for name, key in keys.items() if key is not None},
            base_urls={name: url for name, url in urls.items() if url},
            models={"compatible": self.llm_model} if self.llm_model else {},
            default_provider=self.default_provider,
            default_model=self.default_model,
            connect_timeout=self.connect_timeout_seconds,
            inactivity_timeout=self.inactivity_timeout_seconds,
            total_timeout=self.call_timeout_seconds,
            scripted_path=self.scripted_file,
            catalogue_path=self.catalogue_file,
        )

    def retention(self) -> Ages:
        """How long processes of tenants without a policy of their own are kept."""
        return Ages(keep=self.retention_days, artifacts=self.retention_artifacts_days)

    def secrets(self) -> tuple[str, ...]:
        """Every secret value, for the redacting log filter."""
        values = (getattr(self, name) for name in type(self).model_fields)
        found = {value.get_secret_value() for value in values if isinstance(value, SecretStr)}
        return tuple(sorted((value for value in found if value), key=len, reverse=True))


def _required(value: SecretStr | None, field: str, example: str) -> str:
    if value is None:
        raise SettingsError(
            f"{PREFIX}{field.upper()} is not set (example: {example}); `vancetope dev` runs everything for you"
        )
    return value.get_secret_value()


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the environment. Raises :class:`SettingsError` naming every unknown or malformed variable."""
    names = os.environ if environment is None else environment
    known = {f"{PREFIX}{field.upper()}" for field in Settings.model_fields}
    problems = []
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in known and not name.startswith(_FOREIGN):
            near = difflib.get_close_matches(name, known, n=1)
            problems.append(f"{name} is no setting" + (f"; did you mean {near[0]}?" if near else ""))
    try:
        if environment is None:
            settings = Settings()
        else:
            settings = Settings.model_validate(
                {name[len(PREFIX) :].lower(): value for name, value in environment.items() if name in known and value}
            )
    except ValidationError as error:
        for item in error.errors(include_input=False, include_url=False):
            # Of a list the setting, not the place in it.
            name = "_".join(part for part in item["loc"] if isinstance(part, str))
            problems.append(f"{PREFIX}{name.upper()}: {item['msg']}")
        raise SettingsError("; ".join(problems)) from None
    if problems:
        raise SettingsError("; ".join(problems))
    return settings


@lru_cache(maxsize=1)
def current() -> Settings:
    """The settings of this operating-system process, read on first use."""
    return load_settings()
