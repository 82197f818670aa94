from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.hidden_text import reveal

HIDDEN = {
    "a\u200bb": "a<U+200B>b",
    "a\u202eb\u2069": "a<U+202E>b<U+2069>",
    "x\U000e0041\U000e0042": "x<U+E0041><U+E0042>",
    "\U0001f3f4\U000e0041\U000e007f": "\U0001f3f4<U+E0041><U+E007F>",
    "soft\u00adhyphen": "soft<U+00AD>hyphen",
    "\ufefftext": "<U+FEFF>text",
    "la\u200dtin": "la<U+200D>tin",
    "a\ufe0fb": "a<U+FE0F>b",
    "\u26a0\ufe0f\ufe0f\U000e0101": "\u26a0\ufe0f<U+FE0F><U+E0101>",
    "\U0001f469\u200d\u200d\U0001f469": "\U0001f469<U+200D><U+200D>\U0001f469",
    "fill\u3164er": "fill<U+3164>er",
    "\x1b[8m": "<U+001B>[8m",
    "\u200d": "<U+200D>",
}
SEEN = {
    "plain": "tabs\tand\r\nlines",
    "words": "gr\u00f6\u00dfer \u6771\u4eac \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "heart on fire": "\u2764\ufe0f\u200d\U0001f525",
    "tone": "\U0001f44d\U0001f3fd\u200d\u2695\ufe0f",
    "warning": "\u26a0\ufe0f careful",
    "information": "\u2139\ufe0f note",
    "Malayalam": "\u0d05\u0d35\u0d28\u0d4d\u200d",
    "keycap": "1\ufe0f\u20e3",
    "Wales": "\U0001f3f4\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f",
    "Persian": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "Hindi": "\u0915\u094d\u200d\u0937",
    "a name in Japanese": "\u845b\U000e0100\u57ce",
}


@pytest.mark.parametrize("text", HIDDEN, ids=ascii)
def test_hidden_characters_are_shown_by_their_numbers(text: str) -> None:
    assert reveal(text) == HIDDEN[text]


@pytest.mark.parametrize("name", SEEN)
def test_what_shapes_that_which_is_seen_stays(name: str) -> None:
    assert reveal(SEEN[name]) == SEEN[name]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_nothing_is_hidden_in_what_was_revealed(text: str) -> None:
    assert reveal(reveal(text)) == reveal(text)
