"""Why an expression gave no value.

Codes are those of JSONata (``S…`` syntax, ``T…`` types, ``D…`` evaluation). The ones below are ours, for what lies
outside the language: they start with ``X``.
"""

from __future__ import annotations

from typing import Final

from engines.errors import EngineError

TOO_LONG: Final = "X0001"
"""The text of the expression."""
BAD_INPUT: Final = "X0002"
"""A document or binding that is not JSON, or nested too deeply."""
KILLED: Final = "X0003"
"""The process of the evaluation had to be ended: it went over its time or its memory."""
NO_TIME_LEFT: Final = "X0004"
"""The time for all evaluations of a run is used up."""
TOO_DEEP: Final = "X0005"
"""A result with too many objects and arrays inside each other."""
SYNTAX_PREFIX: Final = "S0"


class ExpressionError(EngineError):
    """An expression does not compile or has no value.

    code: see above. position: the offset in the expression (code points), if known. token: what stands there.
    """

    def __init__(self, code: str, message: str, position: int | None = None, token: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.position = position
        self.token = token

    @property
    def is_syntax(self) -> bool:
        return self.code.startswith(SYNTAX_PREFIX)
