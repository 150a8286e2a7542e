"""Reading a recipe: what is accepted, and what every refusal says."""

from __future__ import annotations

import json

import pytest

from engines.errors import RecipeError
from engines.recipes.cascade import BundledRecipes, resolve
from engines.recipes.model import PromptMode, Recipe, normalise_name, parse_recipe
from engines.recipes.yamltext import MAX_CHARS

MINIMAL = "description: Does something.\nengine: jeltz\n"


def test_a_minimal_recipe_has_sensible_defaults() -> None:
    recipe = parse_recipe("X", MINIMAL, "x.yaml")
    assert (recipe.name, recipe.engine, recipe.source) == ("x", "jeltz", "x.yaml")
    assert (recipe.listed, recipe.internal, recipe.locked) == (True, False, False)
    assert recipe.prompt_mode is PromptMode.APPEND
    assert (recipe.params, recipe.json_schema, recipe.allowed_tools, recipe.warnings) == ({}, None, None, ())


def test_every_key_is_read() -> None:
    text = """\
name: ignored
title: Research
description: |
  First line, for planners.
  More.
engine: " Ford "
params: {model: "default:analyze", deep: {list: [1, 2.5, null, true]}}
promptPrefix: "Look into {{ goal }}."
promptMode: overwrite
prompts: {final: "Sum up {{ prompt }} like {{ node.result }}."}
schema: {type: object, properties: {a: {type: string}}}
examples:
  - {input: in, output: {a: out}}
  - {input: in, output: text}
limits: {maxCalls: 3, maxTokens: 1000, maxCostUsd: 0.5, deadlineSeconds: 60}
tags: [a, b]
listed: false
internal: true
locked: true
triggers: {keywords: [look up]}
allowedTools: []
allowedToolsAdd: [web_search]
allowedToolsRemove: [doc_write]
"""
    recipe = parse_recipe("My  Research ", text, "r.yaml")
    assert (recipe.name, recipe.title, recipe.engine, recipe.summary) == (
        "my-research",
        "Research",
        "ford",
        "First line, for planners.",
    )
    assert recipe.params == {"model": "default:analyze", "deep": {"list": [1, 2.5, None, True]}}
    assert recipe.prompt_mode is PromptMode.OVERWRITE
    assert recipe.json_schema == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert [example.output for example in recipe.examples] == [{"a": "out"}, "text"]
    assert (recipe.limits.max_calls, recipe.limits.max_cost_usd, recipe.limits.deadline_seconds) == (3, 0.5, 60)
    assert (recipe.listed, recipe.internal, recipe.locked) == (False, True, True)
    assert (recipe.allowed_tools, recipe.allowed_tools_add, recipe.triggers.keywords) == (
        (),
        ("web_search",),
        ("look up",),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engine: jeltz", "r.yaml:1: 'description' is missing"),
        ("description: x", "r.yaml:1: 'engine' is missing"),
        ("description: ' '\nengine: jeltz", "r.yaml:1: 'description': must not be blank"),
        (MINIMAL + "promptprefix: x", "r.yaml:3: unknown key 'promptprefix': did you mean 'promptPrefix'?"),
        (MINIMAL + "prompt_mode: APPEND", "r.yaml:3: unknown key 'prompt_mode': did you mean 'promptMode'?"),
        (MINIMAL + "source: x", "r.yaml:3: unknown key 'source'"),
        (MINIMAL + "jsonSchema: {}", "r.yaml:3: unknown key 'jsonSchema': did you mean 'schema'?"),
        (MINIMAL + "zzz: 1", "r.yaml:3: unknown key 'zzz': valid keys: description, engine, title"),
        (MINIMAL + "limits:\n  maxcalls: 1", "r.yaml:4: unknown key 'maxcalls' in 'limits': did you mean 'maxCalls'?"),
        (MINIMAL + "triggers:\n  keyword: [a]", "r.yaml:4: unknown key 'keyword' in 'triggers': did you mean"),
        (MINIMAL + "examples:\n- input: a\n  outputs: b", "r.yaml:5: unknown key 'outputs' in 'examples'"),
        (MINIMAL + "limits: {maxCalls: 0}", "r.yaml:3: 'limits.maxCalls': Input should be greater"),
        (MINIMAL + "params: [a]", "r.yaml:3: 'params': Input should be a valid dictionary"),
        (MINIMAL + "promptMode: REPLACE", "r.yaml:3: 'promptMode': Input should be 'APPEND' or 'OVERWRITE'"),
        (MINIMAL + "engine: ford", "r.yaml:3: .*'engine' stands here twice"),
        (MINIMAL + "params:\n  a: 1\n  b: {c: 1, c: 2}", "r.yaml:5: .*'c' stands here twice"),
        (MINIMAL + "params: {1: x}", "r.yaml:3: .*must be a text"),
        (MINIMAL + "params: {a: &x 1, b: *x}", "r.yaml:3: .*anchors and aliases"),
        (MINIMAL + "params: {a: .inf, b: !!float .nan}", "r.yaml:3: .*no value JSON can carry"),
        (MINIMAL + "params: !!python/object:os.system x", "r.yaml:3: .*not allowed"),
        (MINIMAL + "params: {a: !!binary aGk=}", "r.yaml:3: .*not allowed"),
        (MINIMAL + "schema: {type: array}", "r.yaml:3: 'schema': its 'type' must be 'object'"),
        (MINIMAL + "schema: {type: object}\nparams: {schema: {type: object}}", "r.yaml:4: the schema stands here and"),
        (MINIMAL + "promptPrefix: |\n  a\n  {{ x | lowr }}", "begins at line 4.*line 2: there is no filter 'lowr'"),
        (MINIMAL + "prompts: {scope: '{{ x.y() }}'}", "prompts.scope, line 1: calls are not allowed"),
        (MINIMAL + "promptPrefix: '{{ goal ~ node.result }}'", "mixes goal .* with node"),
        (MINIMAL + "a: [", "r.yaml:.*not valid YAML"),
        ("- a", "r.yaml: a recipe is a mapping"),
        ("", "r.yaml: a recipe is a mapping"),
        ("a: b\n---\nc: d", "r.yaml:.*not valid YAML"),
        ("[" * 100_000, "r.yaml: .*nested more than"),
        ("- " * 20_000 + "a", "r.yaml.*nested"),
        ("# " + "x" * MAX_CHARS, f"r.yaml: longer than {MAX_CHARS} characters"),
    ],
)  # fmt: skip
def test_refusals_say_where_and_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe("r", text, "r.yaml")


