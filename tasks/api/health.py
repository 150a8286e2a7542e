"""Probes for whoever restarts and routes: alive, and able to get work done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, cast

import redis
from alembic.script import ScriptDirectory
from fastapi import APIRouter, Response

from models.store import read
from models.store.database import DatabaseUnavailable
from tasks.api import shapes
from tasks.api.parts import Here, Parts
from tasks.dev.migrate import configuration
from tasks.sweeper import SWEPT_KEY

router = APIRouter(tags=["health"])

LONGEST_SILENCE_SECONDS: Final = 30.0
"""Since the last sweep; settings with slower sweeps are given as much more."""
LONGEST_WAIT_SECONDS: Final = 60.0
"""Of the oldest due turn of an engine at which nobody works."""

OK: Final = "ok"


@router.get("/livez", summary="Is this process alive")
def livez() -> shapes.Health:
    """It answers, so it is. Nothing else is asked."""
    return shapes.Health(healthy=True, checks={"api": OK})


@router.get("/readyz", summary="Is work getting done", responses={503: {"model": shapes.Health}})
def readyz(here: Here, response: Response) -> shapes.Health:
    """PostgreSQL and Redis answer, the schema is this version's, sweeps go through beat, broker, a worker and the
    database, and no engine's turns wait without anybody working on them. 503 when one of these is not so."""
    found = dict(checks(here))
    healthy = all(each == OK for each in found.values())
    if not healthy:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return shapes.Health(healthy=healthy, checks=found)


def checks(here: Parts) -> Iterator[tuple[str, str]]:
    """``(part, OK or what is wrong)`` of everything that work needs."""
    runtime = here.runtime
    try:
        revision, head = read.schema_revision(runtime.database), _head(runtime.settings.database)
        yield "postgresql", OK
        yield "schema", OK if revision == head else f"is {revision or 'empty'}, not {head}: run `vancetope migrate`"
        if revision == head:
            yield "turns", _waiting(read.backlog(runtime.database))
    except DatabaseUnavailable:
        yield "postgresql", "does not answer"
    try:
        swept = cast("bytes | None", runtime.redis.get(SWEPT_KEY))
        yield "redis", OK
    except redis.RedisError:
        yield "redis", "does not answer"
        return
    allowed = max(LONGEST_SILENCE_SECONDS, 5 * runtime.settings.sweep_seconds)
    silence = None if swept is None else time.time() - float(swept)
    if silence is None:
        yield "sweeps", "none so far: is a beat running, and a worker on the queue vancetope.urgent?"
    else:
        yield "sweeps", OK if silence <= allowed else f"none for {silence:.0f} s: is a beat running, and a worker?"


def _waiting(backlog: list[tuple[Any, ...]]) -> str:
    stuck = [
        f"{due} turns of {engine} wait, the oldest for {oldest:.0f} s"
        for engine, due, leased, oldest in backlog
        if not leased and oldest > LONGEST_WAIT_SECONDS
    ]
    return "; ".join(stuck) or OK


@lru_cache(maxsize=1)
def _head(url: str) -> str | None:
    return ScriptDirectory.from_config(configuration(url)).get_current_head()
