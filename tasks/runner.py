"""One turn, from claim to publication, as named steps (README, "How a turn works").

No transaction is open and no connection is held while a model works; what a turn costs PostgreSQL is one claim and one
commit. Everything a crash can lose here is a hint, and the sweeper finds the row again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, assert_never

from engines.base import (
    Abandoned,
    AskModel,
    BudgetSpent,
    Decided,
    Engine,
    ModelFailed,
    ModelReplied,
    Outcome,
    RunTools,
    ToolsRan,
)
from engines.llm.base import ErrorKind, LlmError, LlmRequest
from engines.llm.catalogue import Candidate
from engines.llm.policy import FailureCounts, GiveUp, StepDown, next_step
from models.store.claim import MAX_LOSSES, Claim, Keep, claim_turn, postpone_turn, reserve_budget, why_refused
from models.store.clean import NotStorable
from models.store.commit import BadTransition, Committed, StaleTurn, TreeFull, commit_turn
from models.store.database import Database, DatabaseUnavailable
from models.store.processes import fail_process
from models.transition import Transition
from tasks import faults
from tasks.accounting import estimate, failed_call, finished_call, learned
from tasks.announce import announce
from tasks.attempt import Attempt, Client, fresh_nonce
from tasks.closing import wrapper_of
from tasks.gate import Gate, Permit
from tasks.heartbeat import Heartbeat
from tasks.lane import BatchLane, Parked
from tasks.lessons import Lessons
from tasks.logs import bound
from tasks.observe import NOBODY, Observer
from tasks.progress import Background, Chunks
from tasks.publish import Publisher
from tasks.recording import recorded
from tasks.retry import Postponed, called_again, crashed_again, given_up, nothing_paid
from tasks.surroundings import look_around
from tasks.toolbox import NO_TOOLS, Toolbox

log = logging.getLogger(__name__)

MAX_CRASHES = 3
"""Exceptions of an engine in one turn after which the node is given up."""
MAX_FULL = 20
"""Decisions of one turn that find no room in the tree; another one like them is the engine not looking."""
OVERDUE = "the deadline of the process has passed"
_UNHEALTHY = frozenset({ErrorKind.OVERLOADED, ErrorKind.TIMEOUT, ErrorKind.TRANSPORT})


class TurnRunner:
    """Runs turns. One per worker process; safe to share between threads."""

    def __init__(
        self,
        *,
        database: Database,
        engines: Mapping[str, Engine],
        client: Client,
        heartbeat: Heartbeat,
        gate: Gate,
        lessons: Lessons,
        lane: BatchLane | None = None,
        publisher: Publisher,
        background: Background,
        toolbox: Toolbox = NO_TOOLS,
        observer: Observer = NOBODY,
        lease_seconds: float,
        burst: int = 1,
        burst_seconds: float = 10.0,
        commit_patience_seconds: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
        nonce: Callable[[], str] = fresh_nonce,
    ) -> None:
        self._database = database
        self._engines = engines
        self._client = client
        self._heartbeat = heartbeat
        self._gate = gate
        self._lessons = lessons
        self._lane = lane or BatchLane(database, None, lessons)
        self._publisher = publisher
        self._background = background
        self._toolbox = toolbox
        self._observer = observer
        self._lease_seconds = lease_seconds
        self._burst = burst
        self._burst_seconds = burst_seconds
        self._patience = commit_patience_seconds
        self._clock = clock
        self._nonce = nonce

    def run(self, engine_name: str, node_id: int, turn: int) -> int:
        """Run the turn if it is still due, and with ``burst`` > 1 the node's next ones. Returns how many were run."""
        self._heartbeat.ensure_own_process()
        self._background.ensure_own_process()
        until = self._clock() + self._burst_seconds
        done = 0
        claim = self._claim(engine_name, node_id, turn)
        while claim and (committed := self._one(claim, until if done + 1 < self._burst else None)):
            done += 1
            claim = committed.kept
            if claim is None and committed.next_turn is not None:
                claim = self._claim(engine_name, node_id, committed.next_turn.turn)
        return done

    def _claim(self, engine_name: str, node_id: int, turn: int) -> Claim | None:
        try:
            claim = claim_turn(
                self._database,
                node_id,
                turn,
                owner=self._heartbeat.owner,
                lease_seconds=self._lease_seconds,
                history=self._engines[engine_name].history,
                nonce=self._nonce(),
            )
        except DatabaseUnavailable as error:
            log.warning("turn not claimed, the sweeper brings it back", extra={"node": node_id, "error": str(error)})
            return None
        if claim is not None and (belongs := claim.view.process.engine) != engine_name:
            log.error("message on the wrong queue", extra={"node": node_id, "engine": engine_name, "belongs": belongs})
            self._postpone(claim, 0.0)
            return None
        return claim

    def _one(self, claim: Claim, burst_until: float | None) -> Committed | None:
        faults.reach("after_claim")
        name, lease = claim.view.process.engine, claim.lease
        with bound(process=str(lease.process_id), node=lease.node_id, turn=lease.turn, engine=name):
            return self._claimed(self._engines[name], claim, burst_until)

    def _claimed(self, engine: Engine, claim: Claim, burst_until: float | None) -> Committed | None:
        """Work on the turn and commit it. The node's next turn is in the answer when it follows in this burst."""
        began = self._clock()
        with self._heartbeat.hold(claim.lease) as cancel:
            try:
                with self._observer.turn(claim) as watch:
                    attempt = Attempt(engine=engine, claim=claim, cancel=cancel, watch=watch, client=self._client)
                    transition = self._work(attempt)
                    faults.reach("before_commit", transition.label)
                    goes_on = burst_until is not None and self._clock() < burst_until
                    attempt.keep = self._keep(engine) if goes_on else None
                    transition, committed = self._commit(attempt, transition, began)
                    watch.committed(transition, committed)
            except Postponed as wait:
                if not isinstance(wait, Parked):
                    self._postpone(claim, wait.delay_seconds)
                return None
            except StaleTurn:
                log.info("turn is no longer ours, nothing written")
                return None
            except DatabaseUnavailable as error:
                log.error("commit given up, the lease will run out", extra={"error": str(error)})
                return None
        faults.reach("after_commit", transition.label)
        announce(self._background, attempt.view, transition, closed=committed.closed)
        following = committed.next_turn if goes_on else None
        self._publisher.publish([turn for turn in committed.due if turn is not following])
        faults.reach("after_publish", transition.label)
        return replace(committed, next_turn=following)

    def _keep(self, engine: Engine) -> Keep | None:
        """The commit may lease the next turn, unless its view needs the history: that is the claim's to read."""
        if engine.history > 0:
            return None
        return Keep(owner=self._heartbeat.owner, lease_seconds=self._lease_seconds, nonce=self._nonce())

    # -- from the view to a transition -----------------------------------------------------------------------------

    def _work(self, attempt: Attempt) -> Transition:
        """Prepare, act, decide. An exception of the engine is contained here, and counted."""
        engine = attempt.engine
        try:
            self._look_around(attempt)
            view = attempt.view
            if (why := given_up(view.node, losses=MAX_LOSSES, crashes=MAX_CRASHES)) is not None:
                return self._decide(attempt, Abandoned(why=why))
            attempt.need = need = engine.prepare(view)
            match need:
                case Decided():
                    return need.transition
                case AskModel():
                    return self._ask(attempt, need)
                case RunTools():
                    return self._run_tools(attempt, need)
                case _:
                    assert_never(need)
        except (Postponed, StaleTurn, DatabaseUnavailable, faults.InjectedFault):
            raise
        except Exception as error:
            return self._crashed(attempt, error)

    def _look_around(self, attempt: Attempt) -> None:
        with nothing_paid("plan not loaded"):
            attempt.see(look_around(self._database, attempt.engine, attempt.view))

    def _ask(self, attempt: Attempt, need: AskModel) -> Transition:
        view = attempt.view
        if view.process.overdue:
            return self._spent(attempt, OVERDUE)
        request = learned(need.request, view.node.transport)
        if (asked := self._lane.answered(attempt)) is not None:
            return self._call(attempt, need, request, asked, None)
        try:
            candidate = self._client.candidate(request)
        except LlmError as error:
            return self._failed(attempt, need, error)
        if view.process.limits_counted and (refusal := self._reserve(attempt, request, candidate)):
            return self._spent(attempt, f"the budget of the process is spent: {refusal}")
        self._lane.park(attempt, need.attempt, request, candidate)
        permit: Permit | float | None = None
        # Scripted answers come from this very process: no provider to protect, nothing to learn about one.
        if candidate.provider.wire != "scripted":
            request = self._lessons.apply(request, candidate)
            permit = self._gate.enter(candidate.provider_name)
        if isinstance(permit, float):
            raise Postponed(permit * (0.9 + 0.2 * random.random()))
        faults.reach("before_call")
        return self._call(attempt, need, request, candidate, permit)

    def _reserve(self, attempt: Attempt, request: LlmRequest, candidate: Candidate) -> str | None:
        """Reserve the call; why it may not be made, or ``None``."""
        model, (tokens, cost) = candidate.model, estimate(request, candidate)
        with nothing_paid("no budget reserved"):
            reserved = reserve_budget(self._database, attempt.claim, tokens=tokens, cost_usd=cost)
            if reserved is None:
                if why := why_refused(self._database, attempt.claim, model=model, tokens=tokens, cost_usd=cost):
                    return why
                raise Postponed(0.5)
        attempt.claim = replace(attempt.claim, reserved=reserved)
        return None

    def _call(
        self, attempt: Attempt, need: AskModel, request: LlmRequest, candidate: Candidate, permit: Permit | None
    ) -> Transition:
        process = attempt.view.process
        chunks = Chunks(self._background, process.root_id, {"process": str(process.id), "node": attempt.view.node.id})
        outcome = "neutral"
        try:
            reply = attempt.watch.call(attempt.client, request, candidate, cancel=attempt.cancel, on_chunk=chunks)
            outcome = "ok"
        except LlmError as error:
            # Only an answer from the model shows health: being turned away says nothing about it either way.
            outcome = "failed" if error.kind in _UNHEALTHY else "ok" if error.reached_inference else "neutral"
            faults.reach("after_call")
            if error.kind is ErrorKind.CANCELLED:
                return self._cancelled(attempt, need, error)
            return self._failed(attempt, need, error, (request, candidate))
        finally:
            if permit is not None:
                self._gate.leave(permit, outcome)
            chunks.flush()
        faults.reach("after_call")
        attempt.call = finished_call(reply, need.attempt)
        return self._decide(attempt, ModelReplied(reply=reply))

    def _run_tools(self, attempt: Attempt, need: RunTools) -> Transition:
        if attempt.view.process.overdue:
            return self._spent(attempt, OVERDUE)
        faults.reach("before_call")
        results = attempt.watch.tools(self._toolbox, need, attempt.cancel)
        faults.reach("after_call")
        if attempt.cancel.reason is None:
            return self._decide(attempt, ToolsRan(results=results))
        if attempt.cancel.reason != "overdue":
            raise StaleTurn("the tools were stopped: their lease is lost")
        return self._spent(attempt, OVERDUE)

    def _decide(self, attempt: Attempt, outcome: Outcome) -> Transition:
        """The engine's decision; what was learned about the model stays with the node, failures are forgotten."""
        transport = attempt.view.node.transport
        kept: dict[str, Any] = {key: transport[key] for key in ("path", "without") if key in transport}
        attempt.outcome = outcome
        return attempt.engine.decide(attempt.view, outcome).with_transport(kept)

    def _decide_again(self, attempt: Attempt) -> Transition:
        try:
            self._look_around(attempt)
            if attempt.outcome is not None:
                return self._decide(attempt, attempt.outcome)
            need = attempt.engine.prepare(attempt.view)
            if isinstance(need, Decided):
                return need.transition
            raise TypeError("a turn that was decided without a call now wants one")
        except (Postponed, DatabaseUnavailable):
            raise
        except Exception as error:
            return self._crashed(attempt, error)

    def _spent(self, attempt: Attempt, limit: str) -> Transition:
        return self._decide(attempt, BudgetSpent(limit=limit))

    def _cancelled(self, attempt: Attempt, need: AskModel, error: LlmError) -> Transition:
        reason = attempt.cancel.reason
        if reason is None:
            # Not our lease: this worker is going down. Another one takes the turn, and nobody counts a lost worker.
            raise Postponed(0.0)
        if reason != "overdue":
            raise StaleTurn("the call was aborted: its lease is lost")
        attempt.call = failed_call(error, need.attempt)
        return self._spent(attempt, OVERDUE)

    def _failed(
        self, attempt: Attempt, need: AskModel, error: LlmError, sent: tuple[LlmRequest, Candidate] | None = None
    ) -> Transition:
        """Ask the policy: again later, again differently, or it is the engine's to conclude."""
        node = attempt.view.node
        counts = FailureCounts.from_json(node.transport.get("failures"))
        step = next_step(error, counts, jitter=random.random())
        if error.kind is not ErrorKind.NOT_CONFIGURED:
            attempt.call = failed_call(error, need.attempt)
        what = {"kind": error.kind.value, "provider": error.provider, "next": type(step).__name__}
        log.info("call failed", extra=what)
        attempt.outcome = ModelFailed(error=error)
        if isinstance(step, GiveUp):
            return self._decide(attempt, attempt.outcome)
        if isinstance(step, StepDown) and sent is not None:
            self._lessons.note(*sent, error, step)
        return called_again(node, need.attempt, error, counts, step)

    def _crashed(self, attempt: Attempt, error: Exception) -> Transition:
        """An exception in an engine: kept with its traceback in the log, tried again, given up after a few times."""
        engine, node = attempt.engine, attempt.view.node
        log.error("engine failed", exc_info=error, extra={"engine": engine.name})
        crashes = node.transport.get("crashes", 0) + 1
        crash = f"{type(error).__name__}: {error}"
        if crashes > MAX_CRASHES:
            message = f"the engine failed {crashes} times, also when told to give up: {crash}"
            fail_process(
                self._database,
                attempt.claim.lease.process_id,
                lambda closing: wrapper_of(engine, closing.cursor, error="internal_error", message=message),
                failure=message,
                lease=attempt.claim.lease,
            )
            attempt.watch.closed_as_failed()
            raise StaleTurn("closed as failed") from error
        return crashed_again(node, crashes, crash)

    # -- the commit and what follows -------------------------------------------------------------------------------

    def _commit(self, attempt: Attempt, transition: Transition, began: float) -> tuple[Transition, Committed]:
        """Commit, waiting out a restart of PostgreSQL: the reply is paid for, and nobody else can claim meanwhile.

        A decision that cannot be written counts as a crash of its engine: keeping the turn would only repeat it.
        """
        elapsed = self._clock() - began
        deadline = self._clock() + self._patience
        pause, refused, full = 0.1, False, 0
        no_room: TreeFull | None = None
        while True:
            try:
                if no_room is not None:
                    # The answer is paid for: the engine decides about it once more, seeing the tree as it is now.
                    transition = self._decide_again(attempt) if full <= MAX_FULL else self._crashed(attempt, no_room)
                    no_room = None
                return transition, commit_turn(
                    self._database,
                    attempt.claim,
                    transition,
                    call=attempt.record,
                    elapsed_seconds=elapsed,
                    keep=attempt.keep,
                    recorded=recorded(attempt, self._toolbox.registry.internal),
                )
            except TreeFull as error:
                full, no_room = full + 1, error
            except (NotStorable, BadTransition) as error:
                if refused:
                    raise
                refused = True
                transition = self._crashed(attempt, error)
            except (DatabaseUnavailable, Postponed) as error:
                if self._clock() + pause > deadline:
                    raise
                log.warning("commit failed, trying again", extra={"error": str(error)})
                time.sleep(pause)
                pause = min(pause * 2, 2.0)

    def _postpone(self, claim: Claim, delay: float) -> None:
        try:
            postpone_turn(self._database, claim, delay_seconds=delay)
        except DatabaseUnavailable as error:
            log.warning("turn not given back, its lease will run out", extra={"error": str(error)})
