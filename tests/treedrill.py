"""The drill's tree: one plan of thousands of nodes while workers, PostgreSQL and Redis are killed; then the proof.

The harm goes on until the plan is closed. What must be true is read from the tables (``treeproof``), from what the
person was told, and from the fake provider's own log.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from chaos import Chaos, Tally
from cluster import Cluster, provider_process
from proof import CHECKS, broken
from services import private_folder
from treeplan import LOOKUP, MAX_DEPTH, QUESTION, Key, TreePlan, answer_to
from treeproof import TreeProof

from models.store import documents, inbox
from models.store.database import DatabaseUnavailable
from models.store.inbox import Outcome
from tasks.dev import migrate
from tasks.dev.postgres import Postgres
from tasks.dev.redis import Redis
from tasks.inbox import answer_item

WORKERS, BEATS, CONCURRENCY = 4, 2, 4
LEASE_SECONDS = 4.0
PACE_SECONDS = (0.5, 3.0)
HARM_SECONDS = 1800.0
SETTLE_SECONDS = 600.0
LONGEST_CALL_SECONDS = 2.0
PERSON = "ada"
RECIPES = {
    "tree-drill": """
description: A plan whose every answer is known.
engine: marvin
params: {model: "compatible:fake-model", availableRecipes: [lookup], defaultExecutionMode: PARALLEL}
limits: {maxCalls: 1000000, maxCostUsd: 1000000}
""",
    LOOKUP: """
description: Knows one fact.
engine: jeltz
params: {model: "compatible:fake-model"}
schema: {type: object, required: [fact], properties: {fact: {type: string}}}
""",
}
# A price, so that the money is counted too.
PRICES = "providers: {compatible: {defaults: {prices: {input: 1, output: 2}}}}\n"


def tree_settings(folder: Path) -> dict[str, object]:
    """The recipes and the price of a tree's cluster, written to ``folder``, as settings."""
    for name, text in RECIPES.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    prices = folder / "prices.yml"
    prices.write_text(PRICES, encoding="utf-8")
    return {"recipes_dir": folder, "catalogue_file": prices}


def submit_tree(cluster: Cluster, plan: TreePlan, *, project: str = "default") -> UUID:
    """Store the plan's documents and submit it, with exactly as much room as it needs."""
    for path, text in plan.documents.items():
        documents.put(cluster.runtime.database, "default", project, path, text)
    params = {"maxTreeNodes": plan.root.size, "maxTreeDepth": MAX_DEPTH}
    return cluster.submit_recipe("tree-drill", goal=plan.root.goal, params=params, project=project)


class Person:
    """Answers what the inbox holds; now and then says the same once more, or the contrary, which must be refused.

    say: gives an answer and tells what became of it; raises one of ``unheard`` when that is not known.
    """

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        *,
        project: str = "default",
        say: Callable[[int, dict[str, Any]], Outcome] | None = None,
        unheard: tuple[type[Exception], ...] = (DatabaseUnavailable,),
    ) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._project = project
        self._say = say or self._say_directly
        self._unheard = unheard
        self.unsure: set[int] = set()
        """Answered, but nobody said what became of it: the answer may be stored."""
        self.told: dict[int, list[Outcome]] = defaultdict(list)
        self.wrong: list[Any] = []

    def look(self) -> None:
        """Answer every open question once."""
        try:
            for item in inbox.items(self._cluster.runtime.database, "default", self._project, limit=1000):
                self._answer(item.id, item.title)
        except DatabaseUnavailable:
            self._cluster.runtime.database.dispose()

    def _say_directly(self, item_id: int, answer: dict[str, Any]) -> Outcome:
        return answer_item(self._cluster.runtime, item_id, answer, by=PERSON).outcome

    def _answer(self, item_id: int, title: str) -> None:
        right = answer_to(title)
        contrary = {"outcome": "INSUFFICIENT_INFO", "reason": "on second thoughts"}
        given = [(right, Outcome.STORED)]
        if self._random.random() < 0.3:
            given += [(right, Outcome.SAME), (contrary, Outcome.OTHER)]
        for answer, wanted in given:
            try:
                said = self._say(item_id, answer)
            except self._unheard:
                self.unsure.add(item_id)
                return
            self.told[item_id].append(said)
            if said is not wanted and not (said is Outcome.SAME and item_id in self.unsure):
                self.wrong.append((title, answer, said))


