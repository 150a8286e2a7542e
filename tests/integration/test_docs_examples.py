"""What the documentation tells a newcomer to write, written word for word and run."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from plans import closed_plan
from rig import Rig

from engines.llm.scripted import Script
from engines.tools.base import Tool, ToolContext
from engines.tools.registry import GROUP, installed_tools
from models.store import documents
from tasks.cli import main
from tasks.cookbook import recipe_sources
from tasks.settings import load_settings
from tasks.submission import parse_submission, prepare

ROOT = Path(__file__).resolve().parents[2]


def files_in(readme: str) -> dict[str, str]:
    """The code blocks that begin with a comment naming their file."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    return dict(re.findall(r"^```\w+\n# ([\w.-]+\.\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tool]:
    """The documented package's tool, loaded as its entry point says."""
    files = files_in("engines/tools/README.md")
    (tmp_path / "museum_tools.py").write_text(files["museum_tools.py"], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"][GROUP]
    (found,) = installed_tools(EntryPoint(name, value, GROUP) for name, value in points.items())
    yield found
    sys.modules.pop("museum_tools", None)


def test_the_documented_tool_works(tool: Tool) -> None:
    assert tool.run({"museum": "Tram museum"}, ToolContext(seconds=10, max_chars=1000)).text.startswith("10 to 17")


def test_the_documented_recipes_pass_their_check_and_run_with_the_documented_script(
    tool: Tool, tmp_path: Path, database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_in("engines/recipes/README.md")
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VANCETOPE_DATABASE_URL", database_url)
    monkeypatch.setenv("VANCETOPE_REDIS_URL", redis_url)
    monkeypatch.setattr("engines.tools.registry.entry_points", lambda group: [_Loaded(tool)])
    put = CliRunner().invoke(main, ["recipes", "put", "museum-hours.yaml", "day-trip.yaml"])
    assert put.exit_code == 0, put.output
    with Rig(database_url, script=Script.from_data(yaml.safe_load(files["script.yaml"])), tools=[tool]) as rig:
        settings = load_settings({})
        payload = {"recipe": "day-trip", "goal": "A Sunday with the tram museum", "params": {"people": 3}}
        process = prepare(
            parse_submission(payload), settings, rig.engines, recipe_sources(settings, rig.database), pytest.fail
        )
        rig.send(process)
        rig.drain()
        closed_plan(rig, process.id)
        found = documents.get(rig.database, "default", "default", "trips/a-sunday-with-the-tram-museum.md")
        assert found is not None
        assert found.content == "10:00 tram museum"


class _Loaded:
    name = value = "documented"

    def __init__(self, tool: Any) -> None:
        self._tool = tool

    def load(self) -> Any:
        return self._tool
