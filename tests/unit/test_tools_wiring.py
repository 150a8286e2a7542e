"""What an installation's settings mean for the tools of its workers."""

from __future__ import annotations

from celery import Celery

from engines.ford.engine import Ford
from engines.recipes.cascade import BundledRecipes, resolve
from engines.tools.registry import GROUP
from tasks.settings import load_settings
from tasks.toolbox import load_tools
from tasks.wiring import Runtime

ALWAYS = ["web_fetch", "current_time", "doc_list", "doc_read", "doc_write", "recipe_list", "recipe_describe"]
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


def test_the_entry_point_group_is_the_documented_one() -> None:
    assert GROUP == "vancetope.tools"
