"""Makes text safe to show: removes secrets, known ones by value, credentials in headers and URLs by shape, and escapes
what is not printable.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final
from urllib.parse import quote, quote_plus

from trunkline.config.secret_detection import SHORTEST_SECRET, user_and_password
from trunkline.config.secret_splitting import split_secret
from trunkline.core.hidden_text import reveal

HIDDEN: Final = "***"

_NO_TEXT: Final = re.compile("[\ud800-\udfff]")
"""Bytes of a variable that are not UTF-8; what a program prints of them is read as the replacement character."""
_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_BEARER: Final = re.compile(r"\b(bearer)\s+(?!tokens?\b)[^\s\"',;]+", re.IGNORECASE)
_BASIC: Final = re.compile(r"\b(basic\s+)([A-Za-z0-9+/_-]{4,}={0,2})", re.IGNORECASE)
_URL_PASSWORD: Final = re.compile(r"(?<=://)[^/\s@:]*:[^/\s@]*@")


class Redactor:
    """Knows secret values and replaces them, in the spellings they are likely to appear in.

    A spelling is looked up by its beginning, so that a text is read once however many secrets there are.
    """

    __slots__ = ("_beginning", "_lengths", "_names", "_secrets", "_spellings")

    def __init__(self, secrets: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        """Names of servers and tools, which are never hidden: nothing is readable without them."""
        self._secrets: set[str] = set()
        self._spellings: set[str] = set()
        self._lengths: dict[str, list[int]] = {}
        """The lengths of spellings with this beginning, the longest first."""
        self._beginning: re.Pattern[str] | None = None
        """Matches wherever a spelling may begin, as a first filter: the characters that occur at each place."""
        self.learn(secrets, names)

    def learn(self, secrets: Iterable[str], names: Iterable[str] = ()) -> None:
        """Hide these too, except for names. Nothing is unlearned: a secret that was replaced may still turn up."""
        self._names.update(names)
        new = set(secrets) - self._secrets
        self._secrets |= new
        parts = {part for secret in new for part in split_secret(secret.strip())} - self._names
        spellings = {spelling for part in parts for spelling in _spellings_of(part)}
        found = {spelling for spelling in spellings if len(spelling) >= SHORTEST_SECRET} - self._spellings
        if not found:
            return
        self._spellings |= found
        for spelling in found:
            lengths = self._lengths.setdefault(spelling[:SHORTEST_SECRET], [])
            if len(spelling) not in lengths:
                lengths.append(len(spelling))
                lengths.sort(reverse=True)
        places = ("".join(sorted(set(place))) for place in zip(*self._lengths, strict=True))
        self._beginning = re.compile(f"(?={''.join(f'[{re.escape(characters)}]' for characters in places)})")

    def __call__(self, text: str) -> str:
        if self._beginning is not None:
            text = self._without_known(text, self._beginning)
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
        text = _BASIC.sub(_without_basic, text)
        return _URL_PASSWORD.sub(f"{HIDDEN}@", text)

    def _without_known(self, text: str, beginning: re.Pattern[str]) -> str:
        """Secrets that overlap are hidden as one, so that nothing is left of either."""
        parts: list[str] = []
        shown_from = hidden_to = 0
        for match in beginning.finditer(text):
            start = match.start()
            lengths = self._lengths.get(text[start : start + SHORTEST_SECRET], ())
            end = start + next((n for n in lengths if text[start : start + n] in self._spellings), 0)
            if end <= max(start, hidden_to):
                continue
            if start >= hidden_to:
                parts += (text[shown_from:start], HIDDEN)
            shown_from = hidden_to = end
        return "".join((*parts, text[shown_from:])) if parts else text


def _without_basic(match: re.Match[str]) -> str:
    return f"{match[1]}{HIDDEN}" if user_and_password(match[2]) else match.group()


def _spellings_of(value: str) -> Iterator[str]:
    """A value as programs print it: in a URL, in JSON (also as Go and PHP write it), in Python, HTML and base64."""
    quoted = quote(value, safe="", errors="replace")
    in_html = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    as_json = encode_basestring(value)[1:-1]
    yield from (value, _NO_TEXT.sub("\ufffd", value), value.lower(), value.upper())
    # in lower case as the host of a URL, in upper case as a digest
    yield from (quoted, _PERCENT.sub(lambda match: match.group().lower(), quoted), quote(value, errors="replace"))
    yield quote_plus(value, errors="replace")
    # as JavaScript does: encodeURIComponent, URLSearchParams, and the path of a URL
    yield quote(value, safe="!'()*", errors="replace")
    yield quote_plus(value, safe="*", errors="replace").replace("~", "%7E")
    yield quote(value, safe="!$&'()*+,;=:@/", errors="replace")
    in_ascii = encode_basestring_ascii(value)[1:-1]
    yield from (as_json, in_ascii, as_json.replace("/", "\\/"), in_ascii.replace("/", "\\/"))
    yield encode_basestring(as_json)[1:-1]  # within JSON that is a text of JSON
    yield as_json.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    yield from (repr(value)[1:-1], in_html, in_html.replace('"', "&quot;").replace("'", "&#x27;"))
    in_base64 = b64encode(value.encode(errors="replace")).decode().rstrip("=")
    yield from (in_base64, in_base64.replace("+", "-").replace("/", "_"))


def one_line(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, everything that is not printable written as an escape (`\\x1b`).

    A name may hold a line feed, an escape sequence or a bidi override; printed as it is, it could forge a log line or
    drive the terminal of whoever reads the log.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    shown = reveal(text, _escape)
    if shown.isprintable() and shown is text:
        return text
    escaped = "".join(char if char.isprintable() else _escape(char) for char in shown)
    return escaped if len(escaped) <= limit else escaped[: limit - 1] + "…"


def _escape(char: str) -> str:
    # Control and format characters (ESC, C1, bidi, tags), line separators and lone surrogates all come through here.
    return char.encode("unicode_escape").decode("ascii")
