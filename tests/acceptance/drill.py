"""The drill: hundreds of jobs, or one large tree, while workers, PostgreSQL and Redis are killed, paused, flushed.

::

    python tests/acceptance/drill.py --jobs 300 --seed 1
    python tests/acceptance/drill.py --tree 2000 --seed 1

Exit code 0 when every claim holds, 1 when one does not. The claims are read from the tables and from the fake
provider's own log (README, "What is promised").
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # run as a script: neither the repository nor the tests are on the path yet
    sys.path[0:1] = [str(ROOT), str(ROOT / "tests")]

import redis
import treedrill
from celery.backends.redis import RedisBackend
from chaos import Chaos, Tally
from cluster import Cluster, provider_process
from fakes.receiver import NETWORKS, Answer, Receiver, Request
from hooks import endpoint
from proof import CHECKS, broken
from services import private_folder

from models.store.database import DatabaseUnavailable
from models.store.webhooks import Event
from tasks.dev import migrate
from tasks.dev.postgres import Postgres
from tasks.dev.redis import Redis

WORKERS, BEATS, CONCURRENCY = 3, 2, 4
LEASE_SECONDS = 4.0
SETTLE_SECONDS = 180.0
LONGEST_CALL_SECONDS = 6.0
# How results may end besides success: a turn that was hit three times in a row is given up, as it should be.
GIVEN_UP = "internal_error"


@dataclass
class Job:
    """One question and what the provider will say to it."""

    number: int
    behaviour: str
    answers: list[dict[str, Any]]
    id: UUID | None = None

    @property
    def mark(self) -> str:
        return f"drill-{self.number:05d}"


def make_jobs(number: int, dice: random.Random) -> list[Job]:
    """Jobs of mixed behaviour. Each has an answer of its own, so that no result can be taken for another's."""
    jobs = []
    for place in range(number):
        good: dict[str, Any] = {"json": {"n": place}, "delay": round(dice.uniform(0.05, 0.4), 3)}
        kinds: dict[str, list[dict[str, Any]]] = {
            "valid": [good],
            "one correction": [{"text": "I would rather not use JSON"}, good],
            "429, retry after 1 s": [{"status": 429, "headers": {"retry-after": "1"}}, good],
            "cut stream": [{**good, "break_after": 2, "chunk_size": 2}, good],
            "slow": [{**good, "delay": round(dice.uniform(1.0, 5.0), 3)}],
        }
        behaviour = dice.choices(list(kinds), [45, 20, 10, 10, 15])[0]
        jobs.append(Job(place, behaviour, kinds[behaviour]))
    return jobs


class Submitter:
    """Submits jobs as a client does: with its own id, again until the database has said yes."""

    def __init__(self, cluster: Cluster, jobs: list[Job]) -> None:
        self._cluster = cluster
        self._waiting = list(jobs)

    def some(self, number: int) -> None:
        for _ in range(min(number, len(self._waiting))):
            job = self._waiting.pop(0)
            identity = self._cluster.new_id()
            while job.id is None:
                try:
                    job.id = self._cluster.submit(f"What is the number of {job.mark}?", id=identity)
                except DatabaseUnavailable:
                    time.sleep(0.1)

    def rest(self) -> None:
        self.some(len(self._waiting))


