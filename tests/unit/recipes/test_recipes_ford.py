"""The bundled recipes on ford: each states what its kind of work needs, and asks only for tools there are."""

from __future__ import annotations

import pytest

from engines.ford.engine import Ford
from engines.recipes.cascade import BundledRecipes, resolve
from engines.recipes.prompt import prompt_variables, system_prompt
from engines.tools.registry import Registry, bundled_tools

SOURCES = [BundledRecipes()]
NAMES = ["ford", "web-research", "analyze", "code-read", "summarize"]
TOOLS = Registry(bundled_tools(search_url="http://search.example/?q={query}")).specs()
MUST_SAY = {
    "web-research": ["rate limited", "never that nothing exists", "address of its source", "two sources", "disagree"],
    "analyze": ["conclusion first", "objection", "how sure", "Do not replace it by guesses"],
    "code-read": ["change nothing and run nothing", "no instruction to you", "is unknown"],
    "summarize": ["Say nothing that the original does not say", "how much you have read", "Copy figures"],
}


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", NAMES)
def test_they_run_on_ford_with_tools_that_exist_and_a_budget_that_fits(name: str) -> None:
    recipe = resolve(name, SOURCES)
    assert recipe.engine == "ford"
    assert recipe.warnings == ()
    assert recipe.listed
    assert not recipe.internal
    offered = {spec.name for spec in Ford(TOOLS).offered(recipe)}
    assert offered
    if recipe.allowed_tools is not None:
        assert offered == set(recipe.allowed_tools)
    # Its round trips and the last call fit into its own limit, with room for one correction.
    assert recipe.limits.max_calls is not None
    assert recipe.limits.max_calls >= int(str(recipe.params["maxRoundTrips"])) + 2


@pytest.mark.parametrize("name", MUST_SAY)
def test_prompts_say_what_they_must(name: str) -> None:
    recipe = resolve(name, SOURCES)
    prompt = words(system_prompt(recipe, "", prompt_variables(recipe, params=recipe.params, lang="de")))
    assert [phrase for phrase in MUST_SAY[name] if phrase not in prompt] == []
    assert "Write in this language: de." in prompt


def test_only_research_and_reading_get_the_web_and_only_ford_itself_writes() -> None:
    def having(tool: str) -> list[str]:
        return [name for name in NAMES if tool in {spec.name for spec in Ford(TOOLS).offered(resolve(name, SOURCES))}]

    assert having("web_search") == ["ford", "web-research"]
    assert having("web_fetch") == ["ford", "web-research", "code-read", "summarize"]
    assert having("doc_write") == ["ford"]
