"""Document paths: one spelling for each, and the prefixes that belong to the engines.

A path arrives from a model, a template or a caller and may be spelled to look harmless: percent-encoded, in full-width
letters, with backslashes, by way of ``..``. So it is first brought into its one normal form, and only that form is ever
checked, stored or compared.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

from engines.documents.errors import BadPath
from engines.structured.text import quote

MAX_PATH_BYTES = 1024
"""Of UTF-8; leaves room in an index row for the other columns of the key."""
MAX_SEGMENT_BYTES = 255
_MAX_INPUT_CHARS = 4096
_MAX_DECODINGS = 8

RESERVED_PREFIXES = frozenset(
    {"recipes", "_user", "_vance", "_slart", "_tenant", "_zaphod-drafts", "_vogon-drafts", "_marvin-drafts"}
)
"""First segments that only engines write below."""

_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)\Z", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_REFUSED_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "an invisible character",
    "Cs": "half of a surrogate pair",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}
# Letters and marks that show nothing but are no format characters: left out when names are compared.
_IGNORABLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def normalise_path(text: str) -> str:
    """The one spelling of the project-relative path ``text``: NFKC, decoded, ``/`` between segments, no dots to follow.

    Raises :class:`BadPath` for a path that is absolute, leaves the project, names a drive, a device or a URL, holds
    control or invisible characters, is empty or too long. ``normalise_path(normalise_path(x)) == normalise_path(x)``.
    """
    if not isinstance(text, str):
        raise BadPath("a path must be a text")
    if len(text) > _MAX_INPUT_CHARS:
        raise BadPath(f"the path is longer than {MAX_PATH_BYTES} bytes")
    text = _decoded(text)
    for character in text:
        refused = _REFUSED_CATEGORIES.get(unicodedata.category(character))
        if refused:
            raise BadPath(f"the path contains {refused} (U+{ord(character):04X})")
    if _URL.match(text):
        raise BadPath(f"{quote(text)} is a URL: a document path is relative to the project")
    text = text.replace("\\", "/").strip()
    if text.startswith("/"):
        raise BadPath(f"{quote(text)} is absolute: a document path is relative to the project")
    path = "/".join(_resolved(text))
    if not path:
        raise BadPath("the path is empty")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise BadPath(f"the path is longer than {MAX_PATH_BYTES} bytes")
    return path


def check_writable(text: str) -> str:
    """The normal form of ``text`` when a post-action may write there, else :class:`BadPath`."""
    path = normalise_path(text)
    first = _skeleton(path.split("/", 1)[0])
    if first in RESERVED_PREFIXES:
        raise BadPath(f"{quote(path)} is reserved: documents below {first}/ are written by the engines only")
    return path


def _decoded(text: str) -> str:
    """Neither percent-encoding nor a compatibility spelling left, however often one was wrapped in the other."""
    for _ in range(_MAX_DECODINGS):
        try:
            plain = unicodedata.normalize("NFKC", unquote(text, errors="strict"))
        except UnicodeDecodeError:
            raise BadPath("the path is percent-encoded and not UTF-8") from None
        if plain == text:
            return text
        if len(plain) > _MAX_INPUT_CHARS:
            raise BadPath(f"the path is longer than {MAX_PATH_BYTES} bytes")
        text = plain
    raise BadPath("the path is percent-encoded too many times")


def _resolved(text: str) -> list[str]:
    segments: list[str] = []
    for raw in text.split("/"):
        segment = raw.strip()
        if segment in ("", "."):
            continue
        if segment == "..":
            if not segments:
                raise BadPath("the path leads out of the project (..)")
            segments.pop()
            continue
        # Windows drops blanks and dots at the end of a name, so `_vance.` would be `_vance` in a checkout there.
        segment = _trimmed(segment)
        _check_segment(segment)
        segments.append(segment)
    return segments


def _trimmed(segment: str) -> str:
    shorter = segment.rstrip().rstrip(".")
    while shorter != segment:
        segment, shorter = shorter, shorter.rstrip().rstrip(".")
    return segment


def _check_segment(segment: str) -> None:
    if not segment:
        raise BadPath("a part of the path consists of dots only")
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        raise BadPath(f"a part of the path is longer than {MAX_SEGMENT_BYTES} bytes")
    if _DRIVE.match(segment):
        raise BadPath(f"{quote(segment)} names a drive: a document path is relative to the project")
    if segment.startswith("~"):
        raise BadPath(f"{quote(segment)} names a home folder: a document path is relative to the project")
    if _DEVICE.match(segment.split(".", 1)[0].strip()):
        raise BadPath(f"{quote(segment)} is the name of a device on Windows")


def _skeleton(segment: str) -> str:
    """A name as it is compared: case and characters that show nothing make no difference."""
    return unicodedata.normalize("NFKC", _IGNORABLE.sub("", segment).casefold())
