from __future__ import annotations

import gzip

import pytest

from trunkline.protocol.http1_response import PIECE_BYTES, CodingError, Inflater


def test_pieces_are_bounded_and_complete() -> None:
    text = bytes(range(256)) * 2000
    stream = Inflater(b"gzip")
    pieces = list(stream.decode(gzip.compress(text)))
    stream.finish()
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= PIECE_BYTES


def test_pieces_that_end_exactly_at_the_bound_are_complete() -> None:
    for size in (PIECE_BYTES, 2 * PIECE_BYTES, 2 * PIECE_BYTES + 1):
        stream = Inflater(b"gzip")
        assert sum(map(len, stream.decode(gzip.compress(bytes(size))))) == size
        stream.finish()


def test_nothing_is_decoded_before_it_is_asked_for() -> None:
    pieces = Inflater(b"gzip").decode(gzip.compress(bytes(10 * PIECE_BYTES)))
    assert len(next(iter(pieces))) == PIECE_BYTES


def test_an_unknown_coding_is_refused_by_name() -> None:
    with pytest.raises(CodingError, match="`br`"):
        Inflater(b"br")


def test_data_after_the_end_is_refused_in_a_later_piece_too() -> None:
    stream = Inflater(b"gzip")
    assert b"".join(stream.decode(gzip.compress(b"x"))) == b"x"
    with pytest.raises(CodingError):
        list(stream.decode(b"y"))
