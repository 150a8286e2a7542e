"""A replay from beginning to end: a database of its own, the engines and tools of this installation, and no network."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from engines.llm.catalogue import Catalogue
from engines.tools.registry import Registry, bundled_tools, installed_tools, internal_tools
from engines.valem.jsonata.evaluation import Evaluator
from models.store import scratch
from tasks.dev import migrate
from tasks.dev.postgres import Postgres
from tasks.expressions.guarded import guarded_evaluator
from tasks.replay.archive import Archive
from tasks.replay.player import Player, Replayed
from tasks.settings import Settings
from tasks.wiring import load_engines

SEARCH: Final = "web_search"
_NOBODY: Final = "http://127.0.0.1:9/{query}"
"""In place of the search service: it is offered as it was, and never asked."""


@contextmanager
def place(server_url: str | None) -> Iterator[str]:
    """The address of a migrated database for one replay: on this server, or on an embedded one that ends with it.

    Raises ``DatabaseUnavailable``, or ``StackError`` when PostgreSQL cannot be started here.
    """
    if server_url is not None:
        with scratch.new_database(server_url) as url:
            migrate.upgrade(url)
            yield url
        return
    with (
        # Short: a Unix socket's path has little room.
        tempfile.TemporaryDirectory(prefix="vancetope-", ignore_cleanup_errors=True) as folder,
        Postgres(Path(folder) / "postgres", unsafe_fast=True) as server,
    ):
        migrate.upgrade(server.dsn)
        yield server.dsn


def replay(archive: Archive, database_url: str, settings: Settings, *, evaluator: Evaluator | None = None) -> Replayed:
    """Run the exported process again in a database of :func:`place`.

    evaluator: of expressions; default: a process without credentials. Raises ``NotReplayable``.
    """
    tools = _tools(archive, evaluator or guarded_evaluator())
    engines = load_engines(settings.engines, tools.specs())
    archive.check(engines)
    catalogue = Catalogue.load(settings.catalogue_file)
    return Player(archive, database_url, engines=engines, tools=tools, catalogue=catalogue).play()


def _tools(archive: Archive, evaluator: Evaluator) -> Registry:
    """The tools of this version; those that an installation may lack or add only if they were there."""
    bundled = bundled_tools(search_url=_NOBODY if SEARCH in archive.tools else None, evaluator=evaluator)
    added = [tool for tool in installed_tools() if tool.name in archive.tools]
    return Registry([*bundled, *added], internal=internal_tools(evaluator))
