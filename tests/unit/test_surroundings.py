"""What the runner adds to a view, as far as it needs no database."""

from __future__ import annotations

from typing import Any

from factory import ProbeEngine

from models.store.database import Database
from tasks.surroundings import look_around

PROTOCOL = {"root_kind", "own_recipes", "called_recipes", "objection", "wished_document", "wished_model"}


class View:
    process = None


def test_what_an_engine_is_gets_asked_once_and_not_every_turn() -> None:
    asked: list[str] = []

    class Plain(ProbeEngine):
        def __getattribute__(self, name: str) -> Any:
            if name in PROTOCOL:
                asked.append(name)
            return super().__getattribute__(name)

    database, view = Database("postgresql://nobody@127.0.0.1:1/none"), View()
    assert look_around(database, Plain(), view) is view  # type: ignore[arg-type, comparison-overlap]
    assert asked
    asked.clear()
    for engine in (Plain(), Plain("other")):
        assert look_around(database, engine, view) is view  # type: ignore[arg-type, comparison-overlap]
    assert asked == []
