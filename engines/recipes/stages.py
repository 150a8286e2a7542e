"""Templates that are filled in at two times.

A template may name things that are known now (``item.text``) and things known only later (``node.result``). This module
turns it into one in which everything that belongs to *later* is a constant: its own source text. Compiling and
rendering that gives the template for the later stage, or, for a text that is final after this stage, a text in which
the foreign parts stand as they were written.

It works on Jinja's own tokens and syntax trees: a brace inside a quoted string, a ``raw`` section or a comment is no
tag here either. A single expression or condition that mixes both kinds of names is an error: half of it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError

from engines.recipes.sandbox import constant
from engines.recipes.syntax import PLAIN, SyntaxProblem, parse

IsOwn = Callable[[str], bool]


class _Kind(StrEnum):
    DATA = "data"
    VARIABLE = "variable"
    BLOCK = "block"
    COMMENT = "comment"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: _Kind
    text: str
    line: int
    tag: str = ""
    """The keyword of a block tag."""


@dataclass(slots=True)
class _Open:
    """A block that has been opened: who it belongs to, and the names it binds."""

    tag: str
    own: bool
    names: dict[str, bool]


def stage_source(source: str, is_own: IsOwn, *, otherwise: bool, final: bool) -> str:
    """``source`` with everything foreign turned into constants.

    is_own: whether a root name belongs to this stage. otherwise: whether expressions without any name do. final: the
    result of this stage is no template any more, so comments and ``raw`` markers have done their work.
    """
    return _Stager(is_own, otherwise, final).run(source)


class _Stager:
    def __init__(self, is_own: IsOwn, otherwise: bool, final: bool) -> None:
        self._is_own = is_own
        self._otherwise = otherwise
        self._final = final
        self._open: list[_Open] = [_Open("", otherwise, {})]

    def run(self, source: str) -> str:
        parts = [self._segment(segment) for segment in _segments(source)]
        if len(self._open) > 1:
            raise SyntaxProblem(1, f"{{% {self._open[-1].tag} %}} is never closed")
        return "".join(parts)

    def _segment(self, segment: _Segment) -> str:
        match segment.kind:
            case _Kind.DATA:
                return segment.text
            case _Kind.COMMENT | _Kind.RAW:
                own = self._final
            case _Kind.VARIABLE:
                own = self._owner(segment, _names(_parse(segment, segment.text)))
            case _Kind.BLOCK:
                own = self._block(segment)
        return segment.text if own else constant(segment.text, keep_lines=True)

    def _block(self, segment: _Segment) -> bool:
        top = self._open[-1]
        match segment.tag:
            case "if" | "for" | "with":
                tree = _parse(segment, segment.text + f"{{% end{segment.tag} %}}")
                return self._opened(segment, tree)
            case "elif" if top.tag == "if":
                names = _names(_parse(segment, "{% if 1 %}" + segment.text + "{% endif %}"))
                if names and self._owner(segment, names) != top.own:
                    raise SyntaxProblem(segment.line, f"{segment.text} belongs to another stage than its {{% if %}}")
                return top.own
            case "else" if top.tag in ("if", "for"):
                return top.own
            case "endif" | "endfor" | "endwith" if segment.tag == "end" + top.tag:
                return self._open.pop().own
            case "set":
                tree = _parse(segment, segment.text)
                own = self._owner(segment, _names(tree))
                self._scope().update((name, own) for name in _bound(tree))
                return own
            case _:
                raise SyntaxProblem(segment.line, f"the tag {segment.text} is not allowed here")

    def _opened(self, segment: _Segment, tree: nodes.Template) -> bool:
        bound = set() if segment.tag == "if" else _bound(tree)
        own = self._owner(segment, _names(tree) - bound)
        names = dict.fromkeys(bound, own)
        if segment.tag == "for":
            names["loop"] = own
        self._open.append(_Open(segment.tag, own, names))
        return own

    def _scope(self) -> dict[str, bool]:
        """Where ``set`` binds: ``if`` has no scope of its own."""
        return next(block.names for block in reversed(self._open) if block.tag != "if")

    def _owner(self, segment: _Segment, names: set[str]) -> bool:
        owners = {name: self._owns(name) for name in sorted(names)}
        if len(set(owners.values())) > 1:
            now = [name for name, own in owners.items() if own]
            later = [name for name, own in owners.items() if not own]
            raise SyntaxProblem(
                segment.line, f"{segment.text} mixes {', '.join(now)} (known now) with {', '.join(later)} (known later)"
            )
        return next(iter(owners.values()), self._otherwise)

    def _owns(self, name: str) -> bool:
        for block in reversed(self._open):
            if name in block.names:
                return block.names[name]
        return self._is_own(name)


def _parse(segment: _Segment, text: str) -> nodes.Template:
    try:
        return parse(text)
    except SyntaxProblem as problem:
        raise SyntaxProblem(segment.line + problem.line - 1, problem.message) from None


def _names(tree: nodes.Template) -> set[str]:
    return {node.name for node in tree.find_all(nodes.Name) if node.ctx == "load"}


def _bound(tree: nodes.Template) -> set[str]:
    return {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"}


_BEGIN = {
    "variable_begin": _Kind.VARIABLE,
    "block_begin": _Kind.BLOCK,
    "comment_begin": _Kind.COMMENT,
    "raw_begin": _Kind.RAW,
}
_END = frozenset({"variable_end", "block_end", "comment_end", "raw_end"})


def _segments(source: str) -> Iterator[_Segment]:
    """Cuts ``source`` at its tags. Joined again, the segments give the source (with ``\\n`` line ends)."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    position, start, line, kind, tag = 0, 0, 1, _Kind.DATA, ""
    try:
        for number, token, value in PLAIN.lexer.tokeniter(source, None):
            # White space that a minus sign strips is missing from the tokens, so positions are looked up.
            found = source.index(value, position)
            if token in _BEGIN:
                if found > start:
                    yield _Segment(_Kind.DATA, source[start:found], line)
                start, line, kind, tag = found, number, _BEGIN[token], ""
            elif kind is _Kind.BLOCK and token == "name" and not tag:
                tag = value
            position = found + len(value)
            if token in _END:
                yield _Segment(kind, source[start:position], line, tag)
                start, line, kind = position, number + value.count("\n"), _Kind.DATA
    except TemplateSyntaxError as error:
        raise SyntaxProblem(error.lineno, error.message or "syntax error") from None
    if start < len(source):
        yield _Segment(_Kind.DATA, source[start:], line)
