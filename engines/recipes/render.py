"""Rendering recipe templates: ``render``, ``render_prompt``, ``render_stage_one`` and ``check_template``.

Templates come from recipes (and from the post-actions of a plan); values come from anywhere. A value is inserted and
never looked at again: whatever it contains, it appears in the output as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any, NoReturn

from jinja2 import Template

from engines.errors import TemplateError
from engines.recipes.limits import DOCUMENT_LIMITS, PROMPT_LIMITS, Meter, RenderLimits
from engines.recipes.sandbox import RenderContext
from engines.recipes.stages import stage_source
from engines.recipes.syntax import PLAIN, TRIMMED, SyntaxProblem, compile_tree, parse

LATER_NAMES = frozenset({"node"})
"""Roots that mean something only when a plan node is finished. A prompt that shows them to the model shows them as
written."""

_CACHED_CHARS = 50_000


def render(
    template: str,
    variables: Mapping[str, Any],
    *,
    limits: RenderLimits = DOCUMENT_LIMITS,
    name: str = "template",
    strict: bool = False,
    trim: bool = False,
    keep: Collection[str] = (),
) -> str:
    """``template`` with ``variables`` filled in. Raises :class:`TemplateError` with ``name`` and line, nothing else.

    strict: printing or looping over something undefined is an error that names it; otherwise it is empty.
    trim: lines that hold only a tag leave no empty line (prompts want that, YAML does not).
    keep: root names whose expressions stay in the text exactly as written.
    """
    staged = frozenset(keep) if any(root in template for root in keep) else frozenset()
    compiled = _compiled(template, trim, staged, None, True, name)
    return _run(compiled, variables, Meter(limits, strict=strict), name)


def render_prompt(template: str, variables: Mapping[str, Any], *, name: str = "promptPrefix") -> str:
    """A recipe's prompt: the limits of prompts, tidy line ends, ``node.*`` examples left for the model to see."""
    return render(template, variables, limits=PROMPT_LIMITS, name=name, trim=True, keep=LATER_NAMES)


def render_stage_one(
    template: str,
    names: Collection[str],
    variables: Mapping[str, Any],
    *,
    final: bool = False,
    strict: bool = False,
    limits: RenderLimits = DOCUMENT_LIMITS,
    name: str = "template",
) -> str:
    """``template`` with only ``names`` filled in; expressions, blocks and ``raw`` sections of others stay as written.

    The result is a template for a later stage, in which the inserted values are constants: rendering it prints them as
    they are, braces included. ``final``: the result is a text that nobody renders again, so values go in as they are.
    """
    compiled = _compiled(template, False, frozenset(), frozenset(names), final, name)
    return _run(compiled, variables, Meter(limits, strict=strict), name)


def render_stage_one_tree(
    value: Any,
    names: Collection[str],
    variables: Mapping[str, Any],
    *,
    final: bool = False,
    strict: bool = False,
    name: str = "template",
) -> Any:
    """:func:`render_stage_one` for every text inside nested lists and mappings; keys and other values stay."""
    if isinstance(value, str):
        return render_stage_one(value, names, variables, final=final, strict=strict, name=name)
    if isinstance(value, Mapping):
        return {
            key: render_stage_one_tree(child, names, variables, final=final, strict=strict, name=f"{name}.{key}")
            for key, child in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            render_stage_one_tree(child, names, variables, final=final, strict=strict, name=f"{name}[{index}]")
            for index, child in enumerate(value)
        ]
    return value


def check_template(text: str, name: str = "template", *, keep: Collection[str] = ()) -> None:
    """Raises :class:`TemplateError` when ``text`` would not compile or uses something that is not allowed."""
    _compiled(text, False, frozenset(keep), None, True, name)


def _compiled(
    source: str, trim: bool, keep: frozenset[str], names: frozenset[str] | None, final: bool, name: str
) -> Template | str:
    make = _cached if len(source) <= _CACHED_CHARS else _compile
    try:
        return make(source, trim, keep, names, final)
    except SyntaxProblem as problem:
        raise TemplateError(f"{name}, line {problem.line}: {problem.message}") from None


def _compile(
    source: str, trim: bool, keep: frozenset[str], names: frozenset[str] | None, final: bool
) -> Template | str:
    if "{{" not in source and "{%" not in source and "{#" not in source:
        return source.replace("\r\n", "\n").replace("\r", "\n")
    if keep or names is not None:
        parse(source)  # the whole template must be valid, the kept parts too
        source = _staged(source, keep, names, final)
    environment = TRIMMED if trim else PLAIN
    return compile_tree(parse(source, environment), environment, protect=not final)


def _staged(source: str, keep: frozenset[str], names: frozenset[str] | None, final: bool) -> str:
    if names is None:
        return stage_source(source, lambda root: root not in keep, otherwise=True, final=final)
    return stage_source(source, lambda root: root in names, otherwise=False, final=final)


# Workers render the same few recipe prompts all day; one-off templates push each other out.
_cached = lru_cache(maxsize=256)(_compile)


def _run(compiled: Template | str, variables: Mapping[str, Any], meter: Meter, name: str) -> str:
    if isinstance(compiled, str):
        try:
            meter.output(compiled)
        except TemplateError as error:
            raise TemplateError(f"{name}: {error.message}") from None
        return compiled
    context = RenderContext(compiled.environment, dict(variables), name, {})
    context.meter = meter
    pieces: list[str] = []
    try:
        for piece in compiled.root_render_func(context):
            meter.output(piece)
            pieces.append(piece)
    except Exception as error:
        _fail(compiled, error, name)
    return "".join(pieces)


def _fail(compiled: Template, error: Exception, name: str) -> NoReturn:
    line = _line(compiled, error.__traceback__)
    where = f"{name}, line {line}" if line else name
    text = error.message if isinstance(error, TemplateError) else f"{error}" or type(error).__name__
    raise TemplateError(f"{where}: {text}") from None


def _line(compiled: Template, traceback: TracebackType | None) -> int | None:
    """The line of the template that was running, read off the compiled code's frame."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = compiled.get_corresponding_lineno(traceback.tb_lineno)
        traceback = traceback.tb_next
    return line
