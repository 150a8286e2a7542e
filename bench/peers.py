"""The peers' own virtual environment: their dependencies and ours need not agree.

LangGraph 1.2 brings a langchain-core that wants ``uuid-utils < 1`` where vancetope wants ``>= 1.2``; in one environment
the resolver falls back to LangGraph 1.0, which would be an unfair opponent.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench.program import ROOT

REQUIREMENTS = ROOT / "bench" / "programs" / "peers.txt"
FOLDER = ROOT / ".vancetope" / "bench-peers"


def python(folder: Path = FOLDER) -> Path:
    """The interpreter of the peers' environment, made on first use and whenever the requirements change."""
    interpreter = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    wanted = REQUIREMENTS.read_text()
    if interpreter.exists() and stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    print(f"bench: installing the peers into {folder}", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is not None:
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
        install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", interpreter]
    else:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", REQUIREMENTS], check=True)
    stamp.write_text(wanted)
    return interpreter


def versions(interpreter: Path) -> dict[str, str]:
    """What is installed, for the report."""
    names = ("dbos", "langgraph", "langgraph-checkpoint-postgres", "psycopg")
    code = f"from importlib.metadata import version\nfor name in {names!r}: print(name, version(name))"
    answer = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True)
    return dict(line.split() for line in answer.stdout.splitlines())
