"""Reading a document into its kind, and writing the canonical form.

The kind is what the document's own header says: the ``---`` block of Markdown, ``$meta.kind`` in JSON and YAML. A
caller cannot choose it: whoever wrote the text knew what it was.
"""

from __future__ import annotations

import json
from typing import Any, assert_never

from engines.documents.data import (
    check_storable,
    load_json,
    load_yaml,
    read_branches,
    read_items,
    read_rows,
    read_schema,
    take_entries,
)
from engines.documents.errors import DocumentError, Problem
from engines.documents.lines import split_header
from engines.documents.markdown import read_list, read_tree
from engines.documents.model import (
    Branch,
    Document,
    Kind,
    ListDocument,
    RecordsDocument,
    Row,
    TextDocument,
    TreeDocument,
)
from engines.documents.table import OVERFLOW, read_records
from engines.structured.text import quote

MAX_CHARS = 1_000_000
"""Longest document that is read for its structure (YAML: the loader's own, lower limit)."""

_MARKDOWN, _JSON, _YAML = "Markdown", "JSON", "YAML"
_SYNTAX = {
    "text/markdown": _MARKDOWN,
    "text/x-markdown": _MARKDOWN,
    "application/json": _JSON,
    "application/yaml": _YAML,
    "application/x-yaml": _YAML,
    "text/yaml": _YAML,
    "text/x-yaml": _YAML,
}
_META = "$meta"
_BODY = {
    Kind.LIST: ("items",),
    Kind.TREE: ("items", "roots", "children"),
    Kind.RECORDS: ("items", "rows", "records"),
}
"""Keys of the entries in JSON and YAML: the first is written, the others are understood when it is missing."""


def parse_document(text: str, mime: str | None = None) -> Document:
    """The document in ``text``, which is Markdown unless ``mime`` says JSON or YAML.

    Raises :class:`DocumentError`: its ``problem`` tells an unsupported type, a malformed text, a missing, unknown or
    unreadable (graph) kind and missing field names apart.
    """
    syntax = _syntax(mime)
    if len(text) > MAX_CHARS:
        raise DocumentError(Problem.TOO_LARGE, f"the document is longer than {MAX_CHARS} characters")
    check_storable(text)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise DocumentError(Problem.EMPTY, "the document is empty: it does not even say what kind it is")
    if syntax == _MARKDOWN:
        header, body = split_header(text)
        fields: dict[str, Any] = dict(header or {})
        return _from_markdown(_kind(fields.pop("kind", None)), fields, body)
    return _from_data(load_json(text) if syntax == _JSON else load_yaml(text))


def _syntax(mime: str | None) -> str:
    name = (mime or "").split(";", 1)[0].strip().lower()
    if not name:
        return _MARKDOWN
    if name not in _SYNTAX:
        raise DocumentError(
            Problem.UNSUPPORTED_MIME,
            f"documents of type {quote(name)} cannot be read: only Markdown, JSON and YAML can",
        )
    return _SYNTAX[name]


def _kind(value: Any) -> Kind:
    name = value.strip().lower() if isinstance(value, str) else ""
    if not name:
        raise DocumentError(
            Problem.NO_KIND,
            "the document has no kind: begin it with a header, in Markdown the lines ---, kind: list, ---, "
            'in JSON or YAML "$meta": {"kind": "list"}',
        )
    if name == Kind.GRAPH:
        raise DocumentError(Problem.GRAPH, "the document is a graph, which cannot be read: use list, tree or records")
    if name not in list(Kind):
        raise DocumentError(
            Problem.UNKNOWN_KIND, f"the document is of the unknown kind {quote(name)}: use list, tree, records or text"
        )
    return Kind(name)


def _from_markdown(kind: Kind, fields: dict[str, Any], body: str) -> Document:
    # Words with a meaning in the canonical form cannot be a header's own fields as well.
    fields.pop(_META, None)
    schema = fields.pop("schema", None) if kind is Kind.RECORDS else None
    fields.pop("text" if kind is Kind.TEXT else "items", None)
    match kind:
        case Kind.LIST:
            return ListDocument(items=read_list(body), extra=fields)
        case Kind.TREE:
            return TreeDocument(roots=read_tree(body), extra=fields)
        case Kind.RECORDS:
            names, rows = read_records(body, schema)
            return RecordsDocument(schema=names, rows=rows, extra=fields)
        case _:
            return TextDocument(text=body, extra=fields)


def _from_data(data: dict[str, Any]) -> Document:
    meta = data.pop(_META, None)
    meta = meta if isinstance(meta, dict) else {}
    kind = _kind(meta.pop("kind", None))
    # Scalars beside the kind belong to the document; what stands at the top level itself wins.
    fields = {key: value for key, value in meta.items() if not isinstance(value, (dict, list)) and key != _META} | data
    match kind:
        case Kind.LIST:
            return ListDocument(items=read_items(take_entries(fields, *_BODY[kind])), extra=fields)
        case Kind.TREE:
            return TreeDocument(roots=read_branches(take_entries(fields, *_BODY[kind])), extra=fields)
        case Kind.RECORDS:
            schema = read_schema(fields.pop("schema", None))
            rows = read_rows(take_entries(fields, *_BODY[kind]), schema)
            return RecordsDocument(schema=schema, rows=rows, extra=fields)
        case _:
            text = fields.pop("text", None)
            return TextDocument(text=text if isinstance(text, str) else "", extra=fields)


def render_document(document: Document) -> str:
    """The canonical JSON: ``$meta`` first, then the body, then everything else. Reading it gives ``document`` again."""
    return json.dumps(canonical(document), ensure_ascii=False, indent=2)


def canonical(document: Document) -> dict[str, Any]:
    """What :func:`render_document` writes, as a value."""
    match document:
        case ListDocument():
            items = [{"text": item.text, **item.extra} for item in document.items]
            return {_META: {"kind": "list"}, "items": items, **document.extra}
        case TreeDocument():
            roots = [_canonical_branch(root) for root in document.roots]
            return {_META: {"kind": "tree"}, "items": roots, **document.extra}
        case RecordsDocument():
            rows = [_canonical_row(row) for row in document.rows]
            return {_META: {"kind": "records"}, "schema": list(document.schema), "items": rows, **document.extra}
        case TextDocument():
            return {_META: {"kind": "text"}, "text": document.text, **document.extra}
        case _:
            assert_never(document)


def _canonical_branch(branch: Branch) -> dict[str, Any]:
    children = [_canonical_branch(child) for child in branch.children]
    return {"text": branch.text, **({"children": children} if children else {}), **branch.extra}


def _canonical_row(row: Row) -> dict[str, Any]:
    return {**row.values, **row.extra, **({OVERFLOW: list(row.overflow)} if row.overflow else {})}
