"""The three tiers of a prompt: what never changes, what stays for a session, what is new in this call."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

from engines.llm.base import Message

_BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptParts:
    """A prompt by how long its parts live. Equal inputs give equal bytes, so that providers can cache the stable part.

    system: the rules; the same for all sessions with the same view mode.
    session_context: the current spec of an evolution; the same for all its attempts. Empty everywhere else.
    user: task, feedback and everything people or models wrote; the only tier with free text.
    """

    system: str
    user: str
    session_context: str = ""

    def concatenated(self) -> str:
        """All tiers as one text; empty ones leave no trace."""
        return _BETWEEN.join(tier for tier in (self.system, self.session_context, self.user) if tier.strip())

    def hashes(self) -> dict[str, str]:
        """Tier -> SHA-256 of its UTF-8 bytes, in hexadecimal: what a call's record keeps in place of the text."""
        return {
            tier: hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
            for tier, content in sorted(asdict(self).items())
        }

    def messages(self, *, cache: bool = True) -> tuple[Message, ...]:
        """The conversation's beginning: a system message for each stable tier, marked for the cache, then the user's.

        cache: whether prompt caching is wanted; without it the stable tiers are one plain system message.
        """
        stable = [tier for tier in (self.system, self.session_context) if tier.strip()]
        if not cache:
            stable = [_BETWEEN.join(stable)] if stable else []
        return (
            *(Message(role="system", content=tier, cache=cache) for tier in stable),
            Message(role="user", content=self.user),
        )
