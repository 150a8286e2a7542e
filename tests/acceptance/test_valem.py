"""Valem on real workers that are killed between and in its turns: the same spec, and only killed calls paid again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cluster import Cluster, Member
from fakes.provider import FakeProvider, Recorded
from fakes.wire_formats import Answer
from processes import eventually
from proof import assert_proven
from valem_specs import GOOD, RAISE_VAT, text, wrong_paths

from engines.valem.check import Answer as SpecAnswer
from engines.valem.check import Surroundings, check
from engines.valem.cursor import Task
from engines.valem.jsonata.evaluation import evaluate_here
from models.store import model_specs, processes
from tasks.faults import POINTS
from tasks.submission import parse_submission, prepare

EVALUATE = Answer(tool_calls=[("eval_jsonata", {"expression": "$sum([1, 2])"})])


def submit(cluster: Cluster, recipe: str, **params: Any) -> UUID:
    payload = {"recipe": recipe, "params": {"model": "compatible:fake-model"} | params}
    process = prepare(parse_submission(payload), cluster.settings, cluster.runtime.engines)
    cluster.runtime.publisher.publish(processes.submit(cluster.runtime.database, [process]))
    return process.id


def kind(request: Recorded) -> str:
    """What the request asks for, in a word."""
    if "is not valid" in request.text:
        return "repair"
    if any(message["role"] == "tool" for message in request.body["messages"]):
        return "with results"
    return "evolution" if "SpecEvolution" in request.text else "first"


class Mortal:
    """One worker that dies wherever it is told to, and its beat."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._folder = folder
        faults = ",".join(f"{point}:kill:{folder / point}" for point in POINTS)
        self.worker: Member = cluster.worker(concurrency=1, environment={"VANCETOPE_FAULT": faults})
        cluster.beat()

    def dies(self, point: str) -> None:
        """Wait until it is dead at the point that was armed, with nothing armed any more."""
        eventually(lambda: not (self._folder / point).exists(), f"the worker reaches {point}")
        eventually(lambda: not self.worker.running, "the worker is dead")

    def arm(self, point: str) -> None:
        (self._folder / point).touch()

    def revive(self) -> None:
        self.worker.start()
        self.worker.wait_ready()

    def run(self, *points: str) -> None:
        """Die at each of the points in turn; the first one is armed already."""
        for at, point in enumerate(points):
            self.dies(point)
            if at + 1 < len(points):
                self.arm(points[at + 1])
            self.revive()


@pytest.mark.timeout(480)
def test_a_generation_and_an_evolution_survive_their_workers(
    cluster: Cluster, provider: FakeProvider, tmp_path: Path
) -> None:
    provider.rule(lambda request: kind(request) == "first", EVALUATE)
    provider.rule(lambda request: kind(request) == "with results", Answer(text=text(wrong_paths(2))))
    provider.rule(lambda request: kind(request) == "repair", Answer(text=text(GOOD)))
    provider.rule(lambda request: kind(request) == "evolution", Answer(text=text(RAISE_VAT)))
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    mortal = Mortal(cluster, tokens)

    # Its call and its tools are over, both times before anybody is told; then an answer that is paid for and lost.
    mortal.arm("after_commit")
    made = submit(cluster, "valem-generate", domainDescription="Orders with lines and VAT.")
    mortal.run("after_commit", "after_commit", "before_commit")
    cluster.wait_closed(made)

    # The same for an evolution; then in the check, and on both sides of the commit that writes the version.
    mortal.arm("after_commit")
    changed = submit(cluster, "valem-evolve", modelId="order-total", evolutionRequest="Raise VAT to 25 %.")
    mortal.run("after_commit", "before_commit", "after_commit", "before_commit", "after_commit")
    cluster.wait_closed(changed)

    assert_proven(cluster.database_url, [made, changed])
    kinds = [kind(request) for request in provider.requests]
    assert kinds == ["first", "with results", "with results", "repair", "evolution"]
    wrapper = cluster.result(made)
    assert (wrapper["success"], wrapper["attempts"], wrapper["version"]) == (True, 2, 1)
    assert wrapper["spec"] == undisturbed(text(GOOD))
    wrapper = cluster.result(changed)
    assert (wrapper["success"], wrapper["attempts"], wrapper["version"]) == (True, 1, 2)
    base = undisturbed(text(GOOD))
    assert wrapper["spec"] == undisturbed(text(RAISE_VAT), base=base)
    stored = model_specs.history(cluster.runtime.database, "default", "default", "order-total")
    assert [(each.version, each.process_id) for each in stored] == [(2, changed), (1, made)]
    assert stored[0].spec == wrapper["spec"]


def undisturbed(answer: str, base: dict[str, Any] | None = None) -> dict[str, Any]:
    """What becomes of an answer when nobody dies."""
    task = Task.GENERATE if base is None else Task.EVOLVE
    around = Surroundings(evaluate_here, 0, time.monotonic)
    candidate = check(SpecAnswer(text=answer, task=task, base=base), around).candidate
    assert candidate is not None
    spec: dict[str, Any] = json.loads(candidate.spec)
    return spec


def test_hostile_expressions_cost_their_own_process_and_nobody_elses(cluster: Cluster, provider: FakeProvider) -> None:
    hostile = [
        {"path": "$.a", "expr": "$pad('x', 999999999)"},
        {"path": "$.b", "expr": "($f := function($x){$f($x + 1)}; $f(1))"},
        {"path": "$.c", "expr": "$match('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!', /^(a+)+$/)"},
    ]
    spec = GOOD | {"derivations": [*GOOD["derivations"], *hostile]}
    tests = [*GOOD["tests"], {"description": "hostile", "given": {"$.discountPct": 1}, "expect": {"$.a": 1}}]
    provider.enqueue(Answer(text=text(spec | {"tests": tests})), Answer(text=text(GOOD)))
    worker = cluster.worker(concurrency=1)
    cluster.beat()
    job = submit(cluster, "valem-generate", domainDescription="Orders.", expressionTimeoutMs=500, checkSeconds=20)
    cluster.wait_closed(job, timeout=120)
    wrapper = cluster.result(job)
    assert (wrapper["success"], wrapper["attempts"]) == (True, 2)
    assert worker.running
    records = cluster.rows(
        "SELECT r.phase FROM phase_records r JOIN nodes n ON n.id = r.node_id WHERE n.process_id = %s ORDER BY r.turn",
        job,
    )
    assert [phase for (phase,) in records] == ["ASK", "CHECK", "ASK", "CHECK", "STORE", "CONFIRM"]
