"""Stems English words: `issues`, `issued` and `issuing` all become `issu`.

This is Porter's algorithm of 1980, with `creation` cut to `creat` as well. A rough cut is enough, as both sides of a
comparison are cut alike.
"""

from __future__ import annotations

import re
from typing import Final

_SHORTEST: Final = 3
_VOWEL: Final = "(?:[aeiou]|(?<=[^aeiou])y)"
_SYLLABLE: Final = re.compile(f"{_VOWEL}(?!{_VOWEL})(?=.)")
_HAS_VOWEL: Final = re.compile(_VOWEL)
_DOUBLE: Final = re.compile(r"([^aeioulsz])\1$")
_SHORT_END: Final = re.compile(r"[^aeiou][aeiouy][^aeiouwxy]$")

_LONG_ENDINGS: Final = (
    {"ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al"}
    | {"entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al"}
    | {"iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble"}
    | {"logi": "log"}
)
_MIDDLE_ENDINGS: Final = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_LAST: Final = "al ance ence er ic able ible ant ement ment ent ou ism ate iti ous ive ize"
_LAST_ENDINGS: Final[dict[str, str]] = dict.fromkeys(_LAST.split(" "), "")
_IRREGULAR: Final = {"analysis": "analyz", "analyses": "analyz", "analyse": "analyz", "children": "child"}


def _longest_first(endings: dict[str, str]) -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(sorted(endings, key=len, reverse=True))})$")


_LONG_END: Final = _longest_first(_LONG_ENDINGS)
_MIDDLE_END: Final = _longest_first(_MIDDLE_ENDINGS)
_LAST_END: Final = _longest_first(_LAST_ENDINGS)


def stem(word: str) -> str:
    """`word` is in lower case; what is short or not plain English letters stays as it is."""
    if len(word) < _SHORTEST or not (word.isascii() and word.isalpha()):
        return word
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    word = _without_participle(word)
    if word.endswith("y") and _HAS_VOWEL.search(word, 0, len(word) - 1):
        word = word[:-1] + "i"
    word = _replaced(word, _LONG_END, _LONG_ENDINGS, 0)
    word = _replaced(word, _MIDDLE_END, _MIDDLE_ENDINGS, 0)
    if word.endswith(("sion", "tion")) and _syllables(word[:-3]):
        word = word[:-3]
    word = _replaced(word, _LAST_END, _LAST_ENDINGS, 1)
    root = word[:-1]
    syllables = _syllables(root)
    if word.endswith("e") and (syllables > 1 or (syllables == 1 and not _SHORT_END.search(root))):
        return root
    return root if word.endswith("ll") and syllables > 1 else word


def _syllables(root: str) -> int:
    """How often a vowel is followed by a consonant."""
    return len(_SYLLABLE.findall(root))


def _without_participle(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _syllables(word[:-3]) else word
    for ending in ("ed", "ing"):
        root = word.removesuffix(ending)
        if root != word and _HAS_VOWEL.search(root):
            break
    else:
        return word
    # `creat` was `create`, `hopp` was `hop`, `fil` was `file`
    if root.endswith(("at", "bl", "iz")):
        return root + "e"
    if _DOUBLE.search(root):
        return root[:-1]
    return root + "e" if _syllables(root) == 1 and _SHORT_END.search(root) else root


def _replaced(word: str, pattern: re.Pattern[str], endings: dict[str, str], more_syllables_than: int) -> str:
    found = pattern.search(word)
    if found is None or _syllables(word[: found.start()]) <= more_syllables_than:
        return word
    return word[: found.start()] + endings[found[0]]
