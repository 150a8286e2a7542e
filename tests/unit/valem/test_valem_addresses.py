"""Addresses: one spelling for each place of a document."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.valem.spec.addresses import (
    BadAddress,
    meta_key,
    parse_address,
    related,
    suggest,
)


@pytest.mark.parametrize(
    "text", ["$", "$.a", "$.a.b[0].c[*].d", "$.items[*]", "$[0].b", "$.a b.c", "$.öl[12][*]", "$.a-b._c1"]
)
def test_a_canonical_address_is_accepted_and_written_the_same(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("$.items.0.x", "$.items[0].x"),
        ("a.b", "$.a.b"),
        ("items[0].x", "$.items[0].x"),
        ("$.items[].x", "$.items[*].x"),
        ("$.items.*.x", "$.items[*].x"),
        ("$['a'].b", "$.a.b"),
        ('$.a["b"]', "$.a.b"),
        ("/a/0/b", "$.a[0].b"),
        ("$.a[01]", "$.a[1]"),
        (" $.a ", "$.a"),
        ("$a.b", "$.a.b"),
        ("$.a.", "$.a"),
    ],
)
def test_another_spelling_is_refused_with_the_canonical_one(text: str, right: str) -> None:
    with pytest.raises(BadAddress) as refused:
        parse_address(text)
    assert refused.value.suggestion == right
    assert right in str(refused.value)
    assert str(parse_address(right)) == right


@pytest.mark.parametrize("text", ["", "   ", "$.a[-1]", "$.a#required", "$.a[?(@.x)]", "0.a", "$.a['", "$" + ".a" * 33])
def test_what_cannot_be_guessed_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadAddress, match=r"an address looks like \$\.order"):
        parse_address(text)


@given(st.text(max_size=40))
def test_a_suggestion_is_canonical_and_only_canonical_text_is_accepted(text: str) -> None:
    suggestion = suggest(text)
    if suggestion is not None:
        assert str(parse_address(suggestion)) == suggestion
        assert suggest(suggestion) == suggestion
    if suggestion == text:
        assert str(parse_address(text)) == text
    else:
        with pytest.raises(BadAddress):
            parse_address(text)


def test_a_wildcard_matches_any_index_and_nothing_else() -> None:
    pattern = parse_address("$.items[*].x")
    assert parse_address("$.items[3].x").matches(pattern)
    assert pattern.matches(pattern)
    assert not parse_address("$.items[3]").matches(pattern)
    assert not parse_address("$.items[3].y").matches(pattern)
    assert not parse_address("$.items.x").matches(pattern)
    assert parse_address("$.items[3].x.deeper").is_within(pattern)
    assert not pattern.matches(parse_address("$.items[3].x"))


def test_names_leave_out_indices_so_that_readers_meet_writers() -> None:
    names = parse_address("$.items[*].price").names
    assert names == ("items", "price")
    assert related(names, ("items",))
    assert related((), names)
    assert related(names, ("items", "price", "amount"))
    assert not related(names, ("items", "qty"))


def test_ancestors_start_at_the_root() -> None:
    address = parse_address("$.a[0].b")
    assert [str(above) for above in address.ancestors()] == ["$", "$.a", "$.a[0]"]
    assert str(address.parent) == "$.a[0]"
    assert address.starts_with(address.parent)
    assert not address.parent.starts_with(address)


def test_a_meta_key_is_in_lower_snake_case() -> None:
    assert meta_key("$.a", "readOnly") == "$.a#read_only"
    assert meta_key("$.a", "relevant") == "$.a#relevant"
