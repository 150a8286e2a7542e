"""What each token of an expression does: where an operand is expected, which brackets are a pair, and what they hold.

Not a parser: the expressions that need it are the ones no parser accepts. It knows just enough to tell the parentheses
of a call from those around a block, the braces of an object from those of a function body, and an operator word from a
field of that name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from engines.valem.jsonata.tokens import MISPLACED_WORDS, OPERATOR_WORDS, Kind, Token, tokenise

_CLOSES: Final = {")": "(", "]": "[", "}": "{"}
_WILDCARDS: Final = frozenset({"*", "**", "%"})
_LAMBDAS: Final = frozenset({"function", "λ"})


class Holds(StrEnum):
    """What an opening bracket opens."""

    BLOCK = "block"
    CALL = "call"
    PARAMETERS = "parameters"
    ROUND_BODY = "round body"
    BODY = "body"
    ORDER = "order"
    PREDICATE = "predicate"
    ARRAY = "array"
    OBJECT = "object"
    GROUP = "group"


@dataclass(slots=True)
class Shape:
    """One expression read. Positions are token numbers.

    prefix: whether an operand was expected where the token stands.
    infix: the operators between two operands, words included.
    holds / match / parent: of each opening bracket, its content, its closing bracket (if any), the bracket around it.
    inside: of each token, the opening bracket it stands directly in (-1 at the top level). within: the same, reversed.
    open: brackets that never close. stray: whether a bracket closes that never opened.
    """

    text: str
    tokens: list[Token]
    prefix: list[bool] = field(default_factory=list)
    infix: set[int] = field(default_factory=set)
    holds: dict[int, Holds] = field(default_factory=dict)
    match: dict[int, int] = field(default_factory=dict)
    opener: dict[int, int] = field(default_factory=dict)
    inside: list[int] = field(default_factory=list)
    within: dict[int, list[int]] = field(default_factory=dict)
    open: list[int] = field(default_factory=list)
    stray: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    def says(self, at: int, *texts: str) -> bool:
        """Whether the token ``at`` exists and is one of these operators or words."""
        return 0 <= at < len(self.tokens) and self.tokens[at].text in texts

    def starts_operand(self, at: int) -> bool:
        """Whether the token ``at``, standing where an operand is expected, begins one."""
        if not 0 <= at < len(self.tokens):
            return False
        token = self.tokens[at]
        return token.kind is not Kind.OPERATOR or token.text in {"(", "[", "{", "-"} | _WILDCARDS

    def source(self, first: int, last: int) -> str:
        """The text from token ``first`` to token ``last``, both included."""
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def directly_in(self, bracket: int) -> list[int]:
        """The tokens right inside ``bracket`` (-1: the top level), those in deeper brackets left out."""
        return self.within.get(bracket, [])

    def binds(self, bracket: int) -> bool:
        return any(self.tokens[at].text == ":=" for at in self.directly_in(bracket))

    @property
    def balanced(self) -> bool:
        return not self.open and not self.stray


def read(text: str) -> Shape:
    """The shape of ``text``. Raises :class:`~engines.valem.jsonata.tokens.Unreadable`."""
    shape = Shape(text, tokenise(text))
    _Reader(shape).read()
    return shape


class _Reader:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.stack: list[int] = []
        self.expecting = True
        """Whether an operand may start here."""
        self.after_parameters = False
        """Whether a function's body must start here."""

    def read(self) -> None:
        signature = 0
        for at, token in enumerate(self.shape.tokens):
            self.shape.prefix.append(self.expecting)
            self.shape.inside.append(self.stack[-1] if self.stack else -1)
            if signature or (self.after_parameters and token.text == "<"):
                # A function's signature: nothing in it is code.
                signature += token.text.count("<") - token.text.count(">")
                continue
            if token.kind is Kind.OPERATOR:
                self._operator(at, token.text)
            elif not self.expecting and token.text in OPERATOR_WORDS | MISPLACED_WORDS and token.kind is Kind.NAME:
                self._between_operands(at)
            else:
                self.expecting = False
                self.after_parameters = False
        self.shape.open = self.stack
        for at, around in enumerate(self.shape.inside):
            self.shape.within.setdefault(around, []).append(at)

    def _operator(self, at: int, text: str) -> None:
        if text in "([{":
            self._open(at, text)
        elif text in ")]}":
            self._close(at, text)
        elif self.expecting and text in _WILDCARDS:
            self.expecting = False
        elif self.expecting:
            self.expecting = True
        else:
            self._between_operands(at)
        if text != ")":
            self.after_parameters = False

    def _between_operands(self, at: int) -> None:
        self.shape.infix.add(at)
        self.expecting = True

    def _open(self, at: int, text: str) -> None:
        self.shape.holds[at] = self._holds(at, text)
        self.stack.append(at)
        self.expecting = True

    def _holds(self, at: int, text: str) -> Holds:
        if self.after_parameters and text != "[":
            return Holds.BODY if text == "{" else Holds.ROUND_BODY
        if text == "[":
            return Holds.ARRAY if self.expecting else Holds.PREDICATE
        if text == "{":
            return Holds.OBJECT if self.expecting else Holds.GROUP
        if self.expecting:
            return Holds.ORDER if self.shape.says(at - 1, "^") else Holds.BLOCK
        lambda_head = self.shape.says(at - 1, *_LAMBDAS) and self.shape.prefix[at - 1]
        return Holds.PARAMETERS if lambda_head else Holds.CALL

    def _close(self, at: int, text: str) -> None:
        if not self.stack or self.shape.tokens[self.stack[-1]].text != _CLOSES[text]:
            self.shape.stray = True
            self.expecting = False
            return
        opener = self.stack.pop()
        self.shape.match[opener] = at
        self.shape.opener[at] = opener
        self.shape.inside[at] = self.shape.inside[opener]
        self.expecting = False
        self.after_parameters = self.shape.holds[opener] is Holds.PARAMETERS
