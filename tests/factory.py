"""Rows in any state with what the state implies, and an engine whose decisions come from its parameters.

``ProbeEngine`` (``VANCETOPE_ENGINES=factory:PROBE`` with ``tests`` on the path) carries out ``params["steps"]`` one per
turn. A step is an object with one of these keys:

==============  ====================================================================================================
``ask``         one model call with that prompt; the reply becomes a message (``model``, ``limit`` are optional)
``fan_out``     that many children (``mode``: SEQUENTIAL or PARALLEL; ``steps``: theirs, ``each``: one list per child)
``call``        the steps of a sub-process (``count`` of them), waited for at most ``timeout`` seconds
``await``       go on waiting for the sub-processes called before
``park``        wait that many seconds, ``None`` for ever (as for a person)
``wait``        the next step is due after that many seconds
``write``       an artifact: ``[key, content]``
``say``         a message of the assistant
``crash``       an exception with that text (``times``: only the first times; ``where``: prepare or decide)
``give``        a transition that cannot be written: ``nan``, ``settled``, ``stranded``, ``duplicate``, ``crowd``
``fail``        the node (and with the root the process) ends as failed
``finish``      the node (and with the root the process) ends with that value
==============  ====================================================================================================

After the last step the node finishes by itself. Rows are aged instead of waited for: :func:`age`, :func:`expire_lease`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4, uuid5

from engines.base import Abandoned, AskModel, BudgetSpent, Decided, ModelFailed, ModelReplied, Need, Outcome
from engines.llm.base import LlmRequest, Message
from models.records import ChildMode, CloseReason, Limits, NewProcess, Reason, View
from models.store.claim import Claim, claim_turn
from models.store.database import Database
from models.transition import (
    AppendMessage,
    CloseProcess,
    Effect,
    NewChild,
    PhaseNote,
    SpawnChildren,
    SpawnProcess,
    Transition,
    WriteArtifact,
    advance,
    fail,
    fan_out,
    finish,
    park,
)

Step = dict[str, Any]
OPEN_STATUSES = ("INIT", "RUNNING", "BLOCKED", "SUSPENDED")


# -- the engine --------------------------------------------------------------------------------------------------------


class ProbeEngine:
    """Does what its parameters say. Stateless."""

    first_phase = "STEP"
    history = 20

    def __init__(self, name: str = "probe") -> None:
        self.name = name

    def prepare(self, view: View) -> Need:
        at, step = _current(view)
        if step is None:
            return Decided(transition=_end(view, at, success=True, value=None))
        if "ask" in step and not view.process.overdue:
            request = LlmRequest(
                model=step.get("model", "scripted:scripted"),
                messages=(Message(role="user", content=step["ask"]),),
                max_output_tokens=step.get("limit"),
            )
            return AskModel(request=request, attempt=at + 1)
        if "ask" in step:
            return Decided(transition=self.decide(view, BudgetSpent(limit="overdue")))
        if _crashes(view, step, "prepare"):
            raise RuntimeError(step["crash"])
        return Decided(transition=_carry_out(view, at, step))

    def decide(self, view: View, outcome: Outcome) -> Transition:
        at, step = _current(view)
        match outcome:
            case ModelReplied():
                if step is not None and _crashes(view, step, "decide"):
                    raise RuntimeError(step["crash"])
                said = AppendMessage(role="assistant", kind="reply", content=outcome.reply.text)
                return _next(view, at, output=outcome.reply.text, effects=(said,))
            case ModelFailed():
                return _end(view, at, success=False, value=outcome.error.message, error="llm_error")
            case BudgetSpent():
                return _end(view, at, success=False, value=outcome.limit, error="budget_exceeded", forced=True)
            case Abandoned():
                if view.process.params.get("stubborn"):
                    raise RuntimeError("will not give up either")
                return _end(view, at, success=False, value=outcome.why, error="internal_error", forced=True)

    def wrapper(self, cursor: dict[str, Any], *, error: str, message: str) -> dict[str, Any]:
        if cursor.get("speechless"):
            raise RuntimeError("no words")
        return {"success": False, "attempts": cursor.get("at", 0), "error": error, "message": message}


PROBE = ProbeEngine()


def _current(view: View) -> tuple[int, Step | None]:
    at = view.node.cursor.get("at", 0)
    steps = view.node.cursor.get("steps", view.process.params.get("steps", []))
    return at, steps[at] if at < len(steps) else None


def _cursor(view: View, at: int) -> dict[str, Any]:
    return {**view.node.cursor, "at": at}


def _note(at: int, output: Any, *, forced: bool = False) -> PhaseNote:
    return PhaseNote(phase="STEP", iteration=at + 1, output=output, forced=forced)


def _crashes(view: View, step: Step, where: str) -> bool:
    if "crash" not in step or step.get("where", "prepare") != where:
        return False
    times = step.get("times")
    return times is None or view.node.transport.get("crashes", 0) < times


def _next(view: View, at: int, *, output: Any, effects: tuple[Effect, ...] = (), delay: float = 0.0) -> Transition:
    cursor = _cursor(view, at + 1)
    return advance("STEP", cursor, note=_note(at, output), effects=effects, delay_seconds=delay)


def _end(
    view: View, at: int, *, success: bool, value: Any, error: str | None = None, forced: bool = False
) -> Transition:
    effects: tuple[Effect, ...] = ()
    if view.node.parent_id is None:
        result: dict[str, Any] = {"success": success, "attempts": at}
        result |= {"data": value} if error is None else {"error": error, "message": value}
        if view.calls:
            result["calls"] = [call.result for call in view.calls]
        reason = CloseReason.DONE if success else CloseReason.FAILED
        effects = (CloseProcess(reason=reason, result=result, message=json.dumps(result)),)
    note = _note(at, {"end": value}, forced=forced)
    if success:
        return finish("STEP", _cursor(view, at), note=note, effects=effects)
    return fail("STEP", _cursor(view, at), note=note, failure=str(value), effects=effects)


def _carry_out(view: View, at: int, step: Step) -> Transition:
    match step:
        case {"fan_out": int() as number}:
            return _fan_out(view, at, step, number)
        case {"call": list() as steps}:
            return _call(view, at, step, steps)
        case {"await": _}:
            still_open = any(not call.closed for call in view.calls)
            if not still_open:
                return _next(view, at, output="all closed")
            return park("STEP", _cursor(view, at), note=_note(at, step), reason=Reason.CALLED, effects=())
        case {"park": seconds}:
            cursor = _cursor(view, at + 1)
            return park("STEP", cursor, note=_note(at, step), reason=Reason.ASKED, effects=(), timeout_seconds=seconds)
        case {"wait": seconds}:
            return _next(view, at, output=step, delay=seconds)
        case {"write": [key, content]}:
            return _next(view, at, output=key, effects=(WriteArtifact(key=key, content=content),))
        case {"say": words}:
            return _next(
                view, at, output="said", effects=(AppendMessage(role="assistant", kind="note", content=words),)
            )
        case {"give": what}:
            return _unwritable(view, at, what)
        case {"fail": why}:
            return _end(view, at, success=False, value=why, error="failed")
        case {"finish": value}:
            return _end(view, at, success=True, value=value)
        case {"crash": _}:
            return _next(view, at, output="no crash any more")
    raise ValueError(f"no such step: {step}")


def _fan_out(view: View, at: int, step: Step, number: int) -> Transition:
    each: Sequence[list[Step]] = step.get("each") or [step.get("steps", [])] * number
    children = tuple(
        NewChild(order_key=(at, place), kind="CHILD", goal=f"child {place}", phase="STEP", cursor={"steps": steps})
        for place, steps in enumerate(each)
    )
    mode = ChildMode(step.get("mode", "PARALLEL"))
    cursor = _cursor(view, at + 1)
    spawn = SpawnChildren(children=children, mode=mode, width=step.get("width"))
    return fan_out("STEP", cursor, note=_note(at, step), children=spawn)


def _call(view: View, at: int, step: Step, steps: list[Step]) -> Transition:
    called = tuple(
        SpawnProcess(
            id=uuid5(view.process.id, f"{view.node.id}:{view.node.turn}:{place}"),
            key=f"{at}:{place}",
            engine=step.get("engine", view.process.engine),
            recipe_name="probe",
            recipe={},
            params={"steps": steps},
            goal="called",
            first_phase="STEP",
        )
        for place in range(step.get("count", 1))
    )
    cursor = _cursor(view, at + 1)
    timeout = step.get("timeout")
    return park("STEP", cursor, note=_note(at, "called"), reason=Reason.CALLED, effects=called, timeout_seconds=timeout)


def _unwritable(view: View, at: int, what: str) -> Transition:
    cursor, note = _cursor(view, at + 1), _note(at, what)
    match what:
        case "nan":
            return advance("STEP", {**cursor, "score": float("nan")}, note=note)
        case "settled":
            return finish("STEP", cursor, note=note, effects=())
        case "stranded":
            return Transition(
                status=advance("STEP", cursor, note=note).status,
                phase="STEP", cursor=cursor, reason=Reason.ADVANCED, note=note, delay_seconds=None,
            )  # fmt: skip
        case "duplicate":
            twin = NewChild(order_key=(at, 0), kind="CHILD", goal="", phase="STEP")
            spawn = SpawnChildren(children=(twin, twin), mode=ChildMode.PARALLEL)
            return fan_out("STEP", cursor, note=note, children=spawn)
        case "crowd":
            child = NewChild(order_key=(at, 0), kind="CHILD", goal="", phase="STEP")
            spawn = SpawnChildren(children=(child,), mode=ChildMode.PARALLEL, max_nodes=1)
            return fan_out("STEP", cursor, note=note, children=spawn)
    raise ValueError(what)


def new_process(steps: Sequence[Step] = (), *, engine: str = "probe", **fields: Any) -> NewProcess:
    """A process of the probe engine, to be submitted. Further parameters of the engine: ``params={…}``."""
    params = {"steps": list(steps), **fields.pop("params", {})}
    base: dict[str, Any] = {
        "id": uuid4(), "engine": engine, "recipe_name": "probe", "recipe": {}, "params": params, "goal": "",
        "first_phase": "STEP",
    }  # fmt: skip
    return NewProcess(**(base | fields))


# -- rows --------------------------------------------------------------------------------------------------------------


def rows(database: Database, sql: str, **params: Any) -> list[tuple[Any, ...]]:
    """Any statement, for looking at what happened."""
    return database.statement(sql, params)


def value(database: Database, sql: str, **params: Any) -> Any:
    """The first column of the first row."""
    found = database.statement(sql, params)
    return found[0][0] if found else None


def row(database: Database, table: str, row_id: UUID | int) -> dict[str, Any]:
    """One row of ``processes`` or ``nodes`` as an object."""
    found: dict[str, Any] = value(database, f"SELECT to_jsonb(t) FROM {table} t WHERE id = %(id)s", id=row_id)
    assert found is not None, f"no {table} {row_id}"
    return found


def _insert(
    database: Database, table: str, values: Mapping[str, Any], raw: Mapping[str, str] | None = None, **more: Any
) -> Any:
    """Insert one row: ``values`` as parameters, ``raw`` as SQL where no value is given. Returns its first column."""
    sets = {name: f"%({name})s" for name in values}
    sets |= {name: text for name, text in (raw or {}).items() if name not in values}
    sql = f"INSERT INTO {table} ({', '.join(sets)}) VALUES ({', '.join(sets.values())}) RETURNING *"
    return value(database, sql, **values, **more)


def make_process(
    database: Database,
    status: str = "RUNNING",
    *,
    steps: Sequence[Step] = (),
    engine: str = "probe",
    limits: Limits | None = None,
    parent_node: int | None = None,
    delivered: bool = False,
    **columns: Any,
) -> UUID:
    """A process in any status. CLOSED ones have a result and a reason; with ``parent_node`` it is a sub-process.

    The caller of an open sub-process counts it, but is not parked by this: see :func:`make_node` ``parked``.
    """
    process_id = columns.pop("id", None) or uuid4()
    limits = limits or Limits()
    root_id = process_id
    if parent_node is not None:
        root_id = value(
            database,
            "SELECT p.root_id FROM processes p JOIN nodes n ON n.process_id = p.id WHERE n.id = %(id)s",
            id=parent_node,
        )
    values: dict[str, Any] = {
        "id": process_id, "root_id": root_id, "parent_node_id": parent_node, "tenant": "default", "project": "default",
        "engine": engine, "recipe_name": "probe", "status": status, "max_calls": limits.max_calls,
        "max_tokens": limits.max_tokens, "max_cost_usd": limits.max_cost_usd,
    }  # fmt: skip
    if parent_node is not None:
        values["parent_key"] = "0:0"
    raw = {"deadline_at": "now() + make_interval(secs => %(deadline)s::float8)"}
    if status != "INIT":
        raw["started_at"] = "now()"
    if status == "CLOSED":
        raw |= {"close_reason": "'DONE'", "closed_at": "now()"}
        if delivered or parent_node is not None:
            raw["delivered_at"] = "now()"
    _insert(database, "processes", values | columns, raw, deadline=limits.deadline_seconds)
    params = json.dumps({"steps": list(steps)})
    _insert(database, "process_inputs", {"process_id": process_id, "goal": "", "params": params, "recipe": "{}"})
    if status == "CLOSED":
        _insert(database, "results", {"process_id": process_id, "wrapper": '{"success": true, "attempts": 1}'})
    elif parent_node is not None:
        rows(
            database,
            "UPDATE nodes SET open_calls = open_calls + 1, spawned_calls = spawned_calls + 1 WHERE id = %(id)s",
            id=parent_node,
        )
    return process_id


# What a node in each state looks like; a value is SQL.
_NODE_STATES: dict[str, dict[str, str]] = {
    "due": {"status": "'PENDING'", "due_at": "now()", "next_hint_at": "now() + interval '5 s'"},
    "delayed": {"status": "'RUNNING'", "due_at": "now() + interval '1 h'", "next_hint_at": "now() + interval '1 h'"},
    "queued_behind": {"status": "'PENDING'"},
    "leased": {
        "status": "'RUNNING'", "due_at": "now()", "next_hint_at": "now() + interval '5 s'", "fence": "1",
        "lease_owner": "'worker:1'", "lease_expires_at": "now() + interval '30 s'", "started_at": "now()",
    },
    "parked": {"status": "'WAITING'", "started_at": "now()"},
    "awaiting": {"status": "'DONE'", "awaiting_post_children": "true", "child_mode": "'PARALLEL'"},
    "done": {"status": "'DONE'", "settled_at": "now()"},
    "failed": {"status": "'FAILED'", "settled_at": "now()", "failure": "'for a reason'"},
    "skipped": {"status": "'SKIPPED'", "settled_at": "now()"},
}  # fmt: skip


def make_node(
    database: Database,
    process_id: UUID,
    state: str = "due",
    *,
    parent: int | None = None,
    order: int = 0,
    **columns: Any,
) -> int:
    """A node in any state of ``_NODE_STATES``. A child that is not settled is counted on its parent."""
    values: dict[str, Any] = {
        "process_id": process_id, "kind": "ROOT" if parent is None else "CHILD", "phase": "STEP", "parent_id": parent,
        "order_key": [] if parent is None else [order], "depth": 0 if parent is None else 1, "cursor": "{}",
    } | columns  # fmt: skip
    raw = _NODE_STATES[state]
    node_id: int = _insert(database, "nodes", values, raw)
    if parent is not None and "settled_at" not in raw:
        rows(database, "UPDATE nodes SET open_children = open_children + 1 WHERE id = %(id)s", id=parent)
    return node_id


def age(database: Database, node_id: int, seconds: float) -> None:
    """Let the node's times lie that much further back: due, hint and lease."""
    rows(
        database,
        "UPDATE nodes SET due_at = due_at - make_interval(secs => %(s)s::float8),"
        " next_hint_at = next_hint_at - make_interval(secs => %(s)s::float8),"
        " lease_expires_at = lease_expires_at - make_interval(secs => %(s)s::float8) WHERE id = %(id)s",
        id=node_id, s=seconds,
    )  # fmt: skip


