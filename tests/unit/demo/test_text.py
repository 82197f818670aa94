from __future__ import annotations

import hashlib

import pytest

from trunkline.demo.text import TEXT
from trunkline.demo.toolbox import Answer, Refusal


def text(tool: str, **arguments: object) -> Answer:
    return TEXT.tools[tool].call(arguments)


def test_characters_words_and_lines_are_counted() -> None:
    answer = text("count", text="one two\nthree")
    assert answer.text == "13 characters, 3 words, 2 lines"
    assert answer.data == {"characters": 13, "words": 3, "lines": 2}


def test_a_text_is_turned_round() -> None:
    assert text("reverse", text="live").text == "evil"


def test_a_diff_shows_what_changed() -> None:
    lines = text("diff", before="a\nb\nc", after="a\nB\nc").text.splitlines()
    assert lines[:2] == ["--- before", "+++ after"]
    assert lines[3:] == [" a", "-b", "+B", " c"]
    assert text("diff", before="a", after="a").text == "The texts are the same"


def test_texts_too_long_to_compare_are_refused() -> None:
    with pytest.raises(Refusal, match="lines"):
        text("diff", before="a\n" * 3000, after="")


def test_every_occurrence_is_replaced_literally() -> None:
    answer = text("replace", text="a.b.c", find=".", replacement="--")
    assert answer.data == {"text": "a--b--c", "replacements": 2}


def test_replacing_neither_nothing_nor_without_bound() -> None:
    with pytest.raises(Refusal, match="`find`"):
        text("replace", text="abc", find="", replacement="x")
    with pytest.raises(Refusal, match="longer"):
        text("replace", text="a" * 100_000, find="a", replacement="b" * 100_000)


@pytest.mark.parametrize("algorithm", ["sha256", "sha1", "md5", "blake2b"])
def test_a_hash_is_that_of_the_utf_8_bytes(algorithm: str) -> None:
    assert text("hash", text="größe", algorithm=algorithm).text == hashlib.new(algorithm, "größe".encode()).hexdigest()


def test_half_a_surrogate_pair_can_be_hashed_too() -> None:
    assert len(text("hash", text="\ud800").text) == 64
