"""The corpus: every input gives the canonical JSON beside it, compared by value. Rows 122 to 128, F11."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from engines.documents.parse import parse_document, render_document

CORPUS = Path(__file__).parent / "corpus"
MIME = {".md": "text/markdown; charset=utf-8", ".json": "application/json", ".yaml": "application/yaml"}
INPUTS = sorted(path for path in CORPUS.iterdir() if not path.name.endswith(".expected.json"))


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_corpus(path: Path) -> None:
    expected = json.loads(path.with_name(f"{path.stem}.expected.json").read_text())
    document = parse_document(path.read_bytes().decode(), MIME[path.suffix])
    written = render_document(document)
    assert json.loads(written) == expected
    assert written.startswith('{\n  "$meta"')
    assert parse_document(written, "application/json") == document


def test_the_corpus_is_complete() -> None:
    kinds = Counter(path.name.split("_")[0] for path in INPUTS)
    assert kinds["list"] >= 6
    assert kinds["tree"] >= 6
    assert kinds["records"] >= 9
    assert {path.stem for path in INPUTS} == {path.name.split(".")[0] for path in CORPUS.glob("*.expected.json")}
