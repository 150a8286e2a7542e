"""The webhook outbox: everything that closes a process or moves a question tells of it, once, in the same statement."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from factory import claimed, make_node, make_process, new_process, rows, value
from hooks import NOTE, ask, closings, commit, endpoint, question, told
from processes import eventually
from rig import Rig, in_threads, other_session

from models.ages import Ages
from models.records import CloseReason, NodeStatus, Reason
from models.store import inbox, outbox, processes, sweep, webhooks
from models.store.commit import StaleTurn, commit_turn
from models.store.database import Database
from models.store.outbox_sql import MAX_RESULT_BYTES
from models.store.retention import delete_old
from models.store.webhooks import Event
from models.transition import CloseProcess, Transition, WithdrawQuestion, advance, finish


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, pool_size=12, name="vancetope-test")
    yield database
    database.dispose()


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url, "fine") as rig:
        yield rig


def closing(wrapper: dict[str, Any] | None = None, reason: CloseReason = CloseReason.DONE) -> Transition:
    result = {"success": True, "attempts": 1} if wrapper is None else wrapper
    return finish("S", {}, note=NOTE, effects=(CloseProcess(reason=reason, result=result, message="done"),))


def stopped(_: processes.Closing) -> dict[str, Any]:
    return {"success": False, "error": "stopped", "attempts": 0}


# -- closings ----------------------------------------------------------------------------------------------------------


def by_its_commit(rig: Rig) -> UUID:
    process = rig.submit({"finish": 7}, owner="ann", tenant="default", project="shop")
    rig.drain()
    return process


def by_its_failure(rig: Rig) -> UUID:
    process = rig.submit({"fail": "no way"})
    rig.drain()
    return process


def by_a_stop(rig: Rig) -> UUID:
    process = rig.submit({"park": None})
    rig.drain()
    assert processes.stop(rig.database, process, stopped) == (process,)
    assert processes.stop(rig.database, process, stopped) == ()
    return process


def by_an_engine_that_breaks(rig: Rig) -> UUID:
    process = rig.submit({"crash": "boom"}, params={"stubborn": True})
    rig.drain(skip_delays=True)
    return process


def by_its_deadline(rig: Rig) -> UUID:
    process = rig.submit({"park": None}, {"ask": "too late"})
    rig.drain()
    rows(rig.database, "UPDATE processes SET deadline_at = now() WHERE id = %(id)s", id=process)
    rig.publisher.publish(sweep.wake_overdue(rig.database, batch=10))
    rig.drain()
    return process


def by_a_turn_that_kills_workers(rig: Rig) -> UUID:
    process = make_process(rig.database)
    make_node(rig.database, process, losses=sweep.HARD_LOSSES)
    (found,) = sweep.poisoned_processes(rig.database, batch=10)
    processes.fail_process(rig.database, found, stopped, failure="poisoned")
    return process


def by_a_submission_that_cannot_run(rig: Rig) -> UUID:
    process = new_process()
    for _ in range(2):
        processes.submit_rejected(rig.database, process, {"success": False, "error": "invalid_params"}, "bad")
    return process.id


@pytest.mark.parametrize(
    ("close", "reason"),
    [
        (by_its_commit, "DONE"),
        (by_its_failure, "FAILED"),
        (by_a_stop, "STOPPED"),
        (by_an_engine_that_breaks, "FAILED"),
        (by_its_deadline, "FAILED"),
        (by_a_turn_that_kills_workers, "FAILED"),
        (by_a_submission_that_cannot_run, "FAILED"),
    ],
)
def test_every_way_to_close_a_process_is_told_once(rig: Rig, close: Callable[[Rig], UUID], reason: str) -> None:
    endpoint(rig.database)
    process = close(rig)
    assert rig.status(process) == "CLOSED"
    assert closings(rig.database) == [(str(process), reason)]
    (event,) = told(rig.database)
    assert event["data"]["result"] == rig.result(process)


def test_what_is_told_of_a_closing(rig: Rig) -> None:
    endpoint(rig.database)
    process = by_its_commit(rig)
    (event,) = told(rig.database)
    stored = rows(
        rig.database,
        "SELECT to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'),"
        " to_char(closed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') FROM processes",
    )[0]
    assert event == {
        "id": event["id"],
        "type": "process.closed",
        "timestamp": stored[1],
        "tenant": "default",
        "project": "shop",
        "data": {
            "processId": str(process), "status": "CLOSED", "closeReason": "DONE", "engine": "probe", "recipe": "probe",
            "owner": "ann", "createdAt": stored[0], "closedAt": stored[1], "result": rig.result(process),
        },
    }  # fmt: skip
    # A full stop would make what is signed ambiguous.
    assert event["id"].startswith("evt_")
    assert "." not in event["id"]


def test_sub_processes_close_without_a_word(rig: Rig) -> None:
    endpoint(rig.database)
    process = rig.submit({"call": [{"finish": 1}], "count": 2}, {"finish": 2})
    rig.drain()
    assert value(rig.database, "SELECT count(*) FROM results") == 3
    assert closings(rig.database) == [(str(process), "DONE")]
    other = rig.submit({"call": [{"park": None}]})
    rig.drain()
    assert len(processes.stop(rig.database, other, stopped)) == 2
    assert closings(rig.database)[1:] == [(str(other), "STOPPED")]


@pytest.mark.parametrize(("length", "whole"), [(MAX_RESULT_BYTES - 60, True), (MAX_RESULT_BYTES, False)])
def test_a_result_that_is_too_long_is_named_and_not_sent(database: Database, length: int, whole: bool) -> None:
    endpoint(database)
    wrapper = {"success": True, "attempts": 2, "data": "x" * length}
    commit(database, make_node(database, make_process(database)), closing(wrapper))
    (event,) = told(database)
    size = value(database, "SELECT octet_length(wrapper::text) FROM results")
    short = {"success": True, "attempts": 2, "oversize": True, "bytes": size}
    assert event["data"]["result"] == (wrapper if whole else short)


# -- questions ---------------------------------------------------------------------------------------------------------


def answered(database: Database) -> None:
    _, item = ask(database)
    for _ in range(2):
        inbox.answer(database, item, {"outcome": "DECIDED", "value": {"chosen": "Linz"}}, by="ada")


def dismissed(database: Database) -> None:
    _, item = ask(database)
    inbox.dismiss(database, item, by="ada")


def expired(database: Database) -> None:
    ask(database, ttl=-1.0)
    inbox.expire(database, batch=10)
    inbox.expire(database, batch=10)


def withdrawn(database: Database) -> None:
    node, _ = ask(database)
    rows(database, "UPDATE nodes SET due_at = now() WHERE id = %(id)s", id=node)
    commit(database, node, advance("S", {}, note=NOTE, effects=(WithdrawQuestion(),)))


def closed_with_its_process(database: Database) -> None:
    process = make_process(database)
    ask(database, process)
    processes.stop(database, process, stopped)


@pytest.mark.parametrize(
    ("close", "status", "resolved_by", "who"),
    [
        (answered, "ANSWERED", "USER", "ada"),
        (dismissed, "DISMISSED", "USER", "ada"),
        (expired, "EXPIRED", "EXPIRY", None),
        (withdrawn, "EXPIRED", "EXPIRY", None),
        (closed_with_its_process, "DISMISSED", "PROCESS", None),
    ],
)
def test_every_way_to_close_a_question_is_told_once(
    database: Database, close: Callable[[Database], None], status: str, resolved_by: str, who: str | None
) -> None:
    endpoint(database, events=[Event.INBOX_OPENED, Event.INBOX_CLOSED])
    close(database)
    opened, closed = told(database)
    item, node, process = rows(database, "SELECT id, node_id, process_id FROM inbox_items")[0]
    assert (opened["type"], closed["type"]) == ("inbox.opened", "inbox.closed")
    assert opened["data"] == {
        "itemId": item, "status": "PENDING", "resolvedBy": None, "answeredBy": None, "type": "DECISION",
        "criticality": "NORMAL", "title": "Which city?", "owner": None, "tags": ["travel"],
        "processId": str(process), "rootId": str(process), "nodeId": node,
        "createdAt": opened["timestamp"], "expiresAt": opened["data"]["expiresAt"], "closedAt": None,
    }  # fmt: skip
    changed = {"status": status, "resolvedBy": resolved_by, "answeredBy": who, "closedAt": closed["timestamp"]}
    assert closed["data"] == opened["data"] | changed


def test_a_question_with_an_answer_of_its_own_was_never_open(database: Database) -> None:
    endpoint(database)
    given = question(answer={"approved": True}, answered_by="default")
    node = make_node(database, make_process(database))
    step = dataclasses.replace(
        advance("S", {}, note=NOTE, reason=Reason.ASKED, effects=(given,)), status=NodeStatus.WAITING
    )
    commit(database, node, step)
    (event,) = told(database)
    assert (event["type"], event["data"]["status"]) == ("inbox.closed", "ANSWERED")
    assert (event["data"]["resolvedBy"], event["data"]["answeredBy"]) == ("AUTO_DEFAULT", "default")


def test_the_question_of_a_sub_process_names_the_job_it_belongs_to(database: Database) -> None:
    endpoint(database)
    root = make_process(database)
    inner = make_process(database, parent_node=make_node(database, root, "parked"))
    ask(database, inner)
    (event,) = told(database)
    assert (event["data"]["processId"], event["data"]["rootId"]) == (str(inner), str(root))


# -- who is told -------------------------------------------------------------------------------------------------------


def test_only_those_who_asked_for_it_are_told_all_under_one_id(database: Database) -> None:
    everything, _ = endpoint(database)
    closed, _ = endpoint(database, project="default", events=[Event.PROCESS_CLOSED])
    others = [
        endpoint(database, tenant="other")[0],
        endpoint(database, project="elsewhere")[0],
        endpoint(database, events=[Event.INBOX_CLOSED])[0],
        endpoint(database)[0],
    ]
    webhooks.change(database, "default", others[-1], enabled=False)
    commit(database, make_node(database, make_process(database)), closing())
    found = rows(database, "SELECT endpoint_id, event_id, type, attempts, state FROM webhook_deliveries ORDER BY 1")
    assert [row[0] for row in found] == [everything, closed]
    assert {row[1:] for row in found} == {(told(database)[0]["id"], "process.closed", 0, "PENDING")}


def test_without_an_endpoint_nothing_is_written_and_with_one_no_statement_more(database_url: str) -> None:
    sent = []
    with Rig(database_url, pool_size=2) as rig:
        for has_endpoint in (False, True):
            if has_endpoint:
                endpoint(rig.database)
            rig.database.sent.clear()
            rig.submit({"say": "hello"}, {"finish": 1})
            rig.drain()
            sent.append(len(rig.database.sent))
        assert len(told(rig.database)) == 1
    assert sent[0] == sent[1]


# -- the same transaction ----------------------------------------------------------------------------------------------


def test_a_turn_that_lost_its_lease_tells_nothing(database: Database) -> None:
    endpoint(database)
    node = make_node(database, make_process(database))
    first = claimed(database, node)
    rows(database, "UPDATE nodes SET fence = fence + 1 WHERE id = %(id)s", id=node)
    with pytest.raises(StaleTurn):
        commit_turn(database, first, closing(), call=None, elapsed_seconds=0.0)
    assert told(database) == []


def test_a_stop_that_breaks_tells_nothing(database: Database) -> None:
    endpoint(database)
    process = make_process(database)
    ask(database, process)

    def broken(_: processes.Closing) -> dict[str, Any]:
        return {"nan": float("nan")}

    with pytest.raises(ValueError, match="cannot be stored"):
        processes.stop(database, process, broken)
    assert [each["type"] for each in told(database)] == ["inbox.opened"]


def test_stops_and_commits_at_the_same_time_tell_once(database: Database) -> None:
    endpoint(database)
    all_of_them = [make_process(database) for _ in range(12)]
    claims = [claimed(database, make_node(database, process)) for process in all_of_them]

    def race(index: int) -> None:
        for process, claim in zip(all_of_them, claims, strict=True):
            if index % 2:
                processes.stop(database, process, stopped)
                continue
            with contextlib.suppress(StaleTurn):
                commit_turn(database, claim, closing(), call=None, elapsed_seconds=0.0)

    in_threads(6, race)
    assert sorted(each for each, _ in closings(database)) == sorted(map(str, all_of_them))
    assert dict(closings(database)) == {
        str(row[0]): row[1] for row in rows(database, "SELECT id, close_reason FROM processes")
    }


def test_an_answer_and_the_end_of_its_time_tell_of_one_of_them(database: Database) -> None:
    endpoint(database, events=[Event.INBOX_CLOSED])
    items = [ask(database, ttl=0.05)[1] for _ in range(10)]

    def race(index: int) -> None:
        for item in items:
            if index % 2:
                inbox.expire(database, batch=3)
            else:
                inbox.answer(database, item, {"outcome": "UNDECIDABLE", "reason": "x"}, by="ada")

    in_threads(4, race)
    eventually(lambda: inbox.expire(database, batch=10) or len(told(database)) == 10, "all are closed")
    assert sorted(each["data"]["itemId"] for each in told(database)) == sorted(items)
    assert {each["data"]["itemId"]: each["data"]["status"] for each in told(database)} == dict(
        rows(database, "SELECT id, status FROM inbox_items")
    )


def test_a_closing_waits_for_nobody_who_changes_or_deletes_the_endpoint(database: Database, database_url: str) -> None:
    first, _ = endpoint(database)
    second, _ = endpoint(database)
    process = make_process(database)
    node = make_node(database, process)
    with other_session(database_url) as session, session.transaction():
        session.execute("UPDATE webhook_endpoints SET failing_since = now(), enabled = false WHERE id = %s", [first])
        session.execute("DELETE FROM webhook_endpoints WHERE id = %s", [second])
        commit(database, node, closing())
    assert closings(database) == [(str(process), "DONE")] * 2
    # What is left of an endpoint that was deleted in between is sent to nobody, and pruned some day.
    assert outbox.claim(database, limit=10, each=10, lease_seconds=60) == []
    rows(database, "UPDATE webhook_deliveries SET created_at = now() - interval '2 days'")
    assert outbox.prune(database, older_seconds=86_400, each=10) == 2


def test_what_was_told_of_a_process_goes_when_the_process_goes(rig: Rig) -> None:
    endpoint(rig.database)
    process = by_its_commit(rig)
    other = by_its_commit(rig)
    rows(
        rig.database,
        "UPDATE processes SET created_at = created_at - interval '9 d', closed_at = closed_at - interval '9 d',"
        " delivered_at = now() WHERE id = %(id)s",
        id=process,
    )
    assert delete_old(rig.database, Ages(keep=1)) == 1
    assert [each for each, _ in closings(rig.database)] == [str(other)]
