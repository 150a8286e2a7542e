"""The jobs everybody does: the same questions, the same instant answers. Standard library only."""

from __future__ import annotations

import json
from typing import Any

PROMPT = (
    "Read the log line and say who did what and when: "
    "2026-11-30T09:15:27Z INFO auth: user u-4821 signed in from 10.2.3.4 with a hardware key after two refused tries."
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["userId", "action", "timestamp"],
    "properties": {
        "userId": {"type": "string"},
        "action": {"type": "string"},
        "timestamp": {"type": "string"},
    },
}
CHAIN_STEPS = 4
"""Steps of a job of several steps."""
TREE_GOAL = "Go through today's log lines, a subtask for each, and say in one paragraph who did what."
CHILD_STEPS, LAST_STEPS = 3, 2
"""Steps of each branch of a job that fans out, and of the job itself once they are joined."""
ANSWER = {"userId": "u-4821", "action": "login", "timestamp": "2026-11-30T09:15:27Z"}


def instant_model(prompt: str) -> dict[str, Any]:
    """A model call without a model: what a peer's durable step runs. Reads the answer as text, as a real reply is."""
    if not prompt:
        raise ValueError("no prompt")
    answer: dict[str, Any] = json.loads(json.dumps(ANSWER))
    return answer


def child_goal(number: object) -> str:
    """What one branch of a tree is asked to do."""
    return f"Log line {number}: say who did what and when."


def tree_steps(children: int) -> int:
    """Steps of a job that fans out into so many branches; splitting and joining are not counted."""
    return children * CHILD_STEPS + LAST_STEPS
