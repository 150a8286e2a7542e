"""How much a template may cost, and the meter that counts it while it renders.

Rendering happens in worker threads, where no signal can interrupt it. So nothing is ever *interrupted*: every operation
whose cost the template's author controls (a loop step, a comparison, a filter, a concatenation, a printed value) first
asks the meter, and none of them can cost much by itself because the size of what it would build is known before it is
built.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from engines.errors import TemplateError

MAX_SOURCE_CHARS = 128_000
"""Longest template text that is compiled: the worst of this length takes about a second."""
MAX_NODES = 20_000
"""Most syntax nodes of one template (compiling costs about 20 microseconds a node)."""
MAX_DEPTH = 60
"""Deepest nesting of expressions and blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderLimits:
    """What one rendering may cost. ``None`` is not offered: there is no rendering without limits."""

    max_output_bytes: int
    max_seconds: float = 2.0
    max_steps: int = 500_000
    """Loop steps, filter calls and comparisons together."""


PROMPT_LIMITS = RenderLimits(max_output_bytes=1_000_000)
DOCUMENT_LIMITS = RenderLimits(max_output_bytes=5_000_000)


class Meter:
    """Counts one rendering. Every method raises :class:`TemplateError` when a limit is passed."""

    __slots__ = ("_built", "_deadline", "_limits", "_output", "_steps", "strict")

    def __init__(self, limits: RenderLimits, *, strict: bool = False) -> None:
        self._limits = limits
        self._deadline = monotonic() + limits.max_seconds
        self._built = 0
        self._output = 0
        self._steps = 0
        self.strict = strict

    def step(self, count: int = 1) -> None:
        """``count`` more units of work are about to be done."""
        self._steps += count
        if self._steps > self._limits.max_steps:
            raise TemplateError(f"the template needs more than {self._limits.max_steps} steps")
        if monotonic() > self._deadline:
            raise TemplateError(f"the template ran longer than {self._limits.max_seconds:g} s")

    def build(self, size: int) -> None:
        """A value of ``size`` characters is about to be built. Kept or not, what was built adds up: a template that
        stores a thousand big values is stopped as well as one that asks for a single huge one."""
        self._built += size
        if size > self._limits.max_output_bytes or self._built > 4 * self._limits.max_output_bytes:
            raise TemplateError(
                f"the template builds a value that is too big (limit {self._limits.max_output_bytes} bytes)"
            )
        self.step()

    def output(self, piece: str) -> None:
        """``piece`` is about to be added to the output."""
        self._output += len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
        if self._output > self._limits.max_output_bytes:
            raise TemplateError(f"the output is bigger than {self._limits.max_output_bytes} bytes")
        if monotonic() > self._deadline:
            raise TemplateError(f"the template ran longer than {self._limits.max_seconds:g} s")
