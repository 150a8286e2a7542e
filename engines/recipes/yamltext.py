"""Reading YAML that people write, strictly: plain data out, everything doubtful refused with its line.

The schema of YAML 1.2 in spirit: ``true``/``false`` are the only booleans, dates stay texts, ``1:30`` is no number.
Duplicate keys, anchors and aliases (a few lines of them expand to gigabytes), tags, keys that are no texts, numbers
that JSON cannot carry and deep nesting are errors.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from engines.errors import RecipeError

MAX_CHARS = 262_144
MAX_DEPTH = 40

Path = tuple[str | int, ...]
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def fetch_flow_collection_start(self, token_class: Any) -> Any:
        if self.flow_level >= MAX_DEPTH:
            raise yaml.YAMLError(f"nested more than {MAX_DEPTH} levels deep")
        return super().fetch_flow_collection_start(token_class)

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(None, None, "anchors and aliases are not allowed", mark)
        return super().compose_node(parent, index)


for _kind, _pattern, _starts in (
    ("bool", r"true|false|True|False|TRUE|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,18})", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), [c.strip("\0") for c in _starts])


class YamlText:
    """A parsed document: ``data``, and where in the text each part of it stands."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.lines: dict[Path, int] = {}
        """Line of each key and list item."""
        self.text_lines: dict[Path, int] = {}
        """Line on which each text's content begins (for block scalars, the line after the ``|``)."""
        if len(text) > MAX_CHARS:
            raise RecipeError(f"{source}: longer than {MAX_CHARS} characters")
        try:
            node = yaml.compose(text, Loader=_Loader)
            self.data = None if node is None else self._value(node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f":{mark.line + 1}" if mark else ""
            problem = " ".join(part for part in (error.context, error.problem) if part)
            raise RecipeError(f"{source}{where}: not valid YAML: {problem}") from None
        except yaml.YAMLError as error:
            raise RecipeError(f"{source}: not valid YAML: {error}") from None
        except RecursionError:
            raise RecipeError(f"{source}: nested too deeply") from None

    def where(self, path: Path) -> str:
        """``file:line`` of ``path``, or of the nearest thing around it that has a line."""
        while path and path not in self.lines:
            path = path[:-1]
        line = self.lines.get(path)
        return self.source if line is None else f"{self.source}:{line}"

    def _value(self, node: yaml.Node, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            raise _at(node, f"nested more than {MAX_DEPTH} levels deep")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self._value(child, (*path, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            self.text_lines[path] = node.start_mark.line + (2 if node.style in ("|", ">") else 1)
            return _scalar(node)
        raise _at(node, f"the tag {node.tag} is not allowed")

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TAG + "str":
                raise _at(key_node, f"the key {key_node.value!r} must be a text: put it in quotes")
            key = key_node.value
            if key in found:
                raise _at(key_node, f"the key {key!r} stands here twice")
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            found[key] = self._value(value_node, (*path, key))
        return found


def _at(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, problem, node.start_mark)


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    try:
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "bool":
                return {"true": True, "false": False}[text.lower()]
            case "null":
                return None
            case "int":
                return int(text)
            case "float":
                number = float(text)
                if math.isfinite(number):
                    return number
                raise ValueError
    except (ValueError, KeyError):
        raise _at(node, f"{text!r} is no value JSON can carry") from None
    raise _at(node, f"the tag {node.tag} is not allowed")
