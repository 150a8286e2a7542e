"""A spec with a state: seeded, written to, read from. A write that breaks a constraint leaves no trace."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engines.errors import EngineError
from engines.structured.text import describe
from engines.valem.compiled import CompiledSpec
from engines.valem.cycle import Calculator, Change, Violation, derive_on_demand, run_cycle
from engines.valem.defaults import Leaf, fill, leaves, new_containers, schema_leaves
from engines.valem.effective import effective_schema, refusals, resolved
from engines.valem.findings import Finding, Severity
from engines.valem.jsonata.errors import ExpressionError
from engines.valem.jsonata.evaluation import Evaluator, evaluate_here
from engines.valem.jsonata.expression import UNDEFINED
from engines.valem.spec.addresses import ROOT, Address, parse_address
from engines.valem.spec.records import Json, Policy
from engines.valem.state import CannotWrite, State, get, put


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value may not be written: judged before anything is."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a write. ``refusals`` and rollbacks leave the model as it was; flags are only reported."""

    refusals: tuple[Refusal, ...] = ()
    violations: tuple[Violation, ...] = ()

    @property
    def rollbacks(self) -> tuple[Violation, ...]:
        return tuple(each for each in self.violations if each.policy is Policy.ROLLBACK)

    @property
    def flags(self) -> tuple[Violation, ...]:
        return tuple(each for each in self.violations if each.policy is Policy.FLAG)

    @property
    def committed(self) -> bool:
        return not self.refusals and not self.rollbacks


class Model:
    """One instance. Not safe to share between threads; expressions that fail never raise here.

    ``now``: what the clock says to expressions, in milliseconds since the epoch.
    """

    def __init__(self, compiled: CompiledSpec, *, now: int, evaluator: Evaluator = evaluate_here) -> None:
        self.compiled = compiled
        self.state = State()
        self._calculator = Calculator(compiled, now, evaluator)

    def initialise(self) -> Outcome:
        """Seed the empty document and compute what follows. With nothing to seed, no constraint is asked."""
        before = self._start()
        written = self._apply_defaults(ROOT)
        schema = self.compiled.spec.schema or {}
        written += self._fill(schema_leaves(schema, resolved(schema, schema), ROOT))
        return self._settle(before, Change(tuple(written), first=True))

    def write(self, values: Mapping[str, Json]) -> Outcome:
        """Write all values (address -> value) or none, with what follows from them."""
        refused = tuple(self._refusals(values))
        if refused:
            return Outcome(refused)
        before = self._start()
        written = [parse_address(path) for path in values]
        created = new_containers(self.state.base, written)
        for path, address in zip(values, written, strict=True):
            try:
                put(self.state.base, address, copy.deepcopy(values[path]))
            except CannotWrite as error:
                self.state = before
                return Outcome((Refusal(path, f"cannot be written: {error.message}"),))
        for container in created:
            written += self._apply_defaults(container)
        return self._settle(before, Change(tuple(written), tuple(created)))

    def read(self, address: Address) -> Json:
        """The value at a concrete address, ``UNDEFINED`` when there is none. Computes lazy values."""
        derive_on_demand(self.state, self._calculator, address)
        return self.state.value(address)

    def schema_at(self, address: Address) -> dict[str, Json]:
        """The effective schema of the field at a concrete address."""
        return effective_schema(self.compiled.spec.schema, self.state.metas, address)

    def _refusals(self, values: Mapping[str, Json]) -> Iterator[Refusal]:
        for path, value in values.items():
            try:
                address = parse_address(path)
            except EngineError as error:
                yield Refusal(path, f"is no place to write to: {error.message}")
                continue
            if self.compiled.is_derived(address):
                yield Refusal(path, "is derived and cannot be written")
                continue
            for reason in refusals(self.schema_at(address), value):
                yield Refusal(path, reason)

    def _start(self) -> State:
        before = self.state.copy()
        self.state.remarks.clear()
        return before

    def _settle(self, before: State, change: Change) -> Outcome:
        outcome = Outcome(violations=tuple(run_cycle(self.state, self._calculator, change)))
        if not outcome.committed:
            # A default that failed may be the reason why a constraint does not hold.
            before.remarks = self.state.remarks
            self.state = before
        return outcome

    def _apply_defaults(self, container: Address) -> list[Address]:
        """Fill a container with what its default rules give, where nothing is yet."""
        filled: list[Address] = []
        for at, rule in enumerate(self.compiled.defaults):
            if not container.matches(rule.address):
                continue
            base = self.state.base
            around = {"self": get(base, container), "parent": get(base, container.parent)}
            bindings = {name: value for name, value in around.items() if value is not UNDEFINED}
            try:
                found = self._calculator.evaluate(rule.expression, base, bindings)
            except ExpressionError as error:
                self.state.remarks.append(Finding(f"defaultValues[{at}]", error.message, Severity.WARNING))
                continue
            if isinstance(found, dict):
                filled += self._fill(leaves(container, found))
            else:
                what = "nothing" if found is UNDEFINED else describe(found)
                message = f"gives {what} for {container}, not an object, and fills nothing"
                self.state.remarks.append(Finding(f"defaultValues[{at}]", message, Severity.WARNING))
        return filled

    def _fill(self, found: Iterator[Leaf]) -> list[Address]:
        return fill(self.state.base, (leaf for leaf in found if not self.compiled.is_derived(leaf[0])))
