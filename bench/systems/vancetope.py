"""vancetope itself: its own worker command, the scripted provider, submissions as its command line makes them."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from bench.contest import SUBMIT_THREADS, Contestant
from bench.program import Program
from bench.programs.job import ANSWER, CHAIN_STEPS, PROMPT, SCHEMA, TREE_GOAL, child_goal, tree_steps
from bench.servers import Servers
from tasks.dev import migrate
from tasks.dev.celery_processes import APPLICATION, CeleryProcess, worker_command


class Vancetope(Contestant):
    """One worker; jobs are jeltz processes answered by the scripted provider in no time."""

    replies: Sequence[Mapping[str, Any]] = ({"json": ANSWER},)

    def __init__(
        self,
        servers: Servers,
        *,
        name: str = "vancetope",
        pool: str = "threads",
        concurrency: int = 8,
        burst: int = 1,
        batch: int = 1,
        submit_threads: int = SUBMIT_THREADS,
        application: str = APPLICATION,
        environment: Mapping[str, str] | None = None,
        command_prefix: Sequence[str] = (),
    ) -> None:
        super().__init__(servers)
        self.name = name
        self.steps_per_job = len(self.replies)
        self.pool, self.concurrency, self.burst = pool, concurrency, burst
        self.batch, self.submit_threads = batch, submit_threads
        self.notes = (
            f"`-P {pool} -c {concurrency}`, turn_burst {burst}, log level WARNING, everything else default; "
            f"stored and published {'one by one' if batch == 1 else f'{batch} at a time'} by {submit_threads} threads "
            "of another process; no beat"
        )
        self._application = application
        self.database_url = servers.new_database("vancetope")
        self.redis_url = servers.new_redis()
        migrate.upgrade(self.database_url)
        self.script = self._write_script()
        self._environment = dict(environment or {})
        self._command_prefix = list(command_prefix)
        self._worker: CeleryProcess | None = None
        self._log: deque[str] = deque(maxlen=40)
        self._watch: psycopg.Connection[Any] | None = None

    def _write_script(self) -> Path:
        path = self.servers.folder / f"script-{self.database_url.rpartition('/')[2]}.json"
        path.write_text(json.dumps({"rules": self.rules()}))
        return path

    def rules(self) -> list[dict[str, Any]]:
        """What the scripted provider answers."""
        return [{"replies": [dict(reply) for reply in self.replies]}]

    def job(self) -> dict[str, Any]:
        """The payload of a submission."""
        # Four attempts, so that the job of four turns may have them; a job of one turn needs one.
        return {"recipe": "jeltz", "params": {"prompt": PROMPT, "schema": SCHEMA, "maxAttempts": 4}}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of worker and submitter; nothing of the caller's own settings leaks in."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VANCETOPE_")}
        return {
            **kept,
            "VANCETOPE_DATABASE_URL": self.database_url,
            "VANCETOPE_REDIS_URL": self.redis_url,
            "VANCETOPE_SCRIPTED_FILE": str(self.script),
            "VANCETOPE_TURN_BURST": str(self.burst),
            "VANCETOPE_LOG_LEVEL": "WARNING",
            **self._environment,
        }

    def start(self) -> None:
        command = worker_command(self._application, "worker", self.pool, self.concurrency)
        self._worker = CeleryProcess("worker", [*self._command_prefix, *command], self.environment, self._log.append)
        self._worker.start()
        self.submitter = Program(
            "vancetope_submit",
            str(self.batch),
            str(self.submit_threads),
            json.dumps(self.job()),
            environment=self.environment,
        )

    def stop(self) -> None:
        if self.submitter is not None:
            self.submitter.stop()
            self.submitter = None
        if self._worker is not None:
            self._worker.ask_to_end()
            self._worker.wait(15.0)
            self._worker.kill()
            self._worker = None

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self.servers.release_redis(self.redis_url)

    def last_words(self) -> str:
        return "\n".join(self._log)

    def worker_pids(self) -> Sequence[int]:
        return [self._worker.pid] if self._worker is not None else []

    def finished(self) -> int:
        if self._watch is None:
            self._watch = psycopg.connect(self.database_url, autocommit=True)
        row = self._watch.execute("SELECT count(*) AS bench_watch FROM results").fetchone()
        return int(row[0]) if row else 0


class VancetopeFourTurns(Vancetope):
    """Jobs of four turns: three answers that do not fit the schema, each corrected in a turn of its own, then one."""

    replies = ({"text": "no idea"}, {"json": {"userId": 7}}, {"json": {"action": "login"}}, {"json": ANSWER})


class VancetopeTree(Vancetope):
    """Marvin processes: a plan whose root is split once, branches of three phases, and the root's own conclusion."""

    def __init__(self, servers: Servers, children: int, *, name: str, burst: int = 1) -> None:
        self.children = children
        super().__init__(servers, name=name, burst=burst)
        self.steps_per_job = tree_steps(children)
        self.notes += (
            f"; a Marvin plan of {children + 1} nodes with the bundled recipe (calls counted against its budget), all "
            "branches due at once. Splitting and joining are two turns more, which count as steps for nobody"
        )

    def rules(self) -> list[dict[str, Any]]:
        return tree_rules(self.children)

    def job(self) -> dict[str, Any]:
        children = self.children
        params = {"maxTreeNodes": children + 1, "defaultExecutionMode": "PARALLEL", "maxParallelNodes": children}
        return {"recipe": "marvin", "goal": TREE_GOAL, "params": params}


