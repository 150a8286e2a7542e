"""An export, read and looked through: what there is, and whether it can be replayed at all."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from engines.errors import EngineError
from engines.llm.base import NORMAL_LANE
from models.records import CallRecord
from models.store.export import COLUMNS, FORMAT, VERSION

Row = dict[str, Any]
SHOWN = 5
"""Turns without a recording that are named."""


class NotReplayable(EngineError):
    """The export cannot be replayed: the message says why, one line for each reason."""


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The rows of an export, by table; the keys of a row are the table's columns."""

    root: str
    tables: Mapping[str, list[Row]]

    @classmethod
    def load(cls, path: Path) -> Archive:
        """Raises :class:`NotReplayable` for a file that is no export of a version known here."""
        try:
            return cls.parse(path.read_text(encoding="utf-8"), str(path))
        except OSError as error:
            raise NotReplayable(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise NotReplayable(f"{path} is no export: it is not UTF-8 text") from None

    @classmethod
    def parse(cls, text: str, origin: str) -> Archive:
        """``origin``: where the text comes from, for messages."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NotReplayable(f"{origin} is no export: it is not JSON ({error})") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise NotReplayable(f'{origin} is no export: `vancetope export ID` writes one, with "format": "{FORMAT}"')
        if found.get("version") != VERSION:
            raise NotReplayable(f"{origin} has the format's version {found.get('version')!r}; known here is {VERSION}")
        for table, columns in COLUMNS.items():
            rows = found.get(table)
            if not isinstance(rows, list) or not all(
                isinstance(row, dict) and row.keys() >= {*columns} for row in rows
            ):
                raise NotReplayable(f"{origin} is damaged: {table!r} must be a list of rows with all their columns")
        return cls(root=str(found["root"]), tables={table: found[table] for table in COLUMNS})

    def __getitem__(self, table: str) -> list[Row]:
        return self.tables[table]

    @cached_property
    def processes(self) -> dict[str, Row]:
        return {row["id"]: row for row in self["processes"]}

    @cached_property
    def inputs(self) -> dict[str, Row]:
        return {row["process_id"]: row for row in self["process_inputs"]}

    @cached_property
    def nodes(self) -> dict[int, Row]:
        return {row["id"]: row for row in self["nodes"]}

    @cached_property
    def turns(self) -> dict[int, list[Row]]:
        """The phase records of each node, in the order of its turns."""
        found: dict[int, list[Row]] = defaultdict(list)
        for row in sorted(self["phase_records"], key=lambda row: (row["node_id"], row["turn"])):
            found[row["node_id"]].append(row)
        return dict(found)

    @cached_property
    def calls(self) -> dict[tuple[int, int], CallRecord]:
        """The ledger, by node and turn: of two calls the one made at once, for the turn did not wait for the other."""
        names = CallRecord.__dataclass_fields__.keys() - {"lane_note"}
        found = {}
        for row in sorted(self["llm_calls"], key=lambda row: row["lane"] == NORMAL_LANE):
            cost = row["cost_usd"]
            fields = {name: row[name] for name in names} | {"cost_usd": None if cost is None else float(cost)}
            found[(row["node_id"], row["turn"])] = CallRecord(**fields)
        return found

    @property
    def tools(self) -> frozenset[str]:
        """Every tool that was offered to a model."""
        recordings = (row["recorded"] or {} for row in self["phase_records"])
        return frozenset(name for each in recordings for name in each.get("asked", {}).get("tools", ()))

    def name_of(self, node_id: int) -> str:
        """Where a node is: places among siblings from the root on; a called recipe stands behind its caller."""
        node = self.nodes.get(node_id)
        if node is None:
            return f"node {node_id}"
        if node["parent_id"] is not None:
            return f"{self.name_of(node['parent_id'])}/{'.'.join(str(part) for part in node['order_key'])}"
        process = self.processes[node["process_id"]]
        if process["parent_node_id"] is None:
            return "root"
        return f"{self.name_of(process['parent_node_id'])} > {process['recipe_name']}[{process['parent_key']}]"

    def check(self, engines: Collection[str]) -> None:
        """Raises :class:`NotReplayable` with every reason why no replay could tell anything."""
        reasons = list(self._reasons(engines))
        if reasons:
            raise NotReplayable("\n".join(reasons))

    def gaps(self) -> list[str]:
        """What turns saw and the export does not have, one line each: the replay sees nothing in its place."""
        documents = {(row["document_id"], row["version"]) for row in self["document_versions"]}
        models = {(row["model_id"], row["version"]) for row in self["model_specs"]}
        found = []
        for row in self["phase_records"]:
            turn = f"turn {row['turn']} ({row['phase']}) of {self.name_of(row['node_id'])} saw"
            seen = row["recorded"] or {}
            if (one := seen.get("document")) is not None and (one["id"], one["version"]) not in documents:
                found.append(
                    f"{turn} document {one['id']} in version {one['version']}, which was deleted before the export"
                )
            if (one := seen.get("model")) is not None and (one["modelId"], one["version"]) not in models:
                found.append(
                    f"{turn} version {one['version']} of {one['modelId']}, which was deleted before the export"
                )
        return found

    def _reasons(self, engines: Collection[str]) -> Iterator[str]:
        top = self.processes.get(self.root)
        if top is None:
            yield f"the export has no row of its process {self.root}"
            return
        if any(row["status"] != "CLOSED" for row in self.processes.values()):
            yield f"process {self.root} was not closed when it was exported: only what has ended can be replayed"
        if removed := [row["artifacts_removed_at"] for row in self.processes.values() if row["artifacts_removed_at"]]:
            yield (
                f"the texts of process {self.root} were removed by retention on {min(removed)}: what models and tools"
                " said is not in the export"
            )
            return
        for engine in sorted({row["engine"] for row in self.processes.values()} - {*engines}):
            yield f"there is no engine {engine!r} here: VANCETOPE_ENGINES names further ones"
        if not self["phase_records"]:
            yield f"process {self.root} has taken no turn: there is nothing to replay"
        bare = [row for row in self["phase_records"] if row["recorded"] is None]
        for row in bare[:SHOWN]:
            yield (
                f"turn {row['turn']} ({row['phase']}) of {self.name_of(row['node_id'])} has no recording: it was run by"
                " a version that kept none"
            )
        if len(bare) > SHOWN:
            yield f"and {len(bare) - SHOWN} more turns have none"
