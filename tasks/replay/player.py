"""Runs an exported process again: the real store, runner and engines, with the recording in place of the world.

Turns are claimed, look at their plan and commit in the order in which they once did (``timeline``). Several that
overlapped overlap again, so each sees of its tree what it saw then; still only one of them runs at any moment. What
people, the world and the clock did comes at its place among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never, cast
from uuid import UUID

from engines.base import Engine
from engines.llm.catalogue import Catalogue
from engines.tools.registry import Registry
from models.records import CloseReason, ItemStatus, Limits, NewProcess
from models.store import inbox, processes, scratch, sweep
from models.store.export import exported
from models.store.processes import Closing
from models.store.scratch import Step
from tasks.closing import wrapper_of
from tasks.heartbeat import Heartbeat
from tasks.progress import Background
from tasks.publish import Publisher
from tasks.replay.archive import Archive, Row
from tasks.replay.cast import NoGate, NoLessons, Nowhere, OnStage, RecordedClient, RecordedTools, Script
from tasks.replay.timeline import Moment, What, moments
from tasks.runner import OVERDUE, TurnRunner

LEASE_SECONDS = 86_400.0
BATCH = 1_000
MORE_TURNS = 1_000
"""Turns beyond the recorded ones after which a replay is ended."""
_LOST: Final = re.compile(r"(\d+) workers were lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of a replay, as an export of its database. ``stuck``: nodes that wanted what was not recorded."""

    archive: Archive
    stuck: Mapping[int, str]
    changed_lines: Mapping[tuple[int, int], list[str]]


