"""(A) One durable step per job, against the ceiling of bare Celery and against other durable engines."""

from __future__ import annotations

from bench.contest import Contestant, interleaved
from bench.sections.base import Section, Setting
from bench.sections.contests import contest_section
from bench.systems.celery_noop import CeleryNoop
from bench.systems.dbos import DbosOneStep
from bench.systems.langgraph import LanggraphOneStep
from bench.systems.vancetope import Vancetope


def measure(setting: Setting) -> Section:
    """One round of everybody, then the next."""
    servers, sizes = setting.servers, setting.sizes
    contestants: list[Contestant] = [Vancetope(servers), CeleryNoop(servers)]
    if setting.prefork:
        contestants += [
            Vancetope(servers, name="vancetope, prefork", pool="prefork", concurrency=2),
            CeleryNoop(servers, name="Celery no-op, prefork", pool="prefork", concurrency=2),
        ]
    if setting.peers_python is not None:
        contestants += [
            DbosOneStep(servers, setting.peers_python),
            LanggraphOneStep(servers, setting.peers_python),
        ]
    results = interleaved(contestants, rounds=sizes.rounds, jobs=sizes.jobs, warm_jobs=sizes.warm_jobs, say=setting.say)
    return contest_section(
        "one_turn",
        f"(A) {sizes.jobs:,} jobs of one durable step, {sizes.rounds} rounds",
        contestants,
        results,
        against="vancetope",
    )
