"""Cost of a turn's two statements with more and more finished work in the tables: it must stay the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from bench import cpu
from bench.figures import median, number, percentile, ratio, table, times
from bench.programs.job import ANSWER, PROMPT, SCHEMA
from bench.sections.base import Section, Setting
from engines.base import AskModel, ModelReplied
from engines.jeltz.engine import Jeltz
from engines.llm.scripted import Script, ScriptedClient
from models.records import NewProcess
from models.store import processes as store
from models.store import sweep
from models.store.claim import claim_turn
from models.store.commit import commit_turn
from models.store.database import Database
from tasks.accounting import finished_call
from tasks.dev import migrate
from tasks.settings import Settings
from tasks.submission import Submission, prepare

# One closed process with everything that belongs to it, for each number of a range. What is written is right by
# construction, so the triggers that would look up each foreign key are left out while seeding.
_SEED = """
WITH made AS (
  INSERT INTO processes (id, root_id, tenant, project, engine, recipe_name, status, close_reason, created_at,
                         started_at, closed_at, delivered_at)
  SELECT id, id, 'default', 'default', 'jeltz', 'jeltz', 'CLOSED', 'DONE', at, at, at + interval '1 second',
         at + interval '2 seconds'
    FROM (SELECT gen_random_uuid() AS id, now() - interval '90 days' + i * interval '1 second' AS at
            FROM generate_series(%(first)s::int, %(last)s::int) AS i) AS invented
  RETURNING id, closed_at
), node AS (
  INSERT INTO nodes (process_id, kind, status, phase, turn, fence, started_at, settled_at)
  SELECT id, 'root', 'DONE', 'ANSWER', 2, 1, closed_at, closed_at FROM made
  RETURNING id, process_id, settled_at
), inputs AS (
  INSERT INTO process_inputs (process_id, goal, params, recipe)
  SELECT id, '', %(params)s::json, %(recipe)s::json FROM made
), result AS (
  INSERT INTO results (process_id, wrapper) SELECT id, %(wrapper)s::json FROM made
), record AS (
  INSERT INTO phase_records (node_id, turn, phase, iteration, reason, output)
  SELECT id, 1, 'ANSWER', 1, 'CONCLUDED', '{"success": true, "attempts": 1}' FROM node
), ledger AS (
  INSERT INTO llm_calls (node_id, turn, process_id, root_id, attempt, provider, model, stop_reason, input_tokens,
                         output_tokens, cache_read_tokens, cache_write_tokens, latency_ms, reached_inference)
  SELECT id, 1, process_id, process_id, 1, 'scripted', 'scripted', 'stop', 200, 30, 0, 0, 700, true FROM node
)
INSERT INTO messages (process_id, node_id, role, kind, content)
SELECT process_id, id, m.role, m.kind, m.content
  FROM node, (VALUES ('user', 'prompt', %(prompt)s), ('assistant', 'result', %(message)s)) AS m (role, kind, content)
