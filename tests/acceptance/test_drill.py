"""A short drill: see ``drill.py`` beside this file, and ``make drill`` for the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DRILL = Path(__file__).with_name("drill.py")


def test_a_short_drill_holds_every_claim(tmp_path: Path) -> None:
    command = [sys.executable, str(DRILL), "--jobs", "40", "--seconds", "15", "--seed", "7", "--keep", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=230)
    print(ended.stdout[-8000:], ended.stderr[-4000:])
    assert ended.returncode == 0
    assert "PASSED" in ended.stdout
    assert "workers paused past their lease" in ended.stdout
