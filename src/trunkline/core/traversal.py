"""Whether a text climbs out of a folder: the one function that decides, whatever the text is encoded in.

A path climbs when one of its parts is exactly `..`. Prose may have as many dots as it likes: what counts is a `..` with
a slash beside it, or one that is all there is. A text is looked at as it stands and as anybody may read it later, with
its escapes undone, its look-alikes replaced and its invisible characters left out. Time is linear in its length.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache
from typing import Final

_MOST_ROUNDS: Final = 10
"""Whatever is encoded more often than this was not encoded for a good reason."""

_SUSPICIOUS: Final = re.compile(
    r"""
    \.[\t\r\n]*\. | [\x00-\x08\x0b\x0c\x0e-\x1f] | [^\x00-\x7e]
    | %[0-9a-fu] | \\[ux][0-9a-f] | &(?:\#|period;|b?sol;|percnt;)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A text without any of this does not climb in any reading."""

_NAME: Final = r"[\w.%~-]"
_CLIMBS: Final = re.compile(
    rf"""
      (?<!\.)\.\./                                    # also `static../`, as some servers join names without a slash
    | (?<![\w.])\.\.\\                                # but not the `..\n` of a text within a text
    | [/\\]\.\.(?!{_NAME})
    | (?<![\w.])\.\.;[^\s/\\.]{{0,32}}[/\\]           # some servers cut a part off at the semicolon
    | =\.\.(?:[&\#;]|\Z)                              # a value in a query
    | \A\s*(?:[A-Za-z][\w+.-]{{0,31}}:)?\.\.\s*(?:[/\\]|\Z)
    """,
    re.VERBOSE,
)
_CLIMBS_IN_ONE_LINE: Final = re.compile(r"(?:\A|[/\\=])\.\.(?:[/\\;?#]|\Z)")
"""For a text whose line breaks are left out, as readers of URLs do. A sentence that ends in a line of its own, with a
`./configure` in the next, must not make a path."""
_LINE_BREAKS: Final = re.compile(r"[\t\r\n]+")
_STRIPPED: Final = re.compile(r"\.\.[/\\]")

# -- escapes ----------------------------------------------------------------------------------------------------------

_OF_URLS_AND_PAGES: Final = re.compile(
    r"""
      (?P<bytes> (?:%[0-9a-f]{2})+ )
    | %u (?P<unicode> [0-9a-f]{4} )
    | &\# (?: (?P<decimal> [0-9]{1,9} ) | x (?P<hex> [0-9a-f]{1,8} ) ) (?: ; | (?![0-9a-f%]) )
    | & (?P<entity> period | sol | bsol | percnt ) ;
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OF_PROGRAMS: Final = re.compile(r"\\u(?P<unicode>[0-9a-f]{4})|\\x(?P<hex>[0-9a-f]{2})", re.IGNORECASE)
_ESCAPES: Final = (_OF_URLS_AND_PAGES, _OF_PROGRAMS)
"""One after the other, as a backslash may also be one of a path."""
_ENTITIES: Final = {"period": ".", "sol": "/", "bsol": "\\", "percnt": "%"}
_OVERLONG: Final = re.compile(
    r"""
    (?: [\xc0\xc1\udcc0\udcc1]
      | [\xe0\udce0] ZERO | [\xf0\udcf0] NONE ZERO | [\xf8\udcf8] NONE{2} ZERO | [\xfc\udcfc] NONE{3} ZERO )
    [\x1c\x80-\xbf\udc80-\udcbf]
    """.replace("ZERO", r"[\x80\x81\udc80\udc81]").replace("NONE", r"[\x80\udc80]"),
    re.VERBOSE,
)
"""A character of ASCII in more bytes than it needs, as bytes that are no text or as the letters they are elsewhere."""
_OF_PATHS: Final = frozenset("./\\%\0")

# -- look-alikes ------------------------------------------------------------------------------------------------------

_SLASHES: Final = dict.fromkeys("\u2044\u2215\u29f8\u2571", "/") | dict.fromkeys("\u2216\u29f5\xa5\u20a9", "\\")
"""Beside those that Unicode itself calls compatible. Two are currencies, where some code pages have the backslash."""
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Mn", "Me"})
_LAYOUT: Final = frozenset("\t\r\n")
_TELLING: Final = re.compile(r"[A-Za-z0-9./\\%&#;=:?]")
"""What paths and escapes are made of; other look-alikes are nobody's concern."""
_HALF: Final = re.compile(r"[\ud800-\udfff]")
_HALF_OF_NO_BYTE: Final = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
_STRAY_BYTE: Final = re.compile(r"[\udc80-\udcff]")
_KEPT: Final = "surrogateescape"
"""Bytes that are no text stay apart until their neighbours are decoded too: together they may be."""
_CONTROL: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")


def climbs_out(text: str) -> bool:
    """Whether this text, in any reading, leads out of the folder it starts from. A NUL is never part of a path."""
    if _SUSPICIOUS.search(text) is None:
        return False
    text = _plain(text)
    if _climbs_as_it_stands(text):
        return True
    for _ in range(_MOST_ROUNDS):
        before = text
        for escape in _ESCAPES:
            read = escape.sub(_unescaped, text)
            if read != text:
                text = _plain(read)
                if _climbs_as_it_stands(text):
                    return True
        if text == before:
            return False
    return True


def _climbs_as_it_stands(text: str) -> bool:
    text = _STRAY_BYTE.sub("", text)
    if "\0" in text or _CLIMBS.search(text) is not None:
        return True
    # Some programs take every `../` out, once: `....//` is left as `../`.
    stripped = _STRIPPED.sub("", text)
    if len(stripped) != len(text) and _CLIMBS.search(stripped) is not None:
        return True
    one_line = _LINE_BREAKS.sub("", text)
    return len(one_line) != len(text) and _CLIMBS_IN_ONE_LINE.search(one_line) is not None


def _unescaped(escape: re.Match[str]) -> str:
    kind = escape.lastgroup
    if kind == "bytes":
        return bytes.fromhex(escape["bytes"].replace("%", "")).decode(errors=_KEPT)
    if kind == "entity":
        return _ENTITIES[escape["entity"].lower()]
    digits = escape[kind] if kind else ""
    number = int(digits, 10 if kind == "decimal" else 16)
    if number == 0 and not escape[0].startswith("%"):
        return escape[0]  # as programs write a NUL in their text
    return chr(number) if number <= sys.maxunicode else ""


def _shortened(overlong: re.Match[str]) -> str:
    *_, before, last = overlong[0]
    character = chr((ord(before) & 1) << 6 | ord(last) & 0x3F)
    return character if character in _OF_PATHS else overlong[0]


def _plain(text: str) -> str:
    """Without look-alikes of ASCII and without what cannot be seen."""
    if text.isascii() and _CONTROL.search(text) is None:
        return text
    if _HALF.search(text) is not None:
        text = _HALF_OF_NO_BYTE.sub("", text).encode(errors=_KEPT).decode(errors=_KEPT)
    text = _OVERLONG.sub(_shortened, text)
    table = {ord(character): plain for character in set(text) if (plain := _as_ascii(character)) != character}
    return text.translate(table) if table else text


@lru_cache(maxsize=8192)
def _as_ascii(character: str) -> str:
    """One at a time: normalising a whole text takes time in the square of its length where somebody wants it to."""
    if character == "\0" or character in _LAYOUT:
        return character
    if unicodedata.category(character) in _INVISIBLE:
        return character if _STRAY_BYTE.match(character) else ""
    plain = _SLASHES.get(character) or unicodedata.normalize("NFKC", character)
    return plain if _TELLING.search(plain) is not None else character
