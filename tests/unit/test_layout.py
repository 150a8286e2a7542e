"""The shape of the checkout: what may stand where, and the traps that lie in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import alembic
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("tasks", "engines", "models")
LINES_MAX = 400
TOP_LEVEL = {
    *PACKAGES,
    *("alembic", "tests", "recipes", "bench", "docs", "examples"),
    *("pyproject.toml", "uv.lock", "Makefile", "Dockerfile", "docker-compose.yml", "requirements.lock"),
    *("README.md", "LICENSE", "CHANGELOG.md", "AGENTS.md", "CONTRIBUTING.md"),
}


def tracked() -> list[Path]:
    """Files of the checkout, without what tools leave there."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [Path(name) for name in listing.stdout.split("\0") if name and (REPOSITORY / name).exists()]


def test_the_migration_folder_does_not_shadow_the_library() -> None:
    assert alembic.__file__ is not None
    assert "site-packages" in alembic.__file__
    # `python -m` puts the checkout first on the path: the hardest case.
    found = subprocess.run(
        [sys.executable, "-c", "import alembic, alembic.command; print(alembic.__file__)"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "site-packages" in found.stdout


@pytest.mark.parametrize("folder", ["alembic", "tests"])
def test_folders_that_must_not_be_packages(folder: str) -> None:
    # A package called `alembic` (or `tests/…/engines`) would be imported instead of the real one.
    assert not list((REPOSITORY / folder).rglob("__init__.py"))
    assert not (REPOSITORY / "alembic.py").exists()


def test_the_top_level_holds_only_what_belongs_there() -> None:
    names = {path.parts[0] for path in tracked() if not path.parts[0].startswith(".")}
    assert names <= TOP_LEVEL, f"not allowed at the top level: {sorted(names - TOP_LEVEL)}"


def test_no_source_file_is_too_long_to_read() -> None:
    lengths = {
        str(path.relative_to(REPOSITORY)): len(path.read_text().splitlines())
        for package in PACKAGES
        for path in (REPOSITORY / package).rglob("*.py")
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


def test_no_module_is_named_after_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    found = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*") if path.stem in vague]
    assert found == []
