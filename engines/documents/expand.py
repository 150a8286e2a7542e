"""Fanning a document out: one planned child for every entry, by filling in a template. Nothing is created here.

A child's texts are rendered in two stages. Now, ``item``, ``record``, ``index``, ``index1``, ``parent`` and ``root``
are known; ``node``, ``process`` and ``result`` are known only when the child is finished, so they stay in the text as
written. What an entry says is a value in both stages: braces in it are braces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, assert_never

from jinja2 import nodes

from engines.documents.errors import DocumentError, Problem
from engines.documents.model import Branch, Document, ListDocument, RecordsDocument, TextDocument, TreeDocument
from engines.documents.spec import ChildTemplate, ExpandSpec, TreeMode
from engines.errors import TemplateError
from engines.recipes.limits import RenderLimits
from engines.recipes.render import render, render_stage_one
from engines.recipes.syntax import SyntaxProblem, parse

LATER_ROOTS = frozenset({"node", "process", "result"})
"""Names that post-actions may use and that mean nothing before the child is finished."""
NOW_ROOTS = frozenset({"item", "record", "index", "index1", "parent", "root"})

MAX_GOAL_CHARS = 20_000
MAX_PLAN_CHARS = 5_000_000
"""All rendered texts of one expansion together."""
_LIMITS = RenderLimits(max_output_bytes=1_000_000, max_steps=5_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandContext:
    """What the templates may say about the surroundings, and how many children fit in.

    ``max_children`` counts nested children as well. The title falls back to the document's own ``title`` field.
    """

    parent_goal: str
    max_children: int
    root_name: str = ""
    root_title: str = ""
    root_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """A child to create, and the children to create below it. ``kind`` is one of ``TASK_KINDS``."""

    kind: str
    goal: str
    task_spec: dict[str, Any] = field(default_factory=dict)
    children: tuple[ChildPlan, ...] = ()

    def walk(self) -> Iterator[ChildPlan]:
        """This child and everything below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def expand(document: Document, spec: ExpandSpec, context: ExpandContext) -> tuple[ChildPlan, ...]:
    """The children of ``document``'s entries, in their order; none for a document without entries.

    Raises :class:`DocumentError` for a document that cannot be fanned out, has no entries although it must, or has more
    than fit (before anything is rendered: half a document must not pass for a whole one); :class:`TemplateError` for a
    template that does not compile, mixes the stages, costs too much or, if asked for, names a field that is missing.
    """
    entries = _entries(document, spec.tree_mode)
    if not entries and spec.fail_on_empty:
        raise DocumentError(Problem.EMPTY, f"the document ({spec.document}) has no entries")
    count = sum(1 for entry in entries for _ in entry.walk())
    if count > context.max_children:
        raise DocumentError(
            Problem.TOO_MANY,
            f"the document ({spec.document}) gives {count} children and only {context.max_children} fit into the tree",
        )
    root = {
        "name": context.root_name,
        "title": context.root_title or document.extra.get("title") or "",
        "path": context.root_path,
    }
    filler = _Filler(spec.child, {"root": root}, strict=spec.fail_on_missing_field)
    return filler.children(entries, context.parent_goal)


@dataclass(frozen=True, slots=True)
class _Entry:
    values: dict[str, Any]
    children: tuple[_Entry, ...] = ()

    def walk(self) -> Iterator[_Entry]:
        yield self
        for child in self.children:
            yield from child.walk()


def _entries(document: Document, mode: TreeMode) -> tuple[_Entry, ...]:
    match document:
        case ListDocument():
            return tuple(_Entry({"item": {**item.extra, "text": item.text}, "record": {}}) for item in document.items)
        case TreeDocument():
            return tuple(_tree_entry(root, mode) for root in document.roots)
        case RecordsDocument():
            return tuple(_Entry({"item": {}, "record": {**row.extra, **row.values}}) for row in document.rows)
        case TextDocument():
            raise DocumentError(
                Problem.NOT_EXPANDABLE, "the document is a text and has no entries: it must be a list, tree or records"
            )
        case _:
            assert_never(document)


