"""The report: Markdown for people, JSON beside it for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.sections.base import Section


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that was measured in one run, and on what."""

    command: str
    machine: Mapping[str, str]
    servers: Mapping[str, str]
    durability: Mapping[str, str]
    peers: Mapping[str, str]
    sizes: Mapping[str, Any]
    quick: bool
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    load_after: str = ""

    def markdown(self, sections: Sequence[Section]) -> str:
        facts = {**self.machine, **self.servers, **{f"peer {name}": found for name, found in self.peers.items()}}
        lines = [
            "# Benchmark",
            "",
            f"`{self.command}` on {self.started:%Y-%m-%d %H:%M} UTC. Load average after: {self.load_after}.",
            "",
            *(["**A smoke run with small counts: these figures prove that it runs and nothing else.**", ""]
              if self.quick else []),
            *(f"* {name}: {value}" for name, value in facts.items()),
            f"* durability: {', '.join(f'{name} {value}' for name, value in self.durability.items())}",
            f"* counts: {', '.join(f'{name} {value}' for name, value in self.sizes.items())}",
            "",
        ]  # fmt: skip
        return "\n".join(lines) + "\n" + "\n".join(section.markdown() for section in sections)

    def write(self, sections: Sequence[Section], path: Path) -> None:
        """Write ``path`` and the JSON beside it, whole or not at all."""
        data = {
            "command": self.command,
            "started": self.started.isoformat(),
            "machine": dict(self.machine),
            "load_after": self.load_after,
            "servers": dict(self.servers),
            "durability": dict(self.durability),
            "peers": dict(self.peers),
            "sizes": dict(self.sizes),
            "quick": self.quick,
            "sections": {section.name: section.data for section in sections},
        }
        for target, text in (
            (path, self.markdown(sections)),
            (path.with_suffix(".json"), json.dumps(data, indent=1) + "\n"),
        ):
            temporary = target.with_name(target.name + ".new")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(target)
