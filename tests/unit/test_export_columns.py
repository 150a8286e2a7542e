"""Nothing of a process is forgotten by its export: a new column or table must be taken in or left out by name."""

from __future__ import annotations

import pytest

from models.store.export import COLUMNS, LEFT_OUT, NOT_OWNED, OF_THE_MOMENT
from models.tables import metadata


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_every_column_is_exported_or_left_out_by_name(table: str) -> None:
    places = [table in each for each in (COLUMNS, NOT_OWNED, OF_THE_MOMENT)]
    assert sum(places) == 1, f"{table}: does it belong to processes? then export it"
    if table in COLUMNS:
        known = [*COLUMNS[table], *LEFT_OUT.get(table, ())]
        assert sorted(known) == sorted(column.name for column in metadata.tables[table].columns)


def test_only_what_is_there_is_named() -> None:
    assert {*COLUMNS, *LEFT_OUT, *NOT_OWNED, *OF_THE_MOMENT} == set(metadata.tables)
    owners = {"processes", "nodes"}
    for table in NOT_OWNED - {"documents"}:
        targets = {key.column.table.name for key in metadata.tables[table].foreign_keys}
        assert not targets & owners, f"{table} belongs to processes"
        assert not {"process_id", "root_id"} & {column.name for column in metadata.tables[table].columns}