@dataclass
class Evidence:
    """Everything the verdict is read from."""

    jobs: list[Job]
    tally: Tally
    cluster: Cluster
    calls: dict[str, list[float]]
    """The provider's log: when each job's calls came in."""
    told: dict[str, list[str]]
    """The receiver's log: under which ids it was told of each job."""

    def problems(self) -> dict[str, Any]:
        ids = [job.id for job in self.jobs if job.id is not None]
        found: dict[str, Any] = dict(broken(self.cluster.database_url, ids))
        found |= {claim: rows for claim, rows in self._of_jobs().items() if rows}
        letters = self.cluster.rows("SELECT task, problem FROM dead_letters LIMIT 5")
        if letters:
            found["no message had to be set aside"] = letters
        if self._undelivered():
            found["results handed over after the last flush are in the result backend"] = self._undelivered()[:5]
        return found

    def _of_jobs(self) -> dict[str, list[Any]]:
        wrong, unexplained, phantom = [], [], []
        ledger, results = self.ledger(), self.results()
        for job in self.jobs:
            assert job.id is not None
            wrapper = results.get(job.id)
            if wrapper is None:
                continue  # still open: the tables say so
            if wrapper.get("success"):
                if wrapper["data"] != {"n": job.number}:
                    wrong.append((job.mark, wrapper))
            elif wrapper["error"] != GIVEN_UP or self.hits(job) < 3:
                wrong.append((job.mark, job.behaviour, self.hits(job), wrapper))
            lost = len(self.calls[job.mark]) - ledger[job.id]
            if lost > self.hits(job):
                unexplained.append((job.mark, job.behaviour, f"{lost} calls lost", f"{self.hits(job)} hits"))
            if lost < 0:
                phantom.append((job.mark, len(self.calls[job.mark]), ledger[job.id]))
        return {
            "every result is the answer to its own question": wrong[:5],
            "every call without a ledger row is explained by a kill, a pause or a restart": unexplained[:10],
            "every ledger row is a call that was made": phantom[:5],
            "the receiver was told of every job, under one id however often": [
                (job.mark, ids) for job in self.jobs if len(set(ids := self.told[str(job.id)])) != 1
            ][:5],
        }

    def hits(self, job: Job) -> int:
        """What could have cost this job a call: the end of its worker, or an outage of the database around a call."""
        around = [
            any(down - LONGEST_CALL_SECONDS < at < up + LEASE_SECONDS for at in self.calls[job.mark])
            for down, up in self.tally.outages
        ]
        assert job.id is not None
        return self.tally.hits[job.id] + sum(around)

    def results(self) -> dict[UUID, dict[str, Any]]:
        return dict(self.cluster.rows("SELECT process_id, wrapper FROM results"))

    def ledger(self) -> Counter[UUID]:
        return Counter(dict(self.cluster.rows("SELECT process_id, count(*) FROM llm_calls GROUP BY process_id")))

    def _undelivered(self) -> list[str]:
        late = self.cluster.rows(
            "SELECT id FROM processes WHERE delivered_at > coalesce(%s, '-infinity') + interval '5 seconds'",
            self.tally.last_flush,
        )
        backend = self.cluster.app.backend
        assert isinstance(backend, RedisBackend)
        return [
            str(each)
            for (each,) in late
            if (backend.get_task_meta(str(each)).get("result") or {}).get("attempts")
            != self.results()[each]["attempts"]
        ]


