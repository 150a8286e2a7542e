"""What every section of the benchmark gets and gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.contest import Say
from bench.servers import Servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    jobs: int = 1000
    rounds: int = 3
    warm_jobs: int = 100
    latency_samples: int = 200
    latency_rounds: int = 3
    statement_jobs: int = 300
    history: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    history_samples: int = 300
    long_jobs: int = 300
    tree_children: int = 200
    tree_nodes: tuple[int, ...] = (200, 2_000, 20_000)
    tree_samples: int = 216


QUICK = Sizes(
    jobs=60,
    rounds=1,
    warm_jobs=20,
    latency_samples=20,
    latency_rounds=1,
    statement_jobs=40,
    history=(1_000, 10_000),
    history_samples=40,
    long_jobs=20,
    tree_children=20,
    tree_nodes=(200, 2_000),
    tree_samples=36,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a section measures."""

    servers: Servers
    sizes: Sizes
    peers_python: Path | None
    """The peers' interpreter; None leaves the peers out."""
    prefork: bool
    say: Say


@dataclass(slots=True, kw_only=True)
class Section:
    """One answer: Markdown for people, data for machines."""

    name: str
    title: str
    tables: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", *[part for table in self.tables for part in (table, "")]]
        return "\n".join([*lines, *(f"* {note}" for note in self.notes), *([""] if self.notes else [])])
