"""What an installation's settings mean for the tools of its workers."""

from __future__ import annotations

from celery import Celery

from engines.ford.engine import Ford
from engines.llm.base import ToolCall
from engines.recipes.cascade import BundledRecipes, resolve
from engines.tools.base import ToolContext
from engines.tools.registry import GROUP
from engines.valem.machine import Verdict
from engines.valem.offer import guidance_tool, offer_of
from engines.valem.params import read_params
from engines.valem.verdicts import CHECK, read
from tasks.settings import load_settings
from tasks.toolbox import load_tools
from tasks.wiring import Runtime

ALWAYS = [
    *("web_fetch", "current_time", "doc_list", "doc_read", "doc_write", "recipe_list", "recipe_describe"),
    "eval_jsonata",
]
BY_NAME = ["recipe_write"]
SEARCH = "https://search.example/search?format=json&q={query}"


def test_web_search_is_offered_when_there_is_a_service_to_ask() -> None:
    assert [spec.name for spec in load_tools(load_settings({})).specs()] == ALWAYS + BY_NAME
    found = load_tools(load_settings({"VANCETOPE_SEARCH_URL": SEARCH, "VANCETOPE_SEARCH_API_KEY": "k"}))
    assert [spec.name for spec in found.specs()] == ["web_search", *ALWAYS, *BY_NAME]


def test_the_search_key_is_kept_out_of_sight() -> None:
    settings = load_settings({"VANCETOPE_SEARCH_URL": SEARCH, "VANCETOPE_SEARCH_API_KEY": "very-secret"})
    assert "very-secret" in settings.secrets()
    assert "very-secret" not in repr(settings)


def test_a_worker_offers_its_tools_to_ford() -> None:
    runtime = Runtime(load_settings({"VANCETOPE_SEARCH_URL": SEARCH}), Celery("test", set_as_current=False))
    ford = runtime.engines["ford"]
    assert isinstance(ford, Ford)
    offered = [spec.name for spec in ford.offered(resolve("ford", [BundledRecipes()]))]
    assert offered == ["structured_query", "web_search", *ALWAYS]
    runtime.close()


def test_a_worker_offers_valem_its_tools_and_runs_its_check() -> None:
    runtime = Runtime(load_settings({"VANCETOPE_SEARCH_URL": SEARCH}), Celery("test", set_as_current=False))
    given = {"text": "{}", "cut": False, "task": "generate", "seconds": 5, "expressionSeconds": 1}
    checked = runtime.tools.run(
        ToolCall(id="1", name=CHECK, arguments=given), {CHECK}, ToolContext(seconds=5, max_chars=9_000)
    )
    assert read(checked.text).verdict is Verdict.INVALID
    recipe = resolve("valem-generate", [BundledRecipes()])
    params = read_params(recipe.params, "Orders.")
    offer = offer_of([*runtime.tools.specs(), guidance_tool()], recipe, params)
    assert [spec.name for spec in offer.tools] == ["eval_jsonata", "get_domain_guidance", "web_fetch", "web_search"]
    runtime.close()


def test_the_entry_point_group_is_the_documented_one() -> None:
    assert GROUP == "vancetope.tools"
