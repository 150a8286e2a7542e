"""Short drills: see ``drill.py`` beside this file, and ``make drill`` for the long ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DRILL = Path(__file__).with_name("drill.py")


def drill(folder: Path, *options: str) -> str:
    """What a drill that must pass has said."""
    command = [sys.executable, str(DRILL), *options, "--seed", "7", "--keep", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=230)
    print(ended.stdout[-8000:], ended.stderr[-4000:])
    assert ended.returncode == 0
    assert "PASSED" in ended.stdout
    return ended.stdout


def test_a_short_drill_holds_every_claim(tmp_path: Path) -> None:
    assert "workers paused past their lease" in drill(tmp_path, "--jobs", "40", "--seconds", "15")


def test_a_tree_that_grows_under_harm_holds_every_claim(tmp_path: Path) -> None:
    assert "a tree of 120 nodes" in drill(tmp_path, "--tree", "120", "--seconds", "12")


def test_bursts_under_harm_hold_every_claim(tmp_path: Path) -> None:
    assert "workers paused past their lease" in drill(tmp_path, "--jobs", "40", "--seconds", "15", "--burst", "10")
