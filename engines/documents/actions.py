"""Post-actions: documents written by the engine once a node is concluded. Reading, rendering, and what went wrong.

An action is the model's text; its templates may name the node's result, which is inserted as a value and never looked
at again. Each action succeeds or fails alone: the node stays done whatever happens here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engines.documents.errors import BadPath
from engines.documents.paths import check_writable
from engines.errors import TemplateError
from engines.recipes.limits import DOCUMENT_LIMITS, RenderLimits
from engines.recipes.render import render
from engines.structured.text import quote, shorten

MAX_ACTIONS = 20
"""Most actions of one node; the rest are skipped."""
MAX_CONTENT_BYTES = DOCUMENT_LIMITS.max_output_bytes
MAX_TITLE_CHARS = 200

_LINE_LIMITS = RenderLimits(max_output_bytes=16_384, max_steps=10_000)
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,39}\Z")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocWrite:
    """A ``doc_write`` as the model gave it: four templates."""

    path: str
    kind: str
    content: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An action that is not carried out. ``skipped``: it is none we know or one too many; else it failed."""

    reason: str
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A document to create, or to update if the path exists. Everything is checked and final."""

    path: str
    kind: str
    content: str
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """What became of the action at ``position`` of the node's list."""

    position: int
    tool: str
    outcome: Rendered | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What templates of post-actions may name, as ``node.*`` (also ``result.*``) and ``process.*``."""

    node_result: str
    node_goal: str
    process_id: str
    process_goal: str
    node_summary: str | None = None
    process_params: Mapping[str, Any] = field(default_factory=dict)

    def variables(self) -> dict[str, Any]:
        """The summary of a node that has none is its result."""
        node = {
            "result": self.node_result,
            "goal": self.node_goal,
            "summary": self.node_summary or self.node_result,
        }
        process = {"id": self.process_id, "goal": self.process_goal, "params": dict(self.process_params)}
        return {"node": node, "result": node, "process": process}


def run_actions(raw: Any, context: ActionContext) -> tuple[ActionResult, ...]:
    """One result for each action of the list ``raw``, in its order. Never raises; nothing is written here.

    A list that is none counts as one action that failed; ``None`` as no actions.
    """
    if raw is None:
        return ()
    if not isinstance(raw, Sequence) or isinstance(raw, (str, bytes)):
        refused = Refused(reason="postActions must be a list")
        return (ActionResult(position=0, tool="", outcome=refused),)
    return tuple(
        ActionResult(position=position, tool=tool_name(action), outcome=_run(action, position, context))
        for position, action in enumerate(raw)
    )


def _run(raw: Any, position: int, context: ActionContext) -> Rendered | Refused:
    if position >= MAX_ACTIONS:
        return Refused(reason=f"a node may have {MAX_ACTIONS} post-actions", skipped=True)
    action = read_action(raw)
    return action if isinstance(action, Refused) else render_action(action, context)


def tool_name(raw: Any) -> str:
    """The tool an action names, short enough to show; empty when it names none."""
    if not isinstance(raw, Mapping):
        return ""
    name = next((raw[key] for key in ("tool", "toolName") if isinstance(raw.get(key), str) and raw[key].strip()), "")
    return shorten(name.strip(), 80)


def read_action(raw: Any) -> DocWrite | Refused:
    """``{tool|toolName, args|params}``, or the arguments beside the tool. An unknown tool is skipped, a ``doc_write``
    without path, kind or content fails. Arguments it does not know are ignored."""
    tool = tool_name(raw)
    if not tool:
        return Refused(reason="the post-action names no tool", skipped=True)
    if tool.lower() != "doc_write":
        return Refused(reason=f"unknown tool {quote(tool)}: only doc_write is known", skipped=True)
    arguments = next((raw[key] for key in ("args", "params") if raw.get(key) is not None), raw)
    if not isinstance(arguments, Mapping):
        return Refused(reason="the arguments of doc_write must be an object")
    found: dict[str, str] = {}
    for name in ("path", "kind", "content", "title"):
        value = arguments.get(name)
        if value is None and name == "title":
            continue
        if value is not None and not isinstance(value, str):
            return Refused(reason=f"doc_write: {name} must be a text")
        if name != "title" and not (value or "").strip():
            return Refused(reason=f"doc_write: {name} is missing")
        found[name] = value or ""
    return DocWrite(**found)


def render_action(action: DocWrite, context: ActionContext) -> Rendered | Refused:
    """The document to write: templates filled in, path normalised and allowed, sizes within their limits."""
    variables = context.variables()
    try:
        path = check_writable(render(action.path, variables, limits=_LINE_LIMITS, name="doc_write path"))
        kind = render(action.kind, variables, limits=_LINE_LIMITS, name="doc_write kind").strip().lower()
        title = " ".join(render(action.title, variables, limits=_LINE_LIMITS, name="doc_write title").split())
        content = render(action.content, variables, limits=DOCUMENT_LIMITS, name="doc_write content")
    except BadPath as error:
        return Refused(reason=f"doc_write: {error.reason}")
    except TemplateError as error:
        return Refused(reason=error.message)
    if not _KIND.match(kind):
        return Refused(reason=f"doc_write: {quote(kind, 60)} is no kind of document")
    if not content.strip():
        return Refused(reason="doc_write: the content is empty once it is filled in")
    unstorable = _UNSTORABLE.search(content + title)
    if unstorable:
        return Refused(reason=f"doc_write: U+{ord(unstorable.group()):04X} cannot be stored in a document")
    return Rendered(path=path, kind=kind, content=content, title=shorten(title, MAX_TITLE_CHARS) or None)
