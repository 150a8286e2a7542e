"""Answering questions from any face: Celery tasks, the command line, HTTP."""

from __future__ import annotations

import dataclasses
from typing import Any

from engines.inbox.answers import parse_answer
from engines.inbox.words import InputType
from models.records import InboxItem, ItemStatus
from models.store import inbox as store
from models.store.inbox import Outcome, Resolution
from tasks import faults
from tasks.jsonable import dump, jsonable
from tasks.wiring import Runtime

LIST_CHARS = 48_000
"""``vancetope.inbox.list`` answers with at most this much JSON, as a result backend stores it."""


def answer_item(wired: Runtime, item_id: int, raw: Any, *, by: str, tenant: str | None = None) -> Resolution:
    """Check ``raw`` against its question, store it and wake the node. tenant: questions of others are unknown.

    Raises ``InvalidAnswer`` when it does not fit, whatever the question's status.
    """
    item = _known(wired, item_id, tenant)
    if item is None:
        return Resolution(outcome=Outcome.UNKNOWN)
    answer = parse_answer(InputType(item.type), item.payload, raw)
    faults.reach("before_answer")
    resolution = store.answer(wired.database, item_id, answer.to_json(), by=by)
    faults.reach("after_answer")
    return _published(wired, resolution)


def dismiss_item(wired: Runtime, item_id: int, *, by: str, tenant: str | None = None) -> Resolution:
    """Close a question without an answer and wake its node."""
    if _known(wired, item_id, tenant) is None:
        return Resolution(outcome=Outcome.UNKNOWN)
    return _published(wired, store.dismiss(wired.database, item_id, by=by))


def explained(item_id: int, resolution: Resolution) -> str:
    """What became of an answer or a dismissal, in words."""
    item = resolution.item
    match resolution.outcome:
        case Outcome.STORED:
            return f"item {item_id} is {item.status if item else ''}"
        case Outcome.SAME:
            return f"item {item_id} was resolved in the same way before: nothing was changed"
        case Outcome.OTHER:
            who = item.answered_by if item else None
            return f"item {item_id} was answered before, by {who or 'somebody'}; the first answer stays"
        case Outcome.EXPIRED:
            return f"item {item_id} has expired; its plan goes on without an answer"
        case Outcome.CLOSED:
            return f"item {item_id} is closed: it was dismissed, or its process has ended"
        case Outcome.FOREIGN:
            return f"item {item_id} belongs to {item.owner if item else 'somebody else'}, who alone may resolve it"
        case Outcome.UNKNOWN:
            return f"there is no item {item_id}"


def shown(item: InboxItem) -> dict[str, Any]:
    """An item as JSON has it."""
    found: dict[str, Any] = jsonable(dataclasses.asdict(item))
    return found | {"requires_action": item.status is ItemStatus.PENDING}


def listed(
    wired: Runtime,
    tenant: str,
    project: str,
    *,
    status: ItemStatus | None,
    owner: str | None,
    limit: int,
    tag: str | None = None,
) -> dict[str, Any]:
    """``{"items": […], "more": …}``: as many as fit an answer; an item too large by itself comes without its texts."""
    found = store.items(wired.database, tenant, project, status=status, owner=owner, tag=tag, limit=limit + 1)
    items: list[dict[str, Any]] = []
    left = LIST_CHARS
    for item in found[:limit]:
        entry = shown(item)
        size = len(dump(entry).encode())
        if size > LIST_CHARS:
            entry = entry | {"body": item.body[:1_000], "payload": {}, "answer": None, "cut": True}
            size = len(dump(entry).encode())
        left -= size
        if left < 0 and items:
            return {"items": items, "more": True}
        items.append(entry)
    return {"items": items, "more": len(found) > limit}


def reported(item_id: int, resolution: Resolution) -> dict[str, Any]:
    """What a task answers: outcome, words, and the item's status."""
    item = resolution.item
    status = {} if item is None or resolution.outcome is Outcome.FOREIGN else {"status": item.status.value}
    return {"outcome": resolution.outcome.value, "message": explained(item_id, resolution), **status}


def _known(wired: Runtime, item_id: int, tenant: str | None) -> InboxItem | None:
    item = store.get(wired.database, item_id)
    return item if item is not None and tenant in (None, item.tenant) else None


def _published(wired: Runtime, resolution: Resolution) -> Resolution:
    if resolution.due:
        wired.publisher.publish(resolution.due)
    return resolution