def test_all_unknown_keys_are_named_at_once() -> None:
    with pytest.raises(RecipeError, match=r"'enginge'.*'tag'"):
        parse_recipe("r", "description: x\nenginge: jeltz\ntag: a", "r.yaml")


def test_yaml_surprises_do_not_happen() -> None:
    text = MINIMAL + "params: {date: 2025-01-31, country: no, ratio: 1:30, padded: 007, power: 1e3, empty: , "
    text += "big: 99999999999999999999}"
    assert parse_recipe("r", text, "r.yaml").params == {
        "date": "2025-01-31",
        "country": "no",
        "ratio": "1:30",
        "padded": "007",
        "power": 1000.0,
        "empty": None,
        "big": "99999999999999999999",
    }


@pytest.mark.parametrize("name", BundledRecipes().names())
def test_a_recipe_survives_being_stored(name: str) -> None:
    recipe = resolve(name, [BundledRecipes()])
    stored = json.loads(json.dumps(recipe.model_dump(mode="json")))
    assert "promptPrefix" in stored
    assert Recipe.model_validate(stored) == recipe


@pytest.mark.parametrize("key", ["promptPrefix", "promptMode", "prompts", "examples", "limits"])
def test_prompt_keys_under_params_have_no_effect_and_warn(key: str) -> None:
    recipe = parse_recipe("r", MINIMAL + f"params:\n  {key}: x", "r.yaml")
    assert recipe.prompt_prefix == ""
    assert recipe.warnings == (f"r.yaml:4: {key!r} under 'params' has no effect: move it to the top level",)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Got Talent", "got-talent"),
        ("  A\t b  C ", "a-b-c"),
        ("Übersicht", "übersicht"),
        ("ＡＢ", "ab"),
        ("_x.v2", "_x.v2"),
    ],
)
def test_names_have_one_spelling(given: str, expected: str) -> None:
    assert normalise_name(given) == expected


@pytest.mark.parametrize("name", ["", "  ", "../x", "a/b", "a\\b", ".hidden", "-x", "x\0", "a:b", "x" * 101, "․․/x"])
def test_names_that_could_be_paths_are_refused(name: str) -> None:
    with pytest.raises(RecipeError, match="name"):
        normalise_name(name)
