"""A process of valem without queue and database: the same engine, turn by turn, within one command."""

from __future__ import annotations

import random
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, assert_never

from engines.base import AskModel, Decided, ModelFailed, ModelReplied, RunTools, ToolsRan
from engines.llm.base import LlmClient, LlmError
from engines.llm.policy import FailureCounts, GiveUp, next_step
from engines.recipes.model import Recipe
from engines.recipes.snapshots import stored_recipe
from engines.valem.engine import Valem
from models.records import NodeStatus, NodeView, ProcessView, View
from models.spec_records import StoredModel
from models.transition import CloseProcess, Transition, WriteModelSpec
from tasks.accounting import learned
from tasks.heartbeat import Cancel
from tasks.retry import called_again
from tasks.toolbox import Toolbox

_NODE_ID = 1


@dataclass(slots=True, kw_only=True)
class Session:
    """Runs processes one after the other. What they write is kept here, and lost with the command.

    report: told of every turn what the audit trail would keep. wait: sleeps for so many seconds.
    """

    engine: Valem
    client: LlmClient
    toolbox: Toolbox
    report: Callable[[Transition], None] = lambda transition: None
    wait: Callable[[float], None] = lambda seconds: time.sleep(seconds)
    written: dict[tuple[str, int], StoredModel] = field(default_factory=dict)

    def run(self, recipe: Recipe, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one process of ``recipe`` with these effective parameters."""
        view = _beginning(recipe, params)
        while True:
            done = self._turn(replace(view, model=self._model(view), nonce=secrets.token_hex(4)))
            self.report(done)
            for effect in done.effects:
                if isinstance(effect, WriteModelSpec):
                    self._keep(effect)
                if isinstance(effect, CloseProcess):
                    return effect.result
            if done.delay_seconds:
                self.wait(done.delay_seconds)
            node = replace(view.node, phase=done.phase, cursor=done.cursor, transport=done.transport)
            view = replace(view, node=replace(node, turn=node.turn + 1))

    def _turn(self, view: View) -> Transition:
        need = self.engine.prepare(view)
        match need:
            case Decided():
                return need.transition
            case AskModel():
                return self._ask(view, need)
            case RunTools():
                results = self.toolbox.run(need, view.process, Cancel())
                return self.engine.decide(view, ToolsRan(results=results))
            case _:
                assert_never(need)

    def _ask(self, view: View, need: AskModel) -> Transition:
        try:
            reply = self.client.complete(learned(need.request, view.node.transport))
        except LlmError as error:
            counts = FailureCounts.from_json(view.node.transport.get("failures"))
            step = next_step(error, counts, jitter=random.random())
            if isinstance(step, GiveUp):
                return self.engine.decide(view, ModelFailed(error=error))
            return called_again(view.node, need.attempt, error, counts, step)
        transport = view.node.transport
        kept: dict[str, Any] = {key: transport[key] for key in ("path", "without") if key in transport}
        return self.engine.decide(view, ModelReplied(reply=reply)).with_transport(kept)

    def _model(self, view: View) -> StoredModel | None:
        wish = self.engine.wished_model(view)
        if wish is None:
            return None
        found = [model for (model_id, _), model in self.written.items() if model_id == wish.model_id]
        if wish.version is not None:
            found = [model for model in found if model.version == wish.version]
        return max(found, key=lambda model: model.version, default=None)

    def _keep(self, effect: WriteModelSpec) -> None:
        self.written[effect.model_id, effect.version] = StoredModel(
            model_id=effect.model_id,
            version=effect.version,
            spec_version=effect.spec_version,
            spec=effect.spec,
            evolution=effect.evolution,
            process_id=None,
            node_id=_NODE_ID,
            created_at=datetime.now(UTC),
        )


def _beginning(recipe: Recipe, params: Mapping[str, Any]) -> View:
    process_id = uuid.uuid4()
    process = ProcessView(
        id=process_id,
        root_id=process_id,
        parent_node_id=None,
        tenant="default",
        project="default",
        owner=None,
        engine=recipe.engine,
        recipe_name=recipe.name,
        goal="",
        params=dict(params),
        recipe=stored_recipe(recipe, {}),
        limits_counted=False,
        deadline_at=None,
        overdue=False,
        priority=0,
        trace_context={},
        callback=None,
    )
    node = NodeView(
        id=_NODE_ID,
        parent_id=None,
        depth=0,
        order_key=(),
        kind="ROOT",
        goal="",
        status=NodeStatus.PENDING,
        phase=Valem.first_phase,
        cursor={},
        transport={},
        turn=1,
        losses=0,
        spawned_calls=0,
    )
    return View(node=node, process=process)
