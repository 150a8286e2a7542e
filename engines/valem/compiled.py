"""A spec made ready to run: addresses parsed, expressions compiled with the library in reach, derivations in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from engines.errors import EngineError
from engines.structured.text import quote
from engines.valem.jsonata.evaluation import Evaluator, evaluate_here
from engines.valem.jsonata.expression import Expression, compile_expression
from engines.valem.jsonata.library import CompiledLibrary, LibraryError, compile_library
from engines.valem.spec.addresses import Address, parse_address
from engines.valem.spec.graph import Cycle, Dependencies, dependencies, evaluation_order
from engines.valem.spec.records import Constraint, DefaultValue, Derivation, Evaluation, MetaDerivation, ModelSpec

T = TypeVar("T")
R = TypeVar("R")


class CompileError(EngineError):
    """A spec cannot be run. ``location`` is the place in it, ``detail`` what is wrong there."""

    def __init__(self, location: str, detail: str) -> None:
        super().__init__(f"{location}: {detail}")
        self.location = location
        self.detail = detail


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A derivation, a meta derivation or a default: where it writes and what it computes."""

    address: Address
    expression: Expression


@dataclass(frozen=True, slots=True)
class CompiledConstraint:
    record: Constraint
    addresses: tuple[Address, ...]
    expression: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSpec:
    """Lists run parallel to those of the spec. ``order``: positions of derivations, each after what it reads.

    on_demand: positions of the lazy derivations that nothing computed in a cycle depends on.
    """

    spec: ModelSpec
    library: CompiledLibrary
    graph: Dependencies
    order: tuple[int, ...]
    on_demand: frozenset[int]
    derivations: tuple[CompiledRule, ...]
    metas: tuple[CompiledRule, ...]
    defaults: tuple[CompiledRule, ...]
    constraints: tuple[CompiledConstraint, ...]

    def is_derived(self, address: Address) -> bool:
        """Whether a derivation gives the value at ``address``, or one that it is part of."""
        return any(address.is_within(rule.address) for rule in self.derivations)


def compile_spec(spec: ModelSpec, *, now: int, evaluator: Evaluator = evaluate_here) -> CompiledSpec:
    """``spec`` ready to run. Raises :class:`CompileError` for the first thing that keeps it from running."""
    library = _library(spec, now, evaluator)

    def rule(item: Derivation | MetaDerivation | DefaultValue) -> CompiledRule:
        return CompiledRule(parse_address(item.path), compile_expression(item.expr, library.preludes))

    def constraint(item: Constraint) -> CompiledConstraint:
        if item.id is None or item.expr is None or item.policy is None:
            raise EngineError("a constraint needs an id, an expr and a policy")
        addresses = tuple(parse_address(path) for path in item.paths)
        return CompiledConstraint(item, addresses, compile_expression(item.expr, library.preludes))

    derivations = _each("derivations", spec.derivations, rule)
    metas = _each("metaDerivations", spec.meta_derivations, rule)
    defaults = _each("defaultValues", spec.default_values, rule)
    constraints = _each("constraints", spec.constraints, constraint)
    try:
        graph = dependencies(spec, library.preludes)
    except EngineError as error:
        # Everything else was compiled above.
        raise CompileError("effects", error.message) from None
    order = evaluation_order(graph)
    if isinstance(order, Cycle):
        raise CompileError("derivations", f"these wait for each other: {order}")
    return CompiledSpec(
        spec=spec,
        library=library,
        graph=graph,
        order=order,
        on_demand=_on_demand(spec, graph, order),
        derivations=derivations,
        metas=metas,
        defaults=defaults,
        constraints=constraints,
    )


def _library(spec: ModelSpec, now: int, evaluator: Evaluator) -> CompiledLibrary:
    if spec.library is None:
        return CompiledLibrary()
    defines = [layer.define for layer in spec.library.all_layers()]
    try:
        return compile_library(defines, spec.constants, now=now, evaluator=evaluator)
    except LibraryError as error:
        inherited = error.layer < len(spec.library.layers)
        raise CompileError(f"library.layers[{error.layer}]" if inherited else "library", error.message) from None


def _each(name: str, items: Iterable[T], compile_one: Callable[[T], R]) -> tuple[R, ...]:
    found: list[R] = []
    for at, item in enumerate(items):
        try:
            found.append(compile_one(item))
        except EngineError as error:
            label = getattr(item, "path", None) or getattr(item, "id", None)
            place = f" ({quote(label)})" if isinstance(label, str) else ""
            raise CompileError(f"{name}[{at}]", error.message + place) from None
    return tuple(found)


def _on_demand(spec: ModelSpec, graph: Dependencies, order: tuple[int, ...]) -> frozenset[int]:
    needed = {at for at, item in enumerate(spec.derivations) if item.evaluation is Evaluation.EAGER}
    for node in (*graph.metas, *graph.constraints):
        needed |= graph.feeders(node)
    for at in reversed(order):
        if at in needed:
            needed |= graph.feeds[at]
    return frozenset(order) - needed
