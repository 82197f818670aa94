from __future__ import annotations

import sys

from trunkline.wire.pieces import Pieces


def test_pieces_come_out_whole_and_in_order() -> None:
    pieces = Pieces()
    expected = b""
    for size in (3, 1, 5000, 2, 2, 70000, 4096, 4095):
        piece = bytes([size % 251]) * size
        pieces.append(piece)
        expected += piece
    assert pieces.size == len(expected)
    assert pieces.take(b"end") == expected + b"end"
    assert (pieces.size, pieces.take()) == (0, b"")


def test_a_single_piece_is_not_copied() -> None:
    piece = b"x" * 100
    pieces = Pieces()
    pieces.append(piece)
    assert pieces.take() is piece


def test_many_tiny_pieces_cost_little_more_than_their_bytes() -> None:
    pieces = Pieces()
    for _ in range(50_000):
        pieces.append(b"ab")
    held = sum(sys.getsizeof(part) for part in pieces._parts) + sys.getsizeof(pieces._parts)
    assert held < 1.3 * pieces.size


def test_the_head_is_cut_across_pieces() -> None:
    pieces = Pieces()
    for piece in (b"ab", b"c" * 5000, b"d"):
        pieces.append(piece)
    assert pieces.head(4) == b"abcc"
    assert pieces.head(1) == b"a"
    assert len(pieces.head(9999)) == 5003


def test_a_prefix_is_dropped_only_where_the_first_piece_holds_it() -> None:
    pieces = Pieces()
    assert not pieces.drop_prefix(b"data: ")
    pieces.append(b"data: abc")
    assert pieces.drop_prefix(b"data: ")
    assert (pieces.size, pieces.take(b"d")) == (3, b"abcd")
    pieces.append(b"dat")
    pieces.append(b"a: abc")
    assert not pieces.drop_prefix(b"data: ")
