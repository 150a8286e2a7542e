"""The message that asks a model to try again: what was wrong, where, and what would be right. Bounded in length."""

from __future__ import annotations

from collections.abc import Sequence

from engines.structured.checks import Violation

MAX_LISTED = 20
EXCERPT_CHARS = 2_000


def correction_text(violations: Sequence[Violation], *, truncated: bool = False, limit: int = MAX_LISTED) -> str:
    """The correction for a rejected reply: at most ``limit`` violations, one line each, then how many more there are.

    truncated: the reply was cut off, so it must become shorter as well.
    """
    lines = ["Your last reply was not accepted. What is wrong with it:"]
    lines += [f"- {violation}" for violation in violations[:limit]]
    if len(violations) > limit:
        lines.append(f"- and {len(violations) - limit} more")
    if truncated:
        lines.append("It reached the length limit: write the same answer in fewer words.")
    lines.append(
        "Write the whole answer again as exactly one JSON object that fits the schema: "
        "nothing before it, nothing after it, no code fence, each key once."
    )
    return "\n".join(lines)


def excerpt(text: str, limit: int = EXCERPT_CHARS) -> str:
    """``text`` as it is, or its beginning and end with a note of how much was left out; never above ``limit``."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text):,} characters in all, the middle left out ...]\n"
    room = limit - len(note)
    if room <= 0:
        return text[:limit]
    head = room * 2 // 3
    return f"{text[:head]}{note}{text[len(text) - (room - head) :]}"
