"""What a replay decided otherwise than the recording, in the order in which it happened."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from models.records import Reason
from tasks.replay.archive import Archive, Row
from tasks.replay.player import Replayed

K = TypeVar("K")

MISSING: Final = "(none)"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_TURN: Final = ("phase", "iteration", "reason", "forced")
_ASKED: Final = ("type", "criticality", "title", "body", "payload", "owner")
_ANSWERED: Final = ("status", "answer", "resolved_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same.

    kind: prompt, tools, decision, turn, child, process, question, document, artifact, model or result. where: the node.
    what: which part of it. at: when the recorded one happened, as far as that is known. lines: more about it.
    """

    kind: str
    where: str
    phase: str | None
    turn: int | None
    what: str
    recorded: Any
    replayed: Any
    at: datetime
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The differences, the first divergence first, and how much was compared."""

    differences: tuple[Difference, ...]
    processes: int
    nodes: int
    turns: int
    calls: int

    @property
    def same(self) -> bool:
        return not self.differences


def compared(recorded: Archive, replayed: Replayed, *, prompts: bool = True) -> Report:
    """prompts: whether a prompt that is rendered otherwise counts."""
    found = list(_Comparison(recorded, replayed).differences())
    found = [each for each in found if prompts or each.kind != "prompt"]
    # Of what happened at once the cause stands before its effects, as it was found.
    found.sort(key=lambda each: each.at)
    return Report(
        differences=tuple(found),
        processes=len(recorded.processes),
        nodes=len(recorded.nodes),
        turns=len(recorded["phase_records"]),
        calls=len(recorded["llm_calls"]),
    )


class _Comparison:
    def __init__(self, recorded: Archive, replayed: Replayed) -> None:
        self._was = recorded
        self._now = replayed.archive
        self._replayed = replayed
        self._last = max(datetime.fromisoformat(row["created_at"]) for row in recorded["phase_records"])

    def differences(self) -> Iterator[Difference]:
        for node in _either(self._was.turns, self._now.turns):
            yield from self._turns(node)
        yield from self._rows("nodes", ("id",), ("kind", "goal"), "child")
        yield from self._rows("nodes", ("id",), ("child_mode", "status", "failure"), "child", when="settled_at")
        yield from self._rows("processes", ("id",), ("engine", "recipe_name"), "process")
        yield from self._rows("processes", ("id",), ("close_reason",), "process", when="closed_at")
        yield from self._rows("process_inputs", ("process_id",), ("goal", "params"), "process")
        yield from self._rows("inbox_items", ("node_id",), _ASKED, "question")
        yield from self._rows("inbox_items", ("node_id",), _ANSWERED, "question", when="answered_at")
        yield from self._rows("artifacts", ("node_id", "key"), ("content",), "artifact")
        yield from self._documents()
        yield from self._models()
        yield from self._rows("results", ("process_id",), ("wrapper",), "result")

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _turns(self, node: int) -> Iterator[Difference]:
        was, now = self._was.turns.get(node, []), self._now.turns.get(node, [])
        for old, new in zip(was, now, strict=False):
            yield from self._turn(old, new)
        if len(was) > len(now):
            missing = was[len(now)]
            wanted = self._replayed.stuck.get(node)
            yield self._of_turn("turn", missing, "not run", _told(missing), f"wants {wanted}" if wanted else MISSING)
        elif len(now) > len(was):
            yield self._of_turn("turn", now[len(was)], "one more", MISSING, _told(now[len(was)]), at=self._ended(node))
        elif node in self._replayed.stuck:
            wanted = f"wants {self._replayed.stuck[node]}"
            yield self._of_turn("turn", now[-1], "one more", MISSING, wanted, at=self._ended(node))

    def _turn(self, old: Row, new: Row) -> Iterator[Difference]:
        was, now = old["recorded"], new["recorded"]
        if was.get("asked") != now.get("asked") and "asked" in was and "asked" in now:
            lines = self._replayed.changed_lines.get((old["node_id"], old["turn"]), [])
            yield self._of_turn("prompt", old, "prompt", "as recorded", "another one", lines=lines)
        if was.get("calls") != now.get("calls"):
            yield self._of_turn("tools", old, "calls", was.get("calls", MISSING), now.get("calls", MISSING))
        for name in _TURN:
            if old[name] != new[name]:
                yield self._of_turn("decision", old, name, old[name], new[name])
        if old["reason"] == new["reason"] and _output(old) != _output(new):
            for what, left, right in _parts(_output(old), _output(new)):
                yield self._of_turn("decision", old, f"output{what}", left, right)

    def _of_turn(
        self, kind: str, row: Row, what: str, recorded: Any, replayed: Any, *,
        at: datetime | None = None, lines: Iterable[str] = (),
    ) -> Difference:  # fmt: skip
        return Difference(
            kind=kind,
            where=self._name(row["node_id"]),
            phase=row["phase"],
            turn=row["turn"],
            what=what,
            recorded=recorded,
            replayed=replayed,
            at=at or datetime.fromisoformat(row["created_at"]),
            lines=tuple(lines),
        )

    # -- what turns have led to ----------------------------------------------------------------------------------------

    def _rows(
        self, table: str, key: tuple[str, ...], names: tuple[str, ...], kind: str, *, when: str = "created_at"
    ) -> Iterator[Difference]:
        """when: the column with the time at which these came about; that a row is missing is told once, as created."""
        was, now = _by(self._was[table], key), _by(self._now[table], key)
        for each in _either(was, now):
            old, new = was.get(each), now.get(each)
            node = self._node_of(table, old or new or {})
            at = self._time(old, node, when)
            about = [str(part) for part in each[1:]]
            if old is None or new is None:
                if when == "created_at":
                    yield self._about(kind, node, " ".join(about) or kind, _brief(old, names), _brief(new, names), at)
                continue
            for name in names:
                for what, left, right in _parts(old[name], new[name]):
                    yield self._about(kind, node, " ".join((*about, f"{name}{what}")), left, right, at)

    def _documents(self) -> Iterator[Difference]:
        """Those the process wrote. The time a draft was written at is not the same, and nobody's decision."""
        was, now = _written(self._was), _written(self._now)
        for node, path, place in _either(was, now):
            old, new = was.get((node, path, place)), now.get((node, path, place))
            if old is None or new is None or old["content"] != new["content"] or old["kind"] != new["kind"]:
                left, right = _brief(old, ("content",)), _brief(new, ("content",))
                yield self._about("document", node, path, left, right, self._time(old, node))

    def _models(self) -> Iterator[Difference]:
        was, now = _modelled(self._was), _modelled(self._now)
        for key in _either(was, now):
            old, new = was.get(key), now.get(key)
            node, name, version = key
            for what, left, right in _parts(_spec(old), _spec(new)):
                yield self._about("model", node, f"{name} {version}{what}", left, right, self._time(old, node))

    def _about(self, kind: str, node: int | None, what: str, recorded: Any, replayed: Any, at: datetime) -> Difference:
        return Difference(
            kind=kind,
            where="root" if node is None else self._name(node),
            phase=None,
            turn=None,
            what=what,
            recorded=recorded,
            replayed=replayed,
            at=at,
        )

    # -- places and times ----------------------------------------------------------------------------------------------

    def _name(self, node: int) -> str:
        return (self._was if node in self._was.nodes else self._now).name_of(node)

    def _node_of(self, table: str, row: Row) -> int | None:
        """The node a row is told of: of a node its parent, of a process its caller, of a result its own root."""
        found: int | None
        match table:
            case "nodes":
                found = row["parent_id"] or row["id"]
            case "processes":
                found = row["parent_node_id"]
            case "process_inputs":
                found = self._process(row["process_id"])["parent_node_id"]
            case "results":
                nodes = (*self._was["nodes"], *self._now["nodes"])
                own = (
                    each["id"] for each in nodes if each["process_id"] == row["process_id"] and not each["parent_id"]
                )
                found = next(own, None)
            case _:
                found = row["node_id"]
        return found

    def _process(self, process_id: str) -> Row:
        return self._was.processes.get(process_id) or self._now.processes[process_id]

    def _time(self, old: Row | None, node: int | None, when: str = "created_at") -> datetime:
        """When the recorded row came about; of one that only the replay has, when its node had last done something."""
        if old is None:
            return self._ended(node)
        found = old.get(when) or old.get("created_at") or self._process(old["process_id"])["created_at"]
        return datetime.fromisoformat(found)

    def _ended(self, node: int | None) -> datetime:
        turns = [] if node is None else self._was.turns.get(node, [])
        return datetime.fromisoformat(turns[-1]["created_at"]) if turns else self._last


