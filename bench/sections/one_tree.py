"""(T) Cost of a turn in a tree that grows: the same with twenty thousand nodes as with two hundred."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg

from bench import cpu
from bench.figures import median, number, ratio, table, times
from bench.programs.job import ANSWER, TREE_GOAL, child_goal
from bench.sections.base import Section, Setting
from bench.systems.vancetope import tree_rules
from engines.marvin.cursor import NodeCursor
from models.store import processes as store
from models.store.database import Database, Row
from tasks.broker import publisher_app
from tasks.dev import migrate
from tasks.settings import load_settings
from tasks.submission import Submission, prepare
from tasks.wiring import Runtime

TARGET = 1.3
_FAN = 10
_PHASES = 3
_BLOCKS = 6
_WARM_NODES = 2
_SWEEPS = 9
_SHAPES = {"wide": "all below the root", "deep": f"{_FAN} children each"}

# A tree in the middle of its work below a root that is there: half of the leaves are done and have results.
_SEED = """
WITH shaped AS (
  SELECT i, root.id + i AS id, root.process_id, root.id + CASE WHEN %(wide)s THEN 0 ELSE (i - 1) / %(fan)s END AS above,
         CASE WHEN %(wide)s THEN 1 ELSE floor(log(%(fan)s, i * (%(fan)s - 1) + 1)) END AS depth,
         NOT %(wide)s AND i * %(fan)s < %(nodes)s AS inner_node, i %% 2 = 0 AS even
    FROM generate_series(1, %(nodes)s::int) AS i, (SELECT id, process_id FROM nodes) AS root
), made AS (
  INSERT INTO nodes (id, process_id, parent_id, order_key, depth, kind, goal, status, phase, cursor, child_mode,
                     awaiting_post_children, open_children, started_at, settled_at)
  OVERRIDING SYSTEM VALUE
  SELECT id, process_id, above, ARRAY[i], depth, 'WORKER', format(%(goal)s, i),
         CASE WHEN inner_node OR even THEN 'DONE' ELSE 'PENDING' END,
         CASE WHEN inner_node THEN 'POST_CHILDREN' WHEN even THEN 'VALIDATE' ELSE 'SCOPE' END, %(cursor)s::jsonb,
         CASE WHEN inner_node THEN 'PARALLEL' END, inner_node, CASE WHEN inner_node THEN %(fan)s ELSE 0 END, now(),
         CASE WHEN even AND NOT inner_node THEN now() END
    FROM shaped
  RETURNING id, settled_at
), results AS (
  INSERT INTO artifacts (node_id, key, content) SELECT id, 'result', %(result)s FROM made WHERE settled_at IS NOT NULL
), counted AS (
  UPDATE processes SET node_count = node_count + %(nodes)s
)
UPDATE nodes SET status = 'DONE', phase = 'POST_CHILDREN', awaiting_post_children = true, child_mode = 'PARALLEL',
       open_children = %(nodes)s, due_at = NULL, next_hint_at = NULL
"""
# Spread over the whole order: the first and the last of many siblings have fewer neighbours.
_SAMPLE = """
SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS place, count(*) OVER () AS number
                  FROM nodes WHERE status = 'PENDING') n
 WHERE place %% greatest(number / %(wanted)s, 1) = 0 ORDER BY id LIMIT %(wanted)s