class Player:
    """One replay of one archive, in a database that is empty, migrated, and thrown away afterwards."""

    def __init__(
        self,
        archive: Archive,
        database_url: str,
        *,
        engines: Mapping[str, Engine],
        tools: Registry,
        catalogue: Catalogue,
    ) -> None:
        self._archive = archive
        self._engines = engines
        self._script = Script(archive)
        self._database = scratch.SteppedDatabase(
            database_url, self._script.before, pool_size=4, name="vancetope-replay"
        )
        self._heartbeat = Heartbeat(self._database, lease_seconds=LEASE_SECONDS)
        self._on_stage: dict[int, OnStage] = {}
        nowhere = Nowhere()
        self._runner = TurnRunner(
            database=self._database,
            engines=engines,
            client=RecordedClient(archive, self._script, catalogue),
            heartbeat=self._heartbeat,
            gate=NoGate(),
            lessons=NoLessons(),
            publisher=cast(Publisher, nowhere),
            background=cast(Background, nowhere),
            toolbox=RecordedTools(tools, self._script),
            lease_seconds=LEASE_SECONDS,
            nonce=self._script.nonce,
        )

    def play(self) -> Replayed:
        """Run it from its submission to its end, or to where the recording has nothing more."""
        try:
            self._submit()
            for moment in moments(self._archive):
                self._happen(moment)
            self._go_on()
            text = "".join(exported(self._database, UUID(self._archive.root)))
        finally:
            for turn in self._on_stage.values():
                turn.end()
            self._heartbeat.close()
            self._database.dispose()
        return Replayed(
            archive=Archive.parse(text, "the replay"),
            stuck=self._script.stuck,
            changed_lines=self._script.changed_lines,
        )

    def _submit(self) -> None:
        archive = self._archive
        scratch.prepare(
            self._database, nodes=archive["nodes"], items=archive["inbox_items"], documents=archive["document_versions"]
        )
        top, inputs = archive.processes[archive.root], archive.inputs[archive.root]
        root = next(row for row in archive["nodes"] if row["process_id"] == archive.root and row["parent_id"] is None)
        cost = top["max_cost_usd"]
        limits = Limits(
            max_calls=top["max_calls"], max_tokens=top["max_tokens"], max_cost_usd=None if cost is None else float(cost)
        )
        process = NewProcess(
            id=UUID(archive.root),
            engine=top["engine"],
            recipe_name=top["recipe_name"],
            recipe=inputs["recipe"],
            params=inputs["params"],
            goal=inputs["goal"],
            tenant=top["tenant"],
            project=top["project"],
            owner=top["owner"],
            priority=top["priority"],
            limits=limits,
            trace_context=top["trace_context"],
            first_phase=self._engines[top["engine"]].first_phase,
            node_kind=root["kind"],
        )
        processes.submit(self._database, [process])

    def _happen(self, moment: Moment) -> None:
        match moment.what:
            case What.CLAIM:
                self._claim(moment)
            case What.VIEW:
                turn = self._on_stage.get(moment.node_id)
                if turn is not None and turn.next is Step.VIEW:
                    turn.go_on()
            case What.COMMIT:
                self._end(moment.node_id)
            case What.ANSWER:
                self._answer(moment.node_id)
            case What.STOP:
                self._stop(moment.node_id)
            case _:
                assert_never(moment.what)

    def _claim(self, moment: Moment) -> None:
        """Begin the node's next turn, whatever its number is here."""
        node_id = moment.node_id
        state = scratch.node_state(self._database, node_id)
        if state is None or node_id in self._on_stage or node_id in self._script.stuck:
            return
        turns = {row["turn"]: row["recorded"] for row in self._archive.turns[node_id]}
        recording: Row = turns.get(state.turn) or turns[moment.turn]
        self._lay_out(recording)
        overdue = recording.get("overdue", False) or recording.get("spent") == OVERDUE
        scratch.set_overdue(self._database, state.root_id, overdue)
        if not state.due:
            self._repair()
        lost = _LOST.match(recording.get("abandoned", ""))
        parked = overdue or "abandoned" in recording
        scratch.make_due(self._database, node_id, parked=parked, losses=int(lost[1]) if lost else 0)
        self._begin(OnStage(node_id, recording["nonce"]), state.engine, state.turn)

    def _begin(self, turn: OnStage, engine: str, number: int) -> None:
        def play() -> None:
            self._script.enter(turn)
            self._runner.run(engine, turn.node_id, number)

        self._on_stage[turn.node_id] = turn
        turn.begin(play)

    def _end(self, node_id: int) -> None:
        turn = self._on_stage.pop(node_id, None)
        if turn is not None:
            turn.end()

    def _answer(self, node_id: int) -> None:
        item = next(row for row in self._archive["inbox_items"] if row["node_id"] == node_id)
        by = item["answered_by"] or item["owner"] or ""
        match item["status"]:
            case ItemStatus.ANSWERED:
                inbox.answer(self._database, item["id"], item["answer"], by=by)
            case ItemStatus.DISMISSED:
                inbox.dismiss(self._database, item["id"], by=by)
            case _:
                scratch.run_out(self._database, item["id"])
                inbox.expire(self._database, batch=BATCH)

    def _stop(self, root_node: int) -> None:
        node = self._archive.nodes[root_node]
        process = self._archive.processes[node["process_id"]]
        result = next(row for row in self._archive["results"] if row["process_id"] == process["id"])["wrapper"]
        failure = node["failure"] or "stopped"
        close = processes.stop if process["close_reason"] == CloseReason.STOPPED else processes.fail_process

        def wrapper(closing: Closing) -> dict[str, Any]:
            engine = self._engines.get(closing.engine)
            return wrapper_of(
                engine, closing.cursor, error=result.get("error", "stopped"), message=result.get("message", failure)
            )

        close(self._database, UUID(process["id"]), wrapper, failure=failure)

    def _lay_out(self, recording: Row) -> None:
        """The document and the model spec that the turn saw, unless the process wrote them itself."""
        nodes = self._archive.nodes
        if (seen := recording.get("document")) is not None:
            for row in self._archive["document_versions"]:
                if (row["document_id"], row["version"]) == (seen["id"], seen["version"]) and row[
                    "node_id"
                ] not in nodes:
                    scratch.put_document(self._database, row)
        if (seen := recording.get("model")) is not None:
            for row in self._archive["model_specs"]:
                if (row["model_id"], row["version"]) == (seen["modelId"], seen["version"]) and row[
                    "node_id"
                ] not in nodes:
                    scratch.put_model(self._database, row)

    def _repair(self) -> None:
        """What a sweeper may have done: nodes that commits at the same moment have left to it."""
        sweep.start_waiting(self._database, batch=BATCH)
        sweep.reactivate_parents(self._database, batch=BATCH)
        sweep.wake_callers(self._database, batch=BATCH)

    def _go_on(self) -> None:
        """Turns that were never run in the recording: there are some when something has gone another way."""
        for _ in range(MORE_TURNS):
            self._repair()
            left = scratch.next_left(self._database, but=list(self._script.stuck))
            if left is None:
                return
            scratch.make_due(self._database, left.node_id, parked=False)
            self._begin(OnStage(left.node_id, "", waits=False), left.engine, left.turn)
            self._end(left.node_id)
