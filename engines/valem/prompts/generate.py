"""The prompts of a generation: the first one, and one repair for each way a spec can fall short.

Everything people or models wrote stands between fences, in the user tier. ``token``: random for each call, letters and
digits, at least eight. ``include_view`` must stay the same for a whole session, so that the system tier does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engines.recipes.fence import fence
from engines.valem.prompts.feedback import Failure, Remark, failure_lines, plain, remark_lines
from engines.valem.prompts.guidance import Topics, shape_exemplars
from engines.valem.prompts.system import system_text
from engines.valem.prompts.tiers import PromptParts

BRIEF_WORDS: Final = 8
"""A description of at most this many words names a thing rather than describing it."""

_ID_CHARS: Final = 100
_CHOOSE_ID: Final = (
    "Model id: none is given. Choose one and set it as the spec's id: two to four words that say what it is, in lower "
    "case, joined by hyphens."
)
_BRIEF: Final = (
    "The description only names the thing. Model its standard definition, as a textbook of the field has it: the usual "
    "inputs, the usual formula, the results people look for. No special cases, no extras."
)
_WITH_VIEW: Final = "Include a complete viewDefinition that suits this domain. Output only the JSON spec, nothing else."
_JSON_ONLY: Final = "Output only the JSON spec, nothing else."
_CORRECTED: Final = "Output only the corrected JSON spec, nothing else."
_SIZE: Final = (
    "The last answer was too long and was cut off. Write a small spec: only inputs and results in the schema, at most "
    "4 derivations, at most 2 constraints, one default rule; no tests, no metaDerivations, no effects, no view, no "
    "descriptions. Output only the JSON spec."
)
_BY_HAND: Final = (
    "Work out each failing case by hand from its `given`, step by step. Either an expression is wrong or the expected "
    "value is: correct whichever does not agree with your result (`expr` or `expect`), and nothing that passes."
)
_SEED: Final = (
    "A rollback rule has to hold before anybody has entered anything. Seed values in defaultValues that satisfy it, or "
    "let the rule wait until its input is there, or make it a flag if it is only advice. Keep the tests true."
)


def initial(
    description: str,
    *,
    token: str,
    model_id: str | None = None,
    include_view: bool = False,
    topics: Topics | None = None,
) -> PromptParts:
    """The first prompt. ``topics``: guidance with an operator's additions; their shapes are recognised too."""
    brief = _BRIEF if len(description.split()) <= BRIEF_WORDS else ""
    return _parts(
        include_view,
        "Write the model spec for the domain described here.",
        _id_line(model_id, _CHOOSE_ID),
        fence(description, "Domain description", token),
        shape_exemplars(description, topics),
        brief,
        _WITH_VIEW if include_view else _JSON_ONLY,
    )


def repair_validation(
    remarks: Sequence[Remark],
    rejected: str,
    *,
    token: str,
    model_id: str | None = None,
    include_view: bool = False,
    guidance: str = "",
    description: str = "",
    topics: Topics | None = None,
) -> PromptParts:
    """After a spec that cannot be read or is not valid.

    guidance: what the model was told when it asked. description: the task again, for an answer that held no spec.
    """
    return _parts(
        include_view,
        f"Your previous model spec{_named(model_id)} is not valid:\n{remark_lines(remarks)}",
        _told(guidance),
        fence(description, "Domain description", token) if description.strip() else "",
        shape_exemplars(description, topics),
        fence(rejected, "Previous spec", token),
        f"Fix all of this and change nothing else. {_CORRECTED}",
    )


def repair_truncated(
    description: str, *, token: str, model_id: str | None = None, include_view: bool = False
) -> PromptParts:
    """After a second answer that was cut off: a smaller spec, asked for in few words, as room is what is missing."""
    return _parts(
        include_view,
        _SIZE,
        _id_line(model_id, "Choose a short id, such as car-loan."),
        fence(description, "Domain description", token),
    )


def repair_tests(
    failures: Sequence[Failure],
    rejected: str,
    *,
    token: str,
    model_id: str | None = None,
    include_view: bool = False,
    guidance: str = "",
) -> PromptParts:
    """After a valid spec that fails tests of its own."""
    return _parts(
        include_view,
        f"Your model spec{_named(model_id)} is valid, but tests of its own fail:\n{failure_lines(failures)}",
        _told(guidance),
        fence(rejected, "Previous spec", token),
        f"{_BY_HAND} {_CORRECTED}",
    )


def repair_lint(
    remarks: Sequence[Remark],
    rejected: str,
    *,
    token: str,
    model_id: str | None = None,
    include_view: bool = True,
) -> PromptParts:
    """After a spec whose only flaws are in its view."""
    return _parts(
        include_view,
        f"Your model spec{_named(model_id)} is valid and passes its tests, but its view has flaws:\n"
        f"{remark_lines(remarks)}",
        fence(rejected, "Previous spec", token),
        f"Correct the viewDefinition and nothing else. {_CORRECTED}",
    )


def repair_initial_state(
    remarks: Sequence[Remark],
    rejected: str,
    *,
    token: str,
    model_id: str | None = None,
    include_view: bool = False,
    guidance: str = "",
) -> PromptParts:
    """After a valid spec of which no model can be created, because its seeded state breaks a rollback rule."""
    return _parts(
        include_view,
        f"No model can be created from your spec{_named(model_id)}: a new one breaks its own rules.\n"
        f"{remark_lines(remarks)}",
        _told(guidance),
        fence(rejected, "Previous spec", token),
        f"{_SEED} {_CORRECTED}",
    )


def _parts(include_view: bool, *paragraphs: str) -> PromptParts:
    user = "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
    return PromptParts(system=system_text(include_view=include_view), user=user)


def _id_line(model_id: str | None, otherwise: str) -> str:
    return f"Model id: {plain(model_id, _ID_CHARS)}" if model_id and model_id.strip() else otherwise


def _named(model_id: str | None) -> str:
    return f" for '{plain(model_id, _ID_CHARS)}'" if model_id and model_id.strip() else ""


def _told(guidance: str) -> str:
    return f"Guidance you asked for:\n{guidance.strip()}" if guidance.strip() else ""
