"""The prompts of an evolution: a change to a spec that exists, as a diff, and its repair.

The current spec is the session tier: :func:`session_context` makes it once, and every attempt sends the same bytes.
What is asked for and what was rejected stands between fences, in the user tier.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Final

from engines.recipes.fence import fence
from engines.valem.prompts.feedback import Remark, plain, remark_lines
from engines.valem.prompts.guidance import Topics, shape_exemplars
from engines.valem.prompts.resources import text
from engines.valem.prompts.system import system_text
from engines.valem.prompts.tiers import PromptParts

_TOKEN_CHARS: Final = 16
_ADDRESS_CHARS: Final = 1_000
_TASK: Final = (
    "Apply the change requested here to the current spec above. Answer with a SpecEvolution: one JSON object that "
    "holds only what changes, never the whole spec."
)
_AGAIN: Final = (
    "The current spec above is unchanged: write the whole evolution again, with the same request carried out and the "
    "problem solved."
)
_VIEW: Final = "Keep the view in step: update the viewDefinition as far as the change shows in it, or replace it."
_ONLY: Final = "Output only the JSON SpecEvolution, nothing else."


def session_context(spec_json: str, derived_paths: Iterable[str] = (), *, model_id: str | None = None) -> str:
    """The current spec and its derived paths. Equal specs give equal bytes, whatever the order of their keys.

    spec_json: the spec as JSON text (``ValueError`` when it is none). derived_paths: the addresses of its derivations.
    """
    spec = json.dumps(json.loads(spec_json), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    # A token out of the text itself stays the same for the session, and no text can contain its own hash.
    token = hashlib.sha256(spec.encode("utf-8", "surrogatepass")).hexdigest()[:_TOKEN_CHARS]
    named = f" of '{plain(model_id, 200)}'" if model_id and model_id.strip() else ""
    parts = [f"The current model spec{named}:\n{fence(spec, 'Current spec', token)}"]
    derived = sorted({plain(path, _ADDRESS_CHARS) for path in derived_paths})
    if derived:
        parts.append(
            f"Already derived, and therefore read-only: {', '.join(derived)}. To change one of them, upsert a "
            "derivation of the same path."
        )
    return "\n".join(parts)


def evolution(
    request: str, *, session: str, token: str, include_view: bool = False, topics: Topics | None = None
) -> PromptParts:
    """The first prompt of an evolution. ``session``: what :func:`session_context` gave."""
    return _parts(
        session,
        include_view,
        _TASK,
        *_request(request, token, include_view, topics),
        evolution_fields(include_view=include_view),
        _ONLY,
    )


def repair_evolution(
    request: str,
    rejected: str,
    remarks: Sequence[Remark],
    *,
    session: str,
    token: str,
    include_view: bool = False,
    guidance: str = "",
    topics: Topics | None = None,
) -> PromptParts:
    """After an evolution that cannot be read or applied, or whose result is not valid or fails its tests."""
    return _parts(
        session,
        include_view,
        f"Your SpecEvolution was rejected:\n{remark_lines(remarks)}",
        f"Guidance you asked for:\n{guidance.strip()}" if guidance.strip() else "",
        fence(rejected, "Rejected evolution", token),
        _AGAIN,
        *_request(request, token, include_view, topics),
        evolution_fields(include_view=include_view),
        _ONLY,
    )


@functools.cache
def evolution_fields(*, include_view: bool) -> str:
    """The fields of a SpecEvolution and how to choose between them; those of the view only when it is in scope."""
    view = f"{text('evolution_view.md')}\n" if include_view else ""
    return text("evolution.md").replace("{{view}}\n", view)


def _request(request: str, token: str, include_view: bool, topics: Topics | None) -> tuple[str, ...]:
    return fence(request, "Change request", token), shape_exemplars(request, topics), _VIEW if include_view else ""


def _parts(session: str, include_view: bool, *paragraphs: str) -> PromptParts:
    return PromptParts(
        system=system_text(include_view=include_view),
        session_context=session,
        user="\n\n".join(paragraph for paragraph in paragraphs if paragraph),
    )
