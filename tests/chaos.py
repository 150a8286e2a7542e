"""What can go wrong in a data centre, done on purpose: the drill's chaos loop.

Everything it does is decided by one seed. It keeps count of whom it has hit while they held which job's lease: a
provider call that was paid for and left no trace in the ledger must be explained by such a hit.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import psycopg
import redis
from cluster import Cluster, Member
from processes import eventually

from models.records import Turn
from tasks.dev.postgres import Postgres
from tasks.dev.redis import Redis

PAUSE_IN_LEASES = 1.6
PACE_SECONDS = (0.2, 1.2)


@dataclass
class Tally:
    """What was done, and to whom."""

    deeds: Counter[str] = field(default_factory=Counter)
    hits: Counter[UUID] = field(default_factory=Counter)
    """Per process: how often a worker was killed or paused while it held the process's lease."""
    nodes: Counter[int] = field(default_factory=Counter)
    """The same per node."""
    outages: list[tuple[float, float]] = field(default_factory=list)
    """When PostgreSQL went down and was up again. A claim of that moment may be undone, and its call with it."""
    last_flush: datetime | None = None


class Chaos:
    """Acts on the cluster until told to stop. Workers it kills are started again at once."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        workers: list[Member],
        beats: list[Member],
        postgres: Postgres,
        broker: Redis,
        seed: int,
        say: Callable[[str], None],
        pace: tuple[float, float] = PACE_SECONDS,
        merciful: bool = False,
    ) -> None:
        """pace: shortest and longest wait between two deeds. merciful: nobody is hit who holds a turn that has lost two
        workers already; a third loss would give it up, as it should, and the outcome would be another one."""
        self._cluster = cluster
        self._workers = workers
        self._beats = beats
        self._postgres = postgres
        self._broker = broker
        self._random = random.Random(seed)
        self._say = say
        self._pace = pace
        self._merciful = merciful
        self._asleep: tuple[Member, float] | None = None
        self.tally = Tally()

    def run(self, seconds: float, between: Callable[[], None], *, over: Callable[[], bool] = lambda: False) -> None:
        """Each deed once in random order, then random ones, for ``seconds``; ``between`` is called after each.

        over: ends it before its time.
        """
        deeds: dict[str, Callable[[], None]] = {
            "workers killed": self._kill_worker,
            "beats killed": self._kill_beat,
            "workers paused past their lease": self._pause_worker,
            "PostgreSQL restarted (immediate)": self._restart_postgres,
            "Redis restarted": self._restart_redis,
            "Redis flushed": self._flush_redis,
            "messages doubled and reordered": self._shuffle_messages,
        }
        names = list(deeds)
        # The most common accident is the most common here.
        weights = [6, 1, 2, 1, 1, 2, 3]
        first = list(names)
        self._random.shuffle(first)
        end = time.monotonic() + seconds
        for name in self._choices(first, names, weights):
            if (time.monotonic() > end and not first) or over():
                break
            deeds[name]()
            self.tally.deeds[name] += 1
            self._say(f"{name}: {self.tally.deeds[name]}")
            between()
            time.sleep(self._random.uniform(*self._pace))
            self._wake()
        self.settle()

    def _choices(self, first: list[str], names: list[str], weights: list[int]) -> Iterator[str]:
        while first:
            yield first.pop()
        while True:
            yield self._random.choices(names, weights)[0]

    def settle(self) -> None:
        """No more harm: who sleeps goes on, who is dead is started."""
        self._wake(now=True)
        for member in [*self._workers, *self._beats]:
            if not member.running:
                member.start()

    # -- the deeds -------------------------------------------------------------------------------------------------

    def _kill_worker(self) -> None:
        victim = self._someone_at_work()
        victim.kill9()
        self._note_leases_of(victim)
        if self._asleep is not None and self._asleep[0] is victim:
            self._asleep = None
        victim.start()

    def _someone_at_work(self) -> Member:
        """A worker that consumes: to kill one that is only starting would be no test."""
        return self._random.choice(eventually(self._victims, "a worker works"))

    def _victims(self) -> list[Member]:
        ready = [each for each in self._workers if each.ready]
        if not self._merciful:
            return ready
        query = "SELECT lease_owner FROM nodes WHERE losses >= 2 AND lease_owner IS NOT NULL"
        spared = {row[0] for row in self._cluster.rows(query)}
        return [each for each in ready if each.owner not in spared]

    def _kill_beat(self) -> None:
        victim = self._random.choice(self._beats)
        victim.kill9()
        victim.start()

    def _pause_worker(self) -> None:
        self._wake(now=True)
        victim = self._someone_at_work()
        victim.pause()
        self._note_leases_of(victim)
        self._asleep = (victim, time.monotonic() + PAUSE_IN_LEASES * self._cluster.settings.lease_seconds)

    def _wake(self, *, now: bool = False) -> None:
        if self._asleep is not None and (now or time.monotonic() > self._asleep[1]):
            member, until = self._asleep
            # Also when there is no time left it sleeps past its lease, or it would prove nothing.
            time.sleep(max(0.0, until - time.monotonic()))
            member.go_on()
            self._asleep = None

    def _restart_postgres(self) -> None:
        down = time.time()
        self._postgres.restart(immediate=True)
        self.tally.outages.append((down, time.time()))
        self._cluster.runtime.database.dispose()

    def _restart_redis(self) -> None:
        self._broker.restart()

    def _flush_redis(self) -> None:
        with redis.Redis.from_url(self._broker.url) as client:
            client.flushall()
        self.tally.last_flush = self._cluster.rows("SELECT now()")[0][0]

    def _shuffle_messages(self) -> None:
        rows = self._cluster.rows(
            "SELECT n.id, n.turn, p.engine FROM nodes n JOIN processes p ON p.id = n.process_id"
            " ORDER BY random() LIMIT 40"
        )
        turns = [
            Turn(node_id=node_id, turn=max(1, turn + shift), engine=engine, priority=self._random.choice((0, 3, 9)))
            for node_id, turn, engine in rows
            for shift in (-1, 0, 0, 1)
        ]
        self._random.shuffle(turns)
        with contextlib.suppress(redis.RedisError):
            self._cluster.runtime.publisher.publish(turns)

    def _note_leases_of(self, member: Member) -> None:
        query = "SELECT process_id, id FROM nodes WHERE lease_owner = %s"
        with contextlib.suppress(psycopg.OperationalError):
            rows = self._cluster.rows(query, member.owner)
            self.tally.hits.update(process for process, _ in rows)
            self.tally.nodes.update(node for _, node in rows)
