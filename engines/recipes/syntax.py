"""What a template may say: the vetting and rewriting of its syntax tree, and its compilation.

The language is Jinja's without anything that can be called, defined, included or inherited: printing, ``if``, ``for``,
``set``, ``with``, filters, tests, comparisons and arithmetic. Operations the compiler would inline (loops, comparisons,
``~``) are rewritten into metered filters.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

from engines.recipes.filters import FILTERS, TESTS
from engines.recipes.limits import MAX_DEPTH, MAX_NODES, MAX_SOURCE_CHARS
from engines.recipes.sandbox import CONCAT, LOOP, PROTECT, STEP, TemplateEnvironment

PLAIN = TemplateEnvironment(trim=False)
TRIMMED = TemplateEnvironment(trim=True)
"""For prompts: a line that holds only a tag leaves no empty line behind."""

_ALLOWED: frozenset[type[nodes.Node]] = frozenset(
    {
        *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign, nodes.With),
        *(nodes.Const, nodes.Name, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword),
        *(nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test, nodes.CondExpr, nodes.Concat),
        *(nodes.Not, nodes.And, nodes.Or, nodes.Compare, nodes.Operand),
        *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos),
    }
)
_LITERALS = (nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Neg)
_REFUSED: dict[type[nodes.Node], str] = {
    nodes.Call: "calls are not allowed here, methods included: use a filter",
    nodes.Pow: "the operator ** is not allowed",
    nodes.AssignBlock: "{% set %} with a body is not allowed: use {% set name = value %}",
    nodes.NSRef: "namespaces are not allowed",
}


class SyntaxProblem(Exception):
    """A template is refused; the caller knows the template's name."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def parse(source: str, environment: TemplateEnvironment = PLAIN) -> nodes.Template:
    """The vetted syntax tree of ``source``."""
    if len(source) > MAX_SOURCE_CHARS:
        raise SyntaxProblem(1, f"the template is longer than {MAX_SOURCE_CHARS} characters")
    try:
        tree = environment.parse(source)
    except TemplateSyntaxError as error:
        raise SyntaxProblem(error.lineno, error.message or "syntax error") from None
    except RecursionError:
        raise SyntaxProblem(1, "the template is nested too deeply") from None
    except (ValueError, SyntaxError) as error:  # a number with thousands of digits
        raise SyntaxProblem(1, str(error)) from None
    _vet(tree)
    return tree


def compile_tree(tree: nodes.Template, environment: TemplateEnvironment, *, protect: bool = False) -> Template:
    """A renderable template from a vetted tree. ``protect``: printed values go into a template of the next stage."""
    try:
        metered = _Rewriter(protect).visit(tree)
        metered.set_environment(environment)
        code = environment.compile(metered, name="template", filename="<template>")
        return Template.from_code(environment, code, {}, None)
    except TemplateSyntaxError as error:
        raise SyntaxProblem(error.lineno, error.message or "syntax error") from None
    except (RecursionError, MemoryError, SyntaxError):  # limits of Python's own compiler
        raise SyntaxProblem(1, "the template is nested too deeply") from None


def _vet(tree: nodes.Template) -> None:
    count, line = 0, 1
    todo: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while todo:
        node, depth = todo.pop()
        count += 1
        line = node.lineno or line
        if count > MAX_NODES:
            raise SyntaxProblem(line, f"the template has more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            raise SyntaxProblem(line, f"the template is nested more than {MAX_DEPTH} levels deep")
        if type(node) not in _ALLOWED:
            raise SyntaxProblem(line, _REFUSED.get(type(node), f"{type(node).__name__} is not allowed in a template"))
        check = _CHECKS.get(type(node))
        problem = check(node) if check else None
        if problem:
            raise SyntaxProblem(line, problem)
        todo.extend((child, depth + 1) for child in node.iter_child_nodes())


def _check_name(node: nodes.Name) -> str | None:
    return f"{node.name!r}: names that begin with an underscore are not allowed" if node.name.startswith("_") else None


def _check_getattr(node: nodes.Getattr) -> str | None:
    return f"access to {node.attr!r} is not allowed" if node.attr.startswith("__") else None


def _check_getitem(node: nodes.Getitem) -> str | None:
    key = node.arg.value if isinstance(node.arg, nodes.Const) else None
    return f"access to {key!r} is not allowed" if isinstance(key, str) and key.startswith("__") else None


def _check_literal(node: nodes.List | nodes.Tuple | nodes.Dict) -> str | None:
    # A list that can hold variables can hold itself twice over, and again: forty steps make a value of 2**40 items.
    if getattr(node, "ctx", "load") != "load":
        return None
    constant = all(isinstance(child, _LITERALS) for child in node.iter_child_nodes())
    return None if constant else "lists and mappings in a template may only hold constants"


def _check_call(kind: str, known: dict[str, Any]) -> Callable[[Any], str | None]:
    def check(node: nodes.Filter | nodes.Test) -> str | None:
        if node.name not in known:
            near = get_close_matches(node.name, known, n=1)
            return f"there is no {kind} {node.name!r}" + (f": did you mean {near[0]!r}?" if near else "")
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            return "* and ** arguments are not allowed"
        if isinstance(node, nodes.Filter) and node.node is None:
            return "filter blocks are not allowed"
        return None

    return check


def _check_for(node: nodes.For) -> str | None:
    return "recursive loops are not allowed" if node.recursive else None


_CHECKS: dict[type[nodes.Node], Callable[[Any], str | None]] = {
    nodes.Name: _check_name,
    nodes.Getattr: _check_getattr,
    nodes.Getitem: _check_getitem,
    nodes.List: _check_literal,
    nodes.Tuple: _check_literal,
    nodes.Dict: _check_literal,
    nodes.Filter: _check_call("filter", FILTERS),
    nodes.Test: _check_call("test", TESTS),
    nodes.For: _check_for,
}


class _Rewriter(NodeTransformer):
    """Puts the metered operations in. Works on vetted trees only, so recursion is shallow."""

    def __init__(self, protect: bool) -> None:
        self._protect = protect

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return _filter(parts, CONCAT)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filter(node.iter, LOOP)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filter(node.expr, STEP)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        if self._protect:
            node.nodes = [part if _is_text(part) else _filter(part, PROTECT) for part in node.nodes]
        return node


def _is_text(node: nodes.Node) -> bool:
    return isinstance(node, (nodes.TemplateData, nodes.Const))


def _filter(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
