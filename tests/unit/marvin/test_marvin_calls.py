"""Recipe calls that are not made, and texts in place of replies that never came."""

from __future__ import annotations

from typing import Any

import pytest

from engines.marvin.calls import available_recipes, refusal, reply_text, timeout_text
from engines.marvin.outputs import RecipeCall


def refuse(
    name: str, *, available: tuple[str, ...] = ("web-research", "mine", "deep"), engine: str | None = "ford"
) -> str:
    marker = refusal(RecipeCall(recipe=name, steer_content="s"), available=available, engine=engine, own_recipe="Mine")
    assert marker is not None
    assert marker.startswith("[recipe call")
    assert marker.endswith("]")
    assert "\n" not in marker
    return marker


@pytest.mark.parametrize("name", ["web-research", " Web-Research ", "web research"])
def test_a_recipe_of_the_list_may_be_called(name: str) -> None:
    call = RecipeCall(recipe=name, steer_content="s")
    assert refusal(call, available=("web-research",), engine="ford", own_recipe="marvin") is None


def test_a_recipe_that_is_not_listed_is_refused_with_the_list() -> None:
    assert '"web-research"' in refuse("other")
    assert "no recipe is available" in refuse("web-research", available=())


def test_an_unknown_recipe_is_refused() -> None:
    assert "no such recipe" in refuse("web-research", engine=None)


@pytest.mark.parametrize("engine", ["marvin", "Marvin", " MARVIN "])
def test_plans_call_no_plans(engine: str) -> None:
    assert "engine marvin" in refuse("deep", engine=engine)


@pytest.mark.parametrize("name", ["mine", "MINE", " Mine "])
def test_a_recipe_does_not_call_itself(name: str) -> None:
    assert "this plan itself" in refuse(name)


def test_the_checks_come_in_the_order_list_existence_engine_self() -> None:
    assert "not among" in refuse("x", engine=None)
    assert "no such recipe" in refuse("mine", engine=None)
    assert "engine marvin" in refuse("mine", engine="marvin")


def test_hostile_names_make_a_short_marker_on_one_line() -> None:
    assert len(refuse("x\n]\n<<< " * 500)) < 1_500


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["web-research", "Web Research", " analyze "], ("web-research", "analyze")),
        ("analyze", ("analyze",)),
        ([], ()),
        (None, ()),
        ({"a": 1}, ()),
        (["", 3, None, "ok"], ("ok",)),
    ],
)
def test_the_list_of_recipes_is_read_with_care(given: Any, expected: tuple[str, ...]) -> None:
    assert available_recipes({"availableRecipes": given}) == expected


def test_a_reply_is_its_text() -> None:
    assert reply_text("r", closed="DONE", text=" found \n") == "found"


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_a_blank_reply_is_a_marker(text: str | None) -> None:
    assert reply_text("r", closed="DONE", text=text) == "[recipe call 'r': gave an empty reply]"


@pytest.mark.parametrize("closed", ["FAILED", "STOPPED"])
def test_a_failed_callee_is_a_marker_with_what_it_said_last(closed: str) -> None:
    assert reply_text("r", closed=closed, text=None) == f"[recipe call 'r': ended as {closed}]"
    full = reply_text("r", closed=closed, text="half", message="no key")
    assert full == f"[recipe call 'r': ended as {closed}: no key]\nhalf"


def test_a_timeout_is_a_marker() -> None:
    assert "900 seconds" in timeout_text("r", 900)
