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
_STRIPPED: Final = re.compile(r"\.\.[/\\]")
"""Some programs take every `../` out, once: `....//` is left as `../`."""

# -- escapes ----------------------------------------------------------------------------------------------------------

_OF_URLS_AND_PAGES: Final = re.compile(
    r"""
      (?P<bytes> (?:%[0-9a-f]{2})+ )
    | %u (?P<unicode> [0-9a-f]{4} )
    | &\# (?: (?P<decimal> [0-9]{1,9} ) | x (?P<hex> [0-9a-f]{1,8} ) ) (?: ; | (?=[./&]|\Z) )
    | & (?P<entity> period | sol | bsol | percnt ) ;
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OF_PROGRAMS: Final = re.compile(r"\\u[0-9a-f]{4}|\\x[0-9a-f]{2}", re.IGNORECASE)
"""Only once there are no others left, and only for what paths are made of: a backslash may also be one of a path."""
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

_SLASHES: Final = dict.fromkeys("\u2044\u2215\u29f8\u2571", "/") | dict.fromkeys("\u2216\u29f5", "\\")
"""Beside those that Unicode itself calls compatible."""
_CURRENCY: Final = re.compile(r"(?<=\.)[\xa5\u20a9]")
"""Where some code pages have the backslash. Before the dots it is the price in a sentence."""
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Mn", "Me"})
_LAYOUT: Final = frozenset("\t\r\n")
_TELLING: Final = re.compile(r"[A-Za-z0-9./\\%&#;=:?]")
"""What paths and escapes are made of; other look-alikes are nobody's concern."""
_HALF: Final = re.compile(r"[\ud800-\udfff]")
_HALF_OF_NO_BYTE: Final = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
_STRAY_BYTE: Final = re.compile(r"[\udc80-\udcff]")
_KEPT: Final = "surrogateescape"
"""Bytes that are no text stay apart until their neighbours are decoded too: together they may be."""


def climbs_out(text: str) -> bool:
    """Whether this text, in any reading, leads out of the folder it starts from. A NUL is never part of a path."""
    if _is_harmless(text):
        return False
    text = _plain(text)
    for _ in range(_MOST_ROUNDS):
        if _climbs_as_it_stands(text):
            return True
        read = _OF_URLS_AND_PAGES.sub(_unescaped, text)
        if read == text:
            read = _OF_PROGRAMS.sub(_unescaped_in_a_path, text)
        if read == text:
            return False
        text = _plain(read)
    return True


def _is_harmless(text: str) -> bool:
    """A quick look, at the speed of memory: such a text is only what it seems."""
    if ".." in text or "%" in text or "\\" in text or "&" in text or not text.isascii():
        return False
    line = _in_one_line(text)
    return line.isprintable() and ".." not in line


def _in_one_line(text: str) -> str:
    return text if text.isprintable() else text.replace("\n", "").replace("\r", "").replace("\t", "")


def _climbs_as_it_stands(text: str) -> bool:
    if not text.isascii():
        text = _STRAY_BYTE.sub("", text)
    if "\0" in text or (".." in text and (_CLIMBS.search(text) or _CLIMBS.search(_STRIPPED.sub("", text)))):
        return True
    line = _in_one_line(text)
    return ".." in line and line != text and _CLIMBS_IN_ONE_LINE.search(line) is not None


def _unescaped_in_a_path(escape: re.Match[str]) -> str:
    plain = _as_ascii(chr(int(escape[0][2:], 16)))
    return plain if plain and not plain.strip("./\\%") else escape[0]


def _unescaped(escape: re.Match[str]) -> str:
    kind = escape.lastgroup
    if kind == "bytes":
        return bytes.fromhex(escape["bytes"].replace("%", "")).decode(errors=_KEPT)
    if kind == "entity":
        return _ENTITIES[escape["entity"].lower()]
    digits = escape[kind] if kind else ""
    number = int(digits, 10 if kind == "decimal" else 16)
    return chr(number) if number <= sys.maxunicode else ""


def _shortened(overlong: re.Match[str]) -> str:
    *_, before, last = overlong[0]
    character = chr((ord(before) & 1) << 6 | ord(last) & 0x3F)
    return character if character in _OF_PATHS else overlong[0]


def _plain(text: str) -> str:
    """Without look-alikes of ASCII and without what cannot be seen."""
    if text.isascii() and _in_one_line(text).isprintable():
        return text
    if _HALF.search(text) is not None:
        text = _HALF_OF_NO_BYTE.sub("", text).encode(errors=_KEPT).decode(errors=_KEPT)
    text = _CURRENCY.sub(r"\\", _OVERLONG.sub(_shortened, text))
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
