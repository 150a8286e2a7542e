"""Putting the parts together for one operating-system process: settings, database, client, engines, runner, sweeper."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterable
from functools import cached_property
from threading import RLock
from types import MappingProxyType
from typing import Any, TypeVar

import redis
from celery import Celery

import engines
import models
from engines.base import Engine
from engines.ford.engine import Ford
from engines.jeltz.engine import Jeltz
from engines.llm.base import ToolSpec
from engines.llm.batch import BatchClient
from engines.llm.client import RoutingClient, build_client
from engines.llm.client import shutdown as llm_shutdown
from engines.marvin.engine import Marvin
from engines.tools.guard import Guard
from engines.tools.registry import Registry, ToolsError
from engines.valem.engine import Valem
from models.store.database import Database
from tasks.batches import Collector
from tasks.cookbook import Sources, recipe_sources
from tasks.delivery import Deliverer
from tasks.gate import SLOT_SECONDS, Gate
from tasks.heartbeat import Heartbeat
from tasks.lane import BatchLane
from tasks.lessons import Lessons
from tasks.observe import Observer, TurnCounts
from tasks.pauses import SharedPauses
from tasks.plans import PlanFeed
from tasks.progress import Background
from tasks.publish import Publisher
from tasks.runner import TurnRunner
from tasks.settings import Settings, SettingsError
from tasks.sweeper import Sweeper
from tasks.toolbox import build_toolbox, load_tools
from tasks.traces import Traces, build_traces
from tasks.webhooks.sender import Sender, webhook_fetcher, webhook_guard

log = logging.getLogger(__name__)
T = TypeVar("T")


def guard_packages() -> None:
    """Refuse to run when ``engines`` or ``models`` are somebody else's packages (plain names are easily shadowed)."""
    for package, marker in ((engines, "engines.jeltz.engine"), (models, "models.store.commit")):
        try:
            importlib.import_module(marker)
        except ImportError as error:
            raise SettingsError(
                f"the package {package.__name__!r} found at {package.__file__} is not vancetope's: {error};"
                " run from the checkout or its image, and look for a folder of that name earlier on the path"
            ) from error


def load_engines(extra: str, tools: Iterable[ToolSpec] = ()) -> MappingProxyType[str, Engine]:
    """The built-in engines and those named in ``VANCETOPE_ENGINES`` (``module:attribute``, comma separated).

    tools: what ``ford`` and ``valem`` offer; a process that runs no turns needs none.
    """
    offered = tuple(tools)
    built_in: tuple[Engine, ...] = (Jeltz(), Marvin(), Ford(offered), Valem(offered))
    found = {engine.name: engine for engine in built_in}
    for entry in filter(None, (part.strip() for part in extra.split(","))):
        module, _, attribute = entry.partition(":")
        try:
            loaded: Engine = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise SettingsError(f"VANCETOPE_ENGINES: {entry!r} cannot be loaded: {error}") from None
        if loaded.name in found:
            raise SettingsError(f"VANCETOPE_ENGINES: {entry!r}: there is an engine {loaded.name!r} already")
        found[loaded.name] = loaded
    return MappingProxyType(found)


_BUILDING = RLock()


