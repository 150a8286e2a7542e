"""What valem remembers between two turns: the cursor of its one node.

Specs and evolutions are kept as JSON text: a cursor sorts the keys of objects, and the order of a spec's fields is its
author's. Views carry no artifacts, so the best candidate lies here as well; every text has a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from engines import conversation
from engines.conversation import Called, Exchange

MAX_REPLY_CHARS: Final = 400_000
"""A longer answer is not looked at: it is told to be shorter."""


class ValemPhase(StrEnum):
    """What a turn does. The phases of a node, as stored."""

    ASK = "ASK"
    """One model call with tools offered; the first of an attempt, or one after a batch of tools."""
    TOOLS = "TOOLS"
    """One batch of tool calls."""
    ANSWER = "ANSWER"
    """The last model call of an attempt whose round trips are used up: without tools."""
    CHECK = "CHECK"
    """The answer is repaired, validated, run and tested, in a process of its own."""
    STORE = "STORE"
    """A version is looked for that is free, and written."""
    CONFIRM = "CONFIRM"
    """Whether it was us who wrote it."""


CALLING: Final = frozenset({ValemPhase.ASK, ValemPhase.TOOLS, ValemPhase.ANSWER})
"""The phases before the answer of an attempt is there."""


class Task(StrEnum):
    """What a process of valem is for."""

    GENERATE = "generate"
    EVOLVE = "evolve"


class Asked(StrEnum):
    """What the prompt of an attempt asks for."""

    FIRST = "first"
    """The spec, or the evolution."""
    REPAIR = "repair"
    """Errors of validation, or of an evolution, set right."""
    STATE = "state"
    """A spec whose new models break their own constraints set right."""
    SHORTER = "shorter"
    """A smaller spec, after two answers that were cut off."""
    TESTS = "tests"
    """Tests that fail set right."""
    VIEW = "view"
    """Findings in the view set right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong. where: a place in the answer, or the name of a test. hint: how to put it right.

    derivation: the one at the path where a test fails, as ``address: expression``.
    """

    where: str
    message: str
    hint: str | None = None
    derivation: str | None = None

    def __str__(self) -> str:
        return f"[{self.where}] {self.message}{f' — FIX: {self.hint}' if self.hint else ''}"

    def to_json(self) -> dict[str, Any]:
        return {"where": self.where, "message": self.message, "hint": self.hint, "derivation": self.derivation}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A valid spec. evolution: the change that made it, if one did. flaws: failing test cases and findings in the view.

    colour: ``green`` (tests that all pass), ``amber`` (flaws) or ``neutral`` (no test that could be judged).
    """

    spec: str
    evolution: str | None = None
    model_id: str
    spec_version: str = "1.0.0"
    attempt: int = 1
    flaws: int = 0
    failing: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    colour: str = "neutral"

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": self.spec,
            "evolution": self.evolution,
            "modelId": self.model_id,
            "specVersion": self.spec_version,
            "attempt": self.attempt,
            "flaws": self.flaws,
            "failing": list(self.failing),
            "findings": list(self.findings),
            "warnings": list(self.warnings),
            "colour": self.colour,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Candidate:
        return cls(
            spec=stored["spec"],
            evolution=stored["evolution"],
            model_id=stored["modelId"],
            spec_version=stored["specVersion"],
            attempt=stored["attempt"],
            flaws=stored["flaws"],
            failing=tuple(stored["failing"]),
            findings=tuple(stored["findings"]),
            warnings=tuple(stored["warnings"]),
            colour=stored["colour"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What the process ends with. best_effort: flaws are left. why: what ended the work before its time, if it did.

    model_id, version: where it is to be stored; version ``None``: nowhere. suffix: how many ids were taken.
    """

    candidate: Candidate
    model_id: str
    version: int | None
    best_effort: bool = False
    why: str | None = None
    suffix: int = 1

    def to_json(self) -> dict[str, Any]:
        return {
            "candidate": self.candidate.to_json(),
            "modelId": self.model_id,
            "version": self.version,
            "bestEffort": self.best_effort,
            "why": self.why,
            "suffix": self.suffix,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Chosen:
        return cls(
            candidate=Candidate.from_json(stored["candidate"]),
            model_id=stored["modelId"],
            version=stored["version"],
            best_effort=stored["bestEffort"],
            why=stored["why"],
            suffix=stored["suffix"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What the tools of the session have cost so far, and what is remembered of them: a repeated call costs nothing.

    topics: what guidance was asked for; a new attempt is told it again.
    """

    calls: Mapping[str, int] = field(default_factory=dict)
    remembered: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"calls": dict(self.calls), "remembered": dict(self.remembered), "topics": list(self.topics)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Spending:
        return cls(calls=stored["calls"], remembered=stored["remembered"], topics=tuple(stored["topics"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValemState:
    """The cursor.

    attempt: from 1. asked, problems, previous: what this attempt's prompt says: what for, what was wrong, with what.
    counted: problems of the attempt before; ``None`` when it could not be read, or there was none. output_limit: asked
    for instead of the parameter's; raised: once in a session. reply, cut, next_limit: the answer to be checked, whether
    it was cut off, and which limit to try then. last_raw: the last answer that was rejected. truncated: it was cut off.
    base_version: of the stored model that is evolved.
    """

    phase: ValemPhase = ValemPhase.ASK
    attempt: int = 1
    asked: Asked = Asked.FIRST
    problems: tuple[Problem, ...] = ()
    previous: str = ""
    counted: int | None = None
    exchanges: tuple[Exchange, ...] = ()
    round_trips: int = 0
    output_limit: int | None = None
    raised: bool = False
    reply: str = ""
    cut: bool = False
    next_limit: int | None = None
    last_raw: str = ""
    truncated: bool = False
    best: Candidate | None = None
    chosen: Chosen | None = None
    base_version: int | None = None
    spending: Spending = field(default_factory=Spending)

    @property
    def pending(self) -> tuple[Called, ...]:
        """The calls of the batch that a TOOLS turn is about."""
        return self.exchanges[-1].calls if self.phase is ValemPhase.TOOLS and self.exchanges else ()

    @property
    def attempts(self) -> int:
        """Attempts that brought an answer."""
        return self.attempt - 1 if self.phase in CALLING else self.attempt

    @classmethod
    def from_cursor(cls, cursor: Mapping[str, Any]) -> ValemState:
        """The state stored by :meth:`to_cursor`; an empty cursor is the beginning."""
        if not cursor:
            return cls()
        return cls(
            phase=ValemPhase(cursor["phase"]),
            attempt=cursor["attempt"],
            asked=Asked(cursor["asked"]),
            problems=tuple(Problem(**each) for each in cursor["problems"]),
            previous=cursor["previous"],
            counted=cursor["counted"],
            exchanges=conversation.from_json(cursor["exchanges"]),
            round_trips=cursor["roundTrips"],
            output_limit=cursor["outputLimit"],
            raised=cursor["raised"],
            reply=cursor["reply"],
            cut=cursor["cut"],
            next_limit=cursor["nextLimit"],
            last_raw=cursor["lastRaw"],
            truncated=cursor["truncated"],
            best=Candidate.from_json(cursor["best"]) if cursor["best"] is not None else None,
            chosen=Chosen.from_json(cursor["chosen"]) if cursor["chosen"] is not None else None,
            base_version=cursor["baseVersion"],
            spending=Spending.from_json(cursor["spending"]),
        )

    def to_cursor(self) -> dict[str, Any]:
        return {
            "phase": self.phase.value,
            "attempt": self.attempt,
            "asked": self.asked.value,
            "problems": [each.to_json() for each in self.problems],
            "previous": self.previous,
            "counted": self.counted,
            "exchanges": conversation.to_json(self.exchanges),
            "roundTrips": self.round_trips,
            "outputLimit": self.output_limit,
            "raised": self.raised,
            "reply": self.reply,
            "cut": self.cut,
            "nextLimit": self.next_limit,
            "lastRaw": self.last_raw,
            "truncated": self.truncated,
            "best": self.best.to_json() if self.best is not None else None,
            "chosen": self.chosen.to_json() if self.chosen is not None else None,
            "baseVersion": self.base_version,
            "spending": self.spending.to_json(),
        }
