"""The templates inside a design: what they may name, and how they stand inside a recipe's prompt.

They are filled in at two times. What belongs to the process (``process``, ``params``, ``goal``, ``lang``) is known when
the prompt is rendered; what belongs to an entry of an outline or to a finished node is known later, so it is protected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from jinja2 import nodes

from engines.documents.errors import BadPath
from engines.documents.paths import check_writable
from engines.errors import TemplateError
from engines.recipes.render import render
from engines.recipes.syntax import SyntaxProblem, parse
from engines.structured.text import quote, quote_all

NOW: Final = frozenset({"process", "params", "goal", "lang"})
ENTRY: Final = frozenset({"item", "record", "index", "index1", "root", "parent"})
_EXPRESSION: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_OTHER_TAG: Final = re.compile(r"\{[%#]|[%#]\}")
_SAMPLE_GOAL: Final = "A sample goal"


def template_problem(text: str, allowed: Collection[str] = NOW) -> str | None:
    """Why ``text`` cannot be a template here; ``None`` when it can. Only ``{{ … }}`` with ``allowed`` names can be."""
    if _OTHER_TAG.search(text):
        return "only {{ … }} can be used here, no {% … %} and no {# … #}"
    rest = _EXPRESSION.sub("", text)
    if "{{" in rest or "}}" in rest:
        return "a {{ without its }}, or a }} without its {{"
    for tag in _EXPRESSION.findall(text):
        if '"' in tag or "\n" in tag or "\\" in tag:
            return f"{quote(tag)}: inside {{{{ }}}} use single quotes, no backslash and one line"
        try:
            names = _names(tag)
        except SyntaxProblem as problem:
            return f"{quote(tag)}: {problem.message}"
        foreign = sorted(names - set(allowed))
        if foreign:
            return f"{quote(tag)} names {quote_all(foreign)}: only {quote_all(sorted(allowed))} are known here"
        if names & NOW and names - NOW:
            return f"{quote(tag)} mixes what is known at the start with what is known later: use two expressions"
    return None


def path_problem(text: str, allowed: Collection[str] = NOW) -> str | None:
    """Why ``text`` cannot give the path of a document; ``None`` when it can. It is tried with sample values."""
    problem = template_problem(text, allowed)
    if problem is not None:
        return problem
    if "{{" in text.split("/", 1)[0]:
        return f"{quote(text)} must begin with a folder or name that is written out, such as reports/"
    try:
        check_writable(render(text, sample_variables(), name="the path"))
    except BadPath as error:
        return error.reason
    except TemplateError as error:
        return error.message
    return None


def sample_variables(params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Values to try a template with."""
    return {
        "process": {"id": "0", "goal": _SAMPLE_GOAL},
        "params": dict(params or {}),
        "goal": _SAMPLE_GOAL,
        "lang": "en",
        "item": {"text": "An entry"},
        "record": {},
        "index": 0,
        "index1": 1,
        "root": {"name": "outline", "title": "Outline", "path": "outline.md"},
        "parent": {"goal": _SAMPLE_GOAL},
    }


def protected(text: str) -> str:
    """``text`` as it stands in a recipe's prompt: what is known only later appears there as it is written here."""

    def guard(found: re.Match[str]) -> str:
        tag = found[0]
        return tag if _names(tag) <= NOW else f"{{% raw %}}{tag}{{% endraw %}}"

    return _EXPRESSION.sub(guard, text)


def _names(tag: str) -> set[str]:
    return {node.name for node in parse(tag).find_all(nodes.Name)}