class _once(cached_property[T]):
    """A ``cached_property`` that is built once even when several pool threads come first (Python 3.12 has no lock)."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None or self.attrname in instance.__dict__:
            return super().__get__(instance, owner)
        with _BUILDING:
            return super().__get__(instance, owner)


class Runtime:
    """Everything a process needs, built on first use. :meth:`close` ends its threads and connections."""

    def __init__(self, settings: Settings, app: Celery) -> None:
        guard_packages()
        self.settings = settings
        self.app = app
        try:
            self.tools: Registry = load_tools(settings, SharedPauses(lambda: self.redis))
        except ToolsError as error:
            raise SettingsError(error.message) from None
        self.engines = load_engines(settings.engines, self.tools.specs())

    @_once
    def database(self) -> Database:
        return Database(self.settings.database, pool_size=self.settings.database_pool_size)

    @_once
    def sources(self) -> Sources:
        return recipe_sources(self.settings, self.database)

    @_once
    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.settings.redis, socket_timeout=5, socket_connect_timeout=5)

    @_once
    def client(self) -> RoutingClient:
        client = build_client(self.settings.llm())
        if not isinstance(client, RoutingClient):
            raise TypeError(f"unexpected client {type(client).__name__}")
        return client

    @_once
    def publisher(self) -> Publisher:
        return Publisher(self.redis)

    @_once
    def gate(self) -> Gate:
        return Gate(
            self.redis,
            concurrency=self.settings.provider_concurrency,
            breaker_failures=self.settings.breaker_failures,
            breaker_seconds=self.settings.breaker_seconds,
            # Heartbeats keep the slots, three per lease: a slot must not run out before the next one.
            slot_seconds=max(SLOT_SECONDS, self.settings.lease_seconds),
        )

    @_once
    def heartbeat(self) -> Heartbeat:
        settings = self.settings
        return Heartbeat(
            self.database,
            lease_seconds=settings.lease_seconds,
            # A call, the wait for a database that is away, and room for everything else: what is longer hangs.
            longest_seconds=settings.call_timeout_seconds + settings.commit_patience_seconds + 120,
            on_beat=self.gate.extend,
        )

    @_once
    def deliverer(self) -> Deliverer:
        return Deliverer(self.app, self.database, max_bytes=self.settings.max_result_message_bytes)

    @_once
    def background(self) -> Background:
        return Background(self.redis, self.deliverer, PlanFeed(self.redis, self.database))

    @_once
    def traces(self) -> tuple[Traces, ...]:
        """Where the spans of turns go; nowhere unless it is asked for."""
        found = build_traces(self.settings, os.environ)
        return () if found is None else (found,)

    @_once
    def batches(self) -> BatchClient:
        return BatchClient(self.client)

    @_once
    def lessons(self) -> Lessons:
        return Lessons(self.redis)

    @_once
    def runner(self) -> TurnRunner:
        return TurnRunner(
            database=self.database,
            engines=self.engines,
            client=self.client,
            heartbeat=self.heartbeat,
            gate=self.gate,
            lessons=self.lessons,
            lane=BatchLane(self.database, self.batches, self.lessons),
            publisher=self.publisher,
            background=self.background,
            toolbox=build_toolbox(self.settings, self.tools, self.database),
            observer=Observer(TurnCounts(self.background.meter), *self.traces),
            lease_seconds=self.settings.lease_seconds,
            burst=self.settings.turn_burst,
            burst_seconds=self.settings.turn_burst_seconds,
            commit_patience_seconds=self.settings.commit_patience_seconds,
        )

    @_once
    def sweeper(self) -> Sweeper:
        return Sweeper(
            database=self.database,
            client=self.redis,
            engines=self.engines,
            publisher=self.publisher,
            deliverer=self.deliverer,
            meter=self.background.meter,
            batch=self.settings.sweep_batch,
            ages=self.settings.retention(),
        )

    @_once
    def webhook_guard(self) -> Guard:
        return webhook_guard(self.settings)

    @_once
    def webhooks(self) -> Sender:
        fetcher = webhook_fetcher(self.webhook_guard)
        return Sender(database=self.database, fetcher=fetcher, meter=self.background.meter)

    @_once
    def collector(self) -> Collector:
        return Collector(
            database=self.database,
            batches=self.batches,
            publisher=self.publisher,
            meter=self.background.meter,
            size=self.settings.batch_size,
            wait_seconds=self.settings.batch_wait_seconds,
            poll_seconds=self.settings.batch_poll_seconds,
        )

    def close(self) -> None:
        """Hand over what is ready and close what was opened."""
        if "webhooks" in self.__dict__:
            self.webhooks.close()
        if "background" in self.__dict__:
            self.background.flush(timeout=5)
        if "heartbeat" in self.__dict__:
            self.heartbeat.close()
        for each in self.__dict__.get("traces", ()):
            each.close()
        if "client" in self.__dict__:
            llm_shutdown()
        if "database" in self.__dict__:
            self.database.dispose()
        if "redis" in self.__dict__:
            self.redis.close()