def _output(row: Row) -> Any:
    """What the turn said of itself, without what chance has a part in."""
    output = row["output"]
    if row["reason"] == Reason.RETRY_LATER and isinstance(output, dict):
        return {name: value for name, value in output.items() if name != "delaySeconds"}
    return output


def _told(row: Row) -> str:
    return f"{row['phase']} {row['reason']}"


def _parts(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ, as deep as they have the same keys."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _parts(old.get(name, MISSING), new.get(name, MISSING), f"{path}.{name}")
        return
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _parts(left, right, f"{path}[{place}]")
        return
    yield path, old, new


def _either(was: Mapping[K, Any], now: Mapping[K, Any]) -> list[K]:
    """The keys of both, in order."""
    return [*was, *(key for key in now if key not in was)]


def _by(rows: Iterable[Row], key: tuple[str, ...]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in key): row for row in rows}


def _brief(row: Row | None, names: tuple[str, ...]) -> Any:
    if row is None:
        return MISSING
    return row[names[0]] if len(names) == 1 else {name: row[name] for name in names if row[name] is not None}


def _written(archive: Archive) -> dict[tuple[int, str, int], Row]:
    """By node, path, and how often the node had written there before."""
    found: dict[tuple[int, str, int], Row] = {}
    before: Counter[tuple[int, str]] = Counter()
    for row in archive["document_versions"]:
        if row["node_id"] in archive.nodes:
            written = (row["node_id"], row["path"])
            before[written] += 1
            found[(*written, before[written])] = row | {"content": _TIME.sub("TIME", row["content"])}
    return found


def _modelled(archive: Archive) -> Mapping[tuple[int, str, int], Row]:
    rows = (row for row in archive["model_specs"] if row["node_id"] in archive.nodes)
    return {(row["node_id"], row["model_id"], row["version"]): row for row in rows}


def _spec(row: Row | None) -> Any:
    return MISSING if row is None else {"spec": row["spec"], "evolution": row["evolution"]}
