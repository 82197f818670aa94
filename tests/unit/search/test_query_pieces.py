from __future__ import annotations

from itertools import pairwise

from trunkline.search.index.arrays import Floats, np
from trunkline.search.index.query_encoder import query_pieces, query_vectors


def test_a_short_request_stays_as_it_is() -> None:
    assert query_pieces("  Weather\nin Rome ") == ["  Weather\nin Rome "]
    assert query_pieces("") == [""]
    assert len(query_pieces("word " * 40)) == 1


def test_a_long_request_comes_in_overlapping_pieces_that_hold_every_word() -> None:
    words = [f"w{number}" for number in range(100)]
    pieces = [piece.split() for piece in query_pieces(" ".join(words))]
    assert {word for piece in pieces for word in piece} == set(words)
    assert all(set(first) & set(second) for first, second in pairwise(pieces))


def test_a_huge_request_comes_in_a_few_pieces() -> None:
    assert len(query_pieces("a " * 500_000)) <= 4
    assert len(query_pieces("a" * 1_000_000)[0]) <= 2000


def test_a_short_request_has_one_vector_and_a_long_one_a_row_for_each_piece() -> None:
    def lengths(texts: list[str]) -> Floats:
        return np.array([[len(text)] for text in texts], dtype=np.float32)

    assert query_vectors(lengths, "abc").tolist() == [3]
    assert query_vectors(lengths, "a " * 60).tolist() == [[63], [63]]


def test_what_is_in_letters_that_the_encoder_never_learned_has_no_meaning() -> None:
    def lengths(texts: list[str]) -> Floats:
        return np.array([[len(text)] for text in texts], dtype=np.float32)

    for unreadable in ("北京明天的天气怎么样", "какая погода", "대한민국 날씨", "🎉 🎉", "?!", "", "天天天 api"[:5]):
        assert query_vectors(lengths, unreadable).tolist() == [0], unreadable
    for readable in ("thời tiết ngày mai", "créer une facture", "404", "send ✅ to slack", "open https://例え.jp", "a"):
        assert query_vectors(lengths, readable).tolist() == [len(readable)], readable


def test_of_a_long_request_the_pieces_count_that_can_be_read() -> None:
    def lengths(texts: list[str]) -> Floats:
        return np.array([[len(text)] for text in texts], dtype=np.float32)

    assert query_vectors(lengths, "погода " * 60 + "weather " * 60).shape == (2, 1)