@dataclass
class TreeEvidence:
    """Everything the verdict is read from."""

    plan: TreePlan
    root: UUID
    tally: Tally
    cluster: Cluster
    person: Person
    calls: dict[Key, list[float]]
    """The provider's log: when each call of the plan came in."""
    strange: int
    """Calls that are not of this plan."""

    @property
    def proof(self) -> TreeProof:
        return TreeProof(self.cluster.database_url, self.root, self.plan)

    def claims(self) -> dict[str, list[Any]]:
        """Every claim with what breaks it."""
        general = broken(self.cluster.database_url, [self.root])
        found: dict[str, list[Any]] = {claim: list(general.get(claim, ())) for claim in [*CHECKS, *general]}
        found |= {claim: check() for claim, check in self.proof.claims.items()}
        found["one answer to each question was accepted, every other refused"] = self._answers()
        found["the provider was asked what is planned and nothing else"] = self._not_planned()
        found["every call without a ledger row is explained by a kill, a pause or a restart"] = self._unexplained()
        letters = self.cluster.rows("SELECT task, problem FROM dead_letters LIMIT 5")
        found["no message had to be set aside"] = letters
        return found

    def _answers(self) -> list[Any]:
        questions = sum(task.kind == QUESTION for task in self.plan.tasks.values())
        told = self.person.told
        # What was said while the database went away may have been stored without a word about it.
        asked = len(told.keys() | self.person.unsure)
        unanswered = [] if asked == questions else [f"asked {asked} of {questions} questions"]
        return [*self.person.wrong, *unanswered, *(each for each in told.items() if each[1].count(Outcome.STORED) > 1)]

    def _not_planned(self) -> list[Any]:
        missing = [key for key in self.plan.calls if key not in self.calls]
        strange = [key for key in self.calls if key not in self.plan.calls]
        return [*missing, *strange, *([f"{self.strange} strange calls"] if self.strange else [])]

    def lost(self) -> Counter[str]:
        """By goal: how many calls were made that no turn has kept."""
        kept = Counter(key for key, *_ in self.proof.ledger())
        lost: Counter[str] = Counter()
        for key, times in self.calls.items():
            lost[key[0]] += len(times) - kept[key]
        return Counter({goal: number for goal, number in lost.items() if number})

    def _unexplained(self) -> list[Any]:
        hits = self.hits()
        return [
            (goal, f"{number} calls lost", f"{hits[goal]} hits")
            for goal, number in self.lost().items()
            if number < 0 or number > hits[goal]
        ]

    def hits(self) -> Counter[str]:
        """By goal: the ends and pauses of workers that held it, and the outages of the database around its calls."""
        asked_by = self.proof.asked_by()
        found: Counter[str] = Counter()
        for node, number in self.tally.nodes.items():
            found[asked_by.get(node, "?")] += number
        for key, times in self.calls.items():
            for down, up in self.tally.outages:
                found[key[0]] += any(down - LONGEST_CALL_SECONDS < at < up + LEASE_SECONDS for at in times)
        return found


def read_calls(path: Path) -> tuple[dict[Key, list[float]], int]:
    """The provider's log by call, and how many it did not know."""
    calls: dict[Key, list[float]] = defaultdict(list)
    strange = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        call = json.loads(line)
        if call["tree"] is None:
            strange += 1
        else:
            goal, phase, iteration, attempt = call["tree"]
            calls[goal, phase, iteration, attempt].append(call["at"])
    return calls, strange


