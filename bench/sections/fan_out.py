"""(C) One job that fans out into many branches, waits for all of them and goes on."""

from __future__ import annotations

from bench.contest import Contestant, interleaved
from bench.programs.job import CHILD_STEPS, LAST_STEPS
from bench.sections.base import Section, Setting
from bench.sections.contests import contest_section, verdict
from bench.sections.many_turns import BURST
from bench.systems.celery_noop import CeleryChord
from bench.systems.dbos import DbosTree
from bench.systems.langgraph import LanggraphTree
from bench.systems.vancetope import VancetopeSteps, VancetopeTree

TARGET_TIMES, BURST_TARGET_TIMES = 1.0, 1.5


def measure(setting: Setting) -> Section:
    """One job per round: what counts is how long a single plan takes, not how many at once hide each other's waits.

    Bare steps stand beside the peers' bare steps; a real Marvin plan of the same form shows what an engine adds.
    """
    servers, sizes = setting.servers, setting.sizes
    children = sizes.tree_children
    plain = VancetopeSteps(servers, children=children, name="vancetope, one message per turn")
    burst = VancetopeSteps(servers, children=children, name=f"vancetope, turn_burst {BURST}", burst=BURST)
    marvin = [
        VancetopeTree(servers, children, name="a Marvin plan, one message per turn"),
        VancetopeTree(servers, children, name=f"a Marvin plan, turn_burst {BURST}", burst=BURST),
    ]
    peers: list[Contestant] = []
    if setting.peers_python is not None:
        peers = [
            DbosTree(servers, setting.peers_python, children),
            LanggraphTree(servers, setting.peers_python, children),
        ]
    contestants: list[Contestant] = [plain, burst, *marvin, CeleryChord(servers, children), *peers]
    results = interleaved(contestants, rounds=sizes.rounds, jobs=1, warm_jobs=1, say=setting.say)
    section = contest_section(
        "fan_out",
        f"(C) One job of {children} branches of {CHILD_STEPS} durable steps, joined, and {LAST_STEPS} steps more, "
        f"{sizes.rounds} rounds",
        contestants,
        results,
        against=plain.name,
    )
    durable = [peer.name for peer in peers]
    if durable:
        section.notes.append(verdict(plain.name, durable, results, at_least=TARGET_TIMES))
        section.notes.append(verdict(burst.name, durable, results, at_least=BURST_TARGET_TIMES))
    return section
