"""The batches of the fake provider: OpenAI's files and batches, Anthropic's message batches.

A batch is done when it is asked for, unless a test has said otherwise: ``hold()`` keeps all open until ``release()``,
``plan(…)`` says how the next ones end. Answers come from the provider's queue and rules, in the order of the requests;
results are given in the opposite order.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fakes.wire_formats import Answer, anthropic_message, openai_completion

Reply = tuple[int, Any]
LOST: Reply = (0, None)
"""The connection is closed instead of an answer."""

_OPENAI = re.compile(r"/v1/batches(?:/(?P<id>[^/]+))?(?:/(?P<verb>cancel))?")
_ANTHROPIC = re.compile(r"/v1/messages/batches(?:/(?P<id>[^/]+))?(?:/(?P<verb>cancel|results))?")
_FILES = re.compile(r"/v1/files(?:/(?P<id>[^/]+))?(?:/(?P<verb>content))?")


@dataclass(kw_only=True)
class Plan:
    """How a batch goes. refuse: the status its creation is answered with. lose: it is made, but the answer is lost.
    ending: completed, expired or failed (OpenAI's check of the file). answered: so many of an expired one are."""

    refuse: int | None = None
    lose: bool = False
    ending: str = "completed"
    answered: int = 0


@dataclass(kw_only=True)
class Batch:
    """One batch as the provider keeps it. ``lines``: ``(custom id, body)``."""

    id: str
    lines: list[tuple[str, dict[str, Any]]]
    plan: Plan
    metadata: dict[str, str] = field(default_factory=dict)
    created: float = field(default_factory=time.time)
    results: list[tuple[str, Any]] | None = None
    """``(custom id, Answer or word)`` once it has ended."""
    cancelled: bool = False


class FakeBatches:
    """Thread-safe. ``made`` keeps every batch of both providers, in order."""

    def __init__(self, answer: Callable[[str, dict[str, Any]], Answer]) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self._held = False
        self._plans: list[Plan] = []
        self._files: dict[str, bytes] = {}
        self.made: list[Batch] = []

    def hold(self) -> None:
        """No batch ends until :meth:`release`."""
        self._held = True

    def release(self) -> None:
        self._held = False

    def plan(self, **fields: Any) -> None:
        """The next batch to be created goes this way."""
        self._plans.append(Plan(**fields))

    @staticmethod
    def serves(path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in (_OPENAI, _ANTHROPIC, _FILES))

    def respond(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Reply:
        """Status and body of the answer."""
        with self._lock:
            if found := _FILES.fullmatch(path):
                return self._file(found["id"], headers, raw)
            anthropic = _ANTHROPIC.fullmatch(path)
            found = anthropic or _OPENAI.fullmatch(path)
            assert found is not None
            if found["id"] is None:
                if method == "GET":
                    return self._list(anthropic=anthropic is not None)
                return self._create(json.loads(raw), anthropic=anthropic is not None)
            batch = next((each for each in self.made if each.id == found["id"]), None)
            if batch is None:
                return 404, {"error": {"type": "not_found_error", "message": f"no batch {found['id']}"}}
            if found["verb"] == "cancel":
                batch.cancelled = True
            self._work(batch, "/v1/messages" if anthropic else "/v1/chat/completions")
            if found["verb"] == "results":
                return 200, "".join(
                    f"{json.dumps(_result(*each, dict(batch.lines)))}\n" for each in batch.results or ()
                )
            return 200, _anthropic_batch(batch) if anthropic else self._openai_batch(batch)

    # -- life ----------------------------------------------------------------------------------------------------------

    def _create(self, body: dict[str, Any], *, anthropic: bool) -> Reply:
        plan = self._plans.pop(0) if self._plans else Plan()
        if plan.refuse is not None:
            problem = {"type": "invalid_request_error", "message": f"no batches today ({plan.refuse})"}
            return plan.refuse, {"type": "error", "error": problem} if anthropic else {"error": problem}
        number = len(self.made) + 1
        if anthropic:
            lines = [(each["custom_id"], each["params"]) for each in body["requests"]]
            batch = Batch(id=f"msgbatch_{number}", lines=lines, plan=plan)
        else:
            sent = [json.loads(line) for line in self._files[body["input_file_id"]].splitlines() if line.strip()]
            assert {each["url"] for each in sent} == {body["endpoint"]}
            lines = [(each["custom_id"], each["body"]) for each in sent]
            batch = Batch(id=f"batch_{number}", lines=lines, plan=plan, metadata=body.get("metadata") or {})
        assert len(dict(lines)) == len(lines), "custom ids are not unique"
        assert not any("stream" in each for _, each in lines)
        self.made.append(batch)
        if plan.lose:
            return LOST
        return 200, _anthropic_batch(batch) if anthropic else self._openai_batch(batch)

    def _work(self, batch: Batch, path: str) -> None:
        if batch.results is not None or (self._held and not batch.cancelled):
            return
        results: list[tuple[str, Any]] = []
        for place, (custom_id, body) in enumerate(batch.lines):
            if batch.plan.ending == "failed":
                break
            if batch.cancelled:
                results.append((custom_id, "cancelled"))
            elif batch.plan.ending == "expired" and place >= batch.plan.answered:
                results.append((custom_id, "expired"))
            else:
                results.append((custom_id, self._answer(path, body)))
        batch.results = results[::-1]

    def _list(self, *, anthropic: bool) -> Reply:
        mine = [each for each in reversed(self.made) if each.id.startswith("msgbatch_") is anthropic]
        data = [_anthropic_batch(each) if anthropic else self._openai_batch(each) for each in mine]
        ends = {"first_id": mine[0].id, "last_id": mine[-1].id} if mine else {"first_id": None, "last_id": None}
        return 200, {"object": "list", "data": data, "has_more": False, **ends}

    # -- OpenAI --------------------------------------------------------------------------------------------------------

    def _file(self, file_id: str | None, headers: dict[str, str], raw: bytes) -> Reply:
        if file_id is not None:
            return 200, self._files[file_id].decode()
        boundary = headers["content-type"].partition("boundary=")[2].strip('"').encode()
        parts = [part.partition(b"\r\n\r\n") for part in raw.split(b"--" + boundary)]
        content = next(body.removesuffix(b"\r\n") for head, _, body in parts if b'name="file"' in head)
        new_id = f"file-{len(self._files) + 1}"
        self._files[new_id] = content
        return 200, _file_object(new_id, len(content))

    def _openai_batch(self, batch: Batch) -> dict[str, Any]:
        status = "in_progress" if batch.results is None else batch.plan.ending
        if batch.results is not None and batch.cancelled:
            status = "cancelled"
        shown: dict[str, Any] = {
            "id": batch.id,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "input_file_id": "file-1",
            "status": status,
            "created_at": int(batch.created),
            "metadata": batch.metadata or None,
        }
        if status == "failed":
            shown["errors"] = {"object": "list", "data": [{"code": "invalid_file", "message": "the file is not valid"}]}
        elif batch.results is not None:
            bodies = dict(batch.lines)
            lines = [_line(*each, bodies) for each in batch.results]
            for name, wanted in (("output_file_id", True), ("error_file_id", False)):
                chosen = [line for line in lines if _is_output(line) is wanted]
                if chosen:
                    file_id = f"{name}-{batch.id}"
                    self._files[file_id] = "".join(f"{json.dumps(line)}\n" for line in chosen).encode()
                    shown[name] = file_id
        return shown


def _file_object(file_id: str, size: int) -> dict[str, Any]:
    return {
        "id": file_id, "object": "file", "bytes": size, "created_at": 0, "filename": "x.jsonl", "purpose": "batch",
        "status": "processed",
    }  # fmt: skip


def _is_output(line: dict[str, Any]) -> bool:
    return line["error"] is None and line["response"]["status_code"] == 200


def _line(custom_id: str, given: Answer | str, bodies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A line of OpenAI's output or error file."""
    line: dict[str, Any] = {"id": f"batch_req_{custom_id}", "custom_id": custom_id, "response": None, "error": None}
    if isinstance(given, str):
        line["error"] = {"code": f"batch_{given}", "message": f"This request was {given}."}
    else:
        body = openai_completion(bodies[custom_id], given)
        if given.status != 200:
            body = given.body or {"error": {"message": f"fake error {given.status}", "type": "invalid_request_error"}}
        line["response"] = {"status_code": given.status, "request_id": "r", "body": body}
    return line


def _result(custom_id: str, given: Answer | str, bodies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A line of Anthropic's results."""
    if isinstance(given, str):
        result: dict[str, Any] = {"type": "canceled" if given == "cancelled" else given}
    elif given.status != 200:
        error = given.body or {"type": "error", "error": {"type": "api_error", "message": f"fake error {given.status}"}}
        result = {"type": "errored", "error": {"request_id": None, **error}}
    else:
        result = {"type": "succeeded", "message": anthropic_message(bodies[custom_id], given)}
    return {"custom_id": custom_id, "result": result}


def _anthropic_batch(batch: Batch) -> dict[str, Any]:
    created = datetime.fromtimestamp(batch.created, UTC)
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if batch.results is None:
        counts["processing"] = len(batch.lines)
    for _, given in batch.results or ():
        word = {"cancelled": "canceled"}.get(given, given) if isinstance(given, str) else None
        counts[word or ("succeeded" if given.status == 200 else "errored")] += 1
    ended = batch.results is not None
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if ended else "canceling" if batch.cancelled else "in_progress",
        "request_counts": counts,
        "created_at": created.isoformat(),
        "expires_at": (created + timedelta(days=1)).isoformat(),
        "ended_at": created.isoformat() if ended else None,
        "cancel_initiated_at": created.isoformat() if batch.cancelled else None,
        "archived_at": None,
        "results_url": f"/v1/messages/batches/{batch.id}/results" if ended else None,
    }