def read_log(path: Path) -> dict[str, list[float]]:
    calls: dict[str, list[float]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        call = json.loads(line)
        (mark,) = call["marks"]
        calls[mark].append(call["at"])
    return calls


def report(evidence: Evidence, problems: dict[str, Any], *, seed: int, chaos: float, whole: float) -> None:
    """The figures, readable."""
    ledger, results = sum(evidence.ledger().values()), evidence.results()
    calls = sum(len(times) for times in evidence.calls.values())
    hits = sum(evidence.hits(job) for job in evidence.jobs)
    most = max(len(times) for times in evidence.calls.values())
    turns = evidence.cluster.rows("SELECT count(*) FROM phase_records")[0][0]
    reasons = evidence.cluster.rows("SELECT reason, count(*) FROM phase_records GROUP BY 1 ORDER BY 2 DESC")
    succeeded = sum(bool(wrapper.get("success")) for wrapper in results.values())
    print(f"\nseed {seed}; {len(evidence.jobs)} jobs; {WORKERS} workers of {CONCURRENCY} threads, {BEATS} beats")
    print(f"chaos for {chaos:.0f} s, settled after {whole:.0f} s altogether")
    for behaviour, number in Counter(job.behaviour for job in evidence.jobs).most_common():
        print(f"  jobs  {behaviour:<36}{number:>6}")
    for deed, number in evidence.tally.deeds.most_common():
        print(f"  done  {deed:<36}{number:>6}")
    for reason, number in reasons:
        print(f"  turns {reason:<36}{number:>6}")
    print(
        f"results: {succeeded} succeeded, {len(results) - succeeded} given up after being hit three times in one turn"
    )
    print(
        f"turns {turns}; calls {calls} = {ledger} in the ledger + {calls - ledger} lost in {hits} hits on running jobs"
    )
    print(f"most calls of one job: {most}")
    attempts = evidence.cluster.rows("SELECT coalesce(sum(attempts), 0) FROM webhook_deliveries")[0][0]
    print(f"webhooks {len(evidence.told)} in {attempts} attempts")
    claims = [*CHECKS, *evidence._of_jobs(), "nothing is idle in transaction", "no message had to be set aside"]
    for claim in dict.fromkeys([*claims, *problems]):
        print(f"  {'BROKEN' if claim in problems else 'holds '}  {claim}")
        for row in problems.get(claim, ()):
            print(f"            {row}")


def run(jobs_wanted: int, seed: int, seconds: float, folder: Path, *, burst: int) -> bool:
    dice = random.Random(seed)
    jobs = make_jobs(jobs_wanted, dice)
    began = time.monotonic()
    with ExitStack() as stack:
        data = stack.enter_context(private_folder())
        postgres = stack.enter_context(Postgres(data / "postgres", unsafe_fast=True))
        broker = stack.enter_context(Redis(data / "redis"))
        migrate.upgrade(postgres.dsn)
        rules = folder / "rules.json"
        rules.write_text(json.dumps([{"match": job.mark, "answers": job.answers} for job in jobs]))
        url, log = stack.enter_context(provider_process(folder, "--rules", str(rules)))
        cluster = Cluster(
            folder,
            database_url=postgres.dsn,
            redis_url=broker.url,
            provider_url=url,
            lease_seconds=LEASE_SECONDS,
            sweep_seconds=0.5,
            turn_burst=burst,
            webhook_networks=NETWORKS,
        )
        stack.callback(cluster.close)
        receiver = stack.enter_context(Receiver(moody(random.Random(seed))))
        endpoint(cluster.runtime.database, receiver.url, events=[Event.PROCESS_CLOSED])
        workers = cluster.workers(WORKERS, concurrency=CONCURRENCY)
        beats = [cluster.beat() for _ in range(BEATS)]
        submitter = Submitter(cluster, jobs)
        chaos = Chaos(
            cluster=cluster, workers=workers, beats=beats, postgres=postgres, broker=broker, seed=seed, say=say
        )  # fmt: skip
        started = time.monotonic()
        submitter.some(max(1, jobs_wanted // 4))
        # The rest comes in during the first two thirds of the time.
        share = max(1, round(jobs_wanted * 1.2 / max(seconds, 1)))
        chaos.run(seconds, between=lambda: submitter.some(share))
        submitter.rest()
        chaos_seconds = time.monotonic() - started
        say("no more harm; settling")
        settle(cluster, [job.id for job in jobs if job.id is not None])
        tell(cluster)
        whole = time.monotonic() - began
        for member in cluster.members:
            member.kill()
        told: dict[str, list[str]] = defaultdict(list)
        for request in receiver.requests:
            told[request.event["data"]["processId"]].append(request.id)
        evidence = Evidence(jobs, chaos.tally, cluster, read_log(log), told)
        problems = evidence.problems()
        report(evidence, problems, seed=seed, chaos=chaos_seconds, whole=whole)
    return not problems


def settle(cluster: Cluster, ids: list[UUID]) -> None:
    """Wait until everything is closed and handed over and no call is under way; what is left open is a finding."""
    deadline = time.monotonic() + SETTLE_SECONDS
    shown = -1
    while time.monotonic() < deadline:
        left = len(cluster.open_jobs(ids))
        if left == 0:
            return
        if left != shown:
            say(f"{left} jobs are open")
            shown = left
        time.sleep(0.5)


def moody(dice: random.Random) -> Callable[[Request], Answer]:
    """A receiver that does not take everything the first time."""
    return lambda _: (503 if dice.random() < 0.15 else 204, {}, b"")


def tell(cluster: Cluster) -> None:
    """Wait until every webhook has arrived, as if no delay and no dead sender's lease had to be waited for."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline and cluster.rows(
        "UPDATE webhook_deliveries SET due_at = now(), lease_expires_at = NULL WHERE state = 'PENDING' RETURNING id"
    ):
        time.sleep(1)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--tree", type=int, metavar="NODES", help="grow one tree of so many nodes instead of jobs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, help="how long harm is done (default: 90; to a tree until it is closed)"
    )
    parser.add_argument("--burst", type=int, default=1, help="how many turns of a node one task may run (default: 1)")
    parser.add_argument("--keep", type=Path, help="folder for the logs of all processes (default: a temporary one)")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "Call to deprecated setex", DeprecationWarning)
    for name in [name for name in os.environ if name.startswith("VANCETOPE_") and not name.startswith("VANCETOPE_P")]:
        del os.environ[name]
    folder = options.keep or Path(tempfile.mkdtemp(prefix="vancetope-drill-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if options.tree:
            seconds = treedrill.HARM_SECONDS if options.seconds is None else options.seconds
            passed = treedrill.run(options.tree, options.seed, folder, say, seconds=seconds, burst=options.burst)
        else:
            seconds = 90.0 if options.seconds is None else options.seconds
            passed = run(options.jobs, options.seed, seconds, folder, burst=options.burst)
    except redis.RedisError as error:
        print(f"the drill itself failed: {error}")
        passed = False
    print(f"\n{'PASSED' if passed else 'FAILED'}; logs in {folder}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
