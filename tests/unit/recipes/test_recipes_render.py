"""Rendering: values are data (F1), nothing of Python is in reach (F2), nothing can eat the machine (F3)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.errors import TemplateError
from engines.recipes import render as render_module
from engines.recipes.limits import DOCUMENT_LIMITS, MAX_SOURCE_CHARS, Meter, RenderLimits
from engines.recipes.render import check_template, render, render_prompt

HOSTILE = 'Explain {{ 7*7 }} and {% raw %} and {"a":1} {# note #} {% endraw %} {{ node.result }}'


# --- F1: user text never becomes template source ------------------------------------------------------------


@pytest.mark.parametrize(
    "template", ["{{ goal }}", "<{{ goal | raw }}>", "{% if goal %}{{ goal }}{% endif %}", "{{ 'a' ~ goal }}"]
)
def test_template_marks_in_a_value_stay_as_they_are(template: str) -> None:
    assert HOSTILE in render(template, {"goal": HOSTILE})
    assert HOSTILE in render_prompt(template, {"goal": HOSTILE})


@given(st.text())
def test_any_value_appears_literally(value: str) -> None:
    assert render("<{{ value }}>", {"value": value}) == f"<{value}>"
    assert render_prompt("a\n{{ value }}\nb {{ node.x }}", {"value": value}) == f"a\n{value}\nb {{{{ node.x }}}}"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_structured_values_print_as_json(value: Any) -> None:
    assert json.loads(render("{{ value | tojson }}", {"value": value})) == value


@given(st.text())
def test_any_template_renders_or_is_refused_with_a_template_error(source: str) -> None:
    with suppress(TemplateError):
        render(source, {})


def test_values_are_not_rendered_twice_through_set_and_loops() -> None:
    template = "{% set copy = goal %}{% for item in items %}{{ copy }}{{ item }}{% endfor %}"
    assert render(template, {"goal": "{{ 7*7 }}", "items": ["{{ 8*8 }}"]}) == "{{ 7*7 }}{{ 8*8 }}"


# --- F2: sandbox ------------------------------------------------------------

ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ ''|attr('__class__') }}",
    "{{ '{0.__class__}'|attr('format')(x) }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ ''['__class__'] }}",
    "{{ ''['__cla' ~ 'ss__'] }}",
    "{{ x['__cla' ~ 'ss__'] }}",
    "{{ '{0.__class__}'.format(x) }}",
    "{{ x.keys() }}",
    "{{ x.pop('a') }}",
    "{{ self }}",
    "{{ self.__init__ }}",
    "{{ _context }}",
    "{{ loop.cycle('a') }}",
    "{{ lipsum() }}",
    "{{ namespace(a=1) }}",
    "{{ dict(a=1) }}",
    "{{ joiner() }}",
    "{{ items | map('upper') }}",
    "{{ x | join(*items) }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{% block a %}{% endblock %}",
    "{% macro a() %}{% endmacro %}",
    "{% call a() %}{% endcall %}",
    "{% filter upper %}a{% endfilter %}",
    "{% set a %}x{% endset %}",
    "{% for a in items recursive %}{{ loop(a) }}{% endfor %}",
    "{{ thing }}",
    "{{ 'a' | slug(key=thing) }}",
]


@pytest.mark.parametrize("template", ESCAPES)
def test_escapes_are_template_errors(template: str) -> None:
    data = {"x": {"a": 1}, "items": ["a"]}
    with pytest.raises(TemplateError, match="my-recipe, line 1: "):
        render(template, data | {"thing": object()}, name="my-recipe")
    assert data == {"x": {"a": 1}, "items": ["a"]}


def test_python_attributes_of_values_do_not_exist() -> None:
    class Thing:
        secret = "leaked"

    assert (
        render(
            "[{{ thing.secret }}{{ text.upper }}{{ items.append }}{{ x.keys }}]",
            {"thing": Thing(), "text": "a", "items": [], "x": {}},
        )
        == "[]"
    )


def test_keys_of_data_win_over_methods_of_mappings() -> None:
    assert (
        render("{{ record.items }} {{ record.keys }} {{ record._id }}", {"record": {"items": 3, "keys": "k", "_id": 7}})
        == "3 k 7"
    )


def test_there_are_no_globals() -> None:
    assert render("[{{ range }}{{ lipsum }}{{ cycler }}{{ joiner }}{{ namespace }}{{ dict }}]", {}) == "[]"


# --- F3: resources ------------------------------------------------------------

SMALL = RenderLimits(max_output_bytes=10_000, max_steps=2_000)
HUNGRY = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'x'.ljust(500000000)|length }}",
    "{{ lipsum(n=200000) }}",
    "{{ 'a'*2000000000 }}",
    "{{ items * 2000000000 }}",
    "{{ 10 ** 1000000000 }}",
    "{{ '%2000000000d' % 1 }}",
    "{{ 999999999999999 * 999999999999999 }}",
    "{% for a in items %}{% for b in items %}{% for c in items %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in items %}{% for b in items %}{{ big }}{% endfor %}{% endfor %}",
    "{% for a in items %}{% if a in items and a in items %}{% endif %}{% endfor %}" * 20,
    "{% set a = big %}" + "{% set a = a ~ a %}" * 40,
    "{% set a = big %}" + "{% set a = a + a %}" * 40,
    "{% set a = [items] %}",
    "{{ big | replace('x', big) }}",
    "{{ items | join(big) }}",
    "{{ lines | indent(40) | indent(40) | indent(40) }}",
    "{{ big | indent(5000000) }}",
    "{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' is matching '(a?){60}(a|aa)+(a|aa)+$' }}",
    "{{ 'a' is matching '((((((((((a{99}){99}){99}){99}){99}){99}){99}){99}){99}){99})' }}",
    "(" * 10 + "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
    "{{ " + "not " * 5_000 + "a }}",
    "{% if a %}" * 500 + "{% endif %}" * 500,
    "{% for a in b %}" * 30 + "{% endfor %}" * 30,
    "{{ a }}" * 30_000,
    "{{ " + "9" * 6_000 + " }}",
    "x{{ a }}" + "y" * MAX_SOURCE_CHARS,
]


@pytest.mark.parametrize("template", HUNGRY, ids=lambda text: text[:40])
def test_greedy_templates_are_stopped(template: str) -> None:
    data = {"items": list(range(300)), "big": "x" * 3_000, "lines": "a\n" * 500}
    with pytest.raises(TemplateError):
        render(template, data, limits=SMALL)


def test_greedy_templates_are_stopped_in_a_worker_thread_which_then_works_on() -> None:
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(TemplateError):
            pool.submit(
                render, "{% for a in x %}{% for b in x %}{% endfor %}{% endfor %}", {"x": list(range(5_000))}
            ).result()
        assert pool.submit(render, "{{ x }}", {"x": "fine"}).result() == "fine"


def test_time_alone_stops_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1_000_000))
    monkeypatch.setattr("engines.recipes.limits.monotonic", lambda: float(next(ticks)))
    with pytest.raises(TemplateError, match="longer than 2 s"):
        render("{% for a in x %}{{ a }}{% endfor %}", {"x": [1, 2, 3, 4]})


def test_output_is_counted_in_bytes() -> None:
    limits = RenderLimits(max_output_bytes=10)
    assert render("{{ a }}", {"a": "x" * 10}, limits=limits) == "x" * 10
    for value in ("x" * 11, "ä" * 6):
        with pytest.raises(TemplateError, match=r"bigger than 10 bytes|too big"):
            render("{{ a }}", {"a": value}, limits=limits)
    with pytest.raises(TemplateError, match="bigger than 10 bytes"):
        render("plain text, no tags", {}, limits=limits)


def test_prompts_may_be_one_megabyte_documents_five() -> None:
    value = {"a": "x" * 1_500_000}
    assert len(render("{{ a }}", value)) == 1_500_000
    with pytest.raises(TemplateError):
        render_prompt("{{ a }}", value)


def test_a_meter_adds_up_what_is_built() -> None:
    meter = Meter(DOCUMENT_LIMITS)
    for _ in range(4):
        meter.build(DOCUMENT_LIMITS.max_output_bytes)
    with pytest.raises(TemplateError):
        meter.build(1)


# --- behaviour ------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ missing }}|{{ a.b.c.d }}|{{ none }}", "||"),
        ("{{ yes }} {{ items }} {{ map }}", 'true [1, "ä"] {"k": null}'),
        ("{{ map.k is none }} {{ q is defined }} {{ items is sequence }} {{ none is empty }}", "true false true true"),
        ("{{ items[0] + 2 * 3 }} {{ items[-1] }} {{ items[9] }} {{ text[1:3] }}", "7 ä  ex"),
        ("{% for k, v in map | items %}{{ k }}={{ v | default('-') }}{% endfor %}", "k=-"),
        (
            "{% for i in items %}{{ loop.index }}/{{ loop.length }}{% if not loop.last %},{% endif %}{% endfor %}",
            "1/2,2/2",
        ),
        ("{% for i in missing %}x{% else %}none{% endfor %}", "none"),
        ("{% for i in items if i == 1 %}{{ i }}{% endfor %}", "1"),
        ("{{ 'Ä B!' | slug }} {{ '!?' | slug }} {{ 'Hello, World' | slug }}", "b untitled hello-world"),
        ("k: |\n  {{ 'a\nb\n\nc' | yamlIndent }}", "k: |\n  a\n  b\n\n  c"),
        ("{{ 'a\nb' | yamlIndent(4) }}", "a\n    b"),
        ("{{ 'abc' is matching 'a.c' }} {{ 'abcd' is matching 'a.c' }}", "true false"),
        ("{{ '<b>&' }}{{ text | raw }}", "<b>&text"),
        ("{{ text ~ 1 ~ yes }}", "text1true"),
        ("{{ 'b,a' | replace(',', ';') | upper }} {{ [3, 1, 2] | sort | join('-') }}", "B;A 1-2-3"),
        ("{{ 'abcdef' | truncate(4) }} {{ 'x' | truncate(4) }}", "abc… x"),
        ("{{ 'x' if yes else 'y' }} {% with z = 3 %}{{ z }}{% endwith %}", "x 3"),
        ("{{ map | tojson(2) }}", '{\n  "k": null\n}'),
        ("{% raw %}{{ a }}{% endraw %}{# gone #}", "{{ a }}"),
    ],
)
def test_language(template: str, expected: str) -> None:
    values = {"none": None, "yes": True, "items": [1, "ä"], "map": {"k": None}, "text": "text"}
    assert render(template, values) == expected


def test_prompts_lose_lines_that_hold_only_a_tag_and_documents_keep_them() -> None:
    template = "a\n  {% if x %}\nb\n  {% endif %}\nc\n"
    assert render_prompt(template, {"x": 1}) == "a\nb\nc\n"
    assert render(template, {"x": 1}) == "a\n  \nb\n  \nc\n"


def test_a_prompt_shows_the_names_of_later_as_written() -> None:
    template = (
        'Save {{ goal }} as {"content": "{{ node.result }}"}{% if node.x %}{{ goal }}{% endif %} {{ process.goal }}'
    )
    expected = 'Save g as {"content": "{{ node.result }}"}{% if node.x %}g{% endif %} pg'
    assert render_prompt(template, {"goal": "g", "process": {"goal": "pg"}}) == expected


@pytest.mark.parametrize("template", ["{{ record.price }}", "{% for x in price %}{% endfor %}", "{{ price ~ 'x' }}"])
def test_strict_rendering_names_what_is_missing(template: str) -> None:
    with pytest.raises(TemplateError, match="'price' is not defined"):
        render(template, {"record": {}}, strict=True)
    assert render("{{ price | default('?') }}", {}, strict=True) == "?"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a\nb {{ x", "t, line 2: unexpected end"),
        ("a\n\n{% if x %}", "t, line 3: .*endif"),
        ("a\n{{ x | lowr }}", "t, line 2: there is no filter 'lowr': did you mean 'lower'"),
        ("a\n{{ x is numbr }}", "t, line 2: there is no test 'numbr': did you mean 'number'"),
        ("a\n{{ x.y() }}", "t, line 2: calls are not allowed"),
        ("a\n{% frob %}", "t, line 2: .*unknown tag 'frob'"),
        ("{{ a ~ node.x }}", "t, line 1: .* mixes a .* with node"),
    ],
)
def test_compile_errors_name_template_and_line(template: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        check_template(template, "t", keep={"node"})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a\nb\n{{ 1 / zero }}", "t, line 3: .*zero"),
        ("a\n{{ items | int }}", "t, line 2: arithmetic needs numbers, found list"),
        ("a\n{{ nix + 1 }}", r"t, line 2: arithmetic needs numbers, found 'nix' \(not defined\)"),
        ("{% for i in zero %}{% endfor %}", "t, line 1: a value of type int is no list"),
        ("{{ 'a' is matching '(' }}", "t, line 1: the pattern '\\(' is not a valid"),
        ("{% if 1 < 'a' %}{% endif %}", "t, line 1: "),
        ("a\n{{ 'x' | slug(1, 2, 3) }}", "t, line 2: "),
    ],
)
def test_run_time_errors_name_template_and_line(template: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        render(template, {"zero": 0, "items": []}, name="t")


def test_compiled_templates_are_remembered_within_bounds() -> None:
    render_module._cached.cache_clear()
    for _ in range(3):
        render("{{ a }} once", {"a": 1}, name="first")
        render("{{ a }} once", {"a": 1}, name="second")
    info = render_module._cached.cache_info()
    assert (info.misses, info.hits) == (1, 5)
    assert info.maxsize is not None


def test_a_remembered_template_still_reports_the_name_it_is_rendered_under() -> None:
    for name in ("one", "two"):
        with pytest.raises(TemplateError, match=f"{name}, line 1"):
            render("{{ 1 / zero }}", {"zero": 0}, name=name)
