"""`vancetope valem ls|cat|put` on a real PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from valem_specs import GOOD, RAISE_VAT, text, wrong_paths

from models.store import model_specs
from models.store.database import Database
from tasks.cli import main


@pytest.fixture(autouse=True)
def _here(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", database_url)
    monkeypatch.setenv("VANCETOPE_REDIS_URL", redis_url)


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["valem", *arguments], input=stdin)


def test_specs_are_stored_listed_and_printed(tmp_path: Path) -> None:
    assert "no models" in invoke("ls").output
    file = tmp_path / "spec.json"
    file.write_text(text(GOOD))
    assert json.loads(invoke("put", str(file), "--json").stdout) == {"modelId": "order-total", "version": 1}
    assert invoke("put", "-", stdin=text(GOOD | {"version": "1.1.0"})).stderr == "order-total, version 2\n"
    (listed,) = json.loads(invoke("ls", "--json").stdout)
    assert (listed["modelId"], listed["version"], listed["specVersion"]) == ("order-total", 2, "1.1.0")
    assert "order-total" in invoke("ls").stdout
    assert invoke("ls", "--project", "other", "--json").stdout.strip() == "[]"
    printed = json.loads(invoke("cat", "order-total").stdout)
    assert (printed["version"], list(printed)[:3]) == ("1.1.0", ["id", "version", "schema"])
    assert json.loads(invoke("cat", "order-total", "--version", "1").stdout) == GOOD


def test_what_is_not_there_or_not_valid_is_one_line(tmp_path: Path) -> None:
    for arguments, words in (
        (("cat", "nothing"), "there is no such model"),
        (("put", "-"), "is not a canonical address: write $.bad0 (2 errors"),
    ):
        result = invoke(*arguments, stdin=text(wrong_paths(2)))
        assert result.exit_code != 0
        assert words in result.stderr
        assert "Traceback" not in result.stderr
    invoke("put", "-", stdin=text(GOOD))
    assert "there is no version 7 of it" in invoke("cat", "order-total", "--version", "7").stderr
    assert "not made by an evolution" in invoke("cat", "order-total", "--evolution").stderr


def test_the_change_that_led_to_a_version_is_printed(database_url: str) -> None:
    database = Database(database_url, pool_size=1)
    try:
        model_specs.put(database, "default", "default", "order-total", GOOD, version=1, spec_version="1.0.0")
        database.statement(
            "UPDATE model_specs SET evolution = %(evolution)s::json RETURNING version",
            {"evolution": json.dumps(RAISE_VAT)},
        )
    finally:
        database.dispose()
    assert json.loads(invoke("cat", "order-total", "--evolution", "--json").stdout) == RAISE_VAT
