"""Stored model specs: a version is written once, one of several writers wins, an engine sees what it wishes for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from factory import claim, claimed, make_node, make_process, value
from rig import RecordingDatabase, in_threads

from engines.base import Decided, Need, Outcome
from models.records import View
from models.spec_records import ModelWish
from models.store.commit import commit_turn
from models.store.model_specs import VersionConflict, get, history, list_models, put
from models.transition import PhaseNote, Transition, WriteModelSpec, advance
from tasks.surroundings import look_around

NOTE = PhaseNote(phase="STORE", iteration=1)
HERE = ("acme", "main")


@pytest.fixture
def database(database_url: str) -> Iterator[RecordingDatabase]:
    database = RecordingDatabase(database_url, pool_size=8)
    yield database
    database.dispose()


def spec(version: str = "1.0.0", **more: Any) -> dict[str, Any]:
    return {"id": "loan", "version": version, "schema": {"z": 1, "a": 2}, **more}


def write(version: int, content: dict[str, Any], evolution: dict[str, Any] | None = None) -> Transition:
    effect = WriteModelSpec(
        model_id="loan", version=version, spec=content, spec_version=content["version"], evolution=evolution
    )
    return advance("CONFIRM", {}, note=NOTE, effects=(effect,))


def test_a_turn_writes_a_version_that_keeps_the_order_of_its_fields(database: RecordingDatabase) -> None:
    process = make_process(database, tenant="acme", project="main")
    mine = claimed(database, make_node(database, process))

    commit_turn(database, mine, write(1, spec(), {"newVersion": "1.0.0"}), call=None, elapsed_seconds=0.1)

    stored = get(database, *HERE, "loan")
    assert stored is not None
    assert (stored.version, stored.spec_version, stored.evolution) == (1, "1.0.0", {"newVersion": "1.0.0"})
    assert list(stored.spec["schema"]) == ["z", "a"]
    assert (stored.process_id, stored.node_id) == (process, mine.view.node.id)


def test_of_several_writers_of_one_version_one_wins_and_every_turn_lands(database: RecordingDatabase) -> None:
    nodes = []
    for _ in range(6):
        process = make_process(database, tenant="acme", project="main")
        nodes.append(claimed(database, make_node(database, process)))

    def commit(number: int) -> None:
        mine = nodes[number]
        commit_turn(database, mine, write(1, spec(by=mine.view.node.id)), call=None, elapsed_seconds=0.1)

    in_threads(len(nodes), commit)

    versions = history(database, *HERE, "loan")
    assert len(versions) == 1
    assert versions[0].spec["by"] == versions[0].node_id
    assert value(database, "SELECT count(*) FROM nodes WHERE phase = 'CONFIRM'") == 6


def test_a_lost_turn_writes_no_version(database: RecordingDatabase) -> None:
    process = make_process(database, tenant="acme", project="main")
    mine = claimed(database, make_node(database, process))
    commit_turn(database, mine, advance("STORE", {}, note=NOTE), call=None, elapsed_seconds=0.1)

    with pytest.raises(Exception, match="lease was lost"):
        commit_turn(database, mine, write(1, spec()), call=None, elapsed_seconds=0.1)

    assert get(database, *HERE, "loan") is None


def test_versions_of_other_tenants_and_projects_are_not_seen(database: RecordingDatabase) -> None:
    put(database, "acme", "main", "loan", spec(), version=1, spec_version="1.0.0")
    put(database, "acme", "side", "loan", spec("9.0.0"), version=1, spec_version="9.0.0")
    put(database, "other", "main", "tax", spec(), version=1, spec_version="1.0.0")
    put(database, "acme", "main", "loan", spec("1.1.0"), version=2, spec_version="1.1.0")

    assert [(m.model_id, m.version, m.spec_version) for m in list_models(database, *HERE)] == [("loan", 2, "1.1.0")]
    assert [m.version for m in history(database, *HERE, "loan")] == [2, 1]
    first = get(database, *HERE, "loan", version=1)
    assert first is not None
    assert first.spec_version == "1.0.0"
    assert get(database, *HERE, "loan", version=3) is None


def test_a_version_by_hand_that_exists_is_refused_and_says_what_the_newest_is(database: RecordingDatabase) -> None:
    put(database, *HERE, "loan", spec(), version=1, spec_version="1.0.0")
    put(database, *HERE, "loan", spec("1.1.0"), version=2, spec_version="1.1.0")

    with pytest.raises(VersionConflict, match="is at version 2: version 1 is written already"):
        put(database, *HERE, "loan", spec("3.0.0"), version=1, spec_version="3.0.0")

    first = get(database, *HERE, "loan", version=1)
    assert first is not None
    assert first.spec_version == "1.0.0"


@dataclass(frozen=True)
class Modeller:
    """An engine that wishes for one model."""

    wish: ModelWish | None
    name: str = "modeller"
    first_phase: str = "STEP"
    history: int = 0

    def prepare(self, view: View) -> Need:
        return Decided(transition=advance("STEP", {}, note=NOTE))

    def decide(self, view: View, outcome: Outcome) -> Transition:
        raise AssertionError("it asks nothing")

    def wrapper(self, cursor: dict[str, Any], *, error: str, message: str) -> dict[str, Any]:
        return {}

    def wished_model(self, view: View) -> ModelWish | None:
        return self.wish


@pytest.mark.parametrize(
    ("wish", "seen"),
    [
        (ModelWish(model_id="loan"), 2),
        (ModelWish(model_id="loan", version=1), 1),
        (ModelWish(model_id="loan", version=7), None),
        (ModelWish(model_id="gone"), None),
        (None, None),
    ],
)
def test_an_engine_sees_the_model_it_wishes_for(
    database: RecordingDatabase, wish: ModelWish | None, seen: int | None
) -> None:
    put(database, *HERE, "loan", spec(), version=1, spec_version="1.0.0")
    put(database, *HERE, "loan", spec("1.1.0"), version=2, spec_version="1.1.0")
    process = make_process(database, tenant="acme", project="main")
    mine = claim(database, make_node(database, process))
    assert mine is not None

    view = look_around(database, Modeller(wish), mine.view)

    assert (None if view.model is None else view.model.version) == seen
