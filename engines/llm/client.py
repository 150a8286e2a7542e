"""The one client engines use: picks the model, the structured rung and the wire, and tells the price of it all.

No retries here: a failed call is an :class:`LlmError`, and :mod:`engines.llm.policy` says what follows from its kind.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from typing import Any, cast

import httpx2

from engines.llm import ladder, runtime
from engines.llm.base import CancelToken, ChunkSink, ErrorKind, LlmClient, LlmError, LlmReply, LlmRequest
from engines.llm.calls import complete_error, make_call, make_reply, verdict
from engines.llm.catalogue import Candidate, Catalogue
from engines.llm.config import LlmConfig, Selection
from engines.llm.scripted import Script, ScriptedProvider
from engines.llm.wire import Call, Progress, Wire

log = logging.getLogger(__name__)

_WIRES = {"openai": ("engines.llm.openai", "OpenAIWire"), "anthropic": ("engines.llm.anthropic", "AnthropicWire")}


def build_client(config: LlmConfig, *, script: Script | None = None, catalogue: Catalogue | None = None) -> LlmClient:
    """A client for this configuration. Cheap: nothing is imported or connected before the first call needs it.

    script: answers from memory instead of ``config.scripted_path``.
    """
    if script is None and config.scripted_path is not None:
        script = Script.load(config.scripted_path)
    return RoutingClient(config, catalogue or Catalogue.load(config.catalogue_path), script)


def shutdown(timeout: float = 5.0) -> None:
    """Abort what runs, close every connection and end the call thread of this process. Later calls start anew."""
    runtime.shutdown(timeout)


class RoutingClient:
    """See :class:`engines.llm.base.LlmClient`."""

    def __init__(self, config: LlmConfig, catalogue: Catalogue, script: Script | None) -> None:
        self._config = config
        self._catalogue = catalogue
        self._scripted = ScriptedProvider(script) if script is not None else None
        self._selection = Selection(config, catalogue, scripted=script is not None)
        self._secrets = config.secrets()

    def candidate(self, request: LlmRequest) -> Candidate:
        """The provider and model that would answer: for concurrency limits, breakers and pre-flight reports."""
        return self._selection.choose(request)

    def plan(self, request: LlmRequest) -> ladder.Plan:
        """The structured rung this request would take, and why not a higher one."""
        return ladder.plan(request, self._selection.choose(request))

    def known(self, provider: str, model: str) -> Candidate:
        """A model by its own names. Raises ``not_configured`` when the catalogue has no such provider any more."""
        if provider not in self._catalogue.providers:
            raise LlmError(ErrorKind.NOT_CONFIGURED, self._catalogue.unknown_provider(provider))
        return self._catalogue.candidate(provider, model)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every key: what must never appear in an error text."""
        return self._secrets

    def wire(self, candidate: Candidate) -> Wire:
        """This process's connection to the provider. Raises ``not_configured`` when address or key are missing."""
        return runtime.current().wire(*self._pool(candidate))

    def preload(self) -> None:
        """Import the SDKs of the configured providers (a second or two), so that the first call need not.

        Safe before a fork: nothing is started or connected.
        """
        for name, provider in self._catalogue.providers.items():
            if provider.wire in _WIRES and self._selection.usable(name):
                importlib.import_module(_WIRES[provider.wire][0])

    def complete(
        self, request: LlmRequest, *, cancel: CancelToken | None = None, on_chunk: ChunkSink | None = None
    ) -> LlmReply:
        candidate = self._selection.choose(request)
        if self._scripted is not None and candidate.provider.wire == "scripted":
            return self._scripted.complete(request, candidate, cancel=cancel, on_chunk=on_chunk)
        started = time.monotonic()
        planned = ladder.plan(request, candidate)
        call = make_call(request, candidate, planned)
        progress = Progress(on_text=_guarded(on_chunk))
        error: LlmError | None = None
        try:
            self._carry_out(call, progress, request, cancel)
        except LlmError as failed:
            error = failed
        finally:
            progress.closed = True
        error = error or verdict(progress)
        latency = round((time.monotonic() - started) * 1_000)
        if error is not None:
            # Raised outside of any handler: the SDK's exception, whose request carries the key, is not chained to it.
            raise complete_error(error, call, progress, latency, planned)
        return make_reply(call, progress, latency, planned)

    def _carry_out(self, call: Call, progress: Progress, request: LlmRequest, cancel: CancelToken | None) -> None:
        if cancel is not None and cancel.is_set():
            raise _cancelled()
        total = self._config.total_timeout if request.timeout_seconds is None else request.timeout_seconds
        failed: LlmError | None = None
        wire: Wire | None = None
        try:
            wire = self.wire(call.candidate)
            runtime.current().run(_bounded(wire, call, progress, total), cancel)
        except runtime.Aborted:
            failed = _cancelled()
        except LlmError as error:
            failed = error
        except Exception as error:
            known = wire.failure(error, call) if wire is not None else None
            if known is None:
                raise
            failed = known
        if failed is not None:
            raise failed

    def _pool(self, candidate: Candidate) -> tuple[tuple[Any, ...], Any]:
        """The key and the builder of the connection pool for this provider and address."""
        config, name, provider = self._config, candidate.provider_name, candidate.provider
        base_url = config.base_urls.get(name) or provider.base_url
        if base_url is None:
            setting = provider.base_url_setting or f"a base URL for {name}"
            raise LlmError(ErrorKind.NOT_CONFIGURED, f"{name} has no address: set {setting}")
        key = config.key(name)
        if key is None and provider.key_needed:
            raise LlmError(ErrorKind.NOT_CONFIGURED, f"{name} has no key: set {provider.key_setting}")
        limits = (config.connect_timeout, max(config.inactivity_timeout, provider.inactivity_timeout or 0.0))

        def build() -> Wire:
            module, class_name = _WIRES[provider.wire]
            wire_class = getattr(importlib.import_module(module), class_name)
            connect, inactivity = limits
            return cast(
                Wire,
                wire_class(
                    base_url=base_url,
                    api_key=key,
                    timeout=httpx2.Timeout(inactivity, connect=connect, pool=connect),
                    secrets=self._secrets,
                    headers=dict(provider.headers),
                    # A proxy of the environment is for the outside world, not for a server on this machine.
                    trust_env=not provider.local,
                ),
            )

        return (provider.wire, name, base_url, key, limits), build


async def _bounded(wire: Wire, call: Call, progress: Progress, total: float) -> None:
    """The call within its total time. Every other limit (connect, silence between chunks) is the HTTP client's."""
    clock = asyncio.timeout(total)
    try:
        async with clock:
            await wire.run(call, progress)
    except TimeoutError:
        if not clock.expired():
            raise
        path = call.native.path if call.native is not None else None
        raise LlmError(ErrorKind.TIMEOUT, f"no complete answer within {total:g} s", path=path) from None


def _cancelled() -> LlmError:
    return LlmError(ErrorKind.CANCELLED, "the call was cancelled")


def _guarded(sink: ChunkSink | None) -> ChunkSink | None:
    """``sink``, wrapped: it is called on the shared loop thread, where an exception must not end anybody's call."""
    if sink is None:
        return None
    broken = False

    def show(piece: str) -> None:
        nonlocal broken
        if broken:
            return
        try:
            sink(piece)
        except Exception:
            broken = True
            log.exception("the chunk sink failed; no more chunks are shown for this call")

    return show


__all__ = ["RoutingClient", "build_client", "shutdown"]
