"""(B) Many jobs of several durable steps, handed in at once: against the peers, and CPU per turn against targets."""

from __future__ import annotations

from bench.contest import Contestant, interleaved
from bench.figures import number
from bench.programs.job import CHAIN_STEPS
from bench.sections.base import Section, Setting
from bench.sections.contests import contest_section, of_rounds, verdict
from bench.systems.celery_noop import CeleryChain
from bench.systems.dbos import DbosChain
from bench.systems.langgraph import LanggraphChain
from bench.systems.vancetope import VancetopeFourTurns, VancetopeSteps

TARGET_MS = 4.0
BURST_TARGET_MS = 2.2
BURST = 10
TARGET_TIMES, BURST_TARGET_TIMES = 1.0, 2.0


def measure(setting: Setting) -> Section:
    """vancetope with and without bursts: the guarantees are the same, the trips through the broker are not.

    Bare steps stand beside the peers' bare steps; jeltz jobs of as many turns show what an engine adds.
    """
    servers, sizes = setting.servers, setting.sizes
    plain = VancetopeSteps(servers, name="vancetope, one message per turn")
    burst = VancetopeSteps(servers, name=f"vancetope, turn_burst {BURST}", burst=BURST)
    jeltz = VancetopeFourTurns(servers, name="jeltz, one message per turn")
    jeltz_burst = VancetopeFourTurns(servers, name=f"jeltz, turn_burst {BURST}", burst=BURST)
    peers: list[Contestant] = []
    if setting.peers_python is not None:
        peers = [DbosChain(servers, setting.peers_python), LanggraphChain(servers, setting.peers_python)]
    contestants: list[Contestant] = [plain, burst, jeltz, jeltz_burst, CeleryChain(servers), *peers]
    results = interleaved(
        contestants, rounds=sizes.rounds, jobs=sizes.long_jobs, warm_jobs=max(sizes.warm_jobs // 4, 5), say=setting.say
    )
    section = contest_section(
        "many_turns",
        f"(B) {sizes.long_jobs:,} jobs of {CHAIN_STEPS} durable steps, {sizes.rounds} rounds",
        contestants,
        results,
        against=plain.name,
    )
    durable = [peer.name for peer in peers]
    if durable:
        section.notes.append(verdict(plain.name, durable, results, at_least=TARGET_TIMES))
        section.notes.append(verdict(burst.name, durable, results, at_least=BURST_TARGET_TIMES))
    for contestant, milliseconds in ((jeltz, TARGET_MS), (jeltz_burst, BURST_TARGET_MS)):
        found = of_rounds(results[contestant.name], lambda each: each.worker_ms)
        met = "met" if found <= milliseconds else "**missed**"
        section.notes.append(
            f"Target of {contestant.name}: {milliseconds} ms of worker CPU per turn; found {number(found, 2)}: {met}."
        )
    return section