def expire_lease(database: Database, node_id: int) -> None:
    """The lease ran out a moment ago: its holder is dead or paused."""
    rows(
        database,
        "UPDATE nodes SET lease_expires_at = now() - interval '1 ms' WHERE id = %(id)s AND lease_owner IS NOT NULL",
        id=node_id,
    )


def make_everything_due(database: Database) -> int:
    """All delayed turns of open processes are due now. Returns how many were not."""
    return len(
        rows(
            database,
            "UPDATE nodes SET due_at = now(), next_hint_at = now() WHERE due_at > now() RETURNING id",
        )
    )


def root_node(database: Database, process_id: UUID) -> int:
    """The root node of a process."""
    found: int = value(database, "SELECT id FROM nodes WHERE process_id = %(id)s AND parent_id IS NULL", id=process_id)
    return found


def claim(database: Database, node_id: int, *, turn: int | None = None, owner: str = "worker:1") -> Claim | None:
    """Claim the node's current turn (or the one given) as a worker would."""
    if turn is None:
        turn = row(database, "nodes", node_id)["turn"]
    return claim_turn(database, node_id, turn, owner=owner, lease_seconds=30.0, history=20, nonce="nonce")


def claimed(database: Database, node_id: int, *, owner: str = "worker:1") -> Claim:
    """The same, and it must succeed."""
    found = claim(database, node_id, owner=owner)
    assert found is not None
    return found


