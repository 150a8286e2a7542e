"""The library: pure functions only, and exports that nobody else's names collide with."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from engines.structured.text import quote
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import Evaluator
from engines.valem.jsonata.expression import Expression, compile_expression
from engines.valem.jsonata.library import CompiledLibrary, LibraryError, compile_library
from engines.valem.jsonata.scan import statements
from engines.valem.jsonata.tokens import called_names
from engines.valem.spec.checks.names import BUILT_IN, CONTEXT
from engines.valem.spec.checks.report import Report
from engines.valem.spec.identity import is_coordinate
from engines.valem.spec.records import LibraryLayer, ModelSpec

MAX_LAYERS: Final = 8
MAX_DEFINE_CHARS: Final = 20_000
MAX_EXPORTS: Final = 64
_IMPURE: Final = frozenset({"now", "millis", "random"})
_EXPORTED: Final = re.compile(r"""["']([A-Za-z_]\w*)["']""")


def check_library(report: Report, spec: ModelSpec, evaluator: Evaluator) -> CompiledLibrary | None:
    """The library as expressions see it (an empty one for a spec without); ``None`` after an error."""
    library = spec.library
    if library is None:
        return CompiledLibrary()
    layers = library.all_layers()
    if not layers:
        report.error("library.define", "is empty: a library defines at least one function")
        return None
    if len(layers) > MAX_LAYERS:
        report.error("library.layers", f"there are {len(layers)} layers; at most {MAX_LAYERS} are allowed")
        return None
    places = [f"library.layers[{index}]" for index in range(len(library.layers))]
    if len(layers) > len(places):
        places.append("library")
    if library.extends is not None and not is_coordinate(library.extends):
        report.error("library.extends", f"{quote(library.extends)} is no reference: id@version, as acme/base@1.0.0")
    sound = [_check_layer(report, at, layer, spec) for at, layer in zip(places, layers, strict=True)]
    if not all(sound):
        return None
    try:
        compiled = compile_library([layer.define for layer in layers], spec.constants, now=0, evaluator=evaluator)
    except LibraryError as error:
        report.error(f"{places[error.layer]}.define", error.message)
        return None
    _check_exports(report, places, layers)
    if len(compiled.exports) > MAX_EXPORTS:
        report.warn("library", f"exports {len(compiled.exports)} functions; more than {MAX_EXPORTS} are hard to know")
    return compiled


def _check_layer(report: Report, at: str, layer: LibraryLayer, spec: ModelSpec) -> bool:
    if layer.extends is not None and not is_coordinate(layer.extends):
        report.error(f"{at}.extends", f"{quote(layer.extends)} is no reference: id@version, as acme/base@1.0.0")
    place, text = f"{at}.define", layer.define
    if not text.strip():
        report.error(place, "is empty: bind functions and end in the list of names to export")
        return False
    if len(text) > MAX_DEFINE_CHARS:
        report.error(place, f"has {len(text):,} characters; at most {MAX_DEFINE_CHARS:,} are allowed")
        return False
    try:
        expression = compile_expression(text)
    except ExpressionError:
        return True  # Said by the compilation of the whole library, with what helps.
    impure = sorted(_IMPURE & called_names(text))
    for name in impure:
        report.error(place, f"calls ${name}(: a function of the library gives the same value for the same arguments")
    return not impure and _reads_nothing(report, place, expression) and _keeps_contract(report, at, layer, spec)


def _reads_nothing(report: Report, place: str, expression: Expression) -> bool:
    reads = expression.reads()
    # A function the engine does not know here (of an earlier layer, or defined further down) counts as one that reads
    # everything; an empty read is of the context as such, and of nothing in it.
    unknown = not called_names(expression.text).isdisjoint(reads.bindings)
    fields = [".".join(read.path) or "$" for read in reads.fields if read.path or (read.whole and not unknown)]
    for field in fields:
        report.error(
            place,
            f"reads the field {quote(field)}: a library knows no document",
            "take it as a parameter of the function, or make it a constant and write $const.name",
        )
    return not fields


def _keeps_contract(report: Report, at: str, layer: LibraryLayer, spec: ModelSpec) -> bool:
    """An inherited layer says which constants it needs, and the spec has them."""
    missing = [name for name in layer.constants if name not in spec.constants]
    for name in missing:
        report.error(f"{at}.constants", f"needs the constant {quote(name)}, which the spec does not have")
    return not missing


def _check_exports(report: Report, places: Sequence[str], layers: Sequence[LibraryLayer]) -> None:
    seen: dict[str, str] = {}
    for at, layer in zip(places, layers, strict=True):
        names = _own_exports(layer.define)
        for name in names:
            if name in BUILT_IN:
                report.error(f"{at}.define", f"exports {quote(name)}, which is a function of JSONata", "rename it")
            elif name in CONTEXT:
                report.error(f"{at}.define", f"exports {quote(name)}, which is bound by the model itself", "rename it")
            elif name in seen:
                report.warn(f"{at}.define", f"{quote(name)} takes the place of the one from {seen[name]}")
            seen[name] = at


def _own_exports(define: str) -> Collection[str]:
    parts = [part for part in statements(define) or () if part]
    return dict.fromkeys(_EXPORTED.findall(parts[-1])) if parts else ()
