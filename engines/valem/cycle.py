"""One cycle: everything that follows from a change, computed in order, then judged by the constraints.

Derived values are functions of the document, so all eager ones are computed anew each time; nothing is left over from
an element that is gone. Meta values and constraints are looked at when something they read has changed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engines.valem.compiled import CompiledConstraint, CompiledRule, CompiledSpec
from engines.valem.findings import Finding, Severity
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import Evaluator
from engines.valem.jsonata.expression import UNDEFINED, Document, Expression, Names, Read
from engines.valem.spec.addresses import Address, related
from engines.valem.spec.graph import element_of, touches
from engines.valem.spec.records import MetaProperty, Policy
from engines.valem.state import State, expand, get, splice


@dataclass(frozen=True, slots=True)
class Violation:
    """A constraint that does not hold. ``address``: the field, for a constraint with a path; ``detail``: an error."""

    id: str
    policy: Policy
    message: str
    address: Address | None = None
    detail: str | None = None

    def __str__(self) -> str:
        place = f" at {self.address}" if self.address is not None else ""
        return f"constraint {self.id}{place}: {self.message}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Calculator:
    """Evaluates a spec's expressions against a document. ``now`` in milliseconds since the epoch."""

    compiled: CompiledSpec
    now: int
    evaluator: Evaluator

    def evaluate(self, expression: Expression, document: Any, bindings: Mapping[str, Any] | None = None) -> Any:
        """``bindings`` come on top of the constants. Raises :class:`ExpressionError`."""
        bound = {"const": self.compiled.spec.constants, **(bindings or {})}
        return expression.evaluate(document, bound, now=self.now, evaluator=self.evaluator)


@dataclass(frozen=True, slots=True)
class Change:
    """What a cycle starts from.

    created: objects that came into being on the way to what was written.
    first: nothing was computed before, so meta values that depend on nothing are computed, too.
    """

    written: tuple[Address, ...]
    created: tuple[Address, ...] = ()
    first: bool = False


def run_cycle(state: State, calculator: Calculator, change: Change) -> list[Violation]:
    """Bring ``state`` up to date after a change of its base; the constraints that do not hold now."""
    compiled = calculator.compiled
    state.merged = copy.deepcopy(state.base)
    state.derived.clear()
    state.errors.clear()
    for at in compiled.order:
        if at not in compiled.on_demand:
            derive(state, calculator, compiled.derivations[at])
    written = {address.names for address in change.written}
    _compute_metas(state, calculator, _dirty(compiled, written | {each.names for each in change.created}), change.first)
    dirty = _dirty(compiled, written)
    return [
        violation
        for constraint, node in zip(compiled.constraints, compiled.graph.constraints, strict=True)
        if touches(node.reads, dirty)
        for violation in _violations(state, calculator, constraint)
    ]


def derive(state: State, calculator: Calculator, rule: CompiledRule) -> None:
    """Compute one derivation, for every element if it is one of ``[*]``, and put the values into the document."""
    length = len(element_of(rule.address).segments)
    prepared: Document | None = None
    found: list[tuple[Address, Any]] = []
    for address in expand(state.merged, rule.address):
        bindings = {"parent": get(state.merged, Address(address.segments[:length]))} if length else {}
        try:
            prepared = prepared or rule.expression.document(state.merged)
            value = calculator.evaluate(rule.expression, prepared, bindings)
        except ExpressionError as error:
            value = None
            state.errors[address] = error
        if value is not UNDEFINED:
            found.append((address, value))
    for address, value in found:
        state.derived[address] = value
        splice(state.merged, address, copy.deepcopy(value))


def derive_on_demand(state: State, calculator: Calculator, address: Address) -> None:
    """Compute the lazy derivations that the value at ``address`` needs, those that are not there yet."""
    compiled = calculator.compiled
    needed = {at for at in compiled.on_demand if related(compiled.derivations[at].address.names, address.names)}
    if not needed:
        return
    for at in reversed(compiled.order):
        if at in needed:
            needed |= compiled.graph.feeds[at] & compiled.on_demand
    for at in compiled.order:
        rule = compiled.derivations[at]
        if at in needed and not any(known.matches(rule.address) for known in (*state.derived, *state.errors)):
            derive(state, calculator, rule)


def _dirty(compiled: CompiledSpec, written: set[Names]) -> set[Names]:
    """The name paths that may have another value now: those written and those derived from them."""
    dirty = set(written)
    for at in compiled.order:
        writer = compiled.graph.derivations[at]
        if touches(writer.reads, dirty) or any(related(writer.target.names, names) for names in written):
            dirty.add(writer.target.names)
    return dirty


def _compute_metas(state: State, calculator: Calculator, dirty: set[Names], first: bool) -> None:
    compiled = calculator.compiled
    for at, (rule, node) in enumerate(zip(compiled.metas, compiled.graph.metas, strict=True)):
        # Elements may have come or gone.
        moved = rule.address.has_wildcard and touches([Read(rule.address.names)], dirty)
        if moved or touches(node.reads, dirty) or (first and not node.reads):
            _compute_meta(state, calculator, at)


def _compute_meta(state: State, calculator: Calculator, at: int) -> None:
    rule, prop = calculator.compiled.metas[at], calculator.compiled.spec.meta_derivations[at].property
    for known in [key for key in state.metas if key[1] is prop and key[0].matches(rule.address)]:
        del state.metas[known]
    length = len(element_of(rule.address).segments)
    for address in expand(state.merged, rule.address):
        # Without [*] the element is the whole document.
        document = get(state.merged, Address(address.segments[:length]))
        try:
            value = calculator.evaluate(rule.expression, document)
        except ExpressionError as error:
            message = f"{error.message} (for {address})"
            state.remarks.append(Finding(f"metaDerivations[{at}]", message, Severity.WARNING))
            continue
        if prop is MetaProperty.ENUM and value is not UNDEFINED and not isinstance(value, list):
            # One match of an expression is not a list to the engine; to a schema it must be.
            value = [value]
        if value is not UNDEFINED and value is not None:
            state.metas[address, prop] = value


def _violations(state: State, calculator: Calculator, constraint: CompiledConstraint) -> Iterator[Violation]:
    record = constraint.record
    for address, document in _subjects(state.merged, constraint):
        detail = None
        try:
            value = calculator.evaluate(constraint.expression, document)
        except ExpressionError as error:
            value, detail = UNDEFINED, error.message
        if not holds(value):
            assert record.id is not None
            assert record.policy is not None
            message = record.message or f"{record.expr} does not hold"
            yield Violation(record.id, record.policy, message, address, detail)


def _subjects(document: Mapping[str, Any], constraint: CompiledConstraint) -> Iterator[tuple[Address | None, Any]]:
    if not constraint.addresses:
        yield None, document
    for pattern in constraint.addresses:
        for address in expand(document, pattern):
            yield address, get(document, address)


def holds(value: Any) -> bool:
    """Whether a constraint's value means that it holds: true, a number but zero, a text that is not empty."""
    return isinstance(value, bool | int | float | str) and bool(value)
