"""The plan tree as it is looked at: which branches are open is in the address, so it works without scripts, too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query

from models.store.console import Outlined

MAX_OPEN: Final = 60
"""Branches a person may have open; of more the ones opened last stay."""
LEVELS: Final = 60

Ids = Annotated[list[int], Query(max_length=200)]


@dataclass(frozen=True, slots=True)
class Look:
    """What a person has opened (``whole``: with all children) and closed, and what they seek."""

    opened: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    shut: tuple[int, ...] = ()
    sought: str = ""

    def query(self) -> str:
        """For addresses."""
        parts: list[tuple[str, object]] = [("open", each) for each in self.opened]
        parts += [("all", each) for each in self.whole] + [("shut", each) for each in self.shut]
        if self.sought:
            parts.append(("q", self.sought))
        return urlencode(parts)

    def opening(self, node: int) -> Look:
        rest = [each for each in self.opened if each != node][-MAX_OPEN + 1 :]
        return replace(self, opened=(*rest, node), shut=_without(self.shut, node))

    def opening_whole(self, node: int) -> Look:
        return replace(self.opening(node), whole=(*_without(self.whole, node), node)[-MAX_OPEN:])

    def closing(self, node: int) -> Look:
        shut = (*_without(self.shut, node), node)[-MAX_OPEN:]
        return replace(self, opened=_without(self.opened, node), whole=_without(self.whole, node), shut=shut)


@dataclass(slots=True)
class Branch:
    """A node with the children that are shown. ``toggle``: the query that opens or closes it; ``more``: shows all."""

    row: Outlined
    level: int
    total: int
    branches: list[Branch] = field(default_factory=list)
    toggle: str = ""
    more: str = ""

    @property
    def hidden(self) -> int:
        """Children that are not shown although others are, or all of them."""
        return max(0, self.total - len(self.branches))

    @property
    def expanded(self) -> bool:
        return bool(self.branches)

    @property
    def state(self) -> str:
        """The status for people: one that waits for its children is at work."""
        return "RUNNING" if self.row.awaiting else self.row.status.value

    @property
    def cost_usd(self) -> Decimal:
        """Of the node's own calls and of its sub-processes."""
        return (self.row.cost_usd or Decimal()) + (self.row.below_usd or Decimal())

    @property
    def counts(self) -> str:
        return ", ".join(f"{number:,} {status.value.lower()}" for status, number in self.row.children)


def look(opened: Ids, whole: Ids, shut: Ids, sought: str) -> Look:
    """From an address. Numbers that are no bigint are left out."""

    def known(ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(each for each in ids if 0 < each < 2**63))[-MAX_OPEN:]

    return Look(known(opened), known(whole), known(shut), sought.replace("\0", "").strip())


def grown(rows: Sequence[Outlined], seen: Look) -> Branch | None:
    """The tree of what was read, without what the person has closed."""
    children: dict[int, list[Outlined]] = defaultdict(list)
    root: Outlined | None = None
    for row in rows:
        if row.parent_id is None:
            root = row
        else:
            children[row.parent_id].append(row)
    return None if root is None else _branch(root, children, seen, 0)


def _branch(row: Outlined, children: dict[int, list[Outlined]], seen: Look, level: int) -> Branch:
    total = sum(number for _, number in row.children)
    shown = [] if row.id in seen.shut or level >= LEVELS else children[row.id]
    made = Branch(row, level, total, [_branch(each, children, seen, level + 1) for each in shown])
    if total:
        made.toggle = (seen.closing(row.id) if made.expanded else seen.opening(row.id)).query()
    if made.hidden and made.expanded:
        # What is open by itself shows only what is at work; opened by a person, the first children; then all.
        is_open = row.id in seen.opened or level == 0
        made.more = (seen.opening_whole(row.id) if is_open else seen.opening(row.id)).query()
    return made


def _without(ids: tuple[int, ...], node: int) -> tuple[int, ...]:
    return tuple(each for each in ids if each != node)
