"""Two-stage templates (F4): own names are filled in, everything of later stays as written, values stay values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.errors import TemplateError
from engines.recipes.render import render, render_stage_one, render_stage_one_tree

NAMES = {"item", "index", "record", "parent"}
LATER = {"node": {"result": "RESULT", "goal": "GOAL", "list": ["p", "q"]}, "process": {"id": "P1"}}


def two_stages(template: str, variables: dict[str, Any]) -> str:
    return render(render_stage_one(template, NAMES, variables), LATER)


def test_f4_item_text_with_braces() -> None:
    item = {"item": {"text": "Intro {{ process.id }} {{ node.goal }}"}}
    goal = render_stage_one("Write: {{ item.text }}", NAMES, item, final=True)
    assert goal == "Write: Intro {{ process.id }} {{ node.goal }}"
    assert render_stage_one("{{ node.result }}", NAMES, item) == "{{ node.result }}"
    assert (
        two_stages("# {{ item.text }}\n{{ node.result }}", item) == "# Intro {{ process.id }} {{ node.goal }}\nRESULT"
    )


@pytest.mark.parametrize(
    "template",
    [
        "{{ node.result }}",
        "{{ node.result | slug }}",
        "{{ process.id ~ ' }} ' ~ node.goal }}",
        "a  {{- node.result -}}  b",
        "{% if node.result %}x{% elif process.id %}y{% else %}z{% endif %}",
        "{% for x in node.list %}{{ x }}{{ loop.index }}{% else %}-{% endfor %}",
        "{% for item in node.list %}{{ item }}{% endfor %}",
        "{% set a = node.result %}{{ a }}",
        "{% with item = node.result %}{{ item }}{% endwith %}",
        "{% raw %}{{ item.text }} {% endraw %}{% raw -%} {{ x }} {%- endraw %}",
        "{# a comment with {{ item.text }} #}",
        "{{ 'item.text }}' }}",
        "line\n  {% if node.x %}\n  y\n  {% endif %}\n",
        "{{ unknown.thing }} { { item } } }} %}",
        "",
    ],
)
def test_what_belongs_to_later_stays_byte_for_byte(template: str) -> None:
    assert render_stage_one(template, NAMES, {"item": {"text": "ITEM"}}) == template


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ item.text }}-{{ node.result }}", "T-{{ node.result }}"),
        ("{{ item.text | upper }}{{ item.missing }}", "T"),
        ("{% if node.ok %}{{ item.text }}{% endif %}", "{% if node.ok %}T{% endif %}"),
        ("{% if item.text %}{{ node.a }}{% else %}{{ node.b }}{% endif %}", "{{ node.a }}"),
        ("{% if item.no %}{{ node.a }}{% elif index %}i{% else %}{{ node.b }}{% endif %}", "{{ node.b }}"),
        (
            "{% for t in item.tags %}{{ loop.index }}{{ t }}={{ node.x }};{% endfor %}",
            "1a={{ node.x }};2b={{ node.x }};",
        ),
        ("{% for n in node.l %}{{ item.text }}{{ n }}{% endfor %}", "{% for n in node.l %}T{{ n }}{% endfor %}"),
        ("{% set t = item.text %}{{ t }}{{ node.t }}", "T{{ node.t }}"),
        ("{% with t = item.text %}{{ t }}{% endwith %}{{ t }}", "T{{ t }}"),
        ("{{ item.text }}{% raw %}{{ item.text }}{% endraw %}", "T{% raw %}{{ item.text }}{% endraw %}"),
        ("a\r\n{{ item.text }}\r\n", "a\nT\n"),
    ],
)
def test_own_names_are_filled_in(template: str, expected: str) -> None:
    assert render_stage_one(template, NAMES, {"item": {"text": "T", "tags": ["a", "b"]}, "index": 0}) == expected


@pytest.mark.parametrize(
    "template",
    [
        "a\n{{ item.text ~ node.result }}",
        "a\n{% if item.text == node.goal %}{% endif %}",
        "a\n{% for x in item.tags if node.ok %}{% endfor %}",
        "a\n{% if item.text %}{% elif node.ok %}{% endif %}",
        "a\n{% for x in node.list %}{{ item.text ~ x }}{% endfor %}",
        "a\n{{ item.text.upper() }}",
        "a\n{{ node.result | attr('x') }}",
        "a\n{% include item.text %}",
        "a\n{% if item.text %}",
    ],
)
def test_what_cannot_be_split_is_an_error_with_its_line(template: str) -> None:
    with pytest.raises(TemplateError, match=r"t, line [12]: "):
        render_stage_one(template, NAMES, {"item": {"text": "T", "tags": []}}, name="t")


def test_a_mixed_expression_says_what_is_known_when() -> None:
    with pytest.raises(TemplateError, match=r"mixes item \(known now\) with node \(known later\)"):
        render_stage_one("{{ item.text ~ node.result }}", NAMES, {})


@given(st.text())
def test_any_value_survives_both_stages_literally(value: str) -> None:
    template = "{ {{ item.text }} }<{{ item.text }}{{ item.text }}>{{ node.result }}%}\n{{ item.text }}"
    expected = f"{{ {value} }}<{value}{value}>RESULT%}}\n{value}"
    assert two_stages(template, {"item": {"text": value}}) == expected


@given(st.text())
def test_any_value_is_literal_in_a_final_text(value: str) -> None:
    assert (
        render_stage_one("{{ item.text }}:{{ node.x }}", NAMES, {"item": {"text": value}}, final=True)
        == value + ":{{ node.x }}"
    )


@given(st.text(alphabet="{}%# \n-+'\"abrwend."))
def test_any_template_is_staged_or_refused(template: str) -> None:
    try:
        staged = render_stage_one(template, NAMES, {})
    except TemplateError:
        return
    assert isinstance(staged, str)


def test_strict_names_the_missing_field() -> None:
    with pytest.raises(TemplateError, match="'price' is not defined"):
        render_stage_one("{{ record.price }} {{ node.result }}", NAMES, {"record": {}}, strict=True)


def test_trees_are_filled_in_all_the_way_down() -> None:
    spec = {
        "path": "out/{{ item.text | slug }}.md",
        "n": 3,
        "deep": [{"content": "# {{ item.text }}\n{{ node.result }}"}, None, True],
    }
    assert render_stage_one_tree(spec, NAMES, {"item": {"text": "A {b}"}}) == {
        "path": "out/a-b.md",
        "n": 3,
        "deep": [{"content": '# {{ "A \\x7bb\\x7d" }}\n{{ node.result }}'}, None, True],
    }


def test_errors_in_a_tree_name_the_place() -> None:
    with pytest.raises(TemplateError, match=r"childTemplate\.a\[1\], line 1"):
        render_stage_one_tree({"a": ["x", "{{ item.x() }}"]}, NAMES, {}, name="childTemplate")
