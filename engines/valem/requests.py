"""What valem sends: the prompt of the attempt in its tiers, the conversation with tools, the shape of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from engines.conversation import Called, messages
from engines.llm.base import LlmRequest, Message, StructuredPath
from engines.recipes.model import Recipe
from engines.recipes.prompt import example_messages, prompt_variables, system_prompt
from engines.structured.text import shorten
from engines.valem.cursor import Asked, Problem, Task, ValemPhase, ValemState
from engines.valem.machine import temperature
from engines.valem.offer import Offer
from engines.valem.params import Params
from engines.valem.prompts import evolve, generate
from engines.valem.prompts.feedback import Failure, Remark
from engines.valem.prompts.guidance import guidance
from engines.valem.prompts.tiers import PromptParts
from engines.valem.schemas import SUBMIT_SPEC, evolution_schema, model_spec_schema
from models.records import View

_FINAL: Final = "No further tools can be used. Give the whole answer now from what stands above."


def request_of(
    view: View, params: Params, base: Mapping[str, Any] | None, offer: Offer, state: ValemState
) -> LlmRequest:
    """The call of the turn. base: the spec that is evolved. Raises :class:`~engines.errors.TemplateError`."""
    parts = prompt_of(view, params, base, state)
    recipe = Recipe.model_validate(view.process.recipe)
    *stable, user = parts.messages(cache=params.cache)
    # Without tools at all, and with no round trip allowed, every call is the last of its attempt.
    final = state.phase is ValemPhase.ANSWER or not params.limits.round_trips
    conversation = (_told(user, state),) if final else (user, *messages(state.exchanges, mark_last=False))
    return LlmRequest(
        model=params.model,
        messages=(*stable, *example_messages(recipe), *conversation),
        tools=() if final else offer.tools,
        schema=_schema(params, base) if params.structured else None,
        schema_name=SUBMIT_SPEC,
        highest_path=StructuredPath.LOOSE,
        answer_beside_tools=True,
        # The rules in the system tier tell the form in words.
        schema_in_prompt=True,
        temperature=temperature(state.attempt, params.temperatures),
        max_output_tokens=state.output_limit or params.max_tokens,
    )


def prompt_of(view: View, params: Params, base: Mapping[str, Any] | None, state: ValemState) -> PromptParts:
    """The prompt of the attempt: the stable tiers are the same bytes in every call of the session."""
    token = view.nonce
    parts = _generation(params, state, token) if base is None else _evolution(params, base, state, token)
    return replace(parts, system=_system(view, params, parts.system))


def _generation(params: Params, state: ValemState, token: str) -> PromptParts:
    model_id, view = params.model_id, bool(params.include_view)
    told = guidance(state.spending.topics) if state.spending.topics else ""
    match state.asked:
        case Asked.FIRST:
            return generate.initial(params.text, token=token, model_id=model_id, include_view=view)
        case Asked.SHORTER:
            return generate.repair_truncated(params.text, token=token, model_id=model_id, include_view=view)
        case Asked.TESTS:
            return generate.repair_tests(
                _failures(state), state.previous, token=token, model_id=model_id, include_view=view, guidance=told
            )
        case Asked.VIEW:
            return generate.repair_lint(
                _remarks(state), state.previous, token=token, model_id=model_id, include_view=view
            )
        case Asked.STATE:
            return generate.repair_initial_state(
                _remarks(state), state.previous, token=token, model_id=model_id, include_view=view, guidance=told
            )
        case Asked.REPAIR:
            return generate.repair_validation(
                _remarks(state),
                state.previous,
                token=token,
                model_id=model_id,
                include_view=view,
                guidance=told,
                # An answer that could not be read may have forgotten what it was about.
                description=params.text if state.counted is None else "",
            )


def _evolution(params: Params, base: Mapping[str, Any], state: ValemState, token: str) -> PromptParts:
    view = _shows_view(params, base)
    derived = [each.get("path") for each in base.get("derivations") or () if isinstance(each, Mapping)]
    session = evolve.session_context(
        json.dumps(base), [path for path in derived if isinstance(path, str)], model_id=params.model_id
    )
    if state.asked is Asked.FIRST:
        return evolve.evolution(params.text, session=session, token=token, include_view=view)
    told = guidance(state.spending.topics) if state.spending.topics else ""
    return evolve.repair_evolution(
        params.text, state.previous, _remarks(state), session=session, token=token, include_view=view, guidance=told
    )


def _shows_view(params: Params, base: Mapping[str, Any] | None) -> bool:
    """Whether the view is in scope: as asked, or else when the spec that is evolved has one."""
    if params.include_view is not None:
        return params.include_view
    return base is not None and bool(base.get("viewDefinition"))


def _schema(params: Params, base: Mapping[str, Any] | None) -> dict[str, Any]:
    shape = evolution_schema if params.task is Task.EVOLVE else model_spec_schema
    return shape(include_view=_shows_view(params, base))


def _system(view: View, params: Params, rules: str) -> str:
    process = view.process
    recipe = Recipe.model_validate(process.recipe)
    prefix, _, rest = params.model.partition(":")
    lang = process.params.get("lang")
    variables = prompt_variables(
        recipe,
        params=process.params,
        goal=process.goal,
        model=params.model,
        tier=rest if prefix == "default" else "",
        provider=prefix if rest and prefix != "default" else "",
        mode=params.task.value,
        lang=lang if isinstance(lang, str) else "",
        process_id=str(process.id),
    )
    return system_prompt(recipe, rules, variables)


def _remarks(state: ValemState) -> list[Remark]:
    return [(each.where, _with_derivation(each), each.hint) for each in state.problems]


def _with_derivation(problem: Problem) -> str:
    return f"{problem.message}; derivation {problem.derivation}" if problem.derivation else problem.message


def _failures(state: ValemState) -> list[Failure]:
    return [(each.where, each.message, each.hint, each.derivation) for each in state.problems]


def _told(user: Message, state: ValemState) -> Message:
    """The user's message with the conversation as text: several providers refuse tool messages when none is offered."""
    if not state.exchanges:
        return user
    parts = [user.content]
    for exchange in state.exchanges:
        if exchange.text:
            parts.append(f"You noted: {exchange.text}")
        parts += [f"You called {_shown(call)}\n{call.result or '(no result)'}" for call in exchange.calls]
    return replace(user, content="\n\n".join((*parts, _FINAL)))


def _shown(call: Called) -> str:
    return f"{call.name} with {shorten(json.dumps(call.arguments, ensure_ascii=False, default=str), 300)}:"
