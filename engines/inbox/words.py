"""The words of the inbox. Imports nothing of ours."""

from __future__ import annotations

from enum import StrEnum


class InputType(StrEnum):
    """What is asked for; it decides the shape of the answer (:mod:`engines.inbox.answers`)."""

    APPROVAL = "APPROVAL"
    DECISION = "DECISION"
    FEEDBACK = "FEEDBACK"
    ORDERING = "ORDERING"
    STRUCTURE_EDIT = "STRUCTURE_EDIT"
    OUTPUT_TEXT = "OUTPUT_TEXT"
    OUTPUT_IMAGE = "OUTPUT_IMAGE"
    OUTPUT_DOCUMENT = "OUTPUT_DOCUMENT"


class Criticality(StrEnum):
    """How much an inbox item presses."""

    LOW = "LOW"
    """With a ``default`` in its payload it is answered by that at once; nobody is asked."""
    NORMAL = "NORMAL"
    CRITICAL = "CRITICAL"


class Decision(StrEnum):
    """How an answer ends the question."""

    DECIDED = "DECIDED"
    INSUFFICIENT_INFO = "INSUFFICIENT_INFO"
    UNDECIDABLE = "UNDECIDABLE"