class VancetopeSteps(Vancetope):
    """Bare durable steps, as the peers' are: the turn protocol without prompts, schemas, calls and a ledger."""

    def __init__(self, servers: Servers, *, name: str, burst: int = 1, children: int = 0) -> None:
        self.children = children
        recipes = servers.folder / "recipes"
        recipes.mkdir(exist_ok=True)
        (recipes / "steps.yaml").write_text(
            "engine: steps\ntitle: Bare steps\ndescription: Durable steps that do nothing.\n"
        )
        given = {"VANCETOPE_ENGINES": "bench.programs.steps:STEPS", "VANCETOPE_RECIPES_DIR": str(recipes)}
        super().__init__(servers, name=name, burst=burst, environment=given)
        self.steps_per_job = tree_steps(children) if children else CHAIN_STEPS
        self.notes += (
            "; an engine of bare steps (`bench.programs.steps`): each turn does what a peer's step does, and its "
            "answer is in the cursor and in the audit trail"
        )
        if children:
            self.notes += (
                "; splitting is a turn more, which counts as a step for nobody; branches leave their answers as "
                "artifacts, which nobody reads"
            )

    def job(self) -> dict[str, Any]:
        params = {"prompt": PROMPT, "steps": CHAIN_STEPS, "children": self.children}
        return {"recipe": "steps", "params": params}


def tree_rules(children: int) -> list[dict[str, Any]]:
    """What a model says in a plan whose root is split once, and whose other nodes are small."""
    tasks = [{"goal": child_goal(number), "taskKind": "WORKER"} for number in range(children)]
    on = {"action": "PROCEED_TO_CONCLUDE", "reason": "small"}
    split = {"action": "NEEDS_SUBTASKS", "newTasks": tasks, "reason": "one each"}
    return [
        # Only nodes below the root are told the goal of the whole.
        {"when": {"schema": "scope", "lacks": "The goal of the whole plan"}, "reply": {"json": split}},
        {"when": {"schema": "scope"}, "reply": {"json": on}},
        {"when": {"schema": "post_children"}, "reply": {"json": on}},
        {"when": {"schema": "conclude"}, "reply": {"json": {"result": json.dumps(ANSWER), "reason": "read"}}},
        {"when": {"schema": "validate"}, "reply": {"json": {"verdict": "PASS", "issues": [], "reason": "right"}}},
    ]
