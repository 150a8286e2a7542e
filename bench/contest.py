"""What a measured system must be able to do, and one round of it: from the first submission to the last completion."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import cpu
from bench.program import Program, ProgramError
from bench.servers import Servers
from tasks.dev.process import process_alive

Say = Callable[[str], None]
POLL_SECONDS = 0.02
SUBMIT_THREADS = 4
"""How many threads hand in jobs where handing in is a commit: one alone would measure the disk, not the workers."""
STALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One measured round. Durations and processor times in seconds."""

    jobs: int
    steps: int
    seconds: float
    submit_seconds: float
    worker_cpu: float
    submitter_cpu: float
    postgres_cpu: float
    redis_cpu: float

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds

    def milliseconds_per_step(self, cpu_seconds: float) -> float:
        return cpu_seconds / self.steps * 1000

    @property
    def worker_ms(self) -> float:
        return self.milliseconds_per_step(self.worker_cpu)

    @property
    def all_ms(self) -> float:
        """Everything the machine spent on a step: worker, submitter, PostgreSQL, Redis."""
        return self.milliseconds_per_step(self.worker_cpu + self.submitter_cpu + self.postgres_cpu + self.redis_cpu)


class Contestant(ABC):
    """One system with one scenario. A scenario is a small subclass: what a job is, and how its completion is seen."""

    name: str
    durable: bool = True
    steps_per_job: int = 1
    notes: str
    """How it is set up, and why that is fair."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.submitter: Program | None = None

    @abstractmethod
    def start(self) -> None:
        """Start workers and the submitter. They need not be warm."""

    @abstractmethod
    def stop(self) -> None:
        """End everything that `start` has started, also when only a part of it was."""

    @abstractmethod
    def worker_pids(self) -> Sequence[int]:
        """The processes whose time counts as the worker's."""

    @abstractmethod
    def finished(self) -> int:
        """How many jobs are done for good so far, as the database says."""

    @abstractmethod
    def last_words(self) -> str:
        """The last log lines of the workers, for an error message."""

    def close(self) -> None:
        """Let go of what outlives a start and a stop; nothing can be started afterwards."""
        self.submitter = None

    def begin(self, jobs: int) -> None:
        """Have the submitter hand in `jobs` jobs, one after the other, as an application would."""
        assert self.submitter is not None
        self.submitter.tell("submit", jobs)

    def submit_seconds(self) -> float:
        """Wait for the submitter to have handed in everything; how long it took."""
        assert self.submitter is not None
        return float(self.submitter.answer())


def run_round(contestant: Contestant, jobs: int) -> Round:
    """Measure one round of a started contestant."""
    before = _processor_times(contestant)
    base = contestant.finished()
    started = time.perf_counter()
    contestant.begin(jobs)
    _wait(contestant, base + jobs)
    seconds = time.perf_counter() - started
    submit_seconds = contestant.submit_seconds()
    after = _processor_times(contestant)
    worker, submitter, postgres, redis = (new - old for new, old in zip(after, before, strict=True))
    return Round(
        jobs=jobs,
        steps=jobs * contestant.steps_per_job,
        seconds=seconds,
        submit_seconds=submit_seconds,
        worker_cpu=worker,
        submitter_cpu=submitter,
        postgres_cpu=postgres,
        redis_cpu=redis,
    )


def warm_up(contestant: Contestant, jobs: int) -> None:
    """Run some jobs unmeasured: imports, connections, prepared statements. Also the proof that the workers are up."""
    base = contestant.finished()
    contestant.begin(jobs)
    _wait(contestant, base + jobs)
    contestant.submit_seconds()


def _wait(contestant: Contestant, wanted: int) -> None:
    seen, since = -1, time.monotonic()
    while (done := contestant.finished()) < wanted:
        if not all(map(process_alive, contestant.worker_pids())):
            raise ProgramError(f"{contestant.name}: a worker has ended. Its last words:\n{contestant.last_words()}")
        if done != seen:
            seen, since = done, time.monotonic()
        elif time.monotonic() - since > STALL_SECONDS:
            raise ProgramError(
                f"{contestant.name}: {done} of {wanted} jobs done, and none for {STALL_SECONDS:.0f} s. "
                f"Last words of the workers:\n{contestant.last_words()}"
            )
        time.sleep(POLL_SECONDS)


def _processor_times(contestant: Contestant) -> tuple[float, float, float, float]:
    workers = set(contestant.worker_pids())
    submitter = contestant.submitter
    # A library without workers does the job in the process that was asked: its time is the worker's.
    apart = submitter is not None and submitter.pid not in workers
    return (
        sum(cpu.seconds(pid) for pid in workers),
        cpu.seconds(submitter.pid) if submitter is not None and apart else 0.0,
        *contestant.servers.cpu_seconds(),
    )


def interleaved(
    contestants: Sequence[Contestant], *, rounds: int, jobs: int, warm_jobs: int, say: Say
) -> dict[str, list[Round]]:
    """Rounds of all, A B C, A B C: what disturbs the machine for a while disturbs everybody. One runs at a time."""
    results: dict[str, list[Round]] = {contestant.name: [] for contestant in contestants}
    try:
        for number in range(1, rounds + 1):
            for contestant in contestants:
                contestant.servers.settle()
                try:
                    contestant.start()
                    warm_up(contestant, warm_jobs)
                    measured = run_round(contestant, jobs)
                finally:
                    contestant.stop()
                results[contestant.name].append(measured)
                say(
                    f"round {number}/{rounds} {contestant.name}: {measured.steps_per_second:,.0f} steps/s, "
                    f"worker {measured.worker_ms:.2f} ms CPU per step"
                )
    finally:
        for contestant in contestants:
            contestant.close()
    return results
