"""CPU per turn, one message per turn and in bursts: jobs of four turns, and what the targets say of them."""

from __future__ import annotations

from bench.contest import interleaved
from bench.figures import number
from bench.sections.base import Section, Setting
from bench.sections.contests import contest_section, of_rounds
from bench.systems.vancetope import VancetopeFourTurns

TARGET_MS = 4.0
BURST_TARGET_MS = 2.2
BURST = 10


def measure(setting: Setting) -> Section:
    """The same jobs twice: the guarantees are the same, the trips through the broker are not."""
    sizes = setting.sizes
    plain = VancetopeFourTurns(setting.servers, name="one message per turn")
    burst = VancetopeFourTurns(setting.servers, name=f"turn_burst {BURST}", burst=BURST)
    contestants = [plain, burst]
    results = interleaved(
        contestants, rounds=sizes.rounds, jobs=sizes.long_jobs, warm_jobs=max(sizes.warm_jobs // 4, 5), say=setting.say
    )
    section = contest_section(
        "many_turns",
        f"CPU per turn: {sizes.long_jobs:,} jobs of four turns, {sizes.rounds} rounds",
        contestants,
        results,
        against=plain.name,
    )
    for contestant, target in ((plain, TARGET_MS), (burst, BURST_TARGET_MS)):
        found = of_rounds(results[contestant.name], lambda each: each.worker_ms)
        verdict = "met" if found <= target else "**missed**"
        section.notes.append(
            f"Target of {contestant.name}: {target} ms of worker CPU per turn; found {number(found, 2)}: {verdict}."
        )
    return section
