"""What depends on what in a spec, and in which order its derivations are computed.

A reader and a writer meet when, indices and ``[*]`` left out, the path of one is the beginning of the other's: whoever
sums ``items.lineTotal`` comes after ``$.items[*].lineTotal``. What an expression binds itself (parameters, variables,
predicates of another array) is no read, nor is ``$const``. Declaration order makes no difference.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engines.valem.jsonata.expression import Names, Read, Reads, compile_expression
from engines.valem.spec.addresses import EACH, ROOT, Address, meta_key, parse_address, related
from engines.valem.spec.records import Constraint, Derivation, Effect, MetaDerivation, ModelSpec

Preludes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """Something that is computed. ``name``: a derivation's path, a meta key, the id of a constraint or an effect."""

    name: str
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Writer(GraphNode):
    """A derivation: others can read what it gives."""

    target: Address


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Every part of a spec that reads, each list in the spec's order.

    feeds: for each derivation, the positions of the derivations it depends on (its own when it reads itself).
    """

    derivations: tuple[Writer, ...]
    metas: tuple[GraphNode, ...]
    constraints: tuple[GraphNode, ...]
    effects: tuple[GraphNode, ...]
    feeds: tuple[frozenset[int], ...]

    def feeders(self, node: GraphNode) -> frozenset[int]:
        """The positions of the derivations that ``node`` reads from directly."""
        return frozenset(at for at, writer in enumerate(self.derivations) if _reads_from(node.reads, writer.target))


@dataclass(frozen=True, slots=True)
class Cycle:
    """Derivations that wait for each other: each path reads the next one, the last is the first again."""

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return " → ".join(self.paths)


def dependencies(spec: ModelSpec, preludes: Preludes = ()) -> Dependencies:
    """The graph of ``spec``; ``preludes`` are those of its library.

    Raises :class:`~engines.errors.EngineError` for an address or an expression that is not right.
    """
    writers = tuple(_writer(item, preludes) for item in spec.derivations)
    return Dependencies(
        derivations=writers,
        metas=tuple(_meta(item, preludes) for item in spec.meta_derivations),
        constraints=tuple(_constraint(item, preludes) for item in spec.constraints),
        effects=tuple(_effect(item, preludes) for item in spec.effects),
        feeds=tuple(_feeds(at, writers) for at in range(len(writers))),
    )


def evaluation_order(graph: Dependencies) -> tuple[int, ...] | Cycle:
    """The positions of the derivations in an order in which each comes after what it reads, or the first cycle.

    Among those that could come next it is the one with the shorter path, then the one declared first: a container
    before what is put into it.
    """
    waiting = [set(feeds) for feeds in graph.feeds]
    ready = [_rank(graph, at) for at, feeds in enumerate(waiting) if not feeds]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, done = heapq.heappop(ready)
        order.append(done)
        for at, feeds in enumerate(waiting):
            if done in feeds:
                feeds.discard(done)
                if not feeds:
                    heapq.heappush(ready, _rank(graph, at))
    if len(order) < len(waiting):
        return _cycle(graph, frozenset(range(len(waiting))) - frozenset(order))
    return tuple(order)


def touches(reads: Iterable[Read], written: Iterable[Names]) -> bool:
    """Whether any of the reads meets any of the written name paths."""
    return any(related(read.path, names) for names in written for read in reads)


def element_of(address: Address) -> Address:
    """The array element that a path with ``[*]`` is about: everything up to the last ``[*]``. The root without one."""
    for length in range(len(address.segments), 0, -1):
        if address.segments[length - 1] is EACH:
            return Address(address.segments[:length])
    return ROOT


def _rank(graph: Dependencies, at: int) -> tuple[int, int]:
    return len(graph.derivations[at].target.segments), at


def _cycle(graph: Dependencies, stuck: frozenset[int]) -> Cycle:
    trail: list[int] = []
    at = min(stuck)
    while at not in trail:
        trail.append(at)
        at = min(graph.feeds[at] & stuck)
    loop = trail[trail.index(at) :]
    return Cycle(tuple(graph.derivations[position].name for position in (*loop, at)))


def _feeds(at: int, writers: Sequence[Writer]) -> frozenset[int]:
    reader = writers[at]
    found = {
        other
        for other, writer in enumerate(writers)
        if other != at and _reads_from(reader.reads, writer.target)
    }  # fmt: skip
    # Reading a container of one's own field is no circle (the field is left out of it); reading the field is.
    own = reader.target.names
    if any(read.path[: len(own)] == own for read in reader.reads):
        found.add(at)
    return frozenset(found)


def _reads_from(reads: Iterable[Read], target: Address) -> bool:
    return any(
        related(read.path, target.names) and (read.whole or not _only_inside_elements(read.path, target))
        for read in reads
    )


def _only_inside_elements(path: Names, target: Address) -> bool:
    """Whether ``target`` is inside the elements of the array at ``path``: writing there adds no element."""
    if len(target.names) <= len(path):
        return False
    left = len(path)
    for segment in target.segments:
        if left == 0:
            return not isinstance(segment, str)
        left -= isinstance(segment, str)
    return False


def _writer(item: Derivation, preludes: Preludes) -> Writer:
    target = parse_address(item.path)
    reads = compile_expression(item.expr, preludes).reads()
    found = list(reads.fields)
    if target.has_wildcard:
        found += _below(element_of(target).names, reads.bindings.get("parent", ()))
    return Writer(item.path, tuple(found), target)


def _meta(item: MetaDerivation, preludes: Preludes) -> GraphNode:
    element = element_of(parse_address(item.path))
    reads = _below(element.names, compile_expression(item.expr, preludes).reads().fields)
    return GraphNode(meta_key(item.path, item.property.value), tuple(reads))


def _constraint(item: Constraint, preludes: Preludes) -> GraphNode:
    if item.paths:
        # The value there is the whole document of such a constraint.
        reads = tuple(Read(parse_address(path).names) for path in item.paths)
    else:
        reads = compile_expression(item.expr or "", preludes).reads().fields
    return GraphNode(item.id or "", reads)


def _effect(item: Effect, preludes: Preludes) -> GraphNode:
    texts = [item.trigger, item.dedupe_key, item.prompt, item.at, item.after_ms, *item.payload.values()]
    found: list[Reads] = [compile_expression(text, preludes).reads() for text in texts if text is not None]
    return GraphNode(item.id, tuple(read for reads in found for read in reads.fields))


def _below(names: Names, reads: Iterable[Read]) -> list[Read]:
    return [Read((*names, *read.path), read.whole) for read in reads]