"""
_DUE = "UPDATE nodes SET due_at = now(), next_hint_at = now() + interval '1 hour' WHERE id = ANY(%(ids)s)"


def measure(setting: Setting) -> Section:
    """A database for each size and shape, seeded first; then blocks of turns on each by turns: noise hits all alike."""
    servers, sizes = setting.servers, setting.sizes
    script = servers.folder / "script-one-tree.json"
    script.write_text(json.dumps({"rules": tree_rules(0)}))
    redis_url = servers.new_redis()
    meters: list[_Meter] = []
    try:
        for shape in _SHAPES:
            for nodes in sizes.tree_nodes:
                meters.append(_Meter.of(setting, shape, nodes, redis_url, str(script)))
                setting.say(f"one tree, {shape} {nodes:,}: seeded")
        servers.settle()
        for _ in range(_BLOCKS):
            for meter in meters:
                meter.run(_block(setting))
        for meter in meters:
            meter.sweep()
    finally:
        for meter in meters:
            meter.runtime.close()
        servers.release_redis(redis_url)
    section = Section(name="one_tree", title=f"(T) A turn in one growing tree, {meters[0].turns} turns at each size")
    for shape, words in _SHAPES.items():
        _add(section, shape, words, [meter for meter in meters if meter.shape == shape])
    section.notes += [
        "Marvin nodes of three phases in a tree of which half is done, by the real turn runner with the scripted "
        "provider on one connection, calls counted against the recipe's budget; one database per size and shape, "
        "measured in blocks by turns. Of the statements the median is shown, of the rest the mean per turn.",
        "A sweep is a whole one that finds next to nothing to repair.",
    ]
    return section


def _add(section: Section, shape: str, words: str, meters: list[_Meter]) -> None:
    """The table of one shape, and whether its turns stay flat."""
    figures = [meter.figures() for meter in meters]
    header = (f"nodes, {words}", *figures[0])
    rows = [
        (number(meter.nodes, 0), *(number(value, 2) for value in found.values()))
        for meter, found in zip(meters, figures, strict=True)
    ]
    largest = {name: ratio(figures[-1][name], figures[0][name]) for name in figures[0]}
    rows.append(("largest to smallest", *map(times, largest.values())))
    section.tables.append(table(header, rows))
    section.data[shape] = {str(meter.nodes): found for meter, found in zip(meters, figures, strict=True)}
    over = [f"{name.partition(',')[0]} {times(value)}" for name, value in largest.items() if value > TARGET]
    verdict = f"**missed** by {', '.join(over)}" if over else "met"
    section.notes.append(f"Target, {shape} tree: every figure within {TARGET}× of the smallest tree's: {verdict}.")


def _block(setting: Setting) -> int:
    return max(setting.sizes.tree_samples // _PHASES // _BLOCKS, 1)


class _TimedDatabase(Database):
    """Adds up the milliseconds of each statement of the store, by what it is for."""

    def __init__(self, url: str) -> None:
        super().__init__(url, pool_size=1)
        self.took: defaultdict[str, list[float]] = defaultdict(list)
        self.recording = False

    def statement(self, sql: str, params: dict[str, Any]) -> list[Row]:
        started = time.perf_counter()
        try:
            return super().statement(sql, params)
        finally:
            if self.recording:
                self.took[_kind(sql)].append((time.perf_counter() - started) * 1000)


_KINDS = (
    ("commit", "moved AS ("),
    ("claim", "lease_owner = %(owner)s, lease_expires_at = now() + make_interval(secs => %(lease)s),\n         fence"),
    ("heartbeat", "mine AS MATERIALIZED"),
    ("reservation", "holder AS ("),
    ("snapshot", "WITH RECURSIVE path"),
    ("flush", "pg_logical_emit_message"),
)


def _kind(sql: str) -> str:
    return next((name for name, mark in _KINDS if mark in sql), "other")


@dataclass(slots=True, kw_only=True)
class _Meter:
    """One database with one tree, and one worker's runner on it, without a broker in between."""

    shape: str
    nodes: int
    runtime: Runtime
    database: _TimedDatabase
    samples: list[int]
    turns: int = 0
    client_seconds: float = 0.0
    server_seconds: float = 0.0
    sweeps: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, setting: Setting, shape: str, nodes: int, redis_url: str, script: str) -> Self:
        """Seed a tree in a database of its own."""
        url = setting.servers.new_database("tree")
        migrate.upgrade(url)
        settings = load_settings(
            {"VANCETOPE_DATABASE_URL": url, "VANCETOPE_REDIS_URL": redis_url, "VANCETOPE_SCRIPTED_FILE": script}
        )
        runtime = Runtime(settings, publisher_app(settings))
        database = _TimedDatabase(url)
        runtime.__dict__["database"] = database
        new = prepare(Submission(recipe="marvin", goal=TREE_GOAL), settings, runtime.engines)
        store.submit(database, [new])
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                _SEED,
                {
                    "wide": shape == "wide",
                    "fan": _FAN,
                    "nodes": nodes,
                    "goal": child_goal("%s"),
                    "cursor": json.dumps(NodeCursor().to_json()),
                    "result": json.dumps(ANSWER),
                },
            )
            connection.execute("VACUUM (ANALYZE)")
            found = [
                row[0] for row in connection.execute(_SAMPLE, {"wanted": _BLOCKS * (_block(setting) + _WARM_NODES)})
            ]
            connection.execute(_DUE, {"ids": found})
        # Mixed, so that no block has only early ones.
        random.Random(nodes).shuffle(found)
        return cls(shape=shape, nodes=nodes, runtime=runtime, database=database, samples=found)

    def run(self, nodes: int) -> None:
        """Run some nodes from their first turn to their last: a few to warm up, then ``nodes`` measured."""
        for _ in range(_WARM_NODES):
            self._node()
        backend = self.database.statement("SELECT pg_backend_pid()", {})[0][0]
        self.database.recording = True
        client, server = time.process_time(), cpu.seconds(backend)
        for _ in range(nodes):
            self._node()
            self.turns += _PHASES
        self.client_seconds += time.process_time() - client
        self.server_seconds += cpu.seconds(backend) - server
        self.database.recording = False

    def _node(self) -> None:
        node = self.samples.pop()
        for turn in range(1, _PHASES + 1):
            assert self.runtime.runner.run("marvin", node, turn) == 1, f"turn {turn} of node {node} was not run"

    def sweep(self) -> None:
        for _ in range(_SWEEPS):
            started = time.perf_counter()
            self.runtime.sweeper.sweep()
            self.sweeps.append((time.perf_counter() - started) * 1000)

    def figures(self) -> dict[str, float]:
        """What a turn costs: milliseconds, and statements."""
        took = self.database.took
        return {
            "statements": sum(map(len, took.values())) / self.turns,
            "in statements, ms": sum(map(sum, took.values())) / self.turns,
            "client CPU, ms": self.client_seconds / self.turns * 1000,
            "PostgreSQL CPU, ms": self.server_seconds / self.turns * 1000,
            **{f"{kind}, ms": median(took[kind]) for kind in ("claim", "snapshot", "reservation", "commit")},
            "sweep, ms": median(self.sweeps),
        }
