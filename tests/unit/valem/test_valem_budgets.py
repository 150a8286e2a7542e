"""Budgets of tools: shared by a whole session, never exceeded, repeated calls free, the offer always the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engines.base import ToolResult
from engines.conversation import MAX_CALLS_AT_ONCE, Called
from engines.llm.base import ToolSpec
from engines.recipes.model import Recipe
from engines.valem.budgets import Run, Same, Told, plan, settle
from engines.valem.cursor import Spending
from engines.valem.offer import offer_of
from engines.valem.params import read_params

BUDGETS = {"web_fetch": 2, "web_search": 1, "eval_jsonata": 3}


def fetch(url: str, **more: Any) -> Called:
    return Called(id="i", name="web_fetch", arguments={"url": url, **more})


def run(calls: list[Called], spending: Spending, *, ok: bool = True) -> tuple[tuple[str, ...], Spending, int]:
    plans = plan(calls, spending, BUDGETS)
    ran = [each for each in plans if isinstance(each, Run)]
    results = [ToolResult(text=f"page {number}", ok=ok) for number in range(len(ran))]
    return *settle(plans, results, spending, BUDGETS), len(ran)


def test_a_used_up_budget_is_told_and_nothing_is_called() -> None:
    texts, spending, ran = run([fetch("a"), fetch("b"), fetch("c")], Spending())
    assert (ran, spending.calls) == (2, {"web_fetch": 2})
    assert texts[2].startswith("[limit] web_fetch may be used 2 times")
    texts, after, ran = run([fetch("d")], spending)
    assert (ran, after.calls) == (0, {"web_fetch": 2})
    assert "[limit]" in texts[0]


def test_a_repeated_address_or_query_costs_nothing_and_says_the_same() -> None:
    _, spending, _ = run([fetch("https://a.example/x")], Spending())
    texts, spending, ran = run([fetch(" https://a.example/x "), fetch("https://a.example/x", start=10)], spending)
    assert (ran, texts[0], spending.calls) == (1, "page 0", {"web_fetch": 2})
    query = Called(id="i", name="web_search", arguments={"query": "tax  rates"})
    again = Called(id="j", name="web_search", arguments={"query": "tax rates"})
    assert [type(each) for each in plan([query, again], Spending(), BUDGETS)] == [Run, Same]
    texts, spending, ran = run([query, again], Spending())
    assert (ran, texts, spending.calls) == (1, ("page 0", "page 0"), {"web_search": 1})


def test_what_failed_is_paid_for_and_may_be_tried_again() -> None:
    _, spending, _ = run([fetch("a")], Spending(), ok=False)
    assert (spending.calls, spending.remembered) == ({"web_fetch": 1}, {})
    assert [type(each) for each in plan([fetch("a")], spending, BUDGETS)] == [Run]


def test_an_expression_evaluated_twice_is_paid_twice_and_other_tools_are_free() -> None:
    calls = [Called(id="i", name="eval_jsonata", arguments={"expr": "1"})] * 2
    assert run(calls, Spending())[1].calls == {"eval_jsonata": 2}
    _, spending, ran = run([Called(id="i", name="get_domain_guidance")] * 4, Spending())
    assert (ran, spending) == (4, Spending())


def test_more_calls_than_run_at_once_are_told_to_come_again() -> None:
    calls = [Called(id="i", name="get_domain_guidance")] * 20
    plans = plan(calls, Spending(), BUDGETS)
    assert sum(isinstance(each, Run) for each in plans) == MAX_CALLS_AT_ONCE
    assert all(isinstance(each, Told) and "call it again" in each.text for each in plans[MAX_CALLS_AT_ONCE:])


def test_what_is_remembered_is_bounded() -> None:
    spending = Spending()
    for number in range(40):
        plans = plan([fetch(str(number))], spending, {"web_fetch": 100})
        _, spending = settle(plans, [ToolResult(text="x" * 20_000)], spending, {"web_fetch": 100})
    assert spending.calls == {"web_fetch": 40}
    assert sum(len(text) for text in spending.remembered.values()) <= 120_000


CALLS = st.lists(
    st.builds(
        Called,
        id=st.just("i"),
        name=st.sampled_from([*BUDGETS, "get_domain_guidance", "shell"]),
        arguments=st.builds(lambda n: {"url": f"u{n}"}, st.integers(0, 3)),
        raw=st.sampled_from([None, "{"]),
    ),
    max_size=12,
)


@given(st.lists(st.tuples(CALLS, st.booleans()), max_size=12))
def test_no_budget_is_ever_exceeded(batches: list[tuple[list[Called], bool]]) -> None:
    spending, made = Spending(), dict.fromkeys(BUDGETS, 0)
    for calls, ok in batches:
        plans = plan(calls, spending, BUDGETS)
        for each in plans:
            if isinstance(each, Run) and each.call.name in made:
                made[each.call.name] += 1
        results = [ToolResult(text="t", ok=ok) for each in plans if isinstance(each, Run)]
        texts, spending = settle(plans, results, spending, BUDGETS)
        assert len(texts) == len(calls)
    assert all(made[name] <= most for name, most in BUDGETS.items())
    assert dict(spending.calls) == {name: count for name, count in made.items() if count}


def test_the_offer_is_the_recipes_and_never_changes_with_what_was_spent() -> None:
    tools = [ToolSpec(name=name, description="d", parameters={}) for name in ("web_fetch", "shell", "eval_jsonata")]
    recipe = Recipe(name="r", source="s", description="d", engine="valem")
    params = read_params({"task": "generate", "domainDescription": "d"}, "")
    assert [tool.name for tool in offer_of(tools, recipe, params).tools] == ["eval_jsonata", "web_fetch"]
    narrowed = recipe.model_copy(update={"allowed_tools": ("eval_jsonata",), "allowed_tools_add": ("shell",)})
    assert [tool.name for tool in offer_of(tools, narrowed, params).tools] == ["eval_jsonata", "shell"]
    without = read_params({"task": "generate", "domainDescription": "d", "webFetchCalls": 0}, "")
    assert [tool.name for tool in offer_of(tools, recipe, without).tools] == ["eval_jsonata"]


def test_a_search_brings_no_more_results_than_the_process_allows() -> None:
    offer = offer_of([], Recipe(name="r", source="s", description="d", engine="valem"),
                     read_params({"task": "generate", "domainDescription": "d"}, ""))  # fmt: skip

    def count(**arguments: Any) -> Any:
        return offer.adapted(Called(id="i", name="web_search", arguments=arguments)).arguments["count"]

    assert [count(), count(count=2), count(count=20), count(count=-1), count(count="x")] == [5, 2, 5, 1, 5]
    raw = Called(id="i", name="web_search", raw="{")
    assert offer.adapted(raw).arguments == {}
