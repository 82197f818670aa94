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
    \.\.(?!\.)                                        # a text is searched for the dots first: that is fast
    (?: (?<!\.\.\.)/                                  # also `static../`, as some servers join names without a slash
      | (?<![\w.]\.\.) (?: \\                          # but not the `..\n` of a text within a text
                        | ;[^\s/\\.]{{0,32}}[/\\] )   # some servers cut a part off at the semicolon
      | (?<=[/\\]\.\.) (?!{_NAME})
      | (?<==\.\.) (?:[&\#;]|\Z)                       # a value in a query
    )
    """,
    re.VERBOSE,
)
_BEGINS_TO_CLIMB: Final = re.compile(r"\s*(?:[A-Za-z][\w+.-]{0,31}:)?\.\.(?:\s*(?:[/\\]|\Z)|[?#]\w)")
_IS_JSON: Final = re.compile(r'\s*"?(?:\{\s*\\*"|\[\s*[\\"\[{\d])')
_VALUE_OF_JSON: Final = re.compile(r'"\.\.\\*"\s*[\],}]')
"""Agents often send an object as a text of JSON, and services are kind enough to read it: then `..` is a value. In any
other text, quoted dots are somebody's program that compares names."""
_CLIMBS_IN_ONE_LINE: Final = re.compile(r"\.\.(?<![^/\\=]\.\.)(?:[/\\;?#]|\Z)")
"""For a text whose line breaks are left out, as readers of URLs do. A sentence that ends in a line of its own, with a
`./configure` in the next, must not make a path."""
_STRIPPED: Final = re.compile(r"\.\.[/\\]")
"""Some programs take every `../` out, once: `....//` is left as `../`."""

# -- escapes ----------------------------------------------------------------------------------------------------------

_ENTITIES: Final = {
    "amp": "&", "period": ".", "nldr": "..", "sol": "/", "frasl": "/", "bsol": "\\", "setminus": "\\", "percnt": "%",
    "num": "#", "semi": ";", "equals": "=", "tab": "\t", "newline": "\n",
    "shy": "", "zwj": "", "zwnj": "", "lrm": "", "rlm": "", "nobreak": "", "zerowidthspace": "",
    "af": "", "applyfunction": "", "ic": "", "invisiblecomma": "", "it": "", "invisibletimes": "",
}  # fmt: skip
_OF_URLS_AND_PAGES: Final = re.compile(
    r"""
    [%&]                                              # the first character alone: that is fast, too
    (?: (?<=%) (?P<bytes> [0-9a-f]{2} (?:%[0-9a-f]{2})* )
      | (?<=%) u (?P<unicode> [0-9a-f]{4} )
      | (?<=&) \# (?: 0*(?P<decimal> [0-9]{1,9} ) | x0*(?P<hex> [0-9a-f]{1,8} ) ) (?: ; | (?=[./&]|\Z) )
      | (?<=&) (?=[a-z]) (?P<entity> ENTITIES ) ;
    )
    """.replace("ENTITIES", "|".join(_ENTITIES)),
    re.VERBOSE | re.IGNORECASE,
)
_OFTEN: Final = re.compile(r"%(?:25|u0025)+(?=[0-9a-f]{2}|u[0-9a-f]{4})", re.IGNORECASE)
_OFTEN_IN_PAGES: Final = re.compile(r"&(?:amp;|\#0{0,9}38;|\#x0{0,9}26;)+", re.IGNORECASE)
"""One thing encoded over and over is read at once. Each round of the others leaves a third of what it reads or less."""
_TOO_OFTEN: Final = re.compile(r"%(?:25){10}")
_ESCAPE: Final = r"(?:(?-i:U)0000[0-9a-f]{4}|u[0-9a-f]{4}|u\{0{0,9}[0-9a-f]{1,6}\}|x[0-9a-f]{2}|056|057|134|045)"
_OF_PROGRAMS: Final = re.compile(r"\\" + _ESCAPE, re.IGNORECASE)
"""Only once there are no others left, and only for what paths are made of: a backslash may also be one of a path."""
_OF_TEXTS_IN_PROGRAMS: Final = re.compile(r"(?<!\\)\\{2,}" + _ESCAPE, re.IGNORECASE)
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

_SLASHES: Final = dict.fromkeys("\u2044\u2215\u29f8\u2571", "/") | dict.fromkeys("\u2216\u29f5\u29f9\u2572", "\\")
"""Beside those that Unicode itself calls compatible."""
_CURRENCY: Final = re.compile(r"[\xa5\u20a9](?<=\..)")
"""Where some code pages have the backslash. Before the dots it is the price in a sentence."""
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Mn", "Me"})
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0\u2065") | frozenset(map(chr, range(0xE0000, 0xE1000)))
"""Letters and reserved places that nothing is drawn for, and that are left out where names are compared."""
_LAYOUT: Final = frozenset("\t\r\n")
_TELLING: Final = re.compile(r"[A-Za-z0-9./\\%&#;=:?]")
"""What paths and escapes are made of; other look-alikes are nobody's concern."""
_SLICE: Final = 64 * 1024
"""Characters that are looked up in one go: other threads have to wait for it."""
_HALF: Final = re.compile(r"[\ud800-\udfff]")
_HALF_OF_NO_BYTE: Final = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
_STRAY_BYTE: Final = re.compile(r"[\udc80-\udcff]")
_KEPT: Final = "surrogateescape"
"""Bytes that are no text stay apart until their neighbours are decoded too: together they may be."""


def has_path_traversal(text: str) -> bool:
    """Whether this text, in any reading, leads out of the folder it starts from. A NUL is never part of a path."""
    if _is_harmless(text):
        return False
    text = _plain(text)
    for _ in range(_MOST_ROUNDS):
        if _climbs_as_it_stands(text):
            return True
        read = _read_once(text)
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
    if "\0" in text or _TOO_OFTEN.search(text) is not None or (".." in text and _has_climbing_dots(text)):
        return True
    if "\\\\" in text and _has_climbing_dots(_OF_TEXTS_IN_PROGRAMS.sub(_unescaped_in_a_path, text)):
        return True
    line = _in_one_line(text)
    return ".." in line and line != text and _CLIMBS_IN_ONE_LINE.search(line) is not None


def _has_climbing_dots(text: str) -> bool:
    if _CLIMBS.search(text) is not None or _BEGINS_TO_CLIMB.match(text) is not None:
        return True
    if _IS_JSON.match(text) is not None and _VALUE_OF_JSON.search(text) is not None:
        return True
    left = _STRIPPED.sub("", text)
    return left != text and (_CLIMBS.search(left) is not None or _BEGINS_TO_CLIMB.match(left) is not None)


def _read_once(text: str) -> str:
    """With its escapes undone by one step, or the text itself where there are none."""
    read = text
    if "%" in text or "&" in text:
        read = _OFTEN_IN_PAGES.sub("&", _OFTEN.sub("%", text))
        read = _OF_URLS_AND_PAGES.sub(_unescaped, read)
    return _OF_PROGRAMS.sub(_unescaped_in_a_path, text) if read == text and "\\" in text else read


def _unescaped_in_a_path(escape: re.Match[str]) -> str:
    said = escape[0].lstrip("\\")
    number = int(said, 8) if said[0].isdigit() else int(said[1:].strip("{}"), 16)
    plain = _as_ascii(chr(number)) if number <= sys.maxunicode else ""
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
    if not table:
        return text
    parts = (text[start : start + _SLICE] for start in range(0, len(text), _SLICE))
    return "".join(part.translate(table) for part in parts)


@lru_cache(maxsize=8192)
def _as_ascii(character: str) -> str:
    """One at a time: normalising a whole text takes time in the square of its length where somebody wants it to."""
    if character == "\0" or character in _LAYOUT:
        return character
    if unicodedata.category(character) in _INVISIBLE or character in _FILLERS:
        return character if _STRAY_BYTE.match(character) else ""
    plain = _SLASHES.get(character) or unicodedata.normalize("NFKC", character)
    return plain if _TELLING.search(plain) is not None else character
