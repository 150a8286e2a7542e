"""From the bytes of a page to a text a model can read."""

from __future__ import annotations

import codecs
import re
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin, urlsplit

_TEXTUAL: Final = re.compile(
    r"text/|application/(?:json|xml|xhtml\+xml|javascript|ecmascript|yaml|x-yaml|toml|x-ndjson|[\w.+-]+\+(?:json|xml))\b"
)
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
# Codecs that are no way to write a page, or cost more than their text is worth.
_NO_CHARSETS: Final = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7"})
_UNWANTED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_SKIPPED: Final = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object", "select", "canvas"})
_BLOCKS: Final = re.compile(
    "address|article|aside|blockquote|br|d[dlt]|div|fieldset|figcaption|figure|footer|form|h[1-6r]|header|li|main|nav|ol"
    "|p|pre|section|table|tr|ul|title"
)
_MAX_LINKS: Final = 200


def is_textual(content_type: str, body: bytes) -> bool:
    """Whether the body can be shown as text; decided by the bytes when the type is not given."""
    kind = content_type.partition(";")[0].strip().lower()
    return _TEXTUAL.match(kind) is not None if kind else b"\0" not in body[:1024]


def decoded(content_type: str, body: bytes) -> str:
    """The text of ``body`` by its byte-order mark, its header or its own word; a lie is read as UTF-8."""
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body.decode("utf-16", errors="replace")
    named = _CHARSET.search(content_type) or _CHARSET.search(body[:2048].decode("latin-1"))
    charset = _known(named[1]) if named else None
    for attempt in (charset, "utf-8-sig"):
        if attempt is not None:
            try:
                return body.decode(attempt)
            except UnicodeError:
                continue
    return body.decode(charset or "utf-8-sig", errors="replace")


def _known(name: str) -> str | None:
    try:
        found = codecs.lookup(name).name
        "".encode(found)
    except (LookupError, UnicodeError):
        return None
    return None if found.replace("-", "_") in _NO_CHARSETS or found in _NO_CHARSETS else found


def readable(content_type: str, body: bytes, url: str) -> str:
    """The page as plain text: HTML without its markup, links behind their words; everything else as it is."""
    text = decoded(content_type, body)
    kind = content_type.partition(";")[0].strip().lower()
    looks_like_html = not kind and re.match(r"\s*(?:<!doctype html|<html)", text, re.IGNORECASE) is not None
    if kind in ("text/html", "application/xhtml+xml") or looks_like_html:
        reader = _Reader(url)
        reader.feed(text)
        reader.close()
        text = reader.text()
    return clean(text)


def clean(text: str) -> str:
    """``text`` without control characters and lone surrogates, and without runs of empty lines."""
    return re.sub(r"\n{3,}", "\n\n", _UNWANTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))).strip()


class _Reader(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._parts: list[str] = []
        self._skipping: list[str] = []
        self._link: str | None = None
        self._links = 0
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.append(tag)
            return
        if tag in _SKIPPED:
            self._skipping.append(tag)
            return
        if _BLOCKS.fullmatch(tag):
            self._parts.append("\n")
        if tag == "li":
            self._parts.append("- ")
        elif re.fullmatch("h[1-6]", tag):
            self._parts.append("#" * int(tag[1]) + " ")
        elif tag in ("td", "th"):
            self._parts.append(" | ")
        elif tag == "pre":
            self._preformatted += 1
        elif tag == "a":
            self._link = self._absolute(dict(attrs).get("href"))

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.pop()
            return
        if tag == "a" and self._link is not None:
            self._parts.append(f" [{self._link}]")
            self._link = None
        elif tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)
        if _BLOCKS.fullmatch(tag):
            self._parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._parts.append(data if self._preformatted else re.sub(r"\s+", " ", data))

    def _absolute(self, href: str | None) -> str | None:
        """Where a link leads; nothing for one within the page, for scripts, and beyond the first few hundred."""
        if not href or href.startswith("#") or self._links >= _MAX_LINKS:
            return None
        try:
            joined = urljoin(self._url, href.strip())
            if urlsplit(joined).scheme not in ("http", "https") or len(joined) > 500:
                return None
        except ValueError:
            return None
        self._links += 1
        return joined

    def text(self) -> str:
        lines = (line.rstrip() if line.startswith(" ") else line.strip() for line in "".join(self._parts).split("\n"))
        return "\n".join(line if line.strip() else "" for line in lines)
