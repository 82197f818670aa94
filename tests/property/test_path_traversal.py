"""Laws of the guard: a path traversal gets through in no encoding, prose does, and a long text costs its length."""

from __future__ import annotations

import json
import ntpath
import posixpath
import random
from collections.abc import Callable
from urllib.parse import quote, unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.call import Call, Caller
from trunkline.core.path_traversal import has_path_traversal
from trunkline.router.path_guard import traversal_problem

PART = st.text("abcxyz0189_-", min_size=1, max_size=6)
SLASH = st.sampled_from("/\\")
Encoding = Callable[[str, random.Random], str]


def some(text: str, dice: random.Random, character: Callable[[str], str]) -> str:
    """Some of what a path is made of, written in another way."""
    return "".join(character(c) if c in "./\\%" and dice.random() < 0.7 else c for c in text)


def percent(text: str, dice: random.Random) -> str:
    return some(text, dice, lambda c: f"%{ord(c):02{dice.choice('xX')}}")


def every_percent(text: str, dice: random.Random) -> str:
    return quote(text, safe="")


def overlong(text: str, dice: random.Random) -> str:
    def longer(c: str) -> str:
        first, last = ord(c) >> 6, 0x80 | ord(c) & 0x3F
        heads = [
            [0xC0 | first],
            [0xE0, 0x80 | first],
            [0xF0, 0x80, 0x80 | first],
            [0xFC, 0x80, 0x80, 0x80, 0x80 | first],
        ]
        return "".join(f"%{byte:02x}" for byte in [*dice.choice(heads), last])

    return some(text, dice, longer)


def wide(text: str, dice: random.Random) -> str:
    return some(text, dice, lambda c: chr(ord(c) + 0xFEE0))


def unicode_escape(text: str, dice: random.Random) -> str:
    return some(text, dice, lambda c: f"{dice.choice(['%', chr(92)])}u{ord(c):04x}")


def entity(text: str, dice: random.Random) -> str:
    return some(text, dice, lambda c: dice.choice([f"&#{ord(c)};", f"&#x{ord(c):x};"]))


def unseen(text: str, dice: random.Random) -> str:
    return some(text, dice, lambda c: c + dice.choice("\u200b\u200d\xad\ufeff\x01\x7f\ufe0f"))


ENCODINGS: list[Encoding] = [percent, every_percent, overlong, wide, unicode_escape, entity, unseen]


@st.composite
def climbing_paths(draw: st.DrawFn) -> str:
    before, after = draw(st.lists(PART, max_size=2)), draw(st.lists(PART, max_size=2))
    text = ""
    for part in [*before, "..", *after]:
        text += (draw(SLASH) if text else draw(st.sampled_from(["", "/"]))) + part
    return text


@given(climbing_paths(), st.lists(st.sampled_from(ENCODINGS), max_size=3), st.randoms(use_true_random=False))
def test_a_path_traversal_is_refused_in_every_mixture_of_encodings(
    path: str, encodings: list[Encoding], dice: random.Random
) -> None:
    for encode in encodings:
        path = encode(path, dice)
    assert has_path_traversal(path), ascii(path)


@given(st.text("./\\a2ef5c%", max_size=24))
def test_whatever_the_standard_library_finds_to_lead_out_is_refused(text: str) -> None:
    for _ in range(3):
        for flavour in (posixpath, ntpath):
            normal = flavour.normpath(flavour.join("a", text)).replace("\\", "/")
            if normal == ".." or normal.startswith("../"):
                assert has_path_traversal(text)
        text = unquote(text)


@given(st.lists(st.text("abc.,;!?()'\"-~ \n", max_size=12), max_size=12))
def test_prose_may_have_any_dots_as_long_as_it_is_more_than_two_of_them(words: list[str]) -> None:
    assert not has_path_traversal(" ".join(["So", *words, "end"]))


@given(st.lists(st.text("ab.", min_size=1, max_size=6).filter(lambda part: not part.endswith("..")), max_size=8))
def test_a_path_without_a_part_of_two_dots_is_accepted(parts: list[str]) -> None:
    assert not has_path_traversal("/".join(["x", *parts]))


@given(st.text())
def test_any_text_is_decided_and_twice_the_same(text: str) -> None:
    assert has_path_traversal(text) == has_path_traversal(text)


@pytest.mark.parametrize(
    "piece",
    ["..", "..;", "%", "%25", "%c0", "\u0301\u0323", ".\n", "é.", "=..", "&#", "\\u002", "a:", "\ufdfa", "/.\t"],
)
def test_a_long_text_of_one_trick_is_decided_in_time(piece: str) -> None:
    """Were it the square of the length, this would take hours."""
    has_path_traversal(piece * (300_000 // len(piece)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab.%é\n", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.", max_size=4), inner, max_size=3),
    max_leaves=10,
)


def strings_of(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in strings_of(item)]
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in [name, *strings_of(item)]]
    return []


@given(JSON, st.booleans())
def test_the_guard_refuses_exactly_what_holds_a_path_traversal(value: object, ascii_only: bool) -> None:
    raw = json.dumps({"arguments": value}, ensure_ascii=ascii_only).encode()
    call = Call("tools/call", raw, lambda _: None, caller=Caller(), reply=lambda _: None)
    assert (traversal_problem(call) is not None) == any(has_path_traversal(text) for text in strings_of(value))


@given(st.lists(st.sampled_from(["p", "\\u0070", "q"]), min_size=1, max_size=4), st.integers(0, 3))
def test_no_parser_sees_a_string_that_the_guard_did_not(names: list[str], which: int) -> None:
    """Of members that come twice, some parsers take the first and some the last."""
    values = ['"fine"'] * len(names)
    values[which % len(names)] = '"\\u002e\\u002e\\/x"'
    raw = ("{" + ",".join(f'"{name}":{value}' for name, value in zip(names, values, strict=True)) + "}").encode()
    msgspec.json.decode(raw)
    call = Call("tools/call", raw, lambda _: None, caller=Caller(), reply=lambda _: None)
    assert traversal_problem(call) is not None
