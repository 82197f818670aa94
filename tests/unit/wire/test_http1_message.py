from __future__ import annotations

from trunkline.wire.http1_message import HttpProblem, KnownHeads, content_length


def test_a_length_is_read_behind_any_number_of_zeros() -> None:
    assert content_length(b"0") == 0
    assert content_length(b"000") == 0
    assert content_length(b"0" * 10_000 + b"12") == 12


def test_only_a_plain_message_is_remembered() -> None:
    known = KnownHeads[str]()
    known.remember(b"head" + b"body", 4, 4, "plain")
    known.remember(b"other" + b"4\r\nbody\r\n0\r\n\r\n", 5, 4, "chunked")
    known.remember(b"x" * 5000, 5000, 0, "long")
    assert known == {b"head": (8, "plain")}


def test_what_is_remembered_is_bounded() -> None:
    known = KnownHeads[int]()
    for number in range(100):
        known.remember(b"%d" % number, len(b"%d" % number), 0, number)
    assert 0 < len(known) <= 8


def test_too_large_can_be_told_from_malformed() -> None:
    assert HttpProblem(413, "x").too_large
    assert not HttpProblem(502, "x").too_large
