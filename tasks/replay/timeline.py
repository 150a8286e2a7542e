"""What happened in a recording, in an order in which every turn sees again what it saw then.

The database has said which transactions were visible when a turn looked at its plan (``snapshot``), and which one has
claimed, committed or answered. So the order is exact: a view stands behind everything it saw and before everything it
did not. Where transactions are not known (the rows went through a dump), times decide, and turns that overlapped within
milliseconds may see more or less of each other. Two more things are only nearly exact: a turn that lost its worker is
seen at work from its last claim on, and people's answers are read a moment after the plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum

from tasks.replay.archive import Archive, Row

_WRAP = 2**32
"""A row tells the lower half of its transaction's number only."""


class What(IntEnum):
    """What happens at one moment; of several at the same time, in this order."""

    COMMIT = 0
    ANSWER = 1
    STOP = 2
    CLAIM = 3
    VIEW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened to a turn, to a node's question, or to the process of a root node.

    transaction: which has done it, 0 when that is not known. sees: what a view could see; answers: whose it saw.
    """

    at: datetime
    what: What
    node_id: int
    turn: int = 0
    transaction: int = 0
    sees: Snapshot | None = None
    answers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every transaction below ``end`` is visible, but for those that were ``running``."""

    end: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """PostgreSQL's form: ``oldest:end:running,running``."""
        _, end, running = text.split(":")
        return cls(int(end), frozenset(int(each) for each in running.split(",") if each))

    def has(self, transaction: int) -> bool:
        return transaction < self.end and transaction not in self.running


def moments(archive: Archive) -> list[Moment]:
    """Everything that happened, in order."""
    found = [*_turns(archive), *_answers(archive), *_stops(archive)]
    by_time = sorted(found, key=lambda each: (each.at, each.what, each.node_id, each.turn))
    known = [each for each in found if each.transaction]
    return _by_visibility(by_time, known) if _trusted(archive, known) else by_time


def _turns(archive: Archive) -> Iterator[Moment]:
    for turns in archive.turns.values():
        before = 0
        for row in turns:
            recording = row["recorded"]
            ended = datetime.fromisoformat(row["created_at"])
            began = min(datetime.fromisoformat(row["started_at"] or row["created_at"]), ended)
            # A claim that the commit before has made is no transaction of its own: it comes right behind it.
            claimed = recording["claimedIn"] or before
            committed = _whole(row.get("transaction", 0), near=claimed)
            moment = Moment(at=began, what=What.CLAIM, node_id=row["node_id"], turn=row["turn"], transaction=claimed)
            yield moment
            if recording.get("snapshot"):
                seen = Snapshot.parse(recording["snapshot"])
                answers = frozenset(recording.get("answers", ()))
                yield replace(moment, what=What.VIEW, transaction=0, sees=seen, answers=answers)
            yield replace(moment, at=ended, what=What.COMMIT, transaction=committed)
            before = committed


def _answers(archive: Archive) -> Iterator[Moment]:
    near = max((row["recorded"]["claimedIn"] for row in archive["phase_records"]), default=0)
    for row in archive["inbox_items"]:
        by_turn = any(each["created_at"] == row["answered_at"] for each in archive.turns.get(row["node_id"], ()))
        # The engine's own resolutions are decisions, and the end of a process dismisses its questions by itself.
        if row["answered_at"] is not None and row["resolved_by"] in ("USER", "EXPIRY") and not by_turn:
            transaction = _whole(row.get("transaction", 0), near=near)
            at = datetime.fromisoformat(row["answered_at"])
            yield Moment(at=at, what=What.ANSWER, node_id=row["node_id"], transaction=transaction)


def _stops(archive: Archive) -> Iterator[Moment]:
    """Processes closed over the head of their engine: no turn of their root closed them."""
    for node in archive["nodes"]:
        closed = archive.processes[node["process_id"]]["closed_at"]
        if node["parent_id"] is None and closed is not None and not _closed_by_turn(archive, node, closed):
            yield Moment(at=datetime.fromisoformat(closed), what=What.STOP, node_id=node["id"])


def _closed_by_turn(archive: Archive, root: Row, closed: str) -> bool:
    return any(row["created_at"] == closed for row in archive.turns.get(root["id"], ()))


def _whole(lower: int, *, near: int) -> int:
    """The number of a transaction of which the lower half is known, and another one that is not far away."""
    if not near or not lower:
        return 0
    return near + (lower - near + _WRAP // 2) % _WRAP - _WRAP // 2


def _trusted(archive: Archive, known: list[Moment]) -> bool:
    """Whether the rows still have the transactions that wrote them: a turn is committed behind its claim, and by one of
    its own."""
    commits = [each.transaction for each in known if each.what is What.COMMIT]
    claims = {(each.node_id, each.turn): each.transaction for each in known if each.what is What.CLAIM}
    return len(set(commits)) == len(archive["phase_records"]) and all(
        claims.get((each.node_id, each.turn), each.transaction) < each.transaction
        for each in known
        if each.what is What.COMMIT
    )


def _by_visibility(by_time: list[Moment], known: list[Moment]) -> list[Moment]:
    views = [(each, each.sees) for each in by_time if each.sees is not None]
    # Of two snapshots of one database the later one sees all that the other one sees.
    views.sort(key=lambda view: (view[1].end, -len(view[1].running)))
    keys = {view: (place, 1, 0, 0) for place, (view, _) in enumerate(views)}
    asked: dict[int, int] = {}
    for each in sorted(known, key=lambda each: (each.transaction, each.what)):
        number = each.transaction
        first = bisect_left(views, True, key=lambda view, number=number: view[1].has(number))  # type: ignore[misc]
        if each.what is What.COMMIT:
            asked[each.node_id] = first
        elif each.what is What.ANSWER:
            # Answers are read behind the snapshot: one that came in between was seen all the same.
            seen = next((at for at, (view, _) in enumerate(views[:first]) if each.node_id in view.answers), first)
            first = max(seen, asked.get(each.node_id, 0))
        # What one transaction has done twice, a commit and the next claim, stays in this order.
        keys[each] = (first, 0, number, each.what)
    last = (-1, 0, 0, 0)
    for each in by_time:
        if each.transaction:
            last = max(last, keys[each])
        elif each.sees is None:
            keys[each] = last
    return sorted(by_time, key=lambda each: keys[each])
