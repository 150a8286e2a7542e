"""The recipes that ship: each parses, renders, says what it must, and its examples fit its own schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.recipes.cascade import BundledRecipes, bundled_path, effective_params, list_recipes, resolve
from engines.recipes.model import Recipe, parse_recipe
from engines.recipes.prompt import (
    example_messages,
    named_prompt,
    prompt_variables,
    schema_json,
    system_prompt,
)
from engines.structured.schema import compile_schema

BUNDLED = BundledRecipes()
NAMES = sorted(BUNDLED.names())
JELTZ = [name for name in NAMES if resolve(name, [BUNDLED]).engine == "jeltz"]
WITH_SCHEMA = [name for name in JELTZ if resolve(name, [BUNDLED]).json_schema is not None]
EXAMPLES = bundled_path() / "examples"
SCHEMA = {
    "type": "object",
    "required": ["zebra"],
    "properties": {"zebra": {"type": "string", "pattern": "^{{ 7*7 }}$"}},
}


def recipe_and_prompt(name: str, **params: object) -> tuple[Recipe, str]:
    recipe = resolve(name, [BUNDLED])
    effective = effective_params(recipe, {"prompt": "Who came?", **params}).params
    return recipe, system_prompt(
        recipe, "", prompt_variables(recipe, params=effective, lang="de", model="m", tier="small")
    )


def test_the_folder_holds_what_the_documentation_promises() -> None:
    assert {"jeltz", "extract-event", "classify-ticket", "outline"} <= set(NAMES)
    assert all(entry.error is None for entry in list_recipes([BUNDLED]))


@pytest.mark.parametrize("name", NAMES)
def test_each_recipe_parses_cleanly_and_renders(name: str) -> None:
    recipe, prompt = recipe_and_prompt(name)
    assert recipe.warnings == ()
    assert recipe.summary
    assert recipe.engine == "jeltz" or recipe.engine
    assert "{%" not in prompt
    assert "\n\n\n" not in prompt
    for key in recipe.prompts:
        assert named_prompt(recipe, key, prompt_variables(recipe, params={}))


@pytest.mark.parametrize("name", JELTZ)
def test_structured_prompts_ask_for_one_bare_object(name: str) -> None:
    _, prompt = recipe_and_prompt(name, schema=SCHEMA)
    words = " ".join(prompt.split()).lower()
    assert "json object" in words
    assert "no markdown fences" in words
    assert any(ban in words for ban in ("nothing else", "no other words"))


@pytest.mark.parametrize("name", JELTZ)
def test_structured_prompts_show_the_callers_schema_as_data(name: str) -> None:
    _, prompt = recipe_and_prompt(name, schema=SCHEMA)
    assert schema_json(SCHEMA) in prompt


@pytest.mark.parametrize("name", WITH_SCHEMA)
def test_structured_prompts_name_every_property_and_enum_value_of_their_own_schema(name: str) -> None:
    recipe, prompt = recipe_and_prompt(name)
    assert recipe.json_schema is not None
    wanted: list[str] = []
    todo: list[object] = [recipe.json_schema]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            wanted += list(node.get("properties") or {}) + list(node.get("enum") or [])
            todo += list(node.values())
        elif isinstance(node, list):
            todo += node
    assert [word for word in wanted if word not in prompt] == []


@pytest.mark.parametrize("name", WITH_SCHEMA)
def test_examples_fit_the_schema_they_teach(name: str) -> None:
    recipe = resolve(name, [BUNDLED])
    assert recipe.json_schema is not None
    assert recipe.examples
    for example in recipe.examples:
        assert isinstance(example.output, dict)
        assert list(example.output) == list(recipe.json_schema["properties"])  # type: ignore[arg-type]
    compiled = compile_schema(dict(recipe.json_schema))
    assert [compiled.validate(example.output) for example in recipe.examples] == [()] * len(recipe.examples)


def test_extraction_examples_copy_from_their_input() -> None:
    for example in resolve("extract-event", [BUNDLED]).examples:
        assert isinstance(example.output, dict)
        assert str(example.output["userId"]) in example.input
        assert str(example.output["timestamp"]) in example.input


def test_sample_inputs_ship_and_are_no_examples_of_the_recipes() -> None:
    files = {file.name: file.read_text(encoding="utf-8").strip() for file in EXAMPLES.glob("*.txt")}
    assert len([name for name in files if name.startswith("event-")]) >= 3
    assert len([name for name in files if name.startswith("ticket-")]) >= 2
    assert len([name for name in files if name.startswith("article-")]) >= 1
    taught = {example.input.strip() for name in NAMES for example in resolve(name, [BUNDLED]).examples}
    assert taught.isdisjoint(files.values())
    assert all(files.values())


def test_jeltz_without_a_schema_says_nothing_about_one() -> None:
    recipe = resolve("jeltz", [BUNDLED])
    prompt = system_prompt(recipe, "", prompt_variables(recipe, params={"prompt": "x"}))
    assert "## Schema" not in prompt


# --- putting prompts together ---------------------------------------------------------------------------------


def recipe_of(extra: str) -> Recipe:
    return parse_recipe("r", f"description: x\nengine: jeltz\n{extra}", "r.yaml")


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("promptPrefix: Mine.", "Base {{ goal }}.\n\nMine."),
        ("promptPrefix: Mine.\npromptMode: OVERWRITE", "Mine."),
        ("promptMode: OVERWRITE", "Base {{ goal }}."),
        ("", "Base {{ goal }}."),
    ],
)
def test_prompt_mode_decides_how_the_prompts_meet(extra: str, expected: str) -> None:
    assert system_prompt(recipe_of(extra), " Base {{ goal }}.\n", {"goal": "never rendered"}) == expected


def test_all_promised_variables_are_there() -> None:
    recipe = recipe_of("")
    variables = prompt_variables(
        recipe,
        params={"prompt": "Q {{ 7*7 }}", "schema": {"type": "object"}, "n": 1},
        goal="G",
        model="m",
        provider="p",
        tier="t",
        mode="o",
        lang="de",
        process_id="1",
    )
    template = (
        "{{ prompt }}|{{ schema_json | raw }}|{{ goal }}|{{ model }}|{{ provider }}|{{ tier }}|{{ mode }}|{{ lang }}"
    )
    template += "|{{ recipe }}|{{ engine }}|{{ params.n }}|{{ process.id }}|{{ process.goal }}"
    prompt = system_prompt(recipe.model_copy(update={"prompt_prefix": template}), "", variables)
    assert prompt == 'Q {{ 7*7 }}|{\n  "type": "object"\n}|G|m|p|t|o|de|r|jeltz|1|1|G'


def test_variables_that_nobody_gave_are_empty_texts() -> None:
    variables = prompt_variables(recipe_of(""), params={"prompt": 3, "schema": "x"})
    assert (variables["prompt"], variables["schema_json"], variables["goal"], variables["lang"]) == ("", "", "", "")


def test_examples_become_a_conversation_and_are_not_rendered() -> None:
    recipe = recipe_of("examples:\n- {input: ' a {{ x }} ', output: {k: ä}}\n- {input: b, output: text}\n")
    assert [(message.role, message.content) for message in example_messages(recipe)] == [
        ("user", "a {{ x }}"),
        ("assistant", json.dumps({"k": "ä"}, ensure_ascii=False)),
        ("user", "b"),
        ("assistant", "text"),
    ]


def test_examples_are_left_out_when_the_caller_brings_another_schema() -> None:
    recipe = resolve("extract-event", [BUNDLED])
    own = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert example_messages(recipe, effective_params(recipe, {"schema": own}).params) == ()
    assert len(example_messages(recipe, effective_params(recipe, {}).params)) == 2 * len(recipe.examples)


def test_a_named_prompt_is_rendered_or_left_to_the_engine() -> None:
    recipe = recipe_of("prompts: {scope: 'Do {{ goal }} then {{ node.result }}'}")
    assert named_prompt(recipe, "scope", {"goal": "it"}) == "Do it then {{ node.result }}"
    assert named_prompt(recipe, "other", {}) is None


def test_recipe_files_are_readable_text(tmp_path: Path) -> None:
    for file in bundled_path().rglob("*.*"):
        text = file.read_text(encoding="utf-8")
        assert "\t" not in text
        assert text.endswith("\n")
        assert max(map(len, text.splitlines())) <= 160
