"""What a node can know, read from its view: goal, limits, plan, material. Pure; the same view gives the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from engines.inbox.answers import Answer, answer_text
from engines.inbox.words import InputType
from engines.marvin.calls import WORKER_RECIPE, available_recipes, reply_text, timeout_text
from engines.marvin.caps import Caps
from engines.marvin.cursor import Asked, NodeCursor
from engines.marvin.material import ChildResult, Material, RecipeReply, UserAnswer
from engines.marvin.outputs import post_actions_of
from engines.marvin.prompts import FULL, SHORT, PhaseView, RecipeLine, phase_task
from engines.marvin.snapshot import PlanNode, plan_labels, render_plan
from engines.marvin.steps import Place
from engines.recipes.model import Recipe
from engines.recipes.prompt import prompt_variables
from engines.recipes.render import render_prompt
from engines.recipes.snapshots import Callee, read_stored
from models.records import CallResult, CloseReason, InboxItem, NodeStatus, PlanRow, PlanView, View

DEFAULT_MODEL: Final = "default:analyze"


@dataclass(frozen=True)
class Surroundings:
    """One turn's view, read. ``cursor`` is the node's as the turn found it."""

    view: View
    cursor: NodeCursor

    @classmethod
    def of(cls, view: View) -> Surroundings:
        return cls(view=view, cursor=NodeCursor.from_json(view.node.cursor))

    @property
    def is_root(self) -> bool:
        return self.view.node.parent_id is None

    @property
    def goal(self) -> str:
        return self.view.process.goal if self.is_root else self.view.node.goal

    @cached_property
    def caps(self) -> Caps:
        return Caps.from_params(self.view.process.params)

    @property
    def model(self) -> str:
        model = self.view.process.params.get("model")
        return model.strip() if isinstance(model, str) and model.strip() else DEFAULT_MODEL

    @property
    def plan(self) -> PlanView:
        assert self.view.plan is not None, "Marvin's views carry the plan"
        return self.view.plan

    # -- recipes -----------------------------------------------------------------------------------------------------

    @cached_property
    def _stored(self) -> tuple[Recipe, dict[str, Callee]]:
        return read_stored(self.view.process.recipe)

    @property
    def recipe(self) -> Recipe:
        return self._stored[0]

    @property
    def worker(self) -> Recipe:
        return self._stored[1][WORKER_RECIPE].recipe

    @property
    def available(self) -> tuple[str, ...]:
        return available_recipes(self.view.process.params)

    def callee(self, name: str) -> Callee | None:
        """The recipe ``name`` as it was at submission, if it may be called and exists."""
        return self._stored[1].get(name) if name in self.available else None

    @cached_property
    def variables(self) -> dict[str, Any]:
        """What the worker recipe's and the process recipe's templates may use."""
        process = self.view.process
        prefix, _, rest = self.model.partition(":")
        lang = process.params.get("lang")
        return prompt_variables(
            self.recipe,
            params=process.params,
            goal=process.goal,
            model=self.model,
            tier=rest if prefix == "default" else "",
            provider=prefix if rest and prefix != "default" else "",
            mode="plan",
            lang=lang if isinstance(lang, str) else "",
            process_id=str(process.id),
        )

    # -- tree --------------------------------------------------------------------------------------------------------

    @cached_property
    def plan_nodes(self) -> tuple[PlanNode, ...]:
        return plan_nodes(self.plan.rows)

    @property
    def place(self) -> Place:
        by_id = {row.id: row for row in self.plan.rows}
        above = (by_id[each].goal for each in self.plan.path if each in by_id and each != self.view.node.id)
        return Place(
            depth=self.view.node.depth,
            node_count=self.plan.node_count,
            goals=(self.goal, *above),
            spec_actions=post_actions_of(self.cursor.task_spec.get("postActions")),
        )

    # -- material ----------------------------------------------------------------------------------------------------

    @cached_property
    def material(self) -> Material:
        answers = tuple(
            UserAnswer(question=item.title or item.body, answer=text, answered_by=item.answered_by or "")
            for item in self.plan.answers
            if (text := item_text(item))
        )
        return replace(self.own_material, answers=answers)

    @property
    def own_material(self) -> Material:
        """What this node has gathered itself, without the answers that the whole plan knows."""
        return Material(replies=self.replies, children=self.children)

    @property
    def findings(self) -> Material:
        """The material without markers: what can stand in for a conclusion."""
        return Material(replies=tuple(reply for reply, found in self._replies if found), children=self.children)

    @property
    def replies(self) -> tuple[RecipeReply, ...]:
        return tuple(reply for reply, _ in self._replies)

    @cached_property
    def _replies(self) -> tuple[tuple[RecipeReply, bool], ...]:
        by_key = {call.cursor_key: call for call in self.view.calls}
        read: list[tuple[RecipeReply, bool]] = []
        for place, asked in enumerate(self.cursor.asked):
            text, found = (
                (asked.marker, False) if asked.marker is not None else self._reply(by_key.get(str(place)), asked)
            )
            read.append((RecipeReply(recipe=asked.recipe, text=text), found))
        return tuple(read)

    def _reply(self, call: CallResult | None, asked: Asked) -> tuple[str, bool]:
        """What is read of a call, and whether that is a reply and no marker."""
        name = asked.recipe
        if call is None or not call.closed or call.result is None:
            # A node with an open call runs only when its time is up.
            return timeout_text(name, self.caps.recipe_call_timeout_seconds), False
        reason = call.close_reason or CloseReason.FAILED
        wrapper = call.result
        if wrapper.get("success") is False:
            closed = CloseReason.FAILED if reason is CloseReason.DONE else reason
            said = wrapper.get("message") or wrapper.get("error") or ""
            return reply_text(name, closed=closed.value, text=None, message=str(said)), False
        answer = _answer(wrapper)
        return reply_text(name, closed=reason.value, text=answer), bool(answer.strip())

    @cached_property
    def children(self) -> tuple[ChildResult, ...]:
        if not self.plan.children:
            return ()
        labels = plan_labels(self.plan_nodes, self.view.node.id)
        return tuple(
            ChildResult(
                label=labels.get(child.id, f"#{place}"),
                goal=child.goal,
                status=child.status.value if child.status is not NodeStatus.SKIPPED else "skipped",
                text=child.result if child.status is NodeStatus.DONE else child.failure,
                whole_chars=child.result_chars if child.status is NodeStatus.DONE else 0,
            )
            for place, child in enumerate(self.plan.children, start=1)
        )

    @property
    def child_counts(self) -> Counter[NodeStatus]:
        """All children by status, also those beyond the number whose results are read."""
        counted = next((row.children for row in self.plan.rows if row.id == self.view.node.id), ())
        return Counter(dict(counted)) or Counter(child.status for child in self.plan.children)

    # -- the call ----------------------------------------------------------------------------------------------------

    def phase_view(self) -> PhaseView:
        """What the call of this turn is told. Raises ``TemplateError`` for a recipe whose prompt cannot be rendered."""
        state, caps = self.cursor.state, self.caps
        sizes = SHORT if state.short else FULL
        steering = ""
        if self.is_root:
            name = f"{self.recipe.source}: promptPrefix"
            steering = render_prompt(self.recipe.prompt_prefix, self.variables, name=name)
        lines = [
            RecipeLine(name=name, summary=callee.recipe.summary)
            for name in self.available
            if (callee := self.callee(name)) is not None
        ]
        return PhaseView(
            phase=state.phase,
            token=self.view.nonce,
            goal=self.goal,
            plan=render_plan(self.plan_nodes, self.view.node.id, sizes.plan),
            iteration=state.iteration(),
            iteration_cap=state.iteration_cap(caps),
            task=phase_task(self.worker, state.phase, self.variables),
            steering=steering,
            parent_context="" if self.is_root else f"The goal of the whole plan: {self.view.process.goal}",
            recipes=tuple(lines),
            calls_left=max(0, caps.reflect - state.reflect_iter),
            level=state.level(self.view.node.depth),
            max_depth=caps.max_tree_depth,
            reply_chars=caps.recipe_reply_chars,
            sizes=sizes,
            material=self.material,
            candidate=state.candidate,
            hints=state.hints,
        )


def plan_nodes(rows: tuple[PlanRow, ...]) -> tuple[PlanNode, ...]:
    """Rows of the store as the plan shows them; children that were not loaded are counted at their parent."""
    loaded: dict[int, Counter[NodeStatus]] = {}
    for row in rows:
        if row.parent_id is not None:
            shown = NodeStatus.RUNNING if row.awaiting else row.status
            loaded.setdefault(row.parent_id, Counter())[shown] += 1
    return tuple(
        PlanNode(
            id=row.id,
            parent_id=row.parent_id,
            order_key=row.order_key,
            goal=row.goal,
            kind="WORKER" if row.kind == "ROOT" else row.kind,
            status=row.status,
            awaiting=row.awaiting,
            phase=row.phase,
            summary=row.summary,
            failure_reason=row.failure,
            inbox_item_id=None if row.item_id is None else str(row.item_id),
            # Children are numbered from 0 as they are created; a longer key is a node put in between.
            index=row.order_key[0] + 1 if len(row.order_key) == 1 else None,
            below=tuple(sorted((Counter(dict(row.children)) - loaded.get(row.id, Counter())).items()))
            if row.children
            else (),
        )
        for row in rows
    )


def item_text(item: InboxItem) -> str:
    """The answer to a question in words; empty when there is none."""
    return "" if item.answer is None else answer_text(InputType(item.type), Answer.from_json(item.answer))


def _answer(wrapper: dict[str, Any]) -> str:
    """The text of a result wrapper: its result or answer if that is a text, else its data as JSON."""
    for key in ("result", "answer", "text"):
        if isinstance(wrapper.get(key), str):
            return str(wrapper[key])
    data = wrapper.get("data", wrapper)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2)
