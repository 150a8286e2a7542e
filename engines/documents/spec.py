"""What an EXPAND_FROM_DOC node asks for, read from its ``taskSpec``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from engines.documents.errors import BadPath
from engines.documents.paths import normalise_path
from engines.errors import InvalidParams
from engines.structured.text import quote, shorten

TASK_KINDS = ("WORKER", "EXPAND_FROM_DOC", "USER_INPUT")
MAX_TEMPLATE_TEXTS = 100
"""Most texts in one child template: each is rendered once for every entry."""
_MAX_DEPTH = 20


class TreeMode(StrEnum):
    """Whether a tree document gives children of its top entries only, or nested ones."""

    FLAT = "FLAT"
    RECURSIVE = "RECURSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRef:
    """Which document: exactly one of these is set. ``name`` is tried as a path first, then as the last part of one."""

    id: str | None = None
    path: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        kind, value = next((key, value) for key in ("id", "path", "name") if (value := getattr(self, key)) is not None)
        return f"{kind} {quote(value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTemplate:
    """What every child looks like: texts are templates, ``task_spec`` has them at any depth."""

    kind: str
    goal: str
    task_spec: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandSpec:
    """A validated request to fan out."""

    document: DocumentRef
    child: ChildTemplate
    tree_mode: TreeMode = TreeMode.RECURSIVE
    fail_on_empty: bool = False
    fail_on_missing_field: bool = False


def read_expand_spec(task_spec: Mapping[str, Any]) -> ExpandSpec:
    """``{documentRef, childTemplate, treeMode?, failOnEmpty?, failOnMissingField?}``. Raises :class:`InvalidParams`."""
    return ExpandSpec(
        document=_read_reference(task_spec.get("documentRef")),
        child=read_child_template(task_spec.get("childTemplate")),
        tree_mode=_read_mode(task_spec.get("treeMode")),
        fail_on_empty=_read_flag(task_spec, "failOnEmpty"),
        fail_on_missing_field=_read_flag(task_spec, "failOnMissingField"),
    )


def read_child_template(raw: Any) -> ChildTemplate:
    """``{taskKind?, goal?, taskSpec?, …}``: other keys join the task spec (``recipeParams`` as ``params``), keys that
    begin with an underscore are dropped at every depth. Raises :class:`InvalidParams` naming the place."""
    if not isinstance(raw, Mapping):
        raise InvalidParams("childTemplate", "must be an object with a goal for the children")
    kind = raw.get("taskKind")
    kind = "WORKER" if kind is None or kind == "" else kind
    token = kind.strip().upper() if isinstance(kind, str) else None
    if token not in TASK_KINDS:
        raise InvalidParams(
            "childTemplate.taskKind", f"{shorten(repr(kind), 80)} is not one of {', '.join(TASK_KINDS)}"
        )
    goal = raw.get("goal")
    if goal is not None and not isinstance(goal, str):
        raise InvalidParams("childTemplate.goal", "must be a text")
    task_spec = raw.get("taskSpec")
    if task_spec is not None and not isinstance(task_spec, Mapping):
        raise InvalidParams("childTemplate.taskSpec", "must be an object")
    rest = {key: value for key, value in raw.items() if key not in ("taskKind", "goal", "taskSpec")}
    if "recipeParams" in rest:
        rest.setdefault("params", rest.pop("recipeParams"))
    texts = [0]
    cleaned = _cleaned({**rest, **(task_spec or {})}, "childTemplate", 0, texts)
    return ChildTemplate(kind=token, goal=goal or "", task_spec=cleaned)


def _cleaned(value: Any, place: str, depth: int, texts: list[int]) -> Any:
    """``value`` without the keys that are the engine's own, counted and of bearable depth."""
    if depth > _MAX_DEPTH:
        raise InvalidParams(place[:200], f"nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {
            key: _cleaned(child, f"{place}.{key}", depth + 1, texts)
            for key, child in value.items()
            if isinstance(key, str) and not key.startswith("_")
        }
    if isinstance(value, (list, tuple)):
        return [_cleaned(child, f"{place}[{index}]", depth + 1, texts) for index, child in enumerate(value)]
    if isinstance(value, str):
        texts[0] += 1
        if texts[0] > MAX_TEMPLATE_TEXTS:
            raise InvalidParams("childTemplate", f"has more than {MAX_TEMPLATE_TEXTS} texts")
    return value


def _read_reference(raw: Any) -> DocumentRef:
    if isinstance(raw, str):
        raw = {"path": raw}
    if not isinstance(raw, Mapping):
        raise InvalidParams("documentRef", "must name a document by path, id or name")
    for key in ("id", "path", "name"):
        value = raw.get(key)
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        if not isinstance(value, str):
            raise InvalidParams(f"documentRef.{key}", "must be a text")
        if key == "id":
            return DocumentRef(id=value.strip())
        try:
            path = normalise_path(value)
        except BadPath as error:
            raise InvalidParams(f"documentRef.{key}", error.reason) from None
        return DocumentRef(path=path) if key == "path" else DocumentRef(name=path)
    raise InvalidParams("documentRef", "must name a document by path, id or name")


def _read_mode(raw: Any) -> TreeMode:
    if raw is None or raw == "":
        return TreeMode.RECURSIVE
    token = raw.strip().upper() if isinstance(raw, str) else None
    if token not in list(TreeMode):
        raise InvalidParams("treeMode", f"{shorten(repr(raw), 80)} is neither FLAT nor RECURSIVE")
    return TreeMode(token)


def _read_flag(task_spec: Mapping[str, Any], key: str) -> bool:
    value = task_spec.get(key)
    if isinstance(value, str):
        value = {"true": True, "false": False, "": False}.get(value.strip().lower(), value)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidParams(key, "must be true or false")
