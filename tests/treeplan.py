"""A plan of any size whose every answer is known beforehand: what the drill's trees grow into, what their model says.

Size and seed alone decide it, so the fake provider and the proof work it out apart from each other. An answer
follows from the question alone, however often it is asked; a conclusion adds up what the prompt says of the children,
so that the root's report is right only if every report has come up exactly once.

Standard library only: it shares no bug with what it tests.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

WORKER, EXPAND, QUESTION = "WORKER", "EXPAND_FROM_DOC", "USER_INPUT"
LOOKUP = "lookup"
"""The recipe that nodes call, on jeltz."""
LEAST_NODES = 40
MAX_DEPTH = 20
SHARED = tuple(f"shared/{number}.md" for number in range(4))
"""Documents that many nodes write."""
UNREADABLE = "I would rather not use JSON"

Key = tuple[str, str, int, int]
"""A model call: goal, phase, iteration, attempt. ``ANSWER`` is the phase of a recipe call, its number the iteration."""

_GOAL = re.compile(r"<<< Goal \[(\w+)\]\n(.*?)\n\[\1\] end >>>", re.DOTALL)
_NOW = re.compile(r"## Now: (\w+) \(iteration (\d+)")
_CHILD = re.compile(r"<<< Child [^\[]*\[(\w+)\]\n(.*?)\n\[\1\] end >>>", re.DOTALL)
_REPLY = re.compile(r"<<< Result of CALL_RECIPE[^\[]*\[(\w+)\]\n(.*?)\n\[\1\] end >>>", re.DOTALL)
_LOOK_UP = re.compile(r"Look up number (\d+) for (part-[\d-]+)\.")


@dataclass
class Task:
    """A node to be, and what its model is going to say."""

    goal: str
    kind: str = WORKER
    rounds: list[list[Task]] = field(default_factory=list)
    """Children, a list for each time some are created. Those of a document are one round."""
    branch: bool = False
    """Stands for a branch of a tree document: its children are created without a call."""
    nested: bool = False
    """EXPAND_FROM_DOC on a tree document."""
    calls: int = 0
    sequential: bool = False
    corrected: bool = False
    """The first answer in SCOPE is unreadable."""
    reviewed_twice: bool = False
    blocked: bool = False
    question: Task | None = None
    """What it asks instead of working: becomes its next sibling."""
    undecided: bool = False
    writes: list[str] = field(default_factory=list)
    order_key: tuple[int, ...] = ()
    place: str = "0"
    depth: int = 0

    @property
    def children(self) -> list[Task]:
        tasks = [child for batch in self.rounds for child in batch]
        return [each for task in tasks for each in (task, task.question) if each is not None]

    @cached_property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)

    def walk(self) -> Iterator[Task]:
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def status(self) -> str:
        return "FAILED" if self.blocked or self.undecided else "DONE"

    @property
    def facts(self) -> list[str]:
        return [fact(self.goal, number) for number in range(self.calls)]

    @property
    def result(self) -> str | None:
        """The artifact of a worker that concludes."""
        return None if self.kind != WORKER or self.blocked or self.question else conclusion(self.size, self.facts)


@dataclass(frozen=True)
class PlannedTurn:
    """A turn of a node as its phase record shows it; ``said`` is what the model answers, ``None`` without a call."""

    phase: str
    iteration: int
    reason: str
    said: Callable[[str], Any] | None = None


def fact(goal: str, number: int) -> str:
    return f"fact-{number}-of-{goal}"


def conclusion(nodes: int, facts: list[str]) -> str:
    return f"nodes: {nodes}; facts: {', '.join(facts) or 'none'}"


def answer_to(title: str) -> dict[str, Any]:
    """What the person says to the question ``title``."""
    if title.startswith("undecided"):
        return {"outcome": "UNDECIDABLE", "reason": f"nobody knows about {title}"}
    return {"outcome": "DECIDED", "value": {"text": f"yes to {title}"}}


class TreePlan:
    """The plan of ``nodes`` nodes, at least 40. ``root`` is its tree; ``tasks`` finds a node by its goal."""

    def __init__(self, nodes: int, seed: int) -> None:
        if nodes < LEAST_NODES:
            raise ValueError(f"a tree with something of everything has at least {LEAST_NODES} nodes, not {nodes}")
        self._dice = random.Random(seed)
        self.root = Task("part-0")
        question = Task("question-0", QUESTION)
        self.root.rounds = [[question], self._one_of_each(nodes - 2)]
        self._place(self.root)
        self.tasks = {task.goal: task for task in self.root.walk()}
        assert self.root.size == len(self.tasks) == nodes

    # -- growing -----------------------------------------------------------------------------------------------------

    def _one_of_each(self, room: int) -> list[Task]:
        """Something of everything, twice what kills are aimed at, and a large rest."""
        goal = self.root.goal
        names = (f"{goal}-{number}" for number in range(1, 100))
        batch = [Task("question-planned", QUESTION), Task("undecided-planned", QUESTION, undecided=True)]
        for number in range(2):
            batch.append(self._asker(next(names)))
            batch.append(Task(next(names), calls=2 - number, writes=[SHARED[number]]))
            batch.append(self._document(next(names), 2))
        batch.append(self._nested_document(next(names), 4))
        for trait in ("corrected", "reviewed_twice", "blocked"):
            batch.append(Task(next(names), **{trait: True}))
        twice = Task(next(names), sequential=True, writes=[SHARED[2]])
        twice.rounds = [[Task(f"{twice.goal}-1"), Task(f"{twice.goal}-2")], [Task(f"{twice.goal}-3")]]
        batch.append(twice)
        room -= sum(each.size for task in batch for each in (task, task.question) if each is not None)
        while room:
            part = min(room, max(2, -(-room // 3)))
            batch.append(self._grown(next(names), part, 1))
            room -= part
        return batch

    def _grown(self, goal: str, size: int, depth: int) -> Task:
        """A worker with ``size`` - 1 nodes below it."""
        dice = self._dice
        task = Task(goal, calls=1 if dice.random() < 0.08 else 0, writes=self._documents(goal, size))
        if size == 1:
            trait = dice.choices(["", "corrected", "reviewed_twice", "blocked"], [88, 4, 5, 3])[0]
            if trait:
                setattr(task, trait, True)
            if task.blocked:
                task.writes = []
            return task
        # A large one would make most of the workers wait for it.
        task.sequential = size <= 12 and dice.random() < 0.2
        batch = self._parts(goal, size - 1, depth)
        # Each later round of children costs a level of the depth limit: only far above it.
        cut = dice.randrange(1, len(batch)) if len(batch) > 2 and depth < MAX_DEPTH - 6 and dice.random() < 0.2 else 0
        task.rounds = [batch[:cut], batch[cut:]] if cut else [batch]
        return task

    def _parts(self, goal: str, room: int, depth: int) -> list[Task]:
        dice, batch = self._dice, list[Task]()
        width = dice.randrange(3, 8)
        while room:
            name = f"{goal}-{len(batch) + 1}"
            part = room if len(batch) + 1 >= width or room < 3 else dice.randrange(1, max(2, 2 * room // width))
            luck = dice.random()
            if part == 1 and luck < 0.05:
                batch.append(Task(f"question-{name}", QUESTION))
            elif part == 2 and luck < 0.3:
                batch.append(self._asker(name))
            elif 3 <= part <= 20 and luck < 0.3:
                batch.append(self._document(name, part - 1))
            elif 5 <= part <= 20 and luck < 0.4:
                batch.append(self._nested_document(name, part - 1))
            else:
                batch.append(self._grown(name, part, depth + 1))
            room -= part
        return batch

    @staticmethod
    def _asker(goal: str) -> Task:
        return Task(goal, question=Task(f"question-{goal}", QUESTION))

    def _document(self, goal: str, entries: int) -> Task:
        batch = [Task(f"{goal}-{number}") for number in range(1, entries + 1)]
        return self._written(Task(goal, EXPAND, rounds=[batch]))

    def _nested_document(self, goal: str, entries: int) -> Task:
        """A branch with all entries but one below it, and the one beside it."""
        below = [Task(f"{goal}-1-{number}") for number in range(1, entries - 1)]
        batch = [Task(f"{goal}-1", rounds=[below], branch=True), Task(f"{goal}-2")]
        return self._written(Task(goal, EXPAND, rounds=[batch], nested=True))

    def _written(self, task: Task) -> Task:
        for entry in list(task.walk())[1:]:
            entry.writes = [f"entries/{entry.goal}.md"]
        return task

    def _documents(self, goal: str, size: int) -> list[str]:
        own = [f"reports/{goal}.md"] if self._dice.random() < (0.2 if size == 1 else 0.5) else []
        return own + ([self._dice.choice(SHARED)] if self._dice.random() < 0.1 else [])

    def _place(self, task: Task) -> None:
        """Order keys as the engine gives them: children by their number, an asker's question right behind it."""
        number = -1
        for child in task.children:
            asked = number >= 0 and any(each.question is child for each in task.children)
            number += not asked
            child.order_key = (number, 1) if asked else (number,)
            child.place = f"{task.place}-{'.'.join(map(str, child.order_key))}"
            child.depth = task.depth + 1
            self._place(child)

    # -- what happens ------------------------------------------------------------------------------------------------

    def turns(self, task: Task) -> list[PlannedTurn]:
        """Every turn of the node, in order."""
        if task.kind == QUESTION:
            end = "FAILED" if task.undecided else "CONCLUDED"
            return [PlannedTurn("ASK", 1, "ASKED"), PlannedTurn("ASK", 1, end)]
        if task.kind == EXPAND:
            return [PlannedTurn("EXPAND", 1, "FANNED_OUT"), PlannedTurn("EXPAND", 2, "CONCLUDED")]
        return [*self._opening(task), *self._after_children(task), *self._end(task)]

    def _opening(self, task: Task) -> Iterator[PlannedTurn]:
        if task.branch:
            yield PlannedTurn("SCOPE", 1, "FANNED_OUT")
            return
        if task.corrected:
            yield PlannedTurn("SCOPE", 1, "CORRECTED", lambda _: UNREADABLE)
        for number in range(task.calls):
            call = {"recipe": LOOKUP, "steerContent": f"Look up number {number} for {task.goal}."}
            yield self._opened(number, "CALLED", "CALL_RECIPE", recipeCall=call)
        if task.blocked:
            yield self._opened(task.calls, "FAILED", "BLOCKED_BY_PROBLEM", problem="nodes: 1 given up")
        elif task.question is not None:
            yield self._opened(task.calls, "ASKED", "NEEDS_USER_INPUT", userInput=_question(task.question))
        elif task is self.root:
            (question,) = task.rounds[0]
            yield self._opened(task.calls, "FANNED_OUT", "NEEDS_USER_INPUT", userInput=_question(question))
        elif task.rounds:
            yield self._opened(task.calls, "FANNED_OUT", "NEEDS_SUBTASKS", newTasks=_new_tasks(task.rounds[0]))
        else:
            yield self._opened(task.calls, "ADVANCED", "PROCEED_TO_CONCLUDE")

    @staticmethod
    def _opened(number: int, reason: str, action: str, **parts: Any) -> PlannedTurn:
        answer = {"action": action, "reason": "so it is planned", **parts}
        return PlannedTurn("REFLECT" if number else "SCOPE", max(number, 1), reason, lambda _: answer)

    @staticmethod
    def _after_children(task: Task) -> Iterator[PlannedTurn]:
        for number in range(1, len(task.rounds) + 1):
            last = number == len(task.rounds)
            answer: dict[str, Any] = {"action": "PROCEED_TO_CONCLUDE" if last else "NEEDS_SUBTASKS", "reason": "so"}
            if not last:
                answer["newTasks"] = _new_tasks(task.rounds[number])
            yield PlannedTurn("POST_CHILDREN", number, "ADVANCED" if last else "FANNED_OUT", lambda _, a=answer: a)

    def _end(self, task: Task) -> Iterator[PlannedTurn]:
        if task.blocked or task.question is not None:
            return
        reviews = 2 if task.reviewed_twice else 1
        for number in range(1, reviews + 1):
            last = number == reviews
            yield PlannedTurn("CONCLUDE", number, "ADVANCED", lambda text: self._concluded(task, text))
            verdict = {"verdict": "PASS" if last else "RETRY_CONCLUDE", "issues": [] if last else ["once more"]}
            review = {**verdict, "reason": "so it is planned"}
            yield PlannedTurn("VALIDATE", number, "CONCLUDED" if last else "ADVANCED", lambda _, r=review: r)

    def _concluded(self, task: Task, text: str) -> dict[str, Any]:
        """Made of what the prompt tells: one for the node itself, and what each child's report says."""
        nodes = 1
        for _, block in _CHILD.findall(text):
            goal = block.partition("\n")[0].removeprefix("Goal: ").strip()
            reported = [int(number) for number in re.findall(r"nodes: (\d+)", block)]
            child = self.tasks.get(goal)
            # A document's node hands on the reports of its entries and says nothing of itself.
            nodes += sum(reported) + (not reported or (child is not None and child.kind == EXPAND))
        facts = [found for _, block in _REPLY.findall(text) for found in re.findall(r"fact-[\w-]+", block)]
        # The writes of an entry are its document's: they are in its spec, not in its answer.
        wanted = [path for path in task.writes if not path.startswith("entries/")]
        return {
            "result": conclusion(nodes, facts),
            "postActions": [_doc_write(path, "{{ node.result }}") for path in wanted],
            "reason": "so it is planned",
        }

    # -- the model ---------------------------------------------------------------------------------------------------

    @cached_property
    def calls(self) -> dict[Key, Callable[[str], Any]]:
        """Every model call of the plan, and the answer to it as a function of the prompt's text."""
        found: dict[Key, Callable[[str], Any]] = {}
        for task in self.tasks.values():
            attempts: dict[tuple[str, int], int] = {}
            for turn in self.turns(task):
                if turn.said is not None:
                    attempt = attempts[turn.phase, turn.iteration] = attempts.get((turn.phase, turn.iteration), 0) + 1
                    found[task.goal, turn.phase, turn.iteration, attempt] = turn.said
            for number in range(task.calls):
                reply = {"fact": fact(task.goal, number)}
                found[task.goal, "ANSWER", number, 1] = lambda _, reply=reply: reply
        return found

    @property
    def documents(self) -> dict[str, str]:
        """The lists and trees that nodes refer to, by path: to be stored before the plan is submitted."""
        return {_list_path(task): _list_text(task) for task in self.tasks.values() if task.kind == EXPAND}


