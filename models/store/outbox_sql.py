"""The parts of a statement that write the outbox: in the very statement that closes a process or moves a question.

Where no endpoint of the tenant wants the event, nothing is put together and nothing is written: the question for one is
all it costs, and no endpoint is locked.
"""

from __future__ import annotations

from typing import Final

MAX_RESULT_BYTES: Final = 16_384
"""A wrapper longer than this (as JSON) is not sent whole: receivers fetch it."""

ITEM: Final = (
    "i.id, i.tenant, i.project, i.process_id, i.node_id, i.type, i.criticality, i.title, i.owner, i.tags, i.status,"
    " i.resolved_by, i.answered_by, i.created_at, i.expires_at, i.answered_at"
)
"""What a statement that writes a question (as ``i``) has to return for :func:`told_of_items`."""


def _time(moment: str) -> str:
    return f"""to_char({moment} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""


_WANTS = """w.enabled AND w.tenant = e.tenant AND (w.project IS NULL OR w.project = e.project)
   AND e.type = ANY (w.events)"""
NEW_EVENT_ID: Final = "'evt_' || replace(gen_random_uuid()::text, '-', '')"


def payload(event: str, data: str) -> str:
    """SQL: what is sent. event: a row with ``event_id``, ``type``, ``tenant`` and ``project``."""
    return f"""json_build_object('id', {event}.event_id, 'type', {event}.type, 'timestamp', {_time("now()")},
         'tenant', {event}.tenant, 'project', {event}.project, 'data', {data})"""


def _told(name: str, event: str) -> str:
    """event: a SELECT of ``type, tenant, project, process_id, data``, a row for each event."""
    return f"""{name}_events AS MATERIALIZED (
  SELECT {NEW_EVENT_ID} AS event_id, e.* FROM ({event}) e
   WHERE EXISTS (SELECT 1 FROM webhook_endpoints w WHERE {_WANTS})
), {name}_told AS (
  INSERT INTO webhook_deliveries (endpoint_id, process_id, event_id, type, payload)
  SELECT w.id, e.process_id, e.event_id, e.type, {payload("e", "e.data")}
    FROM {name}_events e JOIN webhook_endpoints w ON {_WANTS} ORDER BY w.id)"""


def told_of_closing(result: str, *, close_reason: str, closed_at: str) -> str:
    """SQL parts: tell of root processes that close. result: a part that returns ``process_id`` and ``wrapper``."""
    bytes_ = "octet_length(r.wrapper::text)"
    return _told(
        result,
        f"""SELECT 'process.closed' AS type, c.tenant, c.project, c.id AS process_id, json_build_object(
         'processId', c.id, 'status', 'CLOSED', 'closeReason', {close_reason}, 'engine', c.engine,
         'recipe', c.recipe_name, 'owner', c.owner, 'createdAt', {_time("c.created_at")},
         'closedAt', {_time(closed_at)},
         'result', CASE WHEN {bytes_} <= {MAX_RESULT_BYTES} THEN r.wrapper ELSE json_strip_nulls(json_build_object(
           'success', r.wrapper -> 'success', 'attempts', r.wrapper -> 'attempts', 'error', r.wrapper -> 'error',
           'oversize', true, 'bytes', {bytes_})) END) AS data
    FROM {result} r JOIN processes c ON c.id = r.process_id AND c.parent_node_id IS NULL""",
    )


def told_of_items(items: str) -> str:
    """SQL parts: tell of questions that were asked or resolved. items: a part that returns :data:`ITEM`."""
    return _told(
        items,
        f"""SELECT CASE i.status WHEN 'PENDING' THEN 'inbox.opened' ELSE 'inbox.closed' END AS type, i.tenant,
         i.project, i.process_id, json_build_object(
         'itemId', i.id, 'status', i.status, 'resolvedBy', i.resolved_by, 'answeredBy', i.answered_by,
         'type', i.type, 'criticality', i.criticality, 'title', left(i.title, 500), 'owner', i.owner,
         'tags', to_json(i.tags), 'processId', i.process_id,
         'rootId', (SELECT root_id FROM processes WHERE id = i.process_id), 'nodeId', i.node_id,
         'createdAt', {_time("i.created_at")}, 'expiresAt', {_time("i.expires_at")},
         'closedAt', {_time("i.answered_at")}) AS data
    FROM {items} i""",
    )
