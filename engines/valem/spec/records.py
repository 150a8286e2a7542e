"""A model spec in memory: frozen records with the field names of Python, one for each part of the JSON form.

Texts are kept as they came: whether an address is canonical or an expression compiles is for the validator to say. A
record says what a spec *is*; what one may be is in the validator, how it runs in ``engines.valem.cycle``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = Any
"""``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` or ``None``. Parts of a record: treat as read-only."""

DEFAULT_VERSION = "1.0.0"
DEFAULT_TIMEOUT_MS = 5_000


class Evaluation(StrEnum):
    """When a derivation is computed: in every cycle, or when somebody reads it."""

    EAGER = "eager"
    LAZY = "lazy"


class Policy(StrEnum):
    """What a violated constraint does: undo the write, or report and let it stand."""

    ROLLBACK = "rollback"
    FLAG = "flag"


class MetaProperty(StrEnum):
    """The schema keywords that a spec can compute."""

    REQUIRED = "required"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    MULTIPLE_OF = "multipleOf"
    MIN_LENGTH = "minLength"
    MAX_LENGTH = "maxLength"
    PATTERN = "pattern"
    ENUM = "enum"
    READ_ONLY = "readOnly"
    RELEVANT = "relevant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """A field that is computed and never written. ``path`` may hold ``[*]``: once per element, ``$parent`` is it."""

    path: str
    expr: str
    evaluation: Evaluation = Evaluation.EAGER
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaDerivation:
    """A schema keyword of a field that is computed."""

    path: str
    property: MetaProperty
    expr: str
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultValue:
    """What fills a container when it comes into being. ``expr`` gives an object; ``path`` is the container's."""

    path: str
    expr: str
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """An invariant. ``None`` for ``id``, ``expr`` or ``policy`` means the key was absent, which is a validation error.

    paths: empty for a constraint of the whole document, else the fields whose values are ``$`` in turn.
    several_paths: whether the paths were written as a list.
    """

    id: str | None
    expr: str | None
    policy: Policy | None
    message: str | None = None
    paths: tuple[str, ...] = ()
    several_paths: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectPolicy:
    """How the shell runs an effect. Milliseconds; ``backoff`` and the rest are the shell's to read."""

    timeout_ms: int = DEFAULT_TIMEOUT_MS
    retries: int = 0
    backoff: str | None = None
    egress_profile: str | None = None
    model: str | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Something for the shell around a model to do. The model only says that it is due; it never does it.

    request, target: the objects of the JSON form, unread (``url``, ``method``, …; ``ref``, ``path``, ``read``).
    requests: several requests, in order; ``None`` when the key is absent.
    response_set: address -> expression, written when the answer is there.
    """

    id: str
    trigger: str
    executor: str = "server"
    dedupe_key: str | None = None
    status_path: str | None = None
    policy: EffectPolicy | None = None
    emit: str | None = None
    payload: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, Json] | None = None
    requests: tuple[Json, ...] | None = None
    target: Mapping[str, Json] | None = None
    body: Json = None
    prompt: str | None = None
    response_schema: Mapping[str, Json] | None = None
    response_set: Mapping[str, str] = field(default_factory=dict)
    at: str | None = None
    after_ms: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    """One embedded test: what is written, and what must then be there. Both map addresses to values."""

    given: Mapping[str, Json]
    expect: Mapping[str, Json]
    description: str = ""

    __test__ = False  # for pytest: a record, not a test class


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDefinition:
    """Screens as plain JSON. ``raw`` is the whole object; the validator knows what may be in it."""

    raw: Mapping[str, Json]

    @property
    def default_view(self) -> str | None:
        name = self.raw.get("defaultView")
        return name if isinstance(name, str) else None

    @property
    def views(self) -> tuple[Mapping[str, Json], ...]:
        """The views that are objects."""
        views = self.raw.get("views")
        return tuple(view for view in views if isinstance(view, dict)) if isinstance(views, list) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryLayer:
    """Functions of one origin. ``define`` binds them and returns the list of names that are for others to call.

    signatures: name -> signature, for readers.
    extends: the coordinate the layer was taken from, when it is inherited.
    constants: names of the constants an inherited layer reads.
    """

    define: str
    signatures: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    extends: str | None = None
    constants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A spec's functions: ``layers`` in order, then the spec's own ``define``. Later ones win.

    define: ``None`` when the spec has no layer of its own (it was dropped, or all are in ``layers``).
    """

    define: str | None = None
    signatures: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    extends: str | None = None
    layers: tuple[LibraryLayer, ...] = ()

    def all_layers(self) -> tuple[LibraryLayer, ...]:
        """Every layer in the order in which they are bound, the own one last."""
        if self.define is None:
            return self.layers
        own = LibraryLayer(define=self.define, signatures=self.signatures, description=self.description)
        return (*self.layers, own)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A whole spec. ``id`` is ``""`` and ``schema`` ``None`` when the key was absent: validation errors both."""

    id: str
    schema: Mapping[str, Json] | None
    version: str = DEFAULT_VERSION
    constants: Mapping[str, Json] = field(default_factory=dict)
    library: Library | None = None
    default_values: tuple[DefaultValue, ...] = ()
    derivations: tuple[Derivation, ...] = ()
    meta_derivations: tuple[MetaDerivation, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    effects: tuple[Effect, ...] = ()
    tests: tuple[TestCase, ...] = ()
    view_definition: ViewDefinition | None = None
    template: Mapping[str, Json] | None = None
    lineage: tuple[Json, ...] = ()