def key_of(text: str, attempt: int) -> Key | None:
    """Which call a prompt is, from all of its text; ``None`` for one that is not of such a plan."""
    goal, now = _GOAL.search(text), _NOW.search(text)
    if goal and now:
        return goal[2], now[1], int(now[2]), attempt
    wanted = _LOOK_UP.search(text)
    return (wanted[2], "ANSWER", int(wanted[1]), attempt) if wanted else None


def usage_of(key: Key) -> dict[str, int]:
    """What the provider counts for this call: ``input`` and ``output`` tokens."""
    number = zlib.crc32(repr(key).encode())
    return {"input": 100 + number % 900, "output": 10 + number % 90}


def _question(task: Task) -> dict[str, Any]:
    return {"type": "FEEDBACK", "title": task.goal, "body": "Say yes."}


def _new_tasks(batch: list[Task]) -> list[dict[str, Any]]:
    return [{"goal": task.goal, "taskKind": task.kind, "taskSpec": _spec(task)} for task in batch]


def _spec(task: Task) -> dict[str, Any]:
    if task.kind == QUESTION:
        return _question(task)
    if task.kind == EXPAND:
        action = _doc_write("entries/{{ item.text | slug }}.md", "{{ node.result }}")
        template = {"taskKind": WORKER, "goal": "{{ item.text }}", "taskSpec": {"postActions": [action]}}
        return {"documentRef": {"path": _list_path(task)}, "childTemplate": template}
    return {"executionMode": "SEQUENTIAL"} if task.sequential else {}


def _doc_write(path: str, content: str) -> dict[str, Any]:
    return {"tool": "doc_write", "args": {"path": path, "kind": "text", "content": content}}


def _list_path(task: Task) -> str:
    return f"lists/{task.goal}.md"


def _list_text(task: Task) -> str:
    lines = [f"{'  ' * (entry.depth - task.depth - 1)}- {entry.goal}" for entry in list(task.walk())[1:]]
    return "\n".join(["---", f"kind: {'tree' if task.nested else 'list'}", "---", *lines, ""])