def _tree_entry(branch: Branch, mode: TreeMode) -> _Entry:
    below = branch.children if mode is TreeMode.RECURSIVE else ()
    values = {"item": {**branch.extra, "text": branch.text}, "record": {}}
    return _Entry(values, tuple(_tree_entry(child, mode) for child in below))


class _Filler:
    """Renders one template for entry after entry, within one budget."""

    def __init__(self, template: ChildTemplate, shared: dict[str, Any], *, strict: bool) -> None:
        self._template = template
        self._shared = shared
        self._strict = strict
        self._left = MAX_PLAN_CHARS

    def children(self, entries: tuple[_Entry, ...], parent_goal: str, above: str = "") -> tuple[ChildPlan, ...]:
        return tuple(
            self._child(entry, index, parent_goal, f"{above}{index + 1}") for index, entry in enumerate(entries)
        )

    def _child(self, entry: _Entry, index: int, parent_goal: str, number: str) -> ChildPlan:
        template = self._template
        variables = {
            **self._shared,
            **entry.values,
            "index": index,
            "index1": index + 1,
            "parent": {"goal": parent_goal},
        }
        try:
            goal = self._text(template.goal, variables, "childTemplate.goal", final=True).strip()
            task_spec = self._task_spec(variables)
        except TemplateError as error:
            raise TemplateError(f"{error.message} (entry {number} of the document)") from None
        if len(goal) > MAX_GOAL_CHARS:
            raise DocumentError(
                Problem.TOO_LARGE,
                f"entry {number} of the document gives a goal of more than {MAX_GOAL_CHARS} characters",
            )
        below = self.children(entry.children, goal, f"{number}.")
        return ChildPlan(kind=template.kind, goal=goal, task_spec=task_spec, children=below)

    def _task_spec(self, variables: dict[str, Any]) -> dict[str, Any]:
        filled: dict[str, Any] = {}
        for key, value in self._template.task_spec.items():
            if key == "childTemplate" and self._template.kind == "EXPAND_FROM_DOC":
                filled[key] = value  # its item is an entry of the child's own document, which nobody has read yet
            else:
                # Post-actions are rendered once more when the child is finished; everything else is final now.
                filled[key] = self._tree(value, variables, f"childTemplate.taskSpec.{key}", final=key != "postActions")
        return filled

    def _tree(self, value: Any, variables: dict[str, Any], place: str, *, final: bool) -> Any:
        if isinstance(value, str):
            return self._text(value, variables, place, final=final)
        if isinstance(value, Mapping):
            return {key: self._tree(child, variables, f"{place}.{key}", final=final) for key, child in value.items()}
        if isinstance(value, list):
            return [self._tree(child, variables, f"{place}[{n}]", final=final) for n, child in enumerate(value)]
        return value

    def _text(self, template: str, variables: dict[str, Any], place: str, *, final: bool) -> str:
        if final:
            text = render(template, variables, keep=LATER_ROOTS, strict=self._strict, limits=_LIMITS, name=place)
        else:
            names = _names_now(template)
            text = render_stage_one(template, names, variables, strict=self._strict, limits=_LIMITS, name=place)
        self._left -= len(text)
        if self._left < 0:
            raise DocumentError(
                Problem.TOO_LARGE, f"the children's texts are longer than {MAX_PLAN_CHARS} characters together"
            )
        return text


@lru_cache(maxsize=256)
def _names_now(template: str) -> frozenset[str]:
    """Every name in ``template`` that is not of the later stage: a misspelt one is empty now, or an error, and not a
    surprise for the reader of the finished document."""
    try:
        found = {node.name for node in parse(template).find_all(nodes.Name)}
    except SyntaxProblem:
        found = set()  # rendering reports it, with the place
    return (NOW_ROOTS | found) - LATER_ROOTS