# -- what must be true at any time -------------------------------------------------------------------------------------

_INVARIANTS: dict[str, str] = {
    "a closed process has exactly one result, an open one none": """
        SELECT p.id FROM processes p LEFT JOIN results r ON r.process_id = p.id
         WHERE (p.status = 'CLOSED') <> (r.process_id IS NOT NULL)""",
    "a closed process has exactly one result message": """
        SELECT p.id FROM processes p LEFT JOIN messages m ON m.process_id = p.id AND m.kind = 'result'
         WHERE p.status = 'CLOSED' GROUP BY p.id HAVING count(m.id) <> 1""",
    "a closed process has no open node": """
        SELECT n.id FROM nodes n JOIN processes p ON p.id = n.process_id
         WHERE p.status = 'CLOSED' AND n.settled_at IS NULL""",
    "an open process has an open root node": """
        SELECT p.id FROM processes p LEFT JOIN nodes n ON n.process_id = p.id AND n.parent_id IS NULL
         WHERE p.status <> 'CLOSED' AND (n.id IS NULL OR n.settled_at IS NOT NULL)""",
    "open_children counts the open children": """
        SELECT n.id FROM nodes n WHERE n.settled_at IS NULL AND n.open_children <>
          (SELECT count(*) FROM nodes c WHERE c.parent_id = n.id AND c.settled_at IS NULL)""",
    "open_calls counts the open sub-processes": """
        SELECT n.id FROM nodes n WHERE n.settled_at IS NULL AND n.open_calls <>
          (SELECT count(*) FROM processes s WHERE s.parent_node_id = n.id AND s.status <> 'CLOSED')""",
    "every open node is due, waits for something open, or for a person": """
        SELECT n.id FROM nodes n WHERE n.settled_at IS NULL AND n.due_at IS NULL AND n.open_children = 0
           AND n.open_calls = 0 AND n.status <> 'WAITING' AND NOT n.waits_for_place
           AND NOT (n.status = 'PENDING' AND EXISTS (SELECT 1 FROM nodes s WHERE s.parent_id = n.parent_id
                     AND s.settled_at IS NULL AND s.order_key < n.order_key))""",
    "the root's reservations are the sum of its nodes'": """
        SELECT r.id FROM processes r, LATERAL (
          SELECT coalesce(sum(n.reserved_calls), 0) AS calls, coalesce(sum(n.reserved_tokens), 0) AS tokens,
                 coalesce(sum(n.reserved_cost_usd), 0) AS cost
            FROM processes p JOIN nodes n ON n.process_id = p.id WHERE p.root_id = r.id) held
         WHERE r.parent_node_id IS NULL AND r.status <> 'CLOSED' AND
           (r.reserved_calls, r.reserved_tokens, r.reserved_cost_usd)
             IS DISTINCT FROM (held.calls, held.tokens, held.cost)""",
    "each turn left one record": """
        SELECT n.id FROM nodes n LEFT JOIN phase_records r ON r.node_id = n.id
         GROUP BY n.id, n.turn, n.status HAVING count(r.turn) > n.turn - 1""",
}  # fmt: skip


def broken_invariants(database: Database) -> dict[str, list[Any]]:
    """The statements about the tables that do not hold, with the rows at fault. Empty is good."""
    found = {}
    for name, sql in _INVARIANTS.items():
        wrong = [each[0] for each in rows(database, sql)]
        if wrong:
            found[name] = wrong
    return found


def deadlocks(database: Database) -> int:
    """How many deadlocks PostgreSQL has seen in this database."""
    rows(database, "SELECT pg_stat_force_next_flush()")
    found: int = value(database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return found
