"""Advice on shapes that models get wrong: by topic when a model asks, by keyword when a request mentions one.

An operator's topics are merged over the bundled ones by id::

    topics:
      regulated_charge: {advice: "Our tariffs are in …"}     # fields that are not given stay
      proration: null                                          # switches a topic off
      house_rates: {title: "House rates", advice: "…"}        # a topic of its own
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from engines.errors import EngineError
from engines.structured.text import quote_all
from engines.valem.prompts.resources import table

_FILE: Final = "guidance.yaml"


class GuidanceError(EngineError):
    """An operator's guidance file cannot be used: the message says where and what would be right."""


class Example(BaseModel):
    """An expression with what it gives for an input document, and the constants it reads as ``$const``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    expr: str
    input: Any
    result: Any
    const: dict[str, Any] = {}


class Topic(BaseModel):
    """One topic. ``keywords``: words that show its example unasked, ``*`` at the end for any ending."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    advice: str
    keywords: tuple[str, ...] = ()
    example: Example | None = None


Topics = Mapping[str, Topic]


@functools.cache
def bundled_topics() -> Topics:
    """The topics of this project, in the order of the file."""
    return {name: Topic.model_validate(fields) for name, fields in table(_FILE)["topics"].items()}


def merged_topics(text: str, source: str) -> Topics:
    """The bundled topics with an operator's file ``text`` over them. :class:`GuidanceError` names ``source``."""
    try:
        data = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise GuidanceError(f"{source}: is no YAML: {' '.join(str(error).split())}") from None
    topics = data.get("topics") if isinstance(data, dict) and set(data) <= {"topics"} else None
    if not isinstance(topics, dict):
        raise GuidanceError(f"{source}: must be a mapping with the one key topics, which maps topic ids to topics")
    merged = dict(bundled_topics())
    for name, fields in topics.items():
        if fields is None:
            merged.pop(str(name), None)
        else:
            merged[str(name)] = _topic(str(name), fields, merged.get(str(name)), source)
    return merged


def guidance(wanted: Iterable[str], topics: Topics | None = None) -> str:
    """What ``get_domain_guidance`` answers: one section per topic, each once; unknown names are answered with a list.

    topics: what :func:`merged_topics` gave; without it the bundled ones.
    """
    known = bundled_topics() if topics is None else topics
    names = list(dict.fromkeys(name.strip() for name in wanted))
    sections = [_section(known[name]) for name in names if name in known]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        complaint = f"no such topic: {quote_all(unknown)}" if unknown else "no topic was named"
        sections.append(f"[{complaint}; there are: {', '.join(known)}]")
    return "\n\n".join(sections)


def matching_shapes(text: str, topics: Topics | None = None) -> tuple[str, ...]:
    """The topics one of whose keywords is in ``text``, in the order of the file."""
    known = bundled_topics() if topics is None else topics
    plain = " ".join(text.split())
    return tuple(name for name, topic in known.items() if any(_mentions(plain, word) for word in topic.keywords))


def shape_exemplars(text: str, topics: Topics | None = None) -> str:
    """The examples of all shapes that ``text`` mentions, for the end of a task; empty for ordinary requests."""
    known = bundled_topics() if topics is None else topics
    shown = [known[name] for name in matching_shapes(text, known)]
    parts = [f"{topic.title}:\n{_example(topic.example)}" for topic in shown if topic.example is not None]
    if not parts:
        return ""
    return "\n".join(("Expressions of such a shape that work; take over what fits.", *parts))


@functools.lru_cache(maxsize=512)
def _pattern(keyword: str) -> re.Pattern[str]:
    stem, star, _ = keyword.partition("*")
    ending = "" if star else r"s?\b"
    return re.compile(rf"\b{re.escape(stem)}{ending}", re.IGNORECASE)


def _mentions(text: str, keyword: str) -> bool:
    return _pattern(keyword).search(text) is not None


def _section(topic: Topic) -> str:
    example = f"\n{_example(topic.example)}" if topic.example is not None else ""
    return f"## {topic.title}\n{topic.advice}{example}"


def _example(example: Example) -> str:
    const = f" and $const = {_json(example.const)}" if example.const else ""
    return f"`{' '.join(example.expr.split())}`\nfor {_json(example.input)}{const} gives {_json(example.result)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _topic(name: str, fields: Any, base: Topic | None, source: str) -> Topic:
    if not isinstance(fields, dict):
        raise GuidanceError(f"{source}: topics.{name}: must be a mapping with title and advice, or null")
    before = base.model_dump() if base is not None else {}
    try:
        return Topic.model_validate({**before, **fields})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in (name, *first["loc"]))
        raise GuidanceError(
            f"{source}: topics.{place}: {first['msg'].lower()} (a topic has {', '.join(Topic.model_fields)})"
        ) from None
