"""Conversations with tools: bounded, with ids that are there and differ, the newest results longest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engines.conversation import Called, Exchange, answered, bounded, called, from_json, halved, messages, to_json
from engines.llm.base import ToolCall


def test_old_results_go_first_and_the_newest_stay() -> None:
    exchanges = tuple(
        Exchange(text=f"t{n}", calls=(Called(id=str(n), name="probe", result=str(n) * 1_000),)) for n in range(1, 9)
    )
    kept = bounded(exchanges, 4_500)
    assert [each.text for each in kept] == [each.text for each in exchanges]
    assert "left out" in (kept[0].calls[0].result or "")
    assert kept[-1] == exchanges[-1]
    assert bounded(exchanges, 100_000) == exchanges


TEXTS = st.integers(0, 30_000).map("x".__mul__)
CALLED = st.builds(
    Called, id=st.just("i"), name=st.just("n"), arguments=st.builds(lambda t: {"t": t}, TEXTS), result=TEXTS
)
EXCHANGES = st.lists(
    st.builds(Exchange, text=TEXTS, calls=st.lists(CALLED, min_size=1, max_size=8).map(tuple)), max_size=40
)


@given(EXCHANGES)
def test_a_conversation_is_always_bounded(exchanges: list[Exchange]) -> None:
    limit = 60_000
    kept = bounded(tuple(exchanges), limit)
    # Beginnings of old texts and notes in the place of results stay: some hundred characters for each call.
    calls = sum(len(each.calls) for each in kept)
    assert sum(each.characters for each in kept) <= limit + 1_000 * (calls + len(kept))
    assert [len(each.calls) for each in kept] == [len(each.calls) for each in exchanges]


def test_ids_are_made_when_missing_or_doubled() -> None:
    calls = tuple(ToolCall(id=each, name="probe", arguments={}) for each in ("a", "a", " ", "b"))
    assert [each.id for each in called(calls, 3)] == ["a", "call-3-1", "call-3-2", "b"]


def test_arguments_nobody_can_use_are_kept_as_words() -> None:
    calls = (
        ToolCall(id="1", name="n" * 80, arguments={"x": float("nan")}),
        ToolCall(id="2", name="n", arguments={}, raw="{" * 900),
    )
    first, second = called(calls, 0)
    assert (first.raw, first.arguments, len(first.name)) == ("arguments with NaN or Infinity", {}, 64)
    assert second.raw == "{" * 500


def test_a_conversation_comes_back_from_its_cursor_as_it_was() -> None:
    exchange = Exchange(text="t", calls=(Called(id="1", name="n", arguments={"a": [1]}), Called(id="2", name="n")))
    done = answered((exchange,), ["one", None])
    assert [call.result for call in done[0].calls] == ["one", None]
    assert from_json(to_json(done)) == done


def test_at_most_the_last_result_is_marked() -> None:
    exchange = Exchange(text="t", calls=(Called(id="1", name="n"), Called(id="2", name="n")))
    marks = [message.cache for message in messages((exchange, exchange), mark_last=True)]
    assert marks == [False, False, False, False, False, True]
    assert not any(message.cache for message in messages((exchange,), mark_last=False))


def test_halving_ends_where_nothing_more_can_go() -> None:
    assert halved(()) is None
    long = (Exchange(text="", calls=(Called(id="1", name="n", result="x" * 9_000),)),)
    shorter = halved(long)
    assert shorter is not None
    assert shorter[0].characters < 5_000
