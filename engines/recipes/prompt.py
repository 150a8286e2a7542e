"""From a recipe to the messages of a model call: variables, system text, worked examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engines.llm.base import Message
from engines.recipes.model import PromptMode, Recipe
from engines.recipes.render import render_prompt


def prompt_variables(
    recipe: Recipe,
    *,
    params: Mapping[str, Any],
    goal: str = "",
    model: str = "",
    provider: str = "",
    tier: str = "",
    mode: str = "",
    lang: str = "",
    process_id: str = "",
) -> dict[str, Any]:
    """Everything a recipe's prompt may use.

    ``prompt`` and ``schema_json`` come from ``params`` (the effective ones); ``tier`` is the model's size class,
    ``mode`` the way the process was started; ``own_schema`` says that the caller's schema replaced the recipe's. What
    nobody gave is empty, so a template can test any of them.
    """
    schema = params.get("schema")
    prompt = params.get("prompt")
    return {
        "own_schema": has_own_schema(recipe, params),
        "schema_json": schema_json(schema) if isinstance(schema, Mapping) else "",
        "prompt": prompt if isinstance(prompt, str) else "",
        "goal": goal,
        "params": dict(params),
        "model": model,
        "provider": provider,
        "tier": tier,
        "mode": mode,
        "lang": lang,
        "recipe": recipe.name,
        "engine": recipe.engine,
        "process": {"id": process_id, "goal": goal},
    }


def has_own_schema(recipe: Recipe, params: Mapping[str, Any]) -> bool:
    """Whether the caller brought a schema in place of the recipe's own: then what the recipe teaches may not fit."""
    return recipe.json_schema is not None and params.get("schema") != recipe.json_schema


def schema_json(schema: Mapping[str, Any]) -> str:
    """A schema as prompts show it: readable, in the author's order, the same text for the same schema."""
    return json.dumps(schema, ensure_ascii=False, indent=2)


def system_prompt(recipe: Recipe, base: str, variables: Mapping[str, Any]) -> str:
    """The engine's own text ``base`` (already rendered) and the recipe's prompt, put together as the recipe says."""
    prefix = render_prompt(recipe.prompt_prefix, variables, name=f"{recipe.source}: promptPrefix").strip()
    if recipe.prompt_mode is PromptMode.OVERWRITE and prefix:
        return prefix
    return "\n\n".join(part for part in (base.strip(), prefix) if part)


def named_prompt(recipe: Recipe, key: str, variables: Mapping[str, Any]) -> str | None:
    """The recipe's further prompt ``key``, rendered, or ``None`` when the recipe leaves it to the engine."""
    template = recipe.prompts.get(key)
    if template is None:
        return None
    return render_prompt(template, variables, name=f"{recipe.source}: prompts.{key}").strip()


def example_messages(recipe: Recipe, params: Mapping[str, Any] | None = None) -> tuple[Message, ...]:
    """The worked examples as a conversation that went well: user, assistant, user, assistant, ...

    They are data: nothing in them is rendered. Answers that are no texts appear as one line of JSON. With ``params``
    (the effective ones) there are none when the caller's schema replaced the one they were written for.
    """
    if params is not None and has_own_schema(recipe, params):
        return ()
    messages: list[Message] = []
    for example in recipe.examples:
        output = example.output
        answer = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        messages += [Message(role="user", content=example.input.strip()), Message(role="assistant", content=answer)]
    return tuple(messages)
