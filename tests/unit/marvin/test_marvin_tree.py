"""Whole trees: random and malicious models drive an in-memory interpreter of the machine's steps; each tree ends."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.marvin.calls import refusal
from engines.marvin.caps import Caps
from engines.marvin.machine import decide
from engines.marvin.material import ChildResult, Material, RecipeReply, UserAnswer, gathered
from engines.marvin.modes import execution_mode
from engines.marvin.outputs import NewTask, PhaseOutput, PhaseParseError, parse_output
from engines.marvin.snapshot import LIMIT_CHARS, PlanNode, plan_payload, render_plan
from engines.marvin.state import MarvinState
from engines.marvin.steps import (
    Accept,
    AskUser,
    CallRecipe,
    Correct,
    Event,
    Fail,
    GoTo,
    NoCallAllowed,
    Place,
    Spawn,
    Step,
    Unreadable,
)
from engines.marvin.words import Phase, TaskKind, Verdict
from models.records import ChildMode, NodeStatus, is_settled

Model = Callable[["Node", int], str]
"""What the model writes for a node at the n-th call of the process."""


@dataclass
class Node:
    id: int
    parent: Node | None
    order_key: tuple[int, ...]
    kind: TaskKind
    goal: str
    spec: dict[str, Any]
    status: NodeStatus = NodeStatus.PENDING
    awaiting: bool = False
    state: MarvinState = field(default_factory=MarvinState)
    parked: bool = False
    result: str = ""
    failure: str = ""
    replies: list[RecipeReply] = field(default_factory=list)
    answers: int = 0
    """Readable answers of the model."""
    rounds: int = 0

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def settled(self) -> bool:
        return is_settled(self.status, self.awaiting)


class Tree:
    """What store and turn runner do around ``decide``, without either."""

    def __init__(self, caps: Caps, chance: random.Random, params: dict[str, Any] | None = None, budget: int = 10**9):
        self.caps, self.chance, self.params, self.budget = caps, chance, params or {}, budget
        self.nodes: dict[int, Node] = {}
        self.calls = 0
        self.root = self._insert(NewTask(goal="root goal"), None, ())

    def _insert(self, task: NewTask, parent: Node | None, key: tuple[int, ...]) -> Node:
        number = len(self.nodes) + 1
        node = Node(number, parent, key, task.task_kind, task.goal, task.task_spec)
        self.nodes[number] = node
        assert len(self.nodes) <= self.caps.max_tree_nodes
        return node

    def children(self, node: Node) -> list[Node]:
        found = [other for other in self.nodes.values() if other.parent is node]
        return sorted(found, key=lambda child: child.order_key)

    def subtree(self, node: Node) -> Iterator[Node]:
        for child in self.children(node):
            yield child
            yield from self.subtree(child)

    def subtree_settled(self, node: Node) -> bool:
        return all(below.settled for below in self.subtree(node))

    def actionable(self) -> list[Node]:
        return [node for node in self.nodes.values() if self._is_actionable(node)]

    def _is_actionable(self, node: Node) -> bool:
        if node.awaiting:
            return self.subtree_settled(node)
        if node.settled:
            return False
        return node.parked or node.status is not NodeStatus.PENDING or not self._is_held_back(node)

    def _is_held_back(self, node: Node) -> bool:
        """Whether an earlier sibling of the node or of an ancestor has to end first."""
        if node.parent is None:
            return False
        mode = execution_mode(node.parent.kind, node.parent.spec, self.params)
        earlier = [other for other in self.children(node.parent) if other.order_key < node.order_key]
        waits = mode is ChildMode.SEQUENTIAL and any(not o.settled or not self.subtree_settled(o) for o in earlier)
        return waits or self._is_held_back(node.parent)

    def run(self, model: Model, *, look_every: int = 1) -> None:
        bound = self.caps.max_tree_nodes * (self.caps.worst_case_calls(self.caps.most_rounds(0)) + 1) * 4
        for turn in range(bound):
            ready = self.actionable()
            if not ready:
                return
            node = self.chance.choice(ready)
            self._turn(node, model)
            if turn % look_every == 0:
                self._look(node)
        raise AssertionError("the tree did not end")

    def _turn(self, node: Node, model: Model) -> None:
        if node.parked:
            node.parked = False
            node.replies.append(RecipeReply(recipe="web-research", text="found"))
        elif node.kind is TaskKind.USER_INPUT:
            node.status, node.result = self.chance.choice(((NodeStatus.DONE, "yes"), (NodeStatus.FAILED, "")))
        elif node.kind is TaskKind.EXPAND_FROM_DOC:
            for number in range(min(2, self.caps.max_tree_nodes - len(self.nodes))):
                self._insert(NewTask(goal=f"item {len(self.nodes)}"), node, (number,))
            node.status = NodeStatus.DONE
        else:
            self._phase(node, model)

    def _phase(self, node: Node, model: Model) -> None:
        if node.awaiting:
            assert all(below.settled for below in self.subtree(node)), "a parent before its subtree"
            assert node.state.phase is Phase.POST_CHILDREN
            node.awaiting = False
        node.status = NodeStatus.RUNNING
        step = decide(node.state, self._outcome(node, model), self.caps, self._place(node))
        # What the store would make of the cursor between two turns.
        stored = MarvinState.from_cursor(json.loads(json.dumps(step.state.to_cursor())))
        assert stored == step.state
        node.state = stored
        self._apply(node, step)

    def _outcome(self, node: Node, model: Model) -> PhaseOutput | Event:
        if self.calls >= self.budget:
            return NoCallAllowed(why="the budget is spent", material=gathered(self._material(node), "spent"))
        self.calls += 1
        text = model(node, self.calls)
        try:
            output = parse_output(node.state.phase, text)
        except PhaseParseError as error:
            return Unreadable.of(error, text)
        node.answers += 1
        return output

    def _place(self, node: Node) -> Place:
        goals, at = [], node
        while at is not None:
            goals.append(at.goal)
            at = at.parent
        return Place(depth=node.depth, node_count=len(self.nodes), goals=tuple(goals))

    def _material(self, node: Node) -> Material:
        children = tuple(
            ChildResult(label="#1", goal=child.goal, status=child.status.value, text=child.result)
            for child in self.children(node)
        )
        return Material(replies=tuple(node.replies), children=children, answers=(UserAnswer(question="q", answer="a"),))

    def _apply(self, node: Node, step: Step) -> None:
        match step:
            case GoTo() | Correct():
                pass
            case CallRecipe():
                marker = refusal(step.call, available=("web-research",), engine="ford", own_recipe="marvin")
                if marker is None:
                    node.parked, node.status = True, NodeStatus.WAITING
                else:
                    node.replies.append(RecipeReply(recipe=step.call.recipe, text=marker))
            case Spawn():
                self._spawn_below(node, step.tasks)
            case AskUser() if step.as_child:
                self._spawn_below(node, (step.task,))
            case AskUser():
                self._insert(step.task, node.parent, (*node.order_key, 1))
                node.status = NodeStatus.DONE
            case Accept():
                assert step.result.strip()
                assert step.forced is (step.warning is not None)
                node.status, node.result = NodeStatus.DONE, step.result
            case Fail():
                assert step.reason
                node.status, node.failure = NodeStatus.FAILED, step.reason

    def _spawn_below(self, node: Node, tasks: tuple[NewTask, ...]) -> None:
        first = max((child.order_key[0] for child in self.children(node)), default=0) + 1
        for number, task in enumerate(tasks, start=first):
            self._insert(task, node, (number,))
        node.status, node.awaiting, node.rounds = NodeStatus.DONE, True, node.rounds + 1

    def _look(self, node: Node) -> None:
        shown = [
            PlanNode(
                id=one.id,
                parent_id=one.parent.id if one.parent else None,
                order_key=one.order_key,
                goal=one.goal,
                kind=one.kind.value,
                status=one.status,
                awaiting=one.awaiting,
                summary=one.result,
                failure_reason=one.failure,
            )
            for one in self.nodes.values()
        ]
        text = render_plan(shown, node.id)
        assert len(text) <= LIMIT_CHARS
        assert text.count("[YOU ARE HERE]") == 1
        assert plan_payload(shown)["rootNode"]["id"] == "1"

    def check_end(self) -> None:
        """Everything is settled, and no node made more calls than the formula allows."""
        assert all(node.settled for node in self.nodes.values())
        for node in self.nodes.values():
            assert node.rounds <= self.caps.most_rounds(node.depth)
            assert node.answers <= self.caps.worst_case_calls(node.rounds)
            assert node.result.strip() or node.failure or node.kind is not TaskKind.WORKER or self._asked(node)
        assert self.calls <= (1 + self.caps.parse_corrections) * sum(
            self.caps.worst_case_calls(node.rounds) for node in self.nodes.values()
        )

    def _asked(self, node: Node) -> bool:
        """Whether the node ended by asking: its question stands right after it."""
        assert node.parent is not None
        after = (*node.order_key, 1)
        return any(o.kind is TaskKind.USER_INPUT and o.order_key == after for o in self.children(node.parent))


# --- models -----------------------------------------------------------------------------------------------------------

GARBAGE = [
    "",
    "no JSON",
    '{"action": "THINK"}',
    '{"verdict": "NEEDS_MORE_DATA"}',
    '{"result": " "}',
    '{"a": 1, "a": 2}',
    "{",
]


def subtasks(number: int, count: int) -> dict[str, Any]:
    kinds = ["WORKER", "WORKER", "EXPAND_FROM_DOC", "USER_INPUT"]
    tasks = [{"goal": f"task {number}.{n}", "taskKind": kinds[(number + n) % 4]} for n in range(count)]
    return {"action": "NEEDS_SUBTASKS", "newTasks": [*tasks, {"goal": "root goal"}, {"goal": " "}]}


def call(recipe: str) -> dict[str, Any]:
    return {"action": "CALL_RECIPE", "recipe": recipe, "query": "find it"}


def any_answer(phase: Phase, number: int, chance: random.Random) -> str:
    """An answer of some phase, mostly of the right one, sometimes none at all."""
    if chance.random() < 0.15:
        return chance.choice(GARBAGE)
    answer: dict[str, Any]
    if phase is Phase.CONCLUDE:
        answer = {"result": f"result {number}", "postActions": [{"tool": "doc_write", "args": {"path": "p"}}]}
    elif phase is Phase.VALIDATE:
        answer = {"verdict": chance.choice(list(Verdict)), "issues": [f"issue {number}"], "hint": "better"}
    else:
        answer = chance.choice(
            [
                call("web-research"),
                call("unknown"),
                {"action": "PROCEED_TO_CONCLUDE"},
                subtasks(number, chance.randint(1, 4)),
                {"action": "NEEDS_USER_INPUT", "userInput": {"title": "Which?"}},
                {"action": "BLOCKED_BY_PROBLEM", "problem": "no access"},
            ]
        )
    return json.dumps(answer)


CAPS = st.builds(
    Caps,
    max_tree_nodes=st.integers(1, 14),
    max_tree_depth=st.integers(0, 3),
    reflect=st.integers(0, 3),
    validate=st.integers(0, 3),
    conclude_retries=st.integers(0, 3),
    need_more_data=st.integers(0, 4),
    parse_corrections=st.integers(0, 2),
)
MODES = st.sampled_from(["SEQUENTIAL", "PARALLEL"])


@settings(max_examples=150, deadline=None)
@given(CAPS, MODES, st.randoms(use_true_random=False))
def test_whatever_models_say_the_tree_ends(caps: Caps, mode: str, chance: random.Random) -> None:
    tree = Tree(caps, chance, {"defaultExecutionMode": mode})
    tree.run(lambda node, number: any_answer(node.state.phase, number, chance))
    tree.check_end()


@settings(max_examples=50, deadline=None)
@given(CAPS, st.integers(0, 12), st.randoms(use_true_random=False))
def test_a_spent_budget_ends_the_tree_without_a_further_call(caps: Caps, budget: int, chance: random.Random) -> None:
    tree = Tree(caps, chance, budget=budget)
    tree.run(lambda node, number: any_answer(node.state.phase, number, chance))
    tree.check_end()
    assert tree.calls <= budget


def splitter(node: Node, number: int) -> str:
    """Never does anything but split."""
    match node.state.phase:
        case Phase.CONCLUDE:
            return '{"result": "r"}'
        case Phase.VALIDATE:
            return '{"verdict": "NEED_MORE_DATA"}'
        case _:
            tasks = [{"goal": f"{number}-{n}"} for n in range(3)]
            return json.dumps({"action": "NEEDS_SUBTASKS", "newTasks": tasks})


def never_content(node: Node, number: int) -> str:
    """Calls recipes for ever and finds every conclusion wanting, in turns."""
    match node.state.phase:
        case Phase.CONCLUDE:
            return json.dumps({"result": f"r {number}"})
        case Phase.VALIDATE:
            return json.dumps({"verdict": "RETRY_CONCLUDE" if number % 2 else "NEED_MORE_DATA", "issues": ["no"]})
        case _:
            return json.dumps(call("web-research"))


def asker(node: Node, number: int) -> str:
    """Asks whenever it may."""
    match node.state.phase:
        case Phase.CONCLUDE:
            return '{"result": "r"}'
        case Phase.VALIDATE:
            return '{"verdict": "NEED_MORE_DATA"}'
        case Phase.POST_CHILDREN:
            return '{"action": "PROCEED_TO_CONCLUDE"}'
        case _:
            return '{"action": "NEEDS_USER_INPUT", "userInput": {"title": "Which?"}}'


@pytest.mark.parametrize("mode", ["SEQUENTIAL", "PARALLEL"])
def test_a_model_that_only_splits_fills_the_tree_and_ends(mode: str) -> None:
    caps = Caps(max_tree_nodes=60)
    tree = Tree(caps, random.Random(7), {"defaultExecutionMode": mode})
    tree.run(splitter, look_every=10)
    tree.check_end()
    assert len(tree.nodes) == 60
    assert max(node.depth for node in tree.nodes.values()) <= caps.max_tree_depth
    assert tree.root.result == "r"


def test_a_model_that_is_never_content_ends_with_its_last_candidate() -> None:
    tree = Tree(Caps(), random.Random(7))
    tree.run(never_content)
    tree.check_end()
    assert tree.calls <= 10
    assert tree.root.result.startswith("r ")
    assert tree.root.state.audit_warning


def test_a_root_that_only_asks_ends_with_a_result() -> None:
    tree = Tree(Caps(), random.Random(7))
    tree.run(asker)
    tree.check_end()
    assert tree.root.result == "r"
    assert all(child.kind is TaskKind.USER_INPUT for child in tree.children(tree.root))
    assert len(tree.nodes) > 1


@pytest.mark.parametrize("text", GARBAGE)
def test_a_model_that_makes_no_sense_costs_its_corrections_and_no_more(text: str) -> None:
    tree = Tree(Caps(), random.Random(7))
    tree.run(lambda node, number: text)
    tree.check_end()
    assert tree.calls == 3
    assert tree.root.failure.startswith("SCOPE parse failed")


def test_failed_children_leave_the_decision_to_their_parent() -> None:
    def model(node: Node, number: int) -> str:
        if node.parent is not None:
            return '{"action": "BLOCKED_BY_PROBLEM", "problem": "no source"}'
        return {
            Phase.SCOPE: '{"action": "NEEDS_SUBTASKS", "newTasks": [{"goal": "a"}, {"goal": "b"}]}',
            Phase.POST_CHILDREN: '{"action": "PROCEED_TO_CONCLUDE"}',
            Phase.CONCLUDE: '{"result": "nothing was found"}',
            Phase.VALIDATE: '{"verdict": "PASS"}',
        }[node.state.phase]

    tree = Tree(Caps(), random.Random(7))
    tree.run(model)
    tree.check_end()
    assert [child.failure for child in tree.children(tree.root)] == ["no source", "no source"]
    assert tree.root.result == "nothing was found"


def test_the_walk_through_of_the_specification_takes_five_calls() -> None:
    answers = iter(
        [
            call("web-research"),
            call("web-research"),
            {"action": "PROCEED_TO_CONCLUDE", "reason": "enough"},
            {"result": "# Report", "postActions": [{"tool": "doc_write", "args": {"path": "research/report.md"}}]},
            {"verdict": "PASS"},
        ]
    )
    tree = Tree(Caps(), random.Random(7))
    tree.run(lambda node, number: json.dumps(next(answers)))
    tree.check_end()
    assert (tree.calls, len(tree.root.replies), tree.root.result) == (5, 2, "# Report")
    assert tree.root.state == replace(tree.root.state, phase=Phase.VALIDATE, reflect_iter=2, validate_iter=1)
