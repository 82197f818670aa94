"""Detects path traversal in a text, however the text is encoded. Nothing else in Trunkline decides this.

A path traverses when one of its parts is exactly `..`. Prose may have any number of dots: what counts is a `..` next to
a slash, or one that is the whole text. The text is tested as it stands and as others may read it later: with escapes
decoded, look-alike characters replaced and invisible ones removed. Time is linear in its length.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache
from typing import Final

_MAX_ROUNDS: Final = 10
"""No honest text is encoded more often than this."""

_NAME: Final = r"[\w.%~-]"
_TRAVERSAL: Final = re.compile(
    rf"""
    \.\.(?!\.)                                        # the dots come first: searching for them is fast
    (?: (?<!\.\.\.)/                                  # also `static../`, as some servers join names without a slash
      | (?<![\w.]\.\.) (?: \\                          # but not the `..\n` of a string within a string
                        | ;[^\s/\\.]{{0,32}}[/\\] )   # some servers cut a segment at the semicolon
      | (?<=[/\\]\.\.) (?!{_NAME})
      | (?<==\.\.) (?:[&\#;]|\Z)                       # a value in a query string
    )
    """,
    re.VERBOSE,
)
_STARTS_WITH_TRAVERSAL: Final = re.compile(r"\s*(?:[A-Za-z][\w+.-]{0,31}:)?\.\.(?:\s*(?:[/\\]|\Z)|[?#]\w)")
_IS_JSON: Final = re.compile(r'\s*"?(?:\{\s*\\*"|\[\s*[\\"\[{\d])')
_VALUE_OF_JSON: Final = re.compile(r'"\.\.\\*"\s*[\],}]')
"""Agents often send an object as a string of JSON, and services accept that: then `..` is a value. In any other text,
quoted dots are source code that compares names."""
_TRAVERSAL_IN_ONE_LINE: Final = re.compile(r"\.\.(?<![^/\\=]\.\.)(?:[/\\;?#]|\Z)")
"""For a text without its line breaks, which URL parsers remove. The end of a sentence and `./configure` on the next
line must not make a path."""
_STRIPPED: Final = re.compile(r"\.\.[/\\]")
"""Some programs remove each `../`, once: `....//` becomes `../`."""

# -- escapes ----------------------------------------------------------------------------------------------------------

_ENTITIES: Final = {
    "amp": "&", "period": ".", "nldr": "..", "sol": "/", "frasl": "/", "bsol": "\\", "setminus": "\\", "percnt": "%",
    "num": "#", "semi": ";", "equals": "=", "tab": "\t", "newline": "\n",
    "shy": "", "zwj": "", "zwnj": "", "lrm": "", "rlm": "", "nobreak": "", "zerowidthspace": "",
    "af": "", "applyfunction": "", "ic": "", "invisiblecomma": "", "it": "", "invisibletimes": "",
}  # fmt: skip
_URL_OR_HTML_ESCAPE: Final = re.compile(
    r"""
    [%&]                                              # a single first character: fast as well
    (?: (?<=%) (?P<bytes> [0-9a-f]{2} (?:%[0-9a-f]{2})* )
      | (?<=%) u (?P<unicode> [0-9a-f]{4} )
      | (?<=&) \# (?: 0*(?P<decimal> [0-9]{1,9} ) | x0*(?P<hex> [0-9a-f]{1,8} ) ) (?: ; | (?=[./&]|\Z) )
      | (?<=&) (?=[a-z]) (?P<entity> ENTITIES ) ;
    )
    """.replace("ENTITIES", "|".join(_ENTITIES)),
    re.VERBOSE | re.IGNORECASE,
)
_REPEATED: Final = re.compile(r"%(?:25|u0025)+(?=[0-9a-f]{2}|u[0-9a-f]{4})", re.IGNORECASE)
_REPEATED_IN_HTML: Final = re.compile(r"&(?:amp;|\#0{0,9}38;|\#x0{0,9}26;)+", re.IGNORECASE)
"""Repeated encoding of one character is decoded in one step. Each round of other escapes shrinks them to a third."""
_TOO_MANY_TIMES: Final = re.compile(r"%(?:25){10}")
_ESCAPE: Final = r"(?:(?-i:U)0000[0-9a-f]{4}|u[0-9a-f]{4}|u\{0{0,9}[0-9a-f]{1,6}\}|x[0-9a-f]{2}|056|057|134|045)"
_STRING_ESCAPE: Final = re.compile(r"\\" + _ESCAPE, re.IGNORECASE)
"""Decoded only if there are no other escapes, and only to characters of paths: a backslash may also separate a path."""
_NESTED_STRING_ESCAPE: Final = re.compile(r"(?<!\\)\\{2,}" + _ESCAPE, re.IGNORECASE)
_OVERLONG: Final = re.compile(
    r"""
    (?: [\xc0\xc1\udcc0\udcc1]
      | [\xe0\udce0] ZERO | [\xf0\udcf0] NONE ZERO | [\xf8\udcf8] NONE{2} ZERO | [\xfc\udcfc] NONE{3} ZERO )
    [\x1c\x80-\xbf\udc80-\udcbf]
    """.replace("ZERO", r"[\x80\x81\udc80\udc81]").replace("NONE", r"[\x80\udc80]"),
    re.VERBOSE,
)
"""Overlong UTF-8 of an ASCII character, as undecodable bytes or as the letters those are in other encodings."""
_PATH_CHARACTERS: Final = frozenset("./\\%\0")

# -- look-alikes ------------------------------------------------------------------------------------------------------

_SLASHES: Final = dict.fromkeys("\u2044\u2215\u29f8\u2571", "/") | dict.fromkeys("\u2216\u29f5\u29f9\u2572", "\\")
"""In addition to what Unicode normalizes."""
_CURRENCY: Final = re.compile(r"[\xa5\u20a9](?<=\..)")
"""Some code pages have these in place of the backslash. Before the dots it is a price in a sentence."""
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Mn", "Me"})
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0\u2065") | frozenset(map(chr, range(0xE0000, 0xE1000)))
"""Letters and reserved code points that are not displayed, and that comparisons of names ignore."""
_LAYOUT: Final = frozenset("\t\r\n")
_PATH_OR_ESCAPE_CHARACTER: Final = re.compile(r"[A-Za-z0-9./\\%&#;=:?]")
"""Other look-alikes do not matter."""
_SLICE_CHARACTERS: Final = 64 * 1024
"""Characters that are translated at once, which holds up other threads."""
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_SURROGATE_OF_NO_BYTE: Final = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
_STRAY_BYTE: Final = re.compile(r"[\udc80-\udcff]")
_KEEP_BYTES: Final = "surrogateescape"
"""Keeps undecodable bytes until their neighbours are decoded too: together they may be text."""


def has_path_traversal(text: str) -> bool:
    """Whether the text, in any reading, leads out of the folder it starts from. A NUL counts as traversal."""
    if _is_harmless(text):
        return False
    text = _plain(text)
    for _ in range(_MAX_ROUNDS):
        if _traverses_as_it_stands(text):
            return True
        read = _read_once(text)
        if read == text:
            return False
        text = _plain(read)
    return True


def _is_harmless(text: str) -> bool:
    """Whether the text certainly has no traversal, no escapes and no look-alikes; a quick test."""
    if ".." in text or "%" in text or "\\" in text or "&" in text or not text.isascii():
        return False
    line = _in_one_line(text)
    return line.isprintable() and ".." not in line


def _in_one_line(text: str) -> str:
    return text if text.isprintable() else text.replace("\n", "").replace("\r", "").replace("\t", "")


def _traverses_as_it_stands(text: str) -> bool:
    if not text.isascii():
        text = _STRAY_BYTE.sub("", text)
    if "\0" in text or _TOO_MANY_TIMES.search(text) is not None or (".." in text and _has_traversing_dots(text)):
        return True
    if "\\\\" in text and _has_traversing_dots(_NESTED_STRING_ESCAPE.sub(_unescaped_in_a_path, text)):
        return True
    line = _in_one_line(text)
    return ".." in line and line != text and _TRAVERSAL_IN_ONE_LINE.search(line) is not None


def _has_traversing_dots(text: str) -> bool:
    if _TRAVERSAL.search(text) is not None or _STARTS_WITH_TRAVERSAL.match(text) is not None:
        return True
    if _IS_JSON.match(text) is not None and _VALUE_OF_JSON.search(text) is not None:
        return True
    left = _STRIPPED.sub("", text)
    return left != text and (_TRAVERSAL.search(left) is not None or _STARTS_WITH_TRAVERSAL.match(left) is not None)


def _read_once(text: str) -> str:
    """Decode the escapes of the text once; returns the text itself if there are none."""
    read = text
    if "%" in text or "&" in text:
        read = _REPEATED_IN_HTML.sub("&", _REPEATED.sub("%", text))
        read = _URL_OR_HTML_ESCAPE.sub(_unescaped, read)
    return _STRING_ESCAPE.sub(_unescaped_in_a_path, text) if read == text and "\\" in text else read


def _unescaped_in_a_path(escape: re.Match[str]) -> str:
    digits = escape[0].lstrip("\\")
    number = int(digits, 8) if digits[0].isdigit() else int(digits[1:].strip("{}"), 16)
    plain = _as_ascii(chr(number)) if number <= sys.maxunicode else ""
    return plain if plain and not plain.strip("./\\%") else escape[0]


def _unescaped(escape: re.Match[str]) -> str:
    kind = escape.lastgroup
    if kind == "bytes":
        return bytes.fromhex(escape["bytes"].replace("%", "")).decode(errors=_KEEP_BYTES)
    if kind == "entity":
        return _ENTITIES[escape["entity"].lower()]
    digits = escape[kind] if kind else ""
    number = int(digits, 10 if kind == "decimal" else 16)
    return chr(number) if number <= sys.maxunicode else ""


def _decoded_overlong(overlong: re.Match[str]) -> str:
    *_, before, last = overlong[0]
    character = chr((ord(before) & 1) << 6 | ord(last) & 0x3F)
    return character if character in _PATH_CHARACTERS else overlong[0]


def _plain(text: str) -> str:
    """Replace look-alikes of ASCII characters and remove invisible characters."""
    if text.isascii() and _in_one_line(text).isprintable():
        return text
    if _SURROGATE.search(text) is not None:
        text = _SURROGATE_OF_NO_BYTE.sub("", text).encode(errors=_KEEP_BYTES).decode(errors=_KEEP_BYTES)
    text = _CURRENCY.sub(r"\\", _OVERLONG.sub(_decoded_overlong, text))
    table = {ord(character): plain for character in set(text) if (plain := _as_ascii(character)) != character}
    if not table:
        return text
    parts = (text[start : start + _SLICE_CHARACTERS] for start in range(0, len(text), _SLICE_CHARACTERS))
    return "".join(part.translate(table) for part in parts)


@lru_cache(maxsize=8192)
def _as_ascii(character: str) -> str:
    """One at a time: normalizing a whole text takes quadratic time in the worst case."""
    if character == "\0" or character in _LAYOUT:
        return character
    if unicodedata.category(character) in _INVISIBLE or character in _FILLERS:
        return character if _STRAY_BYTE.match(character) else ""
    plain = _SLASHES.get(character) or unicodedata.normalize("NFKC", character)
    return plain if _PATH_OR_ESCAPE_CHARACTER.search(plain) is not None else character
