from __future__ import annotations

import pytest

from trunkline.sdk.json_lines import LineSplitter

DATA = b'{"a":1}\n\r\n{"b":2}\r\n   \n{"c":3}\nrest'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_they_were_cut(size: int) -> None:
    lines = LineSplitter(100)
    got = [line for start in range(0, len(DATA), size) for line in lines.feed(DATA[start : start + size])]
    assert got == [b'{"a":1}', b"\r", b'{"b":2}\r', b"   ", b'{"c":3}']
    assert lines.last() == [b"rest"]


def test_a_line_over_the_limit_costs_only_itself_and_is_reported_once() -> None:
    lines = LineSplitter(5)
    assert lines.feed(b"12345\n1234") == [b"12345"]
    assert lines.feed(b"567890") == [None]
    assert lines.feed(b"still\nnext\n") == [b"next"]
    assert lines.last() == []
