"""Whether work gets done: probes, queues, and who is at work. For those who run it: it shows all tenants' numbers."""

from __future__ import annotations

from typing import Any

import redis
from fastapi import APIRouter, Request
from fastapi.responses import Response

from models.store import console as store
from models.store import read
from models.store.tokens import Scope
from tasks.api.access import demand
from tasks.api.console.pages import page
from tasks.api.console.session import Visitor
from tasks.api.health import OK, checks
from tasks.api.parts import Here, Parts
from tasks.publish import CONTROL_QUEUE, URGENT_QUEUE, engine_queue, queue_lists

router = APIRouter(prefix="/workers")


@router.get("")
def workers_page(request: Request, here: Here, who: Visitor) -> Response:
    demand(who, Scope.ADMIN)
    backlog = {row[0]: row[1:] for row in read.backlog(here.runtime.database)}
    return page(
        request,
        "workers.html",
        checks=[(name, found == OK, found) for name, found in checks(here)],
        queues=_queues(here),
        engines=[(name, *backlog.get(name, (0, 0, 0.0))) for name in sorted({*here.runtime.engines, *backlog})],
        holders=store.at_work(here.runtime.database),
        flower=here.runtime.settings.flower_url,
    )


def _queues(here: Parts) -> list[tuple[str, int]] | None:
    """Messages in each queue; ``None`` while Redis is away."""
    names = [URGENT_QUEUE, CONTROL_QUEUE, *(engine_queue(name) for name in sorted(here.runtime.engines))]
    pipe: Any = here.runtime.redis.pipeline(transaction=False)
    for name in names:
        for key in queue_lists(name):
            pipe.llen(key)
    try:
        lengths = pipe.execute()
    except redis.RedisError:
        return None
    each = len(queue_lists(CONTROL_QUEUE))
    return [(name, sum(lengths[place * each : (place + 1) * each])) for place, name in enumerate(names)]
