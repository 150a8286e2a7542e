"""Statements per turn, as PostgreSQL itself has counted them (`pg_stat_statements`)."""

from __future__ import annotations

import re

import psycopg

from bench.contest import run_round, warm_up
from bench.figures import number, table
from bench.sections.base import Section, Setting
from bench.systems.vancetope import Vancetope, VancetopeFourTurns

TARGET = 2.0
# The first words that tell a statement of the store from the others.
_NAMES = (
    # Before the claim: the server shows a constant in a commit the way it shows a claim's parameter.
    ("commit", "moved AS ("),
    ("heartbeat", "unnest($"),
    ("claim", "lease_owner = $"),
    ("submission", "incoming AS MATERIALIZED"),
    ("mark as delivered", "SET delivered_at = now()"),
)
_SUBMISSION = "submission"
_OURS = "bench_watch"


def measure(setting: Setting) -> Section:
    """Count over one round each of jobs of one turn and of four."""
    section = Section(
        name="statements", title="Statements per turn", notes=[
            "Counted by `pg_stat_statements` in the worker's database, without what the benchmark itself asks. "
            "Submissions are the submitter's and not part of a turn.",
        ],
    )  # fmt: skip
    jobs = setting.sizes.statement_jobs
    for label, contestant in (
        ("one turn per job", Vancetope(setting.servers)),
        ("four turns per job", VancetopeFourTurns(setting.servers)),
        ("four turns per job, turn_burst 10", VancetopeFourTurns(setting.servers, burst=10)),
    ):
        try:
            contestant.start()
            warm_up(contestant, max(setting.sizes.warm_jobs // 2, 5))
            _prepare(contestant.database_url)
            run_round(contestant, jobs)
        finally:
            contestant.stop()
        counted = _counted(contestant.database_url)
        contestant.close()
        turns = jobs * contestant.steps_per_job
        rows = [(name, number(calls, 0), number(calls / turns, 3), number(ms / calls, 3))
                for name, (calls, ms) in counted.items()]  # fmt: skip
        total = sum(calls for name, (calls, _) in counted.items() if name != _SUBMISSION)
        rows.append(("**all but submissions**", number(total, 0), number(total / turns, 3), ""))
        section.tables.append(f"{label}, {turns:,} turns:\n\n" + table(
            ("statement", "calls", "per turn", "ms in the server"), rows))  # fmt: skip
        section.data[label] = {"turns": turns, "statements": {name: list(found) for name, found in counted.items()}}
        setting.say(f"statements, {label}: {total / turns:.3f} per turn")
        if total / turns > TARGET:
            section.notes.append(f"{label}: {total / turns:.3f} statements per turn, above the target of {TARGET:.0f}.")
    return section


def _prepare(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        connection.execute("SELECT pg_stat_statements_reset()")


def _counted(database_url: str) -> dict[str, tuple[int, float]]:
    """Calls and milliseconds in the server by statement, the most frequent first."""
    found: dict[str, tuple[int, float]] = {}
    with psycopg.connect(database_url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT query, calls, total_exec_time FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
            " WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%' ORDER BY calls DESC"
        ).fetchall()
    for query, calls, milliseconds in rows:
        if _OURS in query:
            continue
        name = _name(query)
        before = found.get(name, (0, 0.0))
        found[name] = (before[0] + calls, before[1] + milliseconds)
    return found


def _name(query: str) -> str:
    for name, mark in _NAMES:
        if mark in query:
            return name
    return re.sub(r"\s+", " ", query)[:60]