def report(evidence: TreeEvidence, claims: dict[str, list[Any]], *, seed: int, chaos: float, whole: float) -> None:
    """The figures, readable."""
    plan, tally = evidence.plan, evidence.tally
    kinds = Counter(task.kind for task in plan.tasks.values())
    made = sum(len(times) for times in evidence.calls.values())
    kept = len(evidence.proof.ledger())
    print(f"\nseed {seed}; a tree of {plan.root.size} nodes; {WORKERS} workers of {CONCURRENCY} threads, {BEATS} beats")
    print(f"chaos for {chaos:.0f} s, closed after {whole:.0f} s altogether")
    for kind, number in kinds.most_common():
        print(f"  nodes {kind:<36}{number:>6}")
    for deed, number in tally.deeds.most_common():
        print(f"  done  {deed:<36}{number:>6}")
    turns = sum(len(plan.turns(task)) for task in plan.tasks.values())
    subs = sum(task.calls for task in plan.tasks.values())
    print(f"turns {turns} of nodes and {subs} of sub-processes")
    print(f"calls {made} = {kept} in the ledger + {made - kept} lost, of {len(evidence.lost())} nodes")
    answers = sum(map(len, evidence.person.told.values()))
    print(f"hits on running turns: {sum(tally.nodes.values())}; answers given: {answers}")
    for claim, rows in claims.items():
        print(f"  {'BROKEN' if rows else 'holds '}  {claim}")
        for row in rows[:5]:
            print(f"            {row}")


def run(nodes: int, seed: int, folder: Path, say: Callable[[str], None], *, seconds: float, burst: int) -> bool:
    """Grow one tree under harm. seconds: the longest time that harm is done."""
    plan = TreePlan(nodes, seed)
    with ExitStack() as stack:
        data = stack.enter_context(private_folder())
        postgres = stack.enter_context(Postgres(data / "postgres", unsafe_fast=True))
        broker = stack.enter_context(Redis(data / "redis"))
        migrate.upgrade(postgres.dsn)
        url, log = stack.enter_context(provider_process(folder, "--tree", f"{nodes}:{seed}"))
        cluster = Cluster(
            folder,
            database_url=postgres.dsn,
            redis_url=broker.url,
            provider_url=url,
            lease_seconds=LEASE_SECONDS,
            sweep_seconds=0.5,
            turn_burst=burst,
            **tree_settings(folder),
        )
        stack.callback(cluster.close)
        workers = cluster.workers(WORKERS, concurrency=CONCURRENCY)
        beats = [cluster.beat() for _ in range(BEATS)]
        chaos = Chaos(
            cluster=cluster, workers=workers, beats=beats, postgres=postgres, broker=broker, seed=seed, say=say,
            pace=PACE_SECONDS, merciful=True,
        )  # fmt: skip
        person = Person(cluster, seed)
        began = time.monotonic()
        root = submit_tree(cluster, plan)
        if seconds:
            chaos.run(seconds, between=person.look, over=lambda: cluster.status(root) == "CLOSED")
        harm = time.monotonic() - began
        settle(cluster, root, person, say)
        whole = time.monotonic() - began
        for member in cluster.members:
            member.kill()
        calls, strange = read_calls(log)
        evidence = TreeEvidence(plan, root, chaos.tally, cluster, person, calls, strange)
        claims = evidence.claims()
        report(evidence, claims, seed=seed, chaos=harm, whole=whole)
    return not any(claims.values())


def settle(cluster: Cluster, root: UUID, person: Person, say: Callable[[str], None]) -> None:
    """Wait until the tree is closed and its result handed over; what is left open then is a finding."""
    deadline = time.monotonic() + SETTLE_SECONDS
    shown = -1
    while cluster.open_jobs([root]) and time.monotonic() < deadline:
        person.look()
        left = cluster.rows("SELECT count(*) FROM nodes WHERE settled_at IS NULL")[0][0]
        if left // 100 != shown:
            say(f"{left} nodes are open")
            shown = left // 100
        time.sleep(0.2)
