"""The job everybody does: the same question, the same instant answer. Standard library only."""

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
ANSWER = {"userId": "u-4821", "action": "login", "timestamp": "2026-11-30T09:15:27Z"}


def instant_model(prompt: str) -> dict[str, Any]:
    """A model call without a model: what a peer's durable step runs. Reads the answer as text, as a real reply is."""
    if not prompt:
        raise ValueError("no prompt")
    answer: dict[str, Any] = json.loads(json.dumps(ANSWER))
    return answer
