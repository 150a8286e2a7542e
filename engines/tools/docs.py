"""The tools ``doc_list``, ``doc_read`` and ``doc_write``: the documents of the process's project.

What ``doc_write`` writes goes in with the turn's commit: exactly once, however often a worker is lost on the way.
"""

from __future__ import annotations

import re
from typing import Any, Final

from engines.documents.errors import BadPath
from engines.documents.paths import check_writable, normalise_path
from engines.structured.text import quote
from engines.tools.base import Documents, ToolContext, ToolFailed, ToolResult, cut
from models.transition import WriteDocument

MAX_CONTENT_CHARS: Final = 1_000_000
_MAX_LISTED: Final = 200
_KIND: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}\Z")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class DocList:
    """Paths, kinds and sizes, never contents."""

    name = "doc_list"
    description = "Lists the project's documents: path, kind and size of each, optionally only those below a folder."
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {"prefix": {"type": "string", "description": "Only paths that begin with this"}},
        "additionalProperties": False,
    }

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        prefix = str(arguments.get("prefix") or "").strip().removeprefix("./")
        found = _documents(context).paths(prefix, _MAX_LISTED + 1)
        if not found:
            return ToolResult(text="There are no documents" + (f" below {quote(prefix)}." if prefix else "."))
        lines = [f"- {path} ({kind}, {size:,} characters)" for path, kind, size in found[:_MAX_LISTED]]
        if len(found) > _MAX_LISTED:
            lines.append(f"[there are more than these {_MAX_LISTED}: give a longer prefix]")
        return ToolResult(text=cut("\n".join(lines), context.max_chars, "the list"))


class DocRead:
    """One document, or a part of it."""

    name = "doc_read"
    description = "Reads one document of the project. Long ones are cut: use start to read on."
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "start": {"type": "integer", "minimum": 0, "description": "Leave out this many characters"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = _path(arguments)
        found = _documents(context).get(path)
        if found is None:
            raise ToolFailed(f"there is no document {quote(path)}; doc_list shows those there are")
        start = int(arguments.get("start") or 0)
        head = f"{found.path} ({found.kind}, version {found.version}, {len(found.content):,} characters)"
        shown = found.content[start:] or "[nothing from there on]"
        return ToolResult(text=f"{head}\n\n{cut(shown, context.max_chars - len(head) - 2, 'the text from there on')}")


class DocWrite:
    """Creates a document or gives it its next version."""

    name = "doc_write"
    description = (
        "Writes a document of the project: a new one, or the next version of the one at that path. It can be read from"
        " your next message on."
    )
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "For instance research/report.md"},
            "content": {"type": "string", "minLength": 1, "description": "The whole text"},
            "title": {"type": "string"},
            "kind": {"type": "string", "description": "text if left out; list, tree or records can be fanned out"},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    }

    def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            path = check_writable(str(arguments["path"]))
        except BadPath as error:
            raise ToolFailed(error.reason) from None
        content, title = str(arguments["content"]), " ".join(str(arguments.get("title") or "").split())[:200]
        kind = str(arguments.get("kind") or "text").strip().lower()
        if not _KIND.match(kind):
            raise ToolFailed(f"{quote(kind, 60)} is no kind of document")
        if not content.strip():
            raise ToolFailed("the content is empty")
        if len(content) > MAX_CONTENT_CHARS:
            raise ToolFailed(f"the content has {len(content):,} characters; at most {MAX_CONTENT_CHARS:,} are stored")
        content = _UNSTORABLE.sub("\ufffd", content)
        written = WriteDocument(path=path, kind=kind, content=content, title=title or None)
        return ToolResult(text=f"{path} is written: {len(content):,} characters.", documents=(written,))


def _path(arguments: dict[str, Any]) -> str:
    try:
        return normalise_path(str(arguments["path"]))
    except BadPath as error:
        raise ToolFailed(error.reason) from None


def _documents(context: ToolContext) -> Documents:
    if context.documents is None:
        raise ToolFailed("there are no documents here")
    return context.documents
