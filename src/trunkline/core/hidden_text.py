"""Finds hidden characters: text that is not displayed, which a model reads and a person does not see.

They are replaced by their code points (`<U+200B>`), so that both read the same. Characters that change how their
neighbours are displayed stay: a joiner within an emoji or between letters of a script that joins them, one variation
selector after the character it applies to.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

_CONTROLS: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_INVISIBLE: Final = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point and other format characters: zero width, direction, fillers, tags."""
_FLAGS: Final = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""The flags of England, Scotland and Wales are the only ones spelled in tag characters."""
_ANY: Final = re.compile(f"[{_CONTROLS}{_INVISIBLE}]")
"""Searched for first: a pattern without alternatives takes a fraction of the time."""
_HIDDEN: Final = re.compile(f"{_FLAGS}|{_ANY.pattern}")

_NON_JOINER: Final = "\u200c"
_JOINER: Final = "\u200d"
_AS_TEXT: Final = "\ufe0e"
_AS_EMOJI: Final = "\ufe0f"
_VARIED: Final = "0123456789#*\u2139\u203c\u2049\u3030\u303d"
_VIRAMA: Final = 9  # the combining class of signs that leave a consonant without its vowel
_JOINED_SCRIPTS: Final = (range(0x600, 0x8FF), range(0x900, 0x10A0), range(0x1780, 0x18B0), range(0xA840, 0xA8E0))
"""Arabic and Syriac, Indic and Burmese, Khmer and Mongolian, Phags-pa and Saurashtra."""
_IDEOGRAPHS: Final = (range(0x3400, 0xA000), range(0xF900, 0xFB00), range(0x20000, 0x40000))


def code_point(character: str) -> str:
    return f"<U+{ord(character):04X}>"


def may_hide(text: str) -> bool:
    """Whether the text may have hidden characters; a quick test."""
    return _ANY.search(text) is not None


def reveal(text: str, mark: Callable[[str], str] = code_point) -> str:
    """The text with each hidden character replaced by `mark(character)`; the same object if there is none."""
    if not may_hide(text):
        return text
    return _HIDDEN.sub(lambda found: found[0] if _is_seen(text, found.start(), found.end()) else mark(found[0]), text)


def _is_seen(text: str, start: int, end: int) -> bool:
    """Whether the characters at this position affect what is displayed."""
    if end - start > 1:
        return True  # a flag
    character, before, after = text[start], text[start - 1 : start], text[end : end + 1]
    if not before:
        return False
    if character in (_NON_JOINER, _JOINER):
        joins_letters = _is_in(before, _JOINED_SCRIPTS) and bool(after) and _is_in(after, _JOINED_SCRIPTS)
        joins_letters |= unicodedata.combining(before) == _VIRAMA  # a consonant at the end of a word
        joins_emoji = character == _JOINER and (before == _AS_EMOJI or _is_symbol(before)) and _is_symbol(after)
        return joins_letters or joins_emoji
    if character in (_AS_TEXT, _AS_EMOJI) and (before in _VARIED or _is_symbol(before)):
        return True
    return unicodedata.category(character) == "Mn" and _is_in(before, _IDEOGRAPHS)


def _is_symbol(character: str) -> bool:
    """Emoji are symbols in Unicode, and so are skin tone modifiers."""
    return not character.isascii() and unicodedata.category(character)[0] == "S"


def _is_in(character: str, ranges: tuple[range, ...]) -> bool:
    return any(ord(character) in each for each in ranges)
