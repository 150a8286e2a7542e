"""Fields given to a log line must not be named like the attributes of a log record: ``logging`` raises KeyError then.

Such a line is mostly written while something fails already, so the mistake would hide the failure it speaks of.
"""

from __future__ import annotations

import ast
import logging
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def test_no_log_line_has_a_reserved_field() -> None:
    found = []
    for path in sorted(path for package in ("tasks", "engines", "models") for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict)):
                continue
            names = {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
            found += [f"{path.relative_to(ROOT)}:{node.value.lineno}: {name}" for name in sorted(names & RESERVED)]
    assert not found
