from __future__ import annotations

import json
from pathlib import Path

import pytest

from trunkline.search.index.encoder import DATA
from trunkline.search.index.wordpiece import MAX_PIECES, WordPieces, words

SAMPLES = json.loads(Path(__file__).with_name("encoder_samples.json").read_text(encoding="utf-8"))["texts"]
SMALL = WordPieces(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "read", "file", "##s", "##name", "文", ".", "1"])
UNKNOWN, BEGIN, END = 1, 2, 3


@pytest.fixture(scope="module")
def pieces() -> WordPieces:
    return WordPieces.load(DATA / "vocab.txt")


@pytest.mark.parametrize("sample", SAMPLES)
def test_pieces_are_those_the_encoder_was_trained_with(pieces, sample):
    assert pieces.numbers(sample["text"]) == sample["pieces"]


def test_a_word_is_made_of_the_longest_pieces_from_the_left():
    assert SMALL.numbers("Files filename") == [BEGIN, 5, 6, 5, 7, END]


def test_a_word_that_no_pieces_make_is_one_unknown_piece():
    assert SMALL.numbers("filex read") == [BEGIN, UNKNOWN, 4, END]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("read.file", ["read", ".", "file"]),
        ("Größe café", ["große", "cafe"]),
        ("文件 x", ["文", "件", "x"]),
        ("a\x00b\x1fc\x7fd\te\nf", ["a", "b", "c", "d", "e", "f"]),
        ("é\x00b\x9fc", ["e", "b", "c"]),
        ("e\u0301 zero\u200bwidth \ufeffmark", ["e", "zerowidth", "mark"]),
        ("«quoted» — dash", ["«", "quoted", "»", "—", "dash"]),
        ("snake_case $5 a~b", ["snake", "_", "case", "$", "5", "a", "~", "b"]),
        ("", []),
        (" \x00\u200b ", []),
    ],
)
def test_words_are_split_at_space_and_around_punctuation(text, expected):
    assert list(words(text)) == expected


def test_a_text_without_words_has_the_two_marks_only():
    assert SMALL.numbers(" \x07 ") == [BEGIN, END]


@pytest.mark.parametrize(
    "text", ["read " * 200_000, "s" * 1_000_000, "\u0301" * 1_000_000, "文" * 1_000_000, "\ud800" * 1000, "😀" * 1000]
)
def test_a_text_of_any_size_gives_a_bounded_number_of_pieces(pieces, text):
    numbers = pieces.numbers(text)
    assert len(numbers) <= MAX_PIECES
    assert (numbers[0], numbers[-1]) == (BEGIN, END)
