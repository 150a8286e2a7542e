"""Retention: what goes and what stays, tenant by tenant, in batches, and never anything of an open tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from factory import new_process, root_node, rows, value
from plans import broken_plan_invariants
from rig import Rig, in_threads, other_session

from engines.llm.scripted import Script
from models.ages import Ages, BadPolicy
from models.store import console, documents, processes, read, retention
from models.store.commit import HINT_GRACE_SECONDS
from models.store.database import Database
from models.store.processes import Closing
from tasks.sweeper import RETENTION_SECONDS, Sweeper

MONTH = Ages(keep=30)
TREE = [{"say": "to work"}, {"fan_out": 2, "steps": [{"ask": "q"}, {"write": ["result", "a text"]}]}, {"finish": 1}]
CALLER = [{"call": [{"ask": "below"}, {"finish": "reply"}]}, {"finish": 1}]


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with Rig(database_url, script=Script.from_data({"default": {"text": "an answer"}}), pool_size=8) as rig:
        yield rig


def closed(rig: Rig, steps: list[Any], tenant: str = "default", *, days: float = 40, delivered: bool = True) -> UUID:
    """A process that was run to its end so long ago."""
    process = rig.send(new_process(steps, tenant=tenant))
    rig.drain()
    assert rig.status(process) == "CLOSED"
    aged(rig.database, process, days)
    if delivered:
        processes.mark_delivered(rig.database, [process])
    return process


def aged(database: Database, process: UUID, days: float) -> None:
    rows(
        database,
        "UPDATE processes SET closed_at = closed_at - make_interval(secs => 86400 * %(days)s),"
        " created_at = created_at - make_interval(secs => 86400 * %(days)s) WHERE root_id = %(id)s RETURNING id",
        id=process,
        days=days,
    )


def left(database: Database) -> set[UUID]:
    return {row[0] for row in rows(database, "SELECT id FROM processes WHERE parent_node_id IS NULL")}


def drained(step: Any, database: Database, ages: Ages, **limits: int) -> int:
    """How many steps it took until nothing was left."""
    for taken in range(200):
        if not step(database, ages, **limits):
            return taken
    raise AssertionError("retention does not come to an end")


def counts(database: Database, *tables: str) -> dict[str, int]:
    return {table: value(database, f"SELECT count(*) FROM {table}") for table in tables}


def stopped(_: Closing) -> dict[str, Any]:
    return {"success": False, "error": "stopped"}


OWNED = ("nodes", "results", "process_inputs", "phase_records", "llm_calls", "messages", "artifacts", "inbox_items")


# -- whole processes ---------------------------------------------------------------------------------------------------


def test_an_old_tree_goes_with_everything_it_owns(rig: Rig) -> None:
    closed(rig, TREE)
    closed(rig, CALLER)
    young = closed(rig, TREE, days=29)
    before = counts(rig.database, "nodes")["nodes"]
    assert drained(retention.delete_old, rig.database, MONTH) == 1
    assert left(rig.database) == {young}
    assert counts(rig.database, "nodes")["nodes"] == 3 < before
    retention.delete_old(rig.database, Ages(keep=1))
    assert counts(rig.database, "processes", *OWNED) == dict.fromkeys(("processes", *OWNED), 0)


def test_every_tenant_has_its_own_ages_and_the_others_the_installations(rig: Rig) -> None:
    database = rig.database
    kept = {tenant: closed(rig, TREE, tenant, days=40) for tenant in ("short", "long", "ever", "other")}
    retention.set_policy(database, "short", Ages(keep=10))
    retention.set_policy(database, "long", Ages(keep=100))
    retention.set_policy(database, "ever", Ages())
    assert drained(retention.delete_old, database, Ages()) == 1
    assert left(database) == {kept["long"], kept["ever"], kept["other"]}
    drained(retention.delete_old, database, Ages(keep=39))
    assert left(database) == {kept["long"], kept["ever"]}
    assert retention.remove_policy(database, "ever")
    assert not retention.remove_policy(database, "ever")
    drained(retention.delete_old, database, Ages(keep=39))
    assert left(database) == {kept["long"]}


def test_open_trees_of_every_shape_stay_however_old_they_are(rig: Rig) -> None:
    database = rig.database
    shapes: dict[str, list[Any]] = {
        "not begun": [{"say": "later"}],
        "a root that is done and awaits its children": [{"fan_out": 2, "steps": [{"park": None}]}],
        "parked on a person": [{"park": None}],
        "parked on a process": [{"call": [{"park": None}]}],
    }
    trees = {name: rig.send(new_process(steps)) for name, steps in shapes.items() if name != "not begun"}
    rig.drain()
    trees["not begun"] = rig.send(new_process(shapes["not begun"]))
    suspended = rig.send(new_process([{"park": None}]))
    assert processes.suspend(database, suspended)
    # A process that was closed from outside while what it called goes on, until the sweeper stops it.
    orphaned = rig.send(new_process([{"call": [{"park": None}]}]))
    rig.drain()
    rows(
        database,
        "UPDATE processes SET status = 'CLOSED', close_reason = 'DONE', closed_at = now(), delivered_at = now()"
        " WHERE id = %(id)s RETURNING id",
        id=orphaned,
    )
    undelivered = closed(rig, TREE, delivered=False)
    rows(database, "UPDATE processes SET created_at = created_at - interval '1 year',"
                   " closed_at = closed_at - interval '1 year' RETURNING id")  # fmt: skip
    everything = counts(database, "processes", *OWNED)
    assert drained(retention.delete_old, database, MONTH) == 0
    assert drained(retention.remove_artifacts, database, Ages(artifacts=1)) == 0
    assert counts(database, "processes", *OWNED) == everything
    assert left(database) == {*trees.values(), suspended, orphaned, undelivered}

    processes.mark_delivered(database, [undelivered])
    processes.stop(database, orphaned, stopped)
    for sub in rows(database, "SELECT id FROM processes WHERE root_id = %(id)s AND id <> root_id", id=orphaned):
        processes.stop(database, sub[0], stopped)
    drained(retention.delete_old, database, MONTH)
    assert left(database) == {*trees.values(), suspended}


def test_documents_stay(rig: Rig) -> None:
    closed(rig, TREE)
    documents.put(rig.database, "default", "default", "report.md", "text")
    drained(retention.delete_old, rig.database, MONTH)
    assert documents.get(rig.database, "default", "default", "report.md") is not None


# -- texts -------------------------------------------------------------------------------------------------------------


def test_texts_go_first_and_what_they_led_to_stays(rig: Rig) -> None:
    database = rig.database
    process = closed(rig, [*TREE[:-1], {"call": [{"ask": "below"}]}, {"finish": "the result"}])
    before = counts(database, *OWNED)
    usage = read.status(database, process)
    assert before["artifacts"] == 2
    assert before["messages"] > 2
    assert drained(retention.remove_artifacts, database, Ages(artifacts=30)) == 1

    after = counts(database, *OWNED)
    assert after == before | {"artifacts": 0, "messages": 2}, "only the results are left of the messages"
    assert value(database, "SELECT count(*) FROM phase_records WHERE output IS NOT NULL OR recorded IS NOT NULL") == 0
    assert rows(database, "SELECT DISTINCT cursor FROM nodes") == [({},)]
    assert (rig.result(process) or {})["data"] == "the result"
    found = read.status(database, process)
    assert found is not None
    assert usage is not None
    assert found["usage"] == usage["usage"]
    assert found["artifacts_removed_at"] is not None
    assert usage["artifacts_removed_at"] is None
    assert value(database, "SELECT count(*) FROM processes WHERE artifacts_removed_at IS NULL") == 0
    node = console.node(database, root_node(database, process))
    assert node is not None
    assert node["artifacts_removed_at"] is not None
    assert broken_plan_invariants(database).keys() <= {"every worker that is DONE has a result and a draft"}
    drained(retention.delete_old, database, MONTH)
    assert left(database) == set()


def test_texts_that_are_young_or_gone_are_left_alone(rig: Rig) -> None:
    closed(rig, TREE, days=9)
    assert drained(retention.remove_artifacts, rig.database, Ages(artifacts=10)) == 0
    old = closed(rig, TREE, days=11)
    assert drained(retention.remove_artifacts, rig.database, Ages(artifacts=10)) == 1
    stripped = value(rig.database, "SELECT artifacts_removed_at FROM processes WHERE id = %(id)s", id=old)
    assert drained(retention.remove_artifacts, rig.database, Ages(artifacts=10)) == 0
    assert value(rig.database, "SELECT artifacts_removed_at FROM processes WHERE id = %(id)s", id=old) == stripped


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_step_takes_few_trees_and_tenants_take_turns(rig: Rig) -> None:
    database = rig.database
    for tenant, days in (("a", 90), ("a", 80), ("a", 70), ("a", 60), ("b", 50), ("c", 40)):
        closed(rig, [{"finish": 1}], tenant, days=days)
    assert retention.delete_old(database, MONTH, trees=3) == 3
    counted = dict(rows(database, "SELECT tenant, count(*) FROM processes GROUP BY tenant"))
    assert counted == {"a": 3}, "the backlog of one tenant does not keep the others waiting"
    assert retention.delete_old(database, MONTH, trees=3) == 3
    assert retention.delete_old(database, MONTH, trees=3) == 0


@pytest.mark.parametrize("steps", [TREE, CALLER])
def test_a_large_tree_goes_piece_by_piece(rig: Rig, steps: list[Any]) -> None:
    database = rig.database
    large = closed(rig, [{"fan_out": 12, "steps": steps}, {"call": CALLER}, {"finish": 1}], days=50)
    small = closed(rig, [{"finish": 1}], days=40)
    nodes = value(database, "SELECT count(*) FROM nodes")
    assert drained(retention.remove_artifacts, database, Ages(artifacts=30), nodes=5) >= nodes // 5
    assert rows(database, "SELECT DISTINCT cursor FROM nodes") == [({},)]
    assert counts(database, "artifacts")["artifacts"] == 0
    assert value(database, "SELECT count(*) FROM processes WHERE artifacts_removed_at IS NULL") == 0
    sizes = [nodes]
    while retention.delete_old(database, MONTH, nodes=5):
        sizes.append(value(database, "SELECT count(*) FROM nodes"))
        # No node is left without its caller, and none goes with a whole subtree still below it.
        assert sizes[-2] - sizes[-1] <= 5
    assert left(database) == set()
    assert large != small
    assert len(sizes) > nodes // 5


def test_two_sweepers_share_the_work_and_never_wait_for_each_other(rig: Rig) -> None:
    database = rig.database
    for _ in range(12):
        closed(rig, TREE)
    taken = in_threads(4, lambda _: sum(retention.delete_old(database, MONTH, trees=3) for _ in range(8)))
    drained(retention.delete_old, database, MONTH)
    assert left(database) == set()
    assert sum(taken) <= 12


def test_a_tree_somebody_has_locked_is_passed_over(rig: Rig) -> None:
    first, second = closed(rig, TREE, days=50), closed(rig, TREE, days=40)
    with other_session(rig.database.url) as session, session.transaction():
        session.execute("SELECT 1 FROM processes WHERE id = %s FOR UPDATE", [first])
        assert retention.delete_old(rig.database, MONTH) == 1
    assert second not in left(rig.database)
    assert first in left(rig.database)


def test_the_sweeper_goes_on_until_nothing_is_left_and_then_looks_now_and_then(rig: Rig) -> None:
    now = [1_000.0]
    sweeper = Sweeper(
        database=rig.database, client=rig.redis, engines=rig.engines, publisher=rig.publisher,  # type: ignore[arg-type]
        deliverer=lambda _: None, batch=10, ages=Ages(keep=30, artifacts=10),  # type: ignore[arg-type]
        clock=lambda: now[0],
    )  # fmt: skip
    assert sweeper.sweep() == {}
    closed(rig, TREE, days=20)
    closed(rig, TREE, days=40)
    assert sweeper.sweep() == {}
    now[0] += RETENTION_SECONDS
    assert sweeper.sweep() == {"pruned": 1, "artifacts_removed": 1}
    assert sweeper.sweep() == {}
    retention.set_policy(rig.database, "default", Ages(keep=1))
    now[0] += RETENTION_SECONDS
    assert sweeper.sweep() == {"pruned": 1}
    assert HINT_GRACE_SECONDS < RETENTION_SECONDS


def test_a_step_goes_by_the_index_and_not_over_the_table(rig: Rig) -> None:
    database = rig.database
    closed(rig, TREE)
    rows(
        database,
        "INSERT INTO processes (id, root_id, tenant, project, engine, recipe_name, status, close_reason, closed_at,"
        " delivered_at, artifacts_removed_at)"
        " SELECT id, id, 't' || number % 3, 'p', 'probe', 'r', 'CLOSED', 'DONE', now(), now(), now()"
        " FROM (SELECT gen_random_uuid() AS id, number FROM generate_series(1, 20000) number) made RETURNING id",
    )
    with other_session(database.url) as session:
        session.execute("ANALYZE processes")
        session.execute("ANALYZE nodes")
        session.execute("SET plan_cache_mode = force_generic_plan")
        for due in (retention._DUE_TO_GO, retention._DUE_TO_LOSE_TEXTS):
            params = {"keep": 30.0, "artifacts": 10.0, "trees": 50, "nodes": 2000}
            plan = session.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {due}", params).fetchone()
            assert plan is not None
            read_whole = [node for node in _walk(plan[0][0]["Plan"]) if node["Node Type"] == "Seq Scan"]
            assert "processes" not in [node["Relation Name"] for node in read_whole]
            assert plan[0][0]["Plan"]["Shared Hit Blocks"] + plan[0][0]["Plan"]["Shared Read Blocks"] < 300


def _walk(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _walk(below)


# -- policies ----------------------------------------------------------------------------------------------------------


def test_a_policy_says_what_is_wrong_with_it(rig: Rig) -> None:
    with pytest.raises(BadPolicy, match=r"artifactsDays: 31 is more than keepDays, 30: .*at most 30"):
        retention.set_policy(rig.database, "a", Ages(keep=30, artifacts=31))
    with pytest.raises(BadPolicy, match="keepDays: 0 is no age"):
        retention.set_policy(rig.database, "a", Ages(keep=0))
    with pytest.raises(BadPolicy, match="tenant: is blank"):
        retention.set_policy(rig.database, " ", Ages(keep=1))
    assert retention.policies(rig.database) == []
    made = retention.set_policy(rig.database, "a", Ages(keep=30, artifacts=7))
    assert (made.keep_days, made.artifacts_days) == (30, 7)
    assert retention.policy(rig.database, "a") == made
    assert retention.policy(rig.database, "b") is None


def test_a_preview_counts_and_changes_nothing(rig: Rig) -> None:
    database = rig.database
    for days in (5, 15, 40, 50):
        closed(rig, TREE, "a", days=days)
    closed(rig, TREE, "b", days=15)
    closed(rig, TREE, "a", days=40, delivered=False)
    retention.set_policy(database, "a", Ages(keep=30, artifacts=10))
    retention.set_policy(database, "quiet", Ages(keep=1))
    before = counts(database, "processes", *OWNED)
    found = {each.tenant: each for each in retention.preview(database, Ages(artifacts=10))}
    assert counts(database, "processes", *OWNED) == before
    shown = {name: (each.own, each.processes, each.artifacts, each.undelivered) for name, each in found.items()}
    assert shown == {"a": (True, 2, 1, 1), "b": (False, 0, 1, 0), "quiet": (True, 0, 0, 0)}
    assert [each.tenant for each in retention.preview(database, Ages(), tenant="b")] == ["b"]
    assert drained(retention.delete_old, database, Ages(artifacts=10)) == 1
    assert retention.remove_artifacts(database, Ages(artifacts=10)) == 2