"""
_SEED_BATCH = 50_000
_WARM = 20
_BLOCKS = 6
_ENGINE = Jeltz()
_CLIENT = ScriptedClient(Script.from_data({"default": {"json": ANSWER}}))


@dataclass(slots=True, kw_only=True)
class _Cost:
    """What was measured at one size. Milliseconds per turn."""

    rows: int
    wall: list[float]
    client_cpu: float
    server_cpu: float
    sweep_ms: float


def measure(setting: Setting) -> Section:
    """A database for each size, seeded first; then blocks of fresh jobs on each by turns: noise hits all alike."""
    meters: list[_Meter] = []
    try:
        for size in setting.sizes.history:
            database_url = setting.servers.new_database("history")
            migrate.upgrade(database_url)
            new = _job(database_url)
            started = time.perf_counter()
            _seed(database_url, size, new())
            setting.say(f"history {size:,}: seeded in {time.perf_counter() - started:.0f} s")
            meters.append(_Meter(size=size, database=Database(database_url, pool_size=1), new=new))
        setting.servers.settle()
        block = max(setting.sizes.history_samples // _BLOCKS, 1)
        for _ in range(_BLOCKS):
            for meter in meters:
                meter.run(block)
        costs = [meter.cost() for meter in meters]
    finally:
        for meter in meters:
            meter.database.dispose()
    for cost in costs:
        setting.say(f"history {cost.rows:,}: {median(cost.wall):.2f} ms per turn, sweep {cost.sweep_ms:.2f} ms")
    first = median(costs[0].wall)
    rows = [
        (
            number(cost.rows, 0),
            number(median(cost.wall), 2),
            number(percentile(cost.wall, 95), 2),
            times(ratio(median(cost.wall), first)),
            number(cost.client_cpu, 2),
            number(cost.server_cpu, 2),
            number(cost.sweep_ms, 2),
        )
        for cost in costs
    ]
    header = ("finished processes", "median ms", "p95 ms", "ratio", "client CPU ms", "PostgreSQL CPU ms", "a sweep, ms")
    return Section(
        name="history",
        title=f"Cost of claim and commit with history, {setting.sizes.history_samples} turns at each size",
        tables=[table(header, rows)],
        notes=[
            "One database per size, measured in blocks by turns; one connection, one turn after the other, real "
            "durability; each finished process has its row in "
            "processes, nodes, process_inputs, results, phase_records and llm_calls, and two in messages.",
            "A sweep is the statements of one sweep that finds nothing to repair.",
        ],
        data={
            str(cost.rows): {
                "wall_ms": cost.wall,
                "client_cpu_ms": cost.client_cpu,
                "server_cpu_ms": cost.server_cpu,
                "sweep_ms": cost.sweep_ms,
            }
            for cost in costs
        },
    )


def _job(database_url: str) -> Callable[[], NewProcess]:
    settings = Settings.model_validate({"database_url": database_url})
    engines = {"jeltz": _ENGINE}
    params: dict[str, Any] = {"prompt": PROMPT, "schema": SCHEMA}
    return lambda: prepare(Submission(recipe="jeltz", params=params), settings, engines)


def _seed(database_url: str, size: int, like: NewProcess) -> None:
    """Store ``size`` finished processes, and bring the planner's statistics up to date."""
    wrapper = {"success": True, "attempts": 1, "data": ANSWER}
    given = {
        "params": json.dumps(like.params),
        "recipe": json.dumps(like.recipe),
        "wrapper": json.dumps(wrapper),
        "message": json.dumps(wrapper, indent=2),
        "prompt": PROMPT,
    }
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        for first in range(1, size + 1, _SEED_BATCH):
            connection.execute(_SEED, {"first": first, "last": min(first + _SEED_BATCH - 1, size), **given})
        connection.execute("VACUUM (ANALYZE)")


@dataclass(slots=True, kw_only=True)
class _Meter:
    """Runs the two statements of turns on one database and adds up what they cost."""

    size: int
    database: Database
    new: Callable[[], NewProcess]
    wall: list[float] = field(default_factory=list)
    client_seconds: float = 0.0
    server_seconds: float = 0.0

    def run(self, turns: int) -> None:
        """Store fresh jobs and run them: some to warm up caches and prepared statements, then ``turns`` measured."""
        due = store.submit(self.database, [self.new() for _ in range(turns + _WARM)])
        kept, client = len(self.wall), self.client_seconds
        for turn in due[:_WARM]:
            self.turn(turn.node_id, turn.turn)
        del self.wall[kept:]
        self.client_seconds = client
        backend = self.database.statement("SELECT pg_backend_pid()", {})[0][0]
        server = cpu.seconds(backend)
        for turn in due[_WARM:]:
            self.turn(turn.node_id, turn.turn)
        self.server_seconds += cpu.seconds(backend) - server

    def cost(self) -> _Cost:
        """What was measured so far, and what a sweep costs here."""
        return _Cost(
            rows=self.size,
            wall=self.wall,
            client_cpu=self.client_seconds / len(self.wall) * 1000,
            server_cpu=self.server_seconds / len(self.wall) * 1000,
            sweep_ms=_sweep(self.database),
        )

    def turn(self, node_id: int, number_of_turn: int) -> None:
        """Claim, decide, commit. Only claim and commit are measured."""
        with self._measured():
            claim = claim_turn(
                self.database, node_id, number_of_turn, owner="bench:1", lease_seconds=30, history=0, nonce="0"
            )
        assert claim is not None, f"node {node_id} cannot be claimed"
        need = _ENGINE.prepare(claim.view)
        assert isinstance(need, AskModel)
        reply = _CLIENT.complete(need.request)
        step = _ENGINE.decide(claim.view, ModelReplied(reply=reply))
        with self._measured(more=True):
            commit_turn(self.database, claim, step, call=finished_call(reply, need.attempt), elapsed_seconds=0.0)

    @contextmanager
    def _measured(self, *, more: bool = False) -> Iterator[None]:
        processor, started = time.process_time(), time.perf_counter()
        yield
        took = (time.perf_counter() - started) * 1000
        self.client_seconds += time.process_time() - processor
        if more:
            self.wall[-1] += took
        else:
            self.wall.append(took)


def _sweep(database: Database) -> float:
    """The median of some empty sweeps, in milliseconds."""
    took = []
    for _ in range(9):
        started = time.perf_counter()
        for repair in (sweep.take_back_expired, sweep.reactivate_parents, sweep.wake_callers, sweep.wake_overdue,
                       sweep.republish_due, sweep.poisoned_processes, store.undelivered):  # fmt: skip
            repair(database, batch=500)
        took.append((time.perf_counter() - started) * 1000)
    return median(took)
